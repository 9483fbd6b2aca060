"""What the crash tests stand on: temporary directories, servers, the recorder, and the lines they print.

Everything that is started or mounted belongs to a Rig, which ends it, also after a failure, SIGTERM or Ctrl-C.
"""
import mmap
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "nfs"))
import harness  # noqa: E402

BUILD = os.path.join(harness.TOP, os.environ.get("BUILD", "build"))
harness.BUILD = BUILD
VOLUME = "vol"
# small segments, so that there are many; no more RAM and threads than the tests need
OPTIONS = ("--cache", "16Mi", "--workers", "1", "--segment-size", "8Mi", "--inode-entries", "4096", "--map-entries",
           "4096", "--blocking-threads", "4", "--nfs-versions", "3, 4")


class Server(harness.Server):
    """A sluiced on a pool that is somewhere else than in the server's own folder."""

    def __init__(self, base, pool=None, options=OPTIONS):
        super().__init__(*options, base=base)
        self.pool = pool or self.pool

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def started(self, timeout=30):
        """start(), and the seconds it took."""
        began = time.monotonic()
        self.start(timeout)
        return time.monotonic() - began

    def begin(self):
        """Starts it and does not wait until it is ready."""
        with open(os.path.join(self.folder, "stderr.begun"), "wb") as log:
            self.process = subprocess.Popen(
                [os.path.join(BUILD, "sluiced"), "--pool", self.pool, "--listen", f"127.0.0.1:{self.port or 0}",
                 "--socket", self.socket, *self.options], stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def kill(self):
        if self.process:
            super().kill()


class Recorder:
    """A mounted recfs: `mount` is where the pool goes, `log` the record; switches as attributes of the control page,
    recorder.set(fail_data_sync=1), all off by clear()."""
    FIELDS = {name: 8 + 4 * at for at, name in enumerate(
        ("fail_meta_write", "fail_meta_sync", "fail_data_write", "fail_data_sync", "fail_read", "error", "limit",
         "sync_us", "sync_meta_us", "forget"))}
    FAILURES = 56

    def __init__(self, base):
        self.folder = tempfile.mkdtemp(prefix="recfs-", dir=base)
        self.mount, self.log = os.path.join(self.folder, "mount"), os.path.join(self.folder, "record")
        backing, control = os.path.join(self.folder, "backing"), os.path.join(self.folder, "control")
        os.mkdir(self.mount)
        os.mkdir(backing)
        messages = os.path.join(self.folder, "stderr")
        with open(messages, "wb") as file:
            self.process = subprocess.Popen(
                [os.path.join(BUILD, "tests", "recfs"), backing, self.log, control, self.mount, "-f"],
                stdin=subprocess.DEVNULL, stderr=file)
        until = time.monotonic() + 10
        while not os.path.ismount(self.mount):
            if self.process.poll() is not None or time.monotonic() > until:
                with open(messages) as file:
                    why = file.read().strip()
                self.close()
                raise RuntimeError(f"recfs cannot be mounted (is there /dev/fuse?): {why}")
            time.sleep(0.01)
        with open(control, "r+b") as file:
            self.page = mmap.mmap(file.fileno(), 4096)

    def position(self):
        return struct.unpack_from("=Q", self.page, 0)[0]

    def failures(self):
        return struct.unpack_from("=Q", self.page, self.FAILURES)[0]

    def set(self, **switches):
        for name, value in switches.items():
            struct.pack_into("=I", self.page, self.FIELDS[name], value)

    def clear(self):
        self.set(**{name: 0 for name in self.FIELDS if name.startswith("fail") or name in ("error", "limit")})

    def forget(self):
        """The kernel forgets what it has cached of LMDB's files."""
        self.set(forget=1)
        until = time.monotonic() + 5
        while struct.unpack_from("=I", self.page, self.FIELDS["forget"])[0] and time.monotonic() < until:
            time.sleep(0.005)

    def unmount(self):
        """Leaves the record and what was written (in backing) to be read."""
        if os.path.ismount(self.mount):
            if subprocess.run(["fusermount3", "-u", self.mount], stderr=subprocess.DEVNULL).returncode:
                subprocess.run(["fusermount3", "-uz", self.mount], stderr=subprocess.DEVNULL)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def close(self):
        self.unmount()
        shutil.rmtree(self.folder, ignore_errors=True)


class Rig:
    """with Rig() as rig: ... — a temporary directory, on RAM when `ram`, and everything started through it."""

    def __init__(self, ram=False):
        self.ram = ram

    def __enter__(self):
        def ended(number, frame):
            raise KeyboardInterrupt
        signal.signal(signal.SIGTERM, ended)
        signal.signal(signal.SIGINT, ended)
        base = "/dev/shm" if self.ram and os.access("/dev/shm", os.W_OK) else None
        self.folder = tempfile.mkdtemp(prefix="sluice-crash-", dir=base)
        self.things = []
        return self

    def server(self, pool=None, options=OPTIONS):
        return self.add(Server(self.folder, pool, options))

    def recorder(self):
        return self.add(Recorder(self.folder))

    def add(self, thing):
        """Something with close(), which is called at the end; the latest first."""
        self.things.append(thing)
        return thing

    def __exit__(self, *unused):
        for thing in reversed(self.things):
            try:
                thing.close()
            except Exception:
                traceback.print_exc()
        shutil.rmtree(self.folder, ignore_errors=True)


def volume(server):
    server.create(VOLUME, "127.0.0.0/8:rw", "none")


def mount(server, **options):
    """A connection and the volume's root."""
    nfs = server.connect(**options)
    reply = nfs.mnt(b"/" + VOLUME.encode())
    if not reply.ok:
        nfs.close()
        raise LookupError(f"MNT: {reply.status}")
    return nfs, reply.fh


class Results:
    """Prints 'ok NAME' and 'not ok NAME', counts, and ends the program."""

    def __init__(self):
        self.passed = self.failed = 0

    def note(self, name, problems=()):
        """`problems`: sentences; none is a pass."""
        if problems:
            self.failed += 1
            print(f"not ok {name}")
            for problem in problems[:20]:
                print(f"    {problem}")
            if len(problems) > 20:
                print(f"    and {len(problems) - 20} more")
        else:
            self.passed += 1
            print(f"ok {name}")
        sys.stdout.flush()

    def run(self, name, function, *arguments):
        """Runs a test that gives a list of problems or raises."""
        try:
            problems = function(*arguments)
        except Exception:
            problems = traceback.format_exc().rstrip().split("\n")
        self.note(name, problems or ())

    def end(self):
        print(f"{self.passed} passed, {self.failed} failed", flush=True)
        sys.exit(1 if self.failed or not self.passed else 0)


def run_main(main):
    """main(), which ends the program; Ctrl-C does so quietly, after what is open has been closed."""
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
