#!/usr/bin/env python3
"""What the command line shows of what goes on: stats, clients, events, top (in a terminal of 80 columns).
SLUICE_BUILD is the directory with sluiced and sluice.  Names of tests as arguments run only these."""
import json
import os
import re
import shlex
import subprocess
import sys
import threading
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "tests", "nfs"))
import harness
from harness import check, eq, test

SLUICE = os.path.join(harness.BUILD, "sluice")


def sluice(server, *words, code=0):
    done = subprocess.run([SLUICE, "--socket", server.socket, *words], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
    eq(done.returncode, code, f"{words}: {done.stdout.decode()}{done.stderr.decode()}")
    return done.stdout.decode() + done.stderr.decode()


def answer(server, *words):
    return json.loads(sluice(server, "--json", *words))


def wait_for(condition, what, seconds=15):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        result = condition()
        if result:
            return result
        time.sleep(0.05)
    raise AssertionError(what() if callable(what) else what)


class Load:
    """READs and WRITEs of a volume, until it is left."""

    def __init__(self, server, volume, source="127.0.0.1"):
        self.nfs = server.connect(source=(source, 0))
        self.fh = self.nfs.create(self.nfs.mnt(b"/" + volume.encode()).fh, b"f").fh
        self.nfs.write(self.fh, 0, bytes(65536))
        self.end = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.end.is_set():
            for _ in range(20):
                self.nfs.read(self.fh, 0, 65536)
            self.nfs.write(self.fh, 0, bytes(4096))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *unused):
        self.end.set()
        self.thread.join()
        self.nfs.close()


# ---- stats ----

@test
def stats_show_each_operation_of_a_volume(t):
    t.server.create("counted")
    with t.server.connect() as nfs:
        root = nfs.mnt(b"/counted").fh
        fh = nfs.create(root, b"f").fh
        nfs.write(fh, 0, bytes(8192))
        for _ in range(10):
            nfs.read(fh, 0, 8192)
        nfs.lookup(root, b"no")
    v = answer(t.server, "stats", "counted")["volume"]
    operations = {o["operation"]: o for o in v["operations"]}
    eq((operations["READ"]["calls"], operations["READ"]["bytes"]), (10, 81920))
    eq((operations["LOOKUP"]["calls"], operations["LOOKUP"]["errors"]), (1, 1))
    for o in operations.values():
        eq(sum(o["buckets"]), o["calls"], o["operation"])
        eq(len(o["buckets"]), len(o["bucket_seconds"]) + 1)
        check(0 < o["median_seconds"] <= o["p99_seconds"] < 10, o)
    eq((v["read_bytes"], v["written_bytes"], v["cache_hit_bytes"]), (81920, 8192, 81920))
    eq(v["calls"], sum(o["calls"] for o in v["operations"]))
    text = sluice(t.server, "stats", "counted")
    check(re.search(r"^nfs3 +READ +10 +0 +80Ki", text, re.M), text)
    check("100.0 % hits" in text, text)
    check(max(map(len, text.split("\n"))) <= 80, text)
    check("nosuch" in sluice(t.server, "stats", "nosuch", code=1), "a volume that there is not")


# ---- events ----

def events(server, *words):
    return answer(server, "events", *words)["events"]


