#!/usr/bin/env python3
"""The server's options and every command of the CLI, against a server of their own.  SLUICE_BUILD: the directory with
sluiced and sluice.  Names of tests as arguments run only these."""
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import traceback

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(TOP, os.environ.get("SLUICE_BUILD", "build"))
SLUICED, SLUICE = os.path.join(BUILD, "sluiced"), os.path.join(BUILD, "sluice")
SCRATCH = tempfile.mkdtemp(prefix="sluice-cli-")
TESTS = []


def test(function):
    TESTS.append(function)
    return function


def equal(got, want, what=""):
    if got != want:
        raise AssertionError(f"{what}: got {got!r}, want {want!r}")


def holds(true, what):
    if not true:
        raise AssertionError(what)


class Server:
    def __init__(self, name, *options):
        self.pool = os.path.join(SCRATCH, name)
        self.options = options
        self.process = None

    def start(self):
        self.log = open(self.pool + ".log", "ab+")
        begin = self.log.seek(0, os.SEEK_END)
        self.process = subprocess.Popen([SLUICED, "--pool", self.pool, "--listen", "127.0.0.1:0", "--cache", "64Mi",
                                         *self.options], stdout=subprocess.PIPE, stderr=self.log)
        for _ in range(1000):
            self.log.seek(begin)
            if b"ready" in self.log.read():
                return self
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        self.log.seek(begin)
        raise RuntimeError("sluiced is not ready: " + self.log.read().decode(errors="replace"))

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        status = self.process.wait(30)
        output = self.process.stdout.read()
        return status, output

    def sluice(self, *words, code=0, stdin=b"", raw=False):
        done = subprocess.run([SLUICE, "--pool", self.pool, *words], input=stdin, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=300)
        if done.returncode != code:
            raise AssertionError(f"sluice {words}: exit code {done.returncode}, want {code}\n"
                                 f"{done.stdout.decode(errors='replace')}{done.stderr.decode(errors='replace')}")
        self.errors = done.stderr.decode(errors="replace")
        return done.stdout if raw else done.stdout.decode(errors="replace")

    def json(self, *words, code=0):
        return json.loads(self.sluice("--json", *words, code=code))


SERVER = None


