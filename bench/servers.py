"""The servers that the benchmarks compare: each has its scratch, and stops what it started."""
import functools
import json
import os
import re
import shutil
import socket
import subprocess
import time

BUILD = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "build")
LOAD = os.path.join(BUILD, "bench", "load")


class Unavailable(Exception):
    """This cannot be measured here; the message says why."""


class LoadFailed(Exception):
    """The load generator saw a reply that was not as expected, or none; `ours` unless another's server gave it."""

    def __init__(self, text, ours=True):
        super().__init__(text)
        self.ours = ours


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for_port(process, port, seconds, what):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            raise Unavailable(f"{what} ended at once with code {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.01)
    raise Unavailable(f"{what} does not answer on port {port}")


def stop_process(process):
    if process and process.poll() is None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@functools.lru_cache(maxsize=None)
def load_help():
    return subprocess.run([LOAD, "--help"], capture_output=True, text=True).stdout


def need_load(*words):
    """Raises Unavailable if the load generator does not know these operations or options."""
    known = set(re.findall(r"[a-z0-9-]+", load_help()))
    missing = [word for word in words if word.lstrip("-") not in known and word not in known]
    if missing:
        raise Unavailable(f"not available: this load generator has no {', '.join(missing)}")


def size_bytes(text):
    """512M and the like, in bytes."""
    unit = {"K": 10, "M": 20, "G": 30}.get(text[-1])
    return int(text[:-1]) << unit if unit else int(text)


class Server:
    """What the benchmarks need of a server: name, pid, and load() against it.  `name` is what it is called in
    tables, where one part has several of a kind."""

    kind = ""
    period = 0  # the content repeats after so many bytes; 0: it does not

    def __init__(self, bench, name=None):
        self.name = name or self.kind
        self.scratch = bench.directory(self.name)
        self.process = None
        self.loads = []
        self.port = free_port()
        self.mount_port = self.port
        self.path = self.pseudo_path = "/bench"  # for NFSv3 and for NFSv4

    def start(self):
        raise NotImplementedError

    def stop(self):
        for process in self.loads:
            stop_process(process)
        self.loads = []
        stop_process(self.process)
        self.process = None

    def spawn(self, command, **options):
        log = open(os.path.join(self.scratch, "log"), "ab")
        self.process = subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, **options
        )
        log.close()
        return self.process

    def load_command(self, op, **options):
        options = {
            "port": self.port,
            "mountport": self.mount_port,
            "path": self.path if options.get("vers", "3") == "3" else self.pseudo_path,
            "server-pid": self.process.pid,
            "op": op,
            **options,
        }
        if self.period:
            options["period"] = self.period
        command = [LOAD]
        for key, value in options.items():
            if value is not None and value is not False:
                command.append("--" + key.replace("_", "-"))
                if value is not True:
                    command.append(str(value))
        return command

    def pin(self, cpus):
        """Confines all threads that the server has now to these cores."""
        for task in os.listdir(f"/proc/{self.process.pid}/task"):
            try:
                os.sched_setaffinity(int(task), cpus)
            except ProcessLookupError:
                pass  # ended meanwhile

    def load_start(self, op, **options):
        process = subprocess.Popen(
            self.load_command(op, **options),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.loads.append(process)
        return process

    def load_stop(self, process):
        """Ends a load that is only there for others to run beside it."""
        still_there = process.poll() is None
        if still_there:
            stop_process(process)
        out, errors = process.communicate()
        self.loads.remove(process)
        if not still_there and process.returncode:
            raise LoadFailed(f"{self.name}: beside: {out.strip() or errors.strip()}", self.kind != "Ganesha")

    def load_finish(self, process):
        out, errors = process.communicate()
        self.loads.remove(process)
        if process.returncode:
            reason = json.loads(out)["error"] if out else errors.strip()
            words = process.args[process.args.index("--server-pid") + 2 :]
            raise LoadFailed(f"{self.name}: {' '.join(words)}: {reason}", self.kind != "Ganesha" or not out)
        return json.loads(out) if out else None

    def load(self, op, **options):
        return self.load_finish(self.load_start(op, **options))


class Floor(Server):
    """Replies of the same sizes out of `size` bytes of RAM: as much as the others read, if the copy out of memory
    and not out of the processor's cache is to count."""

    kind = "Floor"

    def __init__(self, bench, size="1M", threads=None, name=None, disk=False, file_size=None):
        """`disk`: the content is in a file, which is read for each READ.  `file_size`: where each next file begins."""
        super().__init__(bench, name)
        self.threads = threads or bench.workers
        self.period = size_bytes(size)
        self.disk, self.file_size = disk, file_size

    def start(self):
        command = [
            os.path.join(BUILD, "bench", "floor"),
            "--port",
            str(self.port),
            "--threads",
            str(self.threads),
            "--size",
            str(self.period),
        ]
        if self.file_size:
            command += ["--file-size", str(self.file_size)]
        if self.disk:
            command += ["--disk", os.path.join(self.scratch, "data")]
        self.spawn(command)
        wait_for_port(self.process, self.port, 60, "the floor")


GANESHA_CONFIG = """
NFS_CORE_PARAM {{ NFS_Port = {port}; MNT_Port = {mount_port}; Protocols = 3, 4;
    Bind_addr = 127.0.0.1; Enable_NLM = false; Enable_RQUOTA = false; }}
NFSv4 {{ Graceless = true; RecoveryBackend = fs; RecoveryRoot = "{scratch}/recovery"; }}
EXPORT {{ Export_Id = 1; Path = {export}; Pseudo = /exp; Access_Type = RW;
    Squash = No_Root_Squash; SecType = sys; Protocols = 3, 4; Transports = TCP;
    MaxRead = 1048576; MaxWrite = 1048576; FSAL {{ Name = VFS; }} }}
LOG {{ Default_Log_Level = WARN; }}
"""


class Ganesha(Server):
    """NFS-Ganesha on the VFS back end.  For NFSv3 it insists on rpcbind: one in a network namespace
    of its own, which Ganesha finds through its UNIX socket, disturbs nobody."""

    kind = "Ganesha"

    def __init__(self, bench, name=None):
        super().__init__(bench, name)
        self.mount_port = free_port()
        self.path = os.path.join(self.scratch, "export")
        self.pseudo_path = "/exp"
        self.rpcbind = None
        for directory in (self.path, os.path.join(self.scratch, "recovery")):
            os.makedirs(directory)

    def start_rpcbind(self):
        with socket.socket(socket.AF_UNIX) as s:
            if s.connect_ex("/run/rpcbind.sock") == 0:
                return
        if not shutil.which("rpcbind"):
            raise Unavailable("rpcbind is not installed")
        self.rpcbind = subprocess.Popen(
            ["unshare", "-n", "sh", "-c", "ip link set lo up; exec rpcbind -f"],
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(100):
            with socket.socket(socket.AF_UNIX) as s:
                if s.connect_ex("/run/rpcbind.sock") == 0:
                    return
            time.sleep(0.05)
        raise Unavailable("rpcbind does not start")

    def start(self):
        program = shutil.which("ganesha.nfsd")
        if not program:
            raise Unavailable("not installed (Debian: nfs-ganesha nfs-ganesha-vfs)")
        if os.geteuid():
            raise Unavailable("needs root")
        self.start_rpcbind()
        config = os.path.join(self.scratch, "ganesha.conf")
        with open(config, "w") as f:
            f.write(
                GANESHA_CONFIG.format(
                    port=self.port,
                    mount_port=self.mount_port,
                    scratch=self.scratch,
                    export=self.path,
                )
            )
        self.spawn(
            [
                program,
                "-F",
                "-f",
                config,
                "-L",
                os.path.join(self.scratch, "ganesha.log"),
                "-p",
                os.path.join(self.scratch, "pid"),
            ]
        )
        wait_for_port(self.process, self.port, 20, "Ganesha")
        wait_for_port(self.process, self.mount_port, 20, "Ganesha's MOUNT")

    def stop(self):
        super().stop()
        stop_process(self.rpcbind)
        self.rpcbind = None


class Sluice(Server):
    kind = "Sluice"

    def __init__(self, bench, cache="1G", workers=None, name=None, versions="3"):
        super().__init__(bench, name)
        self.workers, self.cache, self.versions = workers or bench.workers, cache, versions
        self.ready_seconds = None
        self.pool = os.path.join(self.scratch, "pool")
        self.socket = os.path.join(self.scratch, "socket")

    def start(self):
        program = os.path.join(BUILD, "sluiced")
        if not os.path.exists(program):
            raise Unavailable("build/sluiced is not built")
        started = time.monotonic()
        self.spawn(
            [
                program,
                "--pool",
                self.pool,
                "--listen",
                f"127.0.0.1:{self.port}",
                "--cache",
                self.cache + "i",
                "--workers",
                str(self.workers),
                "--nfs-versions",
                self.versions,
                "--socket",
                self.socket,
            ]
        )
        wait_for_port(self.process, self.port, 30, "sluiced")
        volumes = self.volumes_when_ready(started + 30)
        self.ready_seconds = time.monotonic() - started
        if "bench" not in volumes:
            self.cli("volume", "create", "bench", "--owner", "0:0", "--squash", "none")
        self.wait_for_cache()

    def volumes_when_ready(self, end):
        """The control socket comes a moment after the port."""
        while True:
            try:
                return self.cli("volume", "list")
            except Unavailable:
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)

    def wait_for_cache(self):
        """Until the memory for data has been touched: meanwhile the server measures that."""
        end = time.monotonic() + 30
        while memory_anonymous(self.process.pid) < size_bytes(self.cache) * 0.98 and time.monotonic() < end:
            time.sleep(0.1)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def cli(self, *words):
        result = subprocess.run(
            [os.path.join(BUILD, "sluice"), "--socket", self.socket, *words],
            capture_output=True,
            text=True,
        )
        if result.returncode:
            raise Unavailable(
                f"sluice {' '.join(words)}: {result.stderr.strip() or result.stdout.strip()}"
            )
        return result.stdout

    def metrics(self):
        """All numbers of `sluice metrics --json`, nested names joined by dots."""
        numbers = {}

        def walk(prefix, value):
            if isinstance(value, dict):
                for key, inner in value.items():
                    walk(f"{prefix}.{key}" if prefix else key, inner)
            elif isinstance(value, (int, float)) and not isinstance(value, bool):
                numbers[prefix] = value

        walk("", json.loads(self.cli("metrics", "--json")))
        return numbers

    def counter(self, name):
        """A counter by its name; None if the server has none."""
        return self.metrics().get(f"metrics.{name}.value")

    def load(self, op, **options):
        """With the share of the bytes read that came from the disk, where the run says what it read."""
        names = ("read_disk_bytes", "read_bytes")
        before = self.counters(*names)
        r = super().load(op, **options)
        disk, read = (now - was for now, was in zip(self.counters(*names), before))
        if r and read:
            r["from_disk"] = disk / read
        return r

    def counters(self, *names):
        """Several at once; Unavailable if there is one that the server does not have."""
        numbers = self.metrics()
        try:
            return [numbers[f"metrics.{name}.value"] for name in names]
        except KeyError as missing:
            raise Unavailable(f"the server counts no {missing}") from None


def memory_anonymous(pid):
    """RssAnon in bytes."""
    with open(f"/proc/{pid}/status") as f:
        for line in f:
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0