@test
def what_admins_change_is_recorded_and_what_they_only_look_at_is_not(t):
    before = len(events(t.server, "--last", "10000"))
    t.server.create("told")
    for words in (("volume", "list"), ("volume", "show", "told"), ("status",), ("metrics",), ("stats", "told"),
                  ("clients",), ("top", "--once"), ("snapshot", "list", "told"), ("policy", "list"), ("ls", "told")):
        sluice(t.server, *words)
    sluice(t.server, "volume", "set", "told", "size=3Gi", "squash=all")
    sluice(t.server, "volume", "set", "told", "squash=nobody", code=2)
    sluice(t.server, "volume", "delete", "nosuch", "--yes", code=1)
    sluice(t.server, "snapshot", "create", "told@now")
    sluice(t.server, "clone", "create", "told@now", "retold", "--writable")
    sluice(t.server, "policy", "create", "mine", "--keep", "hourly=3")
    sluice(t.server, "restore", "told@now")
    sluice(t.server, "volume", "rename", "retold", "again")
    sluice(t.server, "volume", "delete", "again", "--yes")
    new = events(t.server, "--last", "10000")[before:]
    eq([e["command"] for e in new], ["volume-create", "volume-set", "snapshot-create", "clone-create", "policy-create",
                                     "restore", "volume-rename", "volume-delete"])
    eq(new[1]["arguments"], {"name": "told", "set": ["size=3Gi", "squash=all"]})
    check(all(e["uid"] == os.getuid() and abs(e["time"] - time.time()) < 60 for e in new), new)
    text = sluice(t.server, "events", "--last", "2").strip().split("\n")
    eq(len(text), 2, text)
    check(re.search(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ  \S+ +volume delete again", text[1]), text)
    for wrong in ("0", "x", "-3", "", "10001"):
        sluice(t.server, "events", "--last", wrong, code=2)


@test
def events_outlive_a_crash_and_their_log_stays_small(t):
    server = harness.Server("--cache", "16M", "--metrics", "off")
    try:
        server.start()
        server.create("v")
        server.kill()
        log = os.path.join(server.pool, "events.log")
        with open(log, "a") as file:
            file.write('{"time":1,"uid":0,"comm')  # cut short by the crash
        server.start()
        server.cli("volume", "set", "v", "size=1Gi")
        eq([e["command"] for e in events(server)], ["volume-create", "volume-set"])
        with open(log, "a") as file:
            for n in range(14000):
                file.write(json.dumps({"time": n, "uid": 0, "command": "volume-set",
                                       "arguments": {"name": "v", "set": ["size=1Gi"]}}) + "\n")
        server.cli("snapshot", "create", "v@a")
        eq([e["command"] for e in events(server, "--last", "2")], ["volume-set", "snapshot-create"])
        check(os.path.getsize(log) < 1000, "a new file was begun")
        check(os.path.getsize(log + ".1") < 2 << 20, "the one before")
        names = ["v@" + "x%03d" % n + "y" * 50 for n in range(200)]
        server.cli("snapshot", "delete", *names[:60], check=False)
        server.cli("snapshot", "create", "v@b", "--lock", "+1d")
        eq(events(server, "--last", "1")[0]["arguments"]["name"], "v@b")
        eq(server.stop(), None, "stopping")
    finally:
        server.close()


# ---- top ----

@test
def top_once_tells_the_rates_of_what_goes_on(t):
    for name in ("busy", "idle"):
        t.server.create(name)
    with Load(t.server, "busy", "127.3.2.1"):
        text = sluice(t.server, "top", "--once", "--interval", "0.5")
        data = answer(t.server, "top", "--once", "--interval", "0.5")
    check(re.search(r"^busy +\S+ +\S+[kM] +\S+[kM] .* 100 %$", text, re.M), text)
    check(re.search(r"^idle +0 +0 +0 +- +- +-$", text, re.M), text)
    check(re.search(r"^127\.3\.2\.1 .* 1 +busy", text, re.M), text)
    volumes = {v["name"]: v for v in data["volumes"]}
    busy = volumes["busy"]
    check(busy["operations_per_second"] > 20 and busy["read_bytes_per_second"] > 10 * busy["written_bytes_per_second"],
          busy)
    check(0 < busy["latency_seconds"] < 1 and busy["cache_hits"] == 1, busy)
    eq((volumes["idle"]["operations_per_second"], volumes["idle"]["latency_seconds"]), (0, None))
    eq(data["volumes"][0]["name"], "busy", "the busiest comes first")
    by_name = [v["name"] for v in answer(t.server, "top", "--once", "--interval", "0.1", "--sort", "name")["volumes"]]
    eq(by_name, sorted(by_name))
    for wrong in (("--sort", "size"), ("--interval", "0"), ("--interval", "x"), ("--interval", "1s")):
        sluice(t.server, "top", "--once", *wrong, code=2)
    check("--once" in sluice(t.server, "top", code=2), "top without a terminal")


class Terminal:
    """sluice top in a tmux of its own."""

    def __init__(self, server, columns=80, rows=24):
        self.name = f"sluice-{os.getpid()}-{id(self)}"
        command = f"{shlex.quote(SLUICE)} --socket {shlex.quote(server.socket)} top; echo left with $?; sleep 60"
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(rows), command)

    def tmux(self, *words, check=True):
        try:
            return subprocess.run(["tmux", "-L", self.name, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, timeout=20, check=check).stdout.decode()
        except FileNotFoundError:
            raise AssertionError("tmux is missing; conf/deps installs it") from None

    def screen(self):
        return self.tmux("capture-pane", "-p").rstrip("\n").split("\n")

    def until(self, pattern, what):
        def looks():
            lines = self.screen()
            return lines if re.search(pattern, "\n".join(lines), re.M) else None
        return wait_for(looks, lambda: f"{what}:\n" + "\n".join(self.screen()))

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.tmux("kill-server", check=False)


@test
def top_looks_right_at_80_columns(t):
    long_name = "a-volume-with-a-name-that-is-much-longer-than-its-column"
    for name in ("train", "scratch", long_name):
        t.server.create(name)
    with Load(t.server, "train", "127.3.2.1"), Load(t.server, long_name, "127.3.2.2"), Terminal(t.server) as terminal:
        lines = terminal.until(r"^train .* 100 %$", "the busy volume")
        eq(len(lines), 24, "lines of the screen")
        check(max(map(len, lines)) <= 80, lines)
        check(re.match(r"sluiced up 0d 00:\d\d:\d\d, \d+ clients?, \d+ connections?; pool: \S+ free of \S+$", lines[0]),
              lines[0])
        check(re.match(r"\S+ operations/s, read \S+B/s, written \S+B/s; cache: \S+ of \S+$", lines[1]), lines[1])
        eq(lines[2], "")
        eq(lines[3], "VOLUME                         OPS/s  READ/s  WRITE/s  LATENCY  AT GATE    HITS")
        heads = [n for n, line in enumerate(lines) if line.startswith("CLIENT ")]
        eq(len(heads), 1, lines)
        eq(lines[heads[0]], "CLIENT                         OPS/s  SENT/s  RECVD/s  LATENCY  AT GATE   CONNS")
        check(any(re.match(r"a-volume-with~an-its-column +\d", line) for line in lines), lines)
        check(any(re.match(r"127\.3\.2\.1 +\S+ +\S+", line) for line in lines), lines)
        eq(lines[23], "sort: o)ps r)ead w)rite l)atency g)ate h)its n)ame  q)uit")
        terminal.tmux("send-keys", "n")
        terminal.until(r"^a-volume.*\n(.*\n)*scratch.*\n(.*\n)*train", "sorted by name")
        first = terminal.screen()[1]
        wait_for(lambda: terminal.screen()[1] != first, "it renews itself")

        terminal.tmux("resize-window", "-x", "132", "-y", "40")
        lines = terminal.until(r"CONNS  VOLUMES", "more columns")
        wait_for(lambda: len(terminal.screen()) == 40 and terminal.screen()[39].startswith("sort:"), "the foot")
        check(any(re.match(r"127\.3\.2\.1 .* train(,busy)?$", line) for line in terminal.screen()), terminal.screen())
        terminal.tmux("resize-window", "-x", "60", "-y", "12")
        wait_for(lambda: len(terminal.screen()) == 12 and terminal.screen()[11].startswith("sort: o)ps"), "a small one")
        check(max(map(len, terminal.screen())) <= 60, terminal.screen())
        terminal.tmux("resize-window", "-x", "30", "-y", "8")
        terminal.until("^too small$", "one too small")
        terminal.tmux("resize-window", "-x", "80", "-y", "24")
        terminal.until(r"^sort:", "back again")
        terminal.tmux("send-keys", "q")
        terminal.until("^left with 0$", "q quits")


@test
def top_shows_what_fits_and_counts_the_rest(t):
    server = harness.Server("--cache", "16M", "--metrics", "off")
    try:
        server.start()
        for n in range(30):
            server.create("vol-%02d" % n)
        with Terminal(server) as terminal:
            lines = terminal.until(r"^and \d+ more$", "volumes that do not fit")
            shown = sum(line.startswith("vol-") for line in lines)
            rest = int(re.search(r"^and (\d+) more$", "\n".join(lines), re.M).group(1))
            eq(shown + rest, 30, lines)
            eq((len(lines), lines[23][:5]), (24, "sort:"))
            check(shown >= 12, f"{shown} volumes on 24 lines")
            server.kill()
            terminal.until("^left with 3$", "it ends with the server")
            check("gone" in "\n".join(terminal.screen()), terminal.screen())
    finally:
        server.close()


harness.run("--cache", "64M", "--metrics", "off")