def run_sluiced(*words, timeout=20):
    return subprocess.run([SLUICED, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout)


# ---- sluiced's options ----

@test
def example_configuration_is_what_the_server_prints(server):
    with open(os.path.join(TOP, "conf", "sluice.conf"), "rb") as file:
        equal(run_sluiced("--print-config").stdout, file.read(), "conf/sluice.conf")


@test
def configuration_mistakes_name_the_line(server):
    path = os.path.join(SCRATCH, "bad.conf")
    for text, line, word in (("[server]\npool = /p\nworkerz = 2\n", 3, "workerz"), ("[server]\ncache = 1G\n", 2, "cache"),
                             ("[memory]\n\ncache = lots\n", 3, "lots"), ("[sever]\npool = /p\n", 1, "sever"),
                             ("[server]\nworkers = 1\nworkers = 2\n", 3, "workers"), ("[server]\nnonsense\n", 2, "")):
        with open(path, "w") as file:
            file.write(text)
        done = run_sluiced("--check-config", "-c", path)
        said = done.stderr.decode()
        equal(done.returncode, 2, said)
        holds(f"{path}:{line}" in said and word in said, said)
    done = run_sluiced("--check-config", "-c", os.path.join(SCRATCH, "none.conf"))
    holds(done.returncode == 2 and b"none.conf" in done.stderr, done.stderr)
    with open(path, "w") as file:
        file.write("[server]\npool = /p\nlisten = 127.0.0.1:3049, [::1]:3049\n[memory]\ncache = 1G\n")
    equal(run_sluiced("--check-config", "-c", path).returncode, 0)


@test
def command_line_mistakes_are_sentences(server):
    for words, part in (((), "--pool"), (("--pool",), "--pool"), (("--poool", "x"), "--poool"), (("word",), "word"),
                        (("--pool", "/p", "--listen", "localhost"), "localhost"),
                        (("--pool", "/p", "--workers", "x"), "workers"),
                        (("--pool", "/p", "--cache", "900T"), "--cache: is more than the RAM"),
                        (("--pool", "/p", "--cache", "1Ki"), "--cache: is too small")):
        done = run_sluiced(*words)
        equal(done.returncode, 2, words)
        holds(part in done.stderr.decode(), done.stderr)
    told = run_sluiced("--help").stdout
    holds(b"--listen" in told and max(map(len, told.splitlines())) <= 100, "--help")
    holds(run_sluiced("--version").stdout.startswith(b"sluiced "), "--version")


@test
def second_server_on_a_pool_is_refused(server):
    done = run_sluiced("--pool", server.pool, "--listen", "127.0.0.1:0", "--socket", os.path.join(SCRATCH, "x.sock"))
    equal(done.returncode, 1, done.stderr)
    holds(server.pool.encode() in done.stderr, done.stderr)
    server.sluice("status")


@test
def port_in_use_is_said(server):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = "127.0.0.1:%d" % taken.getsockname()[1]
        done = run_sluiced("--pool", os.path.join(SCRATCH, "port"), "--listen", address)
    equal(done.returncode, 1, done.stderr)
    holds(address.encode() in done.stderr and b"in use" in done.stderr, done.stderr)


@test
def control_socket_without_a_directory_is_said(server):
    done = run_sluiced("--pool", os.path.join(SCRATCH, "socket"), "--listen", "127.0.0.1:0", "--socket", "/no/where")
    equal(done.returncode, 1, done.stderr)
    holds(b"/no/where" in done.stderr and b"directory is not there" in done.stderr, done.stderr)


@test
def listens_on_ipv6_and_leaves_within_five_seconds(server):
    for number in (signal.SIGTERM, signal.SIGINT):
        other = Server("six", "--listen", "[::1]:0").start()
        listen = other.json("status")["listen"]
        holds(any(l.startswith("[::1]:") for l in listen), listen)
        port = int(listen[0].rpartition(":")[2])
        idle = socket.create_connection(("127.0.0.1", port))
        begin = time.monotonic()
        status, output = other.stop(number)
        equal(status, 0, "exit status")
        equal(output, b"", "standard output")
        holds(time.monotonic() - begin < 5, "took %.1f s" % (time.monotonic() - begin))
        idle.close()
        equal(os.path.exists(os.path.join(other.pool, "control.sock")), False, "the socket is left behind")


@test
def starts_again_after_kill_9(server):
    other = Server("killed").start()
    other.sluice("volume", "create", "kept")
    other.stop(signal.SIGKILL)
    other.start()
    equal([v["name"] for v in other.json("volume", "list")["volumes"]], ["kept"])
    equal(other.stop()[0], 0)


# ---- the CLI ----

@test
def exit_codes_tell_what_happened(server):
    nowhere = dict(os.environ, SLUICE_SOCKET=os.path.join(SCRATCH, "nowhere.sock"))
    for words, code in ((["status"], 3), (["frobnicate"], 2), (["volume", "create"], 2), (["volume", "frob"], 2),
                        (["--frob"], 2), ([], 2), (["help"], 0), (["help", "volume", "create"], 0),
                        (["volume", "create", "--help"], 0), (["help", "import"], 0), (["--version"], 0),
                        (["ls"], 2), (["ls", "a", "b"], 2), (["status", "--yes"], 2), (["volume", "create", "x", "--size"], 2)):
        done = subprocess.run([SLUICE, *words], env=nowhere, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        equal(done.returncode, code, words)
        holds(done.stdout if code == 0 else done.stderr, f"{words} says nothing")
    server.sluice("volume", "show", "nothere", code=1)
    holds("nothere" in server.errors, server.errors)
    env = dict(os.environ, SLUICE_SOCKET=os.path.join(server.pool, "control.sock"))
    equal(subprocess.run([SLUICE, "status"], env=env, stdout=subprocess.PIPE).returncode, 0, "SLUICE_SOCKET")


@test
def control_socket_is_private_and_survives_nonsense(server):
    path = os.path.join(server.pool, "control.sock")
    equal(stat.S_IMODE(os.stat(path).st_mode), 0o600)
    for line in (b"nonsense\n", b"[1]\n", b'{"command":5}\n', b'{"command":"ls"}\n', b'{"command":"frob"}\n', b"{}\n",
                 b'{"command":"status","frob":1}\n', b'{"command":"volume-create","name":"q","size":5}\n',
                 b'{"command":"volume-set","name":"q","set":"x"}\n', b"\x00\xff\n", b"[" * 100000 + b"\n", b"\n",
                 b'{"command":"ls","name":"q","path_hex":"zz"}\n', b'{"command":"mount-command","name":7}\n'):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(20)
            s.connect(path)
            s.sendall(line)
            answer = json.loads(s.makefile().readline())
            holds(answer["ok"] is False and answer["error"], line)
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(20)
        s.connect(path)
        try:
            for _ in range(40):
                s.sendall(b"x" * 65536)
        except OSError:
            pass
        holds(b'"ok":false' in s.recv(65536), "a line without an end is refused")
    with socket.socket(socket.AF_UNIX) as s: # several requests in one piece, half closed
        s.settimeout(20)
        s.connect(path)
        s.sendall(b'{"command":"volume-list"}\n{"command":"metrics"}\n')
        s.shutdown(socket.SHUT_WR)
        lines = s.makefile().read().splitlines()
        equal([json.loads(l)["ok"] for l in lines], [True, True])


@test
def status_and_metrics_in_both_forms(server):
    status = server.json("status")
    equal(status["pool"]["path"], server.pool)
    holds(status["listen"] and status["workers"] >= 1, status)
    holds(server.pool in server.sluice("status"), "status")
    holds("rpc_calls" in server.json("metrics")["metrics"], "metrics")
    holds("rpc_calls" in server.sluice("metrics"), "metrics")
    server.sluice("settle")
    server.json("settle")


@test
def volume_life(server):
    server.sluice("volume", "create", "life", "--size", "10Gi", "--allow", "host:rw,10.0.0.0/8:ro", "--squash", "none",
                  "--owner", "1000:1001", "--mode", "2775")
    v = server.json("volume", "show", "life")["volume"]
    equal((v["size"], v["allow"], v["squash"], v["owner"], v["mode"]),
          (10 << 30, "host:rw,10.0.0.0/8:ro", "none", "1000:1001", "2775"))
    server.sluice("volume", "create", "life", code=1)
    holds("life" in server.errors, server.errors)
    server.sluice("volume", "set", "life", "size=20G", "allow=all", "squash=all", "owner=65534:65534", "mode=0700")
    v = server.json("volume", "show", "life")["volume"]
    equal((v["size"], v["allow"], v["squash"], v["owner"], v["mode"]), (20_000_000_000, "all:rw", "all", "65534:65534", "0700"))
    holds("life" in server.sluice("volume", "list"), "list")
    holds("20G" in server.sluice("volume", "show", "life"), "show")
    equal((v["cache"], v["cache_share"], v["cache_now"]), ("auto", "none", "lru"))
    holds("auto, at present as lru" in server.sluice("volume", "show", "life"), "show")
    server.sluice("volume", "set", "life", "cache=epoch", "cache-share=40%")
    v = server.json("volume", "show", "life")["volume"]
    equal((v["cache"], v["cache_share"], v["cache_now"], v["size"]), ("epoch", "40%", "epoch", 20_000_000_000))
    holds("epoch, at most 40%" in server.sluice("volume", "show", "life"), "show")
    server.sluice("volume", "set", "life", "cache=auto", "cache-share=100%")
    equal(server.json("volume", "show", "life")["volume"]["cache_share"], "none")
    server.sluice("volume", "rename", "life", "life2")
    server.sluice("volume", "show", "life", code=1)
    server.sluice("volume", "delete", "life2", code=1, stdin=b"life\n")
    server.sluice("volume", "show", "life2")
    server.sluice("volume", "delete", "life2", stdin=b"life2\n")
    server.sluice("volume", "show", "life2", code=1)
    server.sluice("volume", "create", "life2")
    server.sluice("volume", "delete", "life2", "--yes")
    server.sluice("volume", "delete", "life2", "--yes", code=1)


@test
def volume_defaults_and_warnings(server):
    server.sluice("volume", "create", "plain")
    v = server.json("volume", "show", "plain")["volume"]
    equal((v["size"], v["allow"], v["squash"], v["owner"], v["mode"]),
          (0, "host:rw", "root", f"{os.getuid()}:{os.getgid()}", "0755"))
    equal(server.errors, "")
    for name, words, helps in (("w1", ("--allow", "10.0.0.0/8", "--owner", "0:0"), "squash=none"),
                               ("w2", ("--allow", "host:ro"), "allow=host:rw"), ("w3", ("--allow", "none"), "allow=host:rw"),
                               ("w4", ("--squash", "all", "--owner", "1000:1000"), "owner=65534:65534")):
        server.sluice("volume", "create", name, *words)
        holds(helps in server.errors and f"sluice volume set {name}" in server.errors, server.errors)
        command = re.search(rf"sluice (volume set {name} [^;,]*?)( lets| helps|$)", server.errors).group(1)
        server.sluice(*command.split())
        equal(server.errors, "", f"after {command}")
        server.sluice("volume", "delete", name, "--yes")
    server.sluice("volume", "delete", "plain", "--yes")


@test
def wrong_settings_name_the_word(server):
    server.sluice("volume", "create", "w")
    settings = lambda: {k: v for k, v in server.json("volume", "show", "w")["volume"].items() if k != "bytes_available"}
    before = settings()
    for words in (("size=many",), ("allow=10.0.0.0/99",), ("squash=some",), ("owner=root",), ("mode=9",), ("color=red",),
                  ("cache=big",), ("cache-share=120%",), ("size",), ("size=1G", "squash=x")):
        server.sluice("volume", "set", "w", *words, code=2)
        holds(any(word in server.errors for word in words[-1].split("=") if word), server.errors)
        equal(settings(), before)
    for name in ("", ".", "..", "a/b", "a" * 65, "a b", "ä"):
        server.sluice("volume", "create", name, code=2)
    answer = json.loads(server.sluice("--json", "volume", "set", "w", "size=many", code=2))
    holds(answer["ok"] is False and "many" in answer["error"], answer)
    server.sluice("volume", "delete", "w", "--yes")


@test
def mount_command_can_be_pasted(server):
    server.sluice("volume", "create", "m")
    port = server.json("status")["listen"][0].rpartition(":")[2]
    text = server.sluice("mount-command", "m")
    for part in ("vers=3", f"port={port}", f"mountport={port}", "nolock", "nconnect=", "127.0.0.1:/m /mnt/m",
                 "read_ahead_kb", "rsize=1048576", f"vers=4.2,proto=tcp,port={port},nconnect="):
        holds(part in text, text)
    holds("loopback" in server.errors, server.errors)
    holds("[fd00::5]:/m" in server.sluice("mount-command", "m", "--server", "fd00::5"), "server")
    server.sluice("volume", "set", "m", "allow=none")
    server.sluice("mount-command", "m")
    holds("no rule" in server.errors, server.errors)
    server.sluice("volume", "delete", "m", "--yes")


# ---- import, ls, cat ----

ODD_NAMES = [b"a b", b"new\nline", b"tab\t", b"\xff\xfe", "grün".encode(), b"-dash", b"x" * 255, b"back\\slash", b"'\"$`"]


def make_tree(top):
    """A tree with everything that can be told apart afterwards."""
    os.makedirs(os.path.join(top, "deep", *("d%d" % i for i in range(20))))
    os.makedirs(os.path.join(top, "many"))
    for i in range(2000):
        with open(os.path.join(top, "many", "f%d" % i), "wb") as file:
            file.write(b"%d\n" % i * (i % 50))
    for name in ODD_NAMES:
        with open(os.path.join(top.encode(), name), "wb") as file:
            file.write(name)
    with open(os.path.join(top, "large"), "wb") as file:
        for i in range(40):
            file.write(os.urandom(1 << 20))
        file.write(b"tail")
    with open(os.path.join(top, "holes"), "wb") as file:
        file.seek(3 << 20)
        file.write(b"middle")
        file.truncate(30 << 20)
    open(os.path.join(top, "empty"), "w").close()
    with open(os.path.join(top, "only-hole"), "wb") as file:
        file.truncate(5 << 20)
    os.symlink("large", os.path.join(top, "link"))
    os.symlink(b"\xff/nowhere", os.path.join(top, "dangling"))
    os.link(os.path.join(top, "large"), os.path.join(top, "many", "large-again"))
    os.link(os.path.join(top, "large"), os.path.join(top, "large-third"))
    os.mkfifo(os.path.join(top, "fifo"), 0o640)
    if os.getuid() == 0:
        os.mknod(os.path.join(top, "device"), stat.S_IFCHR | 0o600, os.makedev(1, 3))
        os.chown(os.path.join(top, "empty"), 1234, 4321)
    os.chmod(os.path.join(top, "empty"), 0o4751)
    os.chmod(os.path.join(top, "many"), 0o2750)
    for folder, _, names in os.walk(top.encode(), topdown=False):
        for name in names:
            os.utime(os.path.join(folder, name), ns=(10 ** 18 + 5, 10 ** 18 + hash(name) % 10 ** 9), follow_symlinks=False)
        os.utime(folder, ns=(10 ** 18, 10 ** 18 + 7))


def entries_of(server, where):
    all_of = {}
    for line in server.sluice("--json", "ls", where).splitlines():
        entry = json.loads(line)
        name = bytes.fromhex(entry["name_hex"]) if "name_hex" in entry else entry["name"].encode()
        holds(name not in all_of, f"{name} twice")
        all_of[name] = entry
    return all_of


def compare_file(server, where, path, entry):
    equal(entry["size"], os.stat(path).st_size, path)
    if entry["size"] == 0:
        return
    content = server.sluice("cat", where + b"/" + os.path.basename(path), raw=True)
    with open(path, "rb") as file:
        equal(hashlib.sha256(content).digest(), hashlib.sha256(file.read()).digest(), path)


def compare_tree(server, where, top, contents=True):
    count = 0
    entries = entries_of(server, where)
    names = sorted(os.listdir(top))
    equal(sorted(entries), names, where)
    for name in names:
        path, entry = os.path.join(top, name), entries[name]
        st = os.lstat(path)
        count += 1
        if not stat.S_ISLNK(st.st_mode):
            equal(entry["mode"], stat.S_IMODE(st.st_mode), path)
        equal((entry["uid"], entry["gid"]), (st.st_uid, st.st_gid), path)
        equal(entry["mtime"] * 10 ** 9 + entry["mtime_ns"], st.st_mtime_ns, path)
        if not stat.S_ISDIR(st.st_mode):
            equal(entry["nlink"], st.st_nlink, path)
        if stat.S_ISDIR(st.st_mode):
            count += compare_tree(server, where + b"/" + name, path, contents)
        elif stat.S_ISLNK(st.st_mode):
            target = bytes.fromhex(entry["target_hex"]) if "target_hex" in entry else entry["target"].encode()
            equal(target, os.readlink(path), path)
        elif stat.S_ISREG(st.st_mode) and (contents or b"many" not in path):
            compare_file(server, where, path, entry)
        elif stat.S_ISCHR(st.st_mode):
            equal((entry["major"], entry["minor"]), (1, 3), path)
    return count


@test
def import_brings_everything(server):
    tree = os.path.join(SCRATCH, "tree")
    make_tree(tree)
    server.sluice("volume", "create", "imp", "--squash", "none")
    last = json.loads(server.sluice("--json", "import", "imp", tree, "--to", "/a/b").splitlines()[-1])
    equal((last["failed"], last["skipped"]), (0, 0))
    compare_tree(server, b"imp:/a/b", tree.encode(), contents=False)
    equal(last["done_bytes"], last["total_bytes"] if last["totals_known"] else last["done_bytes"])
    top = entries_of(server, "imp:/a")[b"b"]
    equal(top["mtime"], os.stat(tree).st_mtime_ns // 10 ** 9, "the top's time")
    used = server.json("volume", "show", "imp")["volume"]["bytes_used"]
    holds(used < 60 << 20, f"holes were kept: {used} bytes used")


@test
def import_again_skips_and_mends(server):
    tree = os.path.join(SCRATCH, "tree")
    last = json.loads(server.sluice("--json", "import", "imp", tree, "--to", "/a/b").splitlines()[-1])
    equal((last["failed"], last["skipped"]), (0, last["done_files"]))
    with open(os.path.join(tree, "many", "f7"), "wb") as file:
        file.write(b"shorter")
    with open(os.path.join(tree, "new"), "wb") as file:
        file.write(b"new")
    last = json.loads(server.sluice("--json", "import", "imp", tree, "--to", "/a/b").splitlines()[-1])
    equal(last["done_files"] - last["skipped"], 2, last)
    compare_tree(server, b"imp:/a/b", tree.encode(), contents=False)


@test
def interrupted_import_goes_on(server):
    tree = os.path.join(SCRATCH, "tree")
    server.sluice("volume", "create", "half")
    process = subprocess.Popen([SLUICE, "--pool", server.pool, "import", "half", tree], stderr=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL)
    time.sleep(0.05)
    process.kill()
    process.wait()
    server.sluice("import", "half", tree)
    server.sluice("import", "half", tree)
    compare_tree(server, b"half:", tree.encode(), contents=False)


@test
def import_through_a_restart_of_the_server(server):
    tree = os.path.join(SCRATCH, "tree")
    other = Server("restart").start()
    other.sluice("volume", "create", "v")
    process = subprocess.Popen([SLUICE, "--pool", other.pool, "import", "v", tree], stderr=subprocess.PIPE,
                               stdout=subprocess.DEVNULL)
    time.sleep(0.1)
    begin = time.monotonic()
    equal(other.stop()[0], 0, "exit status while an import runs")
    holds(time.monotonic() - begin < 5, "took too long to leave")
    process.communicate()
    holds(process.returncode in (0, 1, 3), process.returncode)
    other.start()
    other.sluice("import", "v", tree)
    compare_tree(other, b"v:", tree.encode(), contents=False)
    equal(other.stop()[0], 0)


@test
def import_reports_what_it_could_not_read(server):
    tree = os.path.join(SCRATCH, "partly")
    os.makedirs(os.path.join(tree, "sub"))
    for name in ("good", "sub/good"):
        with open(os.path.join(tree, name), "w") as file:
            file.write("good")
    os.symlink("t" * 2000, os.path.join(tree, "sub", "bad"))
    server.sluice("volume", "create", "partly")
    server.sluice("import", "partly", tree, code=1)
    holds(os.path.join(tree, "sub", "bad") in server.errors, server.errors)
    lines = [json.loads(l) for l in server.sluice("--json", "import", "partly", tree, code=1).splitlines()]
    equal([l["path"] for l in lines if l.get("event") == "failed"], [os.path.join(tree, "sub", "bad")])
    equal(lines[-1]["failed"], 1)
    equal(server.sluice("cat", "partly:/sub/good"), "good")
    if os.getuid() != 0:
        os.chmod(os.path.join(tree, "good"), 0)
        server.sluice("import", "partly", tree, code=1)


@test
def import_refuses_the_pool_and_nonsense(server):
    server.sluice("volume", "create", "no")
    os.symlink(server.pool, os.path.join(SCRATCH, "to-pool"))
    for path in (server.pool, SCRATCH, os.path.join(SCRATCH, "to-pool"), "/"):
        server.sluice("import", "no", path, code=1)
        holds("pool" in server.errors, server.errors)
    equal(entries_of(server, "no:/"), {})
    server.sluice("import", "no", os.path.join(SCRATCH, "absent"), code=1)
    server.sluice("import", "absent", SCRATCH, code=1)
    server.sluice("import", "no", os.path.join(SCRATCH, "tree", "empty"), code=1)
    server.sluice("import", "imp", os.path.join(SCRATCH, "partly"), "--to", "/a/b/large", code=1)


@test
def ls_and_cat(server):
    text = server.sluice("ls", "imp:/a/b")
    holds("link -> large" in text and "new\\012line" in text, text)
    holds(server.sluice("ls", "imp:/a/b/large").count("\n") == 1, "ls of a file")
    holds("a" in server.sluice("ls", "imp"), "ls of the root")
    server.sluice("ls", "imp:/nothere", code=1)
    server.sluice("cat", "imp:/a", code=1)
    server.sluice("cat", "imp:/a/b/nothere", code=1)
    server.sluice("--json", "cat", "imp:/a/b/large", code=2)
    early = subprocess.Popen([SLUICE, "--pool", server.pool, "cat", "imp:/a/b/large"], stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL)
    early.stdout.read(10)
    early.stdout.close()
    early.wait(20)
    server.sluice("status")


def main():
    global SERVER
    passed = failed = 0
    SERVER = Server("pool").start()
    for function in TESTS:
        if len(sys.argv) > 1 and function.__name__ not in sys.argv[1:]:
            continue
        try:
            function(SERVER)
            passed += 1
            print("ok", function.__name__, flush=True)
        except Exception:
            failed += 1
            print("not ok", function.__name__, flush=True)
            traceback.print_exc(file=sys.stdout)
    if SERVER.process.poll() is None:
        status, _ = SERVER.stop()
    else:
        status = SERVER.process.poll()
    if status:
        failed += 1
        print(f"not ok the server ended with {status}")
    SERVER.log.seek(0)
    log = SERVER.log.read().decode(errors="replace")
    if failed or "Sanitizer" in log:
        failed += not failed
        print(log[-8000:])
    shutil.rmtree(SCRATCH, ignore_errors=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


sys.exit(main())
