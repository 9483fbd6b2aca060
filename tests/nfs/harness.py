"""Runs tests against a server of their own.

A test is a function with @test; its one argument is a Context: a connection as root, the volume's root, and a fresh
directory of mode 0777.  run() starts the server with a pool in a temporary directory, runs the tests, and stops the
server by its pid; a wrong exit status or a sanitizer's report on its stderr is a failure too.
SLUICE_BUILD names the build directory (default: build).  Names of tests as arguments run only these.
"""
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

import rawrpc

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(TOP, os.environ.get("SLUICE_BUILD", "build"))
REPORTS = re.compile(rb"Sanitizer|runtime error:|Assertion .* failed")
TESTS = []


class Server:
    """A running sluiced.  start() may be called again after stop() or kill(): the pool stays until close()."""

    def __init__(self, *options, base=None):
        self.folder = tempfile.mkdtemp(prefix="sluice-", dir=base)
        self.pool = os.path.join(self.folder, "pool")
        self.socket = os.path.join(self.folder, "control.sock")
        self.options = options or ("--cache", "64Mi")
        self.process, self.port, self.starts = None, None, 0

    def start(self, timeout=30):
        """Listens on the port of the first start, which is none that the kernel hands out for connections: between
        a stop and a start nobody else takes it."""
        for _ in range(20):
            if self._start(self.port or random.randrange(10000, 32000), timeout):
                return self
            if self.port:
                break
        raise RuntimeError(f"sluiced is not ready:\n{self.stderr().decode(errors='replace')}")

    def _start(self, port, timeout):
        self.starts += 1
        self.log = os.path.join(self.folder, f"stderr.{self.starts}")
        listen = f"127.0.0.1:{port}"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [os.path.join(BUILD, "sluiced"), "--pool", self.pool, "--listen", listen, "--socket", self.socket,
                 *self.options], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        until = time.monotonic() + timeout
        while time.monotonic() < until:
            ready = re.search(rb"ready:.*listening on 127\.0\.0\.1:(\d+)", self.stderr())
            if ready:
                self.port = int(ready.group(1))
                return True
            if self.process.poll() is not None:
                return False
            time.sleep(0.01)
        self.kill()
        return False

    def stderr(self):
        with open(self.log, "rb") as log:
            return log.read()

    def rss(self):
        """Bytes."""
        with open(f"/proc/{self.process.pid}/status") as f:
            return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmRSS:"))

    def settled_rss(self):
        """The cache's memory is touched in the background after the start."""
        size, since = self.rss(), time.monotonic()
        while time.monotonic() - since < 0.5:
            time.sleep(0.05)
            now = self.rss()
            if now > size + (1 << 16):
                size, since = now, time.monotonic()
        return size

    def cli(self, *arguments, check=True):
        done = subprocess.run([os.path.join(BUILD, "sluice"), "--socket", self.socket, *arguments],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        if check and done.returncode:
            raise RuntimeError(f"sluice {' '.join(arguments)}: {done.stdout.decode(errors='replace')}")
        return done.stdout

    def create(self, name, allow="127.0.0.0/8:rw", squash="none", *more):
        self.cli("volume", "create", name, "--allow", allow, "--squash", squash, "--owner", "0:0", *more)

    def connect(self, cred=rawrpc.ROOT, **options):
        return rawrpc.Nfs(self.port, cred, **options)

    def stop(self):
        """Why the end was not a clean one, or None."""
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()
            return "did not leave within 20 s of SIGTERM"
        if REPORTS.search(self.stderr()):
            return "reported an error on stderr"
        return f"left with status {status}" if status else None

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        if self.process and self.process.poll() is None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Context:
    def __init__(self, server, volume):
        self.server, self.volume = server, volume
        self.nfs = server.connect()
        self.root = self.nfs.mnt(b"/" + volume.encode()).fh
        self.dir = None

    def fresh(self, name):
        made = self.nfs.mkdir(self.root, name.encode(), mode=0o777)
        eq(made.status, "OK", "the test's directory")
        # the caller's umask is none of the server's business, so 0777 it is
        self.dir = made.fh

    def file(self, name=b"file", data=b"", mode=0o644, uid=None, gid=None):
        made = self.nfs.create(self.dir, name, rawrpc.GUARDED, mode=mode, uid=uid, gid=gid)
        eq(made.status, "OK", "creating a file")
        if data:
            eq(self.nfs.write(made.fh, 0, data).status, "OK", "writing a file")
        return made.fh

    def alive(self):
        with self.server.connect() as another:
            another.null()


def test(function):
    TESTS.append(function)
    return function


def eq(got, want, what=""):
    if got != want:
        raise AssertionError(f"{what}: got {got!r}, not {want!r}")


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def refused(call, kind, status, low=None, high=None):
    """call() must be answered with this RPC error."""
    try:
        call()
    except rawrpc.RpcError as error:
        eq((error.kind, error.status), (kind, status), "RPC error")
        if low is not None:
            eq(error.low, low, "low")
        if high is not None:
            eq(error.high, high, "high")
        return
    raise AssertionError("was accepted")


def _run_one(server, function):
    context = None
    try:
        context = Context(server, "vol")
        context.fresh(function.__name__)
        function(context)
        context.alive()
        print(f"ok {function.__name__}", flush=True)
        return True
    except Exception:
        print(f"not ok {function.__name__}\n{traceback.format_exc()}", flush=True)
        return False
    finally:
        if context:
            context.nfs.close()


def run(*options, prepare=None):
    """Runs every test of the program and ends it."""
    server = Server(*options)
    passed = failed = 0
    try:
        server.start()
        server.create("vol")
        if prepare:
            prepare(server)
        for function in TESTS:
            if sys.argv[1:] and function.__name__ not in sys.argv[1:]:
                continue
            if _run_one(server, function):
                passed += 1
            else:
                failed += 1
        problem = server.stop()
        print("not ok" if problem else "ok", "the server leaves cleanly" + (f": {problem}" if problem else ""))
        if problem:
            failed += 1
            print(server.stderr().decode(errors="replace")[-8000:])
        else:
            passed += 1
    finally:
        server.close()
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)
