#!/usr/bin/env python3
"""Snapshots, clones, restores, deleted volumes and policies on the command line.  SLUICE_BUILD: the directory with
sluiced and sluice.  Names of tests as arguments run only these."""
import json
import os
import re
import subprocess
import sys
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "tests", "nfs"))
import harness
from harness import check, eq, test
from rawrpc import GUARDED

DONE, FAILED, USAGE = 0, 1, 2
LONGEST = "n" * 64


class Line:
    """The command line of one test: v and w are volumes of its own."""

    count = 0

    def __init__(self, c):
        Line.count += 1
        self.c, self.server, self.nfs = c, c.server, c.nfs
        self.v, self.w = f"v{Line.count}", f"w{Line.count}"
        for name in (self.v, self.w):
            c.server.create(name)

    def __call__(self, *words, code=DONE):
        """What it prints on stdout; self.errors what on stderr."""
        done = subprocess.run([os.path.join(harness.BUILD, "sluice"), "--socket", self.server.socket, *words],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
        self.errors = done.stderr.decode()
        eq(done.returncode, code, f"{words}: {done.stdout.decode()}{self.errors}")
        return done.stdout.decode()

    def json(self, *words, code=DONE):
        return json.loads(self("--json", *words, code=code))

    def wrong(self, *words, code, says):
        """Refused, with one sentence that says so."""
        out = self(*words, code=code)
        eq(out, "", f"{words} prints")
        eq(len(self.errors.strip().split("\n")), 1, f"{words}: {self.errors}")
        check(says in self.errors, f"{words}: {self.errors}")

    def snapshots(self, name=None):
        return [s["name"] for s in self.json("snapshot", "list", name or self.v)["snapshots"]]

    def volumes(self, *more):
        return [v["name"] for v in self.json("volume", "list", *more)["volumes"]]

    def root(self, path):
        return self.nfs.mnt(b"/" + path.encode()).fh

    def put(self, path, data):
        made = self.nfs.create(self.root(path), b"file", mode=0o644)
        eq(made.status, "OK")
        eq(self.nfs.write(made.fh, 0, data).status, "OK")

    def get(self, path):
        return self.nfs.read(self.nfs.lookup(self.root(path), b"file").fh, 0, 1 << 20).data


@test
def snapshots_are_made_and_listed(c):
    line = Line(c)
    check("no snapshots yet" in line("snapshot", "list", line.v), "an empty list says how to go on")
    eq(line("snapshot", "create", f"{line.v}@one"), f"{line.v}@one\n")
    eq(line("snapshot", "create", f"{line.v},{line.w}@two"), f"{line.v}@two\n{line.w}@two\n")
    line.put(line.v, b"x" * 10000)
    answer = line.json("snapshot", "create", f"{line.v}@{LONGEST}")
    eq([s["name"] for s in answer["snapshots"]], [f"{line.v}@{LONGEST}"])
    eq(answer["ok"], True)
    without = line("snapshot", "create", line.v).strip()
    check(re.fullmatch(line.v + r"@\d{4}-\d\d-\d\d_\d{6}Z", without), without)
    eq(line.snapshots(), ["one", "two", LONGEST, without.split("@")[1]])
    eq(line.snapshots(line.w), ["two"])
    listed = line.json("snapshot", "list", line.v)
    eq(listed["volume"], line.v)
    for s in listed["snapshots"]:
        check(abs(s["created"] - time.time()) < 60 and s["by"] == "admin", s)
    eq([s["files"] for s in listed["snapshots"]], [1, 1, 2, 2])
    eq([s["bytes_used"] for s in listed["snapshots"]], [0, 0, 12288, 12288])
    eq(len({s["number"] for s in listed["snapshots"]}), 4)
    text = line("snapshot", "list", line.v).split("\n")
    check(text[0].split()[:2] == ["NAME", "TAKEN"] and text[1].startswith("one ") and len(text) == 6, text)
    eq(line.json("volume", "show", line.v)["volume"]["snapshots"], 4)


@test
def wrong_names_of_snapshots_are_said_and_make_nothing(c):
    line = Line(c)
    line("snapshot", "create", f"{line.v}@one")
    for name, code, says in (
            (f"{line.v}@one", FAILED, f"there is a snapshot {line.v}@one already"),
            (f"{line.w},{line.v}@one", FAILED, f"there is a snapshot {line.v}@one already"),
            ("nope@x", FAILED, "no volume 'nope'"), ("nope", FAILED, "no volume 'nope'"),
            (f"{line.v},nope@x", FAILED, "no volume 'nope'"), (f"{line.v},@x", FAILED, "no volume ''"),
            (f"{line.v},{line.v}@x", USAGE, "named twice"), (f"{line.v}@", USAGE, "1 to 64 characters"),
            (f"{line.v}@a/b", USAGE, "'/' cannot be"), (f"{line.v}@a@b", USAGE, "'@' cannot be"),
            (f"{line.v}@a b", USAGE, "0x20 cannot be"), (f"{line.v}@..", USAGE, "not . or .."),
            (f"{line.v}@{LONGEST}n", USAGE, "1 to 64 characters")):
        line.wrong("snapshot", "create", name, code=code, says=says)
    line.wrong("snapshot", "create", f"{line.v}@x", "--lock", "soon", code=USAGE, says="'soon' is no time")
    line.wrong("snapshot", "create", f"{line.v}@x", "--lock", "2020-01-01", code=USAGE, says="in the past")
    line.wrong("snapshot", "list", "nope", code=FAILED, says="no volume 'nope'")
    line("snapshot", "create", code=USAGE)
    line("snapshot", "create", line.v, line.w, code=USAGE)
    line("snapshot", "frobnicate", code=USAGE)
    eq((line.snapshots(), line.snapshots(line.w)), (["one"], []))
    eq(line.json("snapshot", "create", "nope@x", code=FAILED)["ok"], False)


@test
def snapshots_are_deleted_by_name_pattern_and_age(c):
    line = Line(c)
    for name in ("a1", "a2", "a3", "b1", "b2", "keep"):
        line("snapshot", "create", f"{line.v}@{name}")
    eq(line("snapshot", "delete", f"{line.v}@a1"), "a1 deleted\n")
    eq(line("snapshot", "delete", f"{line.v}@a?", f"{line.v}@b1"), "a2 deleted\na3 deleted\nb1 deleted\n")
    for words, code, says in (
            ((f"{line.v}@a1",), FAILED, "no snapshot"), ((f"{line.v}@a*",), FAILED, "no snapshot"),
            ((line.v,), USAGE, "names no snapshot"), (("nope@x",), FAILED, "no volume 'nope'"),
            ((f"{line.v}@b2", f"{line.v}@nope"), FAILED, "no snapshot"),
            ((line.v, "--older", "yesterday"), USAGE, "'yesterday' is no age")):
        line.wrong("snapshot", "delete", *words, code=code, says=says)
    eq(line.snapshots(), ["b2", "keep"], "one wrong name, and nothing is deleted")
    eq(line("snapshot", "delete", line.v, "--older", "1h"), "")
    time.sleep(2.1)  # ages are of whole seconds
    line("snapshot", "create", f"{line.v}@young")
    eq(line.json("snapshot", "delete", f"{line.v}@*b*", "--older", "1s")["deleted"], ["b2"])
    eq(line.json("snapshot", "delete", line.v, "--older", "1s"), {"deleted": ["keep"], "left": [], "ok": True})
    eq(line.snapshots(), ["young"])


@test
def snapshots_are_renamed(c):
    line = Line(c)
    line.put(line.v, b"old")
    line("snapshot", "create", f"{line.v}@one")
    line("snapshot", "create", f"{line.v}@two")
    eq(line("snapshot", "rename", f"{line.v}@one", "first"), "")
    eq(sorted(line.snapshots()), ["first", "two"])
    eq(line.get(f"{line.v}@first"), b"old")
    eq(line.nfs.mnt(f"/{line.v}@one".encode()).status, "NOENT")
    for name, to, code, says in (
            ("first", "two", FAILED, "already"), ("one", "x", FAILED, "no snapshot"), ("first", "a/b", USAGE, "'/'"),
            ("first", f"{line.v}@x", USAGE, "'@'"), ("first", "", USAGE, "1 to 64"), ("first", ".", USAGE, "not .")):
        line.wrong("snapshot", "rename", f"{line.v}@{name}", to, code=code, says=says)
    line.wrong("snapshot", "rename", line.v, "x", code=USAGE, says="VOL@NAME")
    eq(sorted(line.snapshots()), ["first", "two"])
    line("volume", "rename", line.v, line.v + ".new")
    eq(sorted(line.snapshots(line.v + ".new")), ["first", "two"])
    eq(line.get(f"{line.v}.new@first"), b"old")


@test
def what_is_locked_stays(c):
    line = Line(c)
    line("snapshot", "create", f"{line.v}@one", "--lock", "+2d")
    line("snapshot", "create", f"{line.v}@two")
    until = line.json("snapshot", "list", line.v)["snapshots"][0]["locked_until"]
    check(abs(until - time.time() - 2 * 86400) < 60, until)
    line.wrong("snapshot", "delete", f"{line.v}@one", code=FAILED, says="is locked until")
    line.wrong("snapshot", "delete", f"{line.v}@two", f"{line.v}@one", code=FAILED, says="nothing was deleted")
    eq(line.snapshots(), ["one", "two"])
    eq(line("snapshot", "delete", f"{line.v}@*", code=FAILED), "two deleted\n")
    check("one is still there" in line.errors, line.errors)
    for now in ((), ("--now",)):
        line.wrong("volume", "delete", line.v, "--yes", *now, code=FAILED, says="'one' is locked")
    check(line.v in line.volumes(), "the volume of a locked snapshot stays")
    for date, says in (("+1d", "can only be made longer"), ("2020-01-01", "in the past"), ("2026-02-30", "is no time"),
                       ("2099-13-01", "is no time"), ("2099-01-01 25:00", "is no time"), ("", "is no time"),
                       ("tomorrow", "is no time")):
        line.wrong("snapshot", "lock", f"{line.v}@one", "--until", date, code=USAGE, says=says)
    line.wrong("snapshot", "lock", f"{line.v}@one", code=USAGE, says="until when?")
    line.wrong("snapshot", "lock", f"{line.v}@two", "--until", "+1d", code=FAILED, says="no snapshot")
    eq(line.json("snapshot", "list", line.v)["snapshots"][0]["locked_until"], until)
    eq(line.json("snapshot", "lock", f"{line.v}@one", "--until", "2099-12-31 18:00")["locked_until"], 4102423200)
    check("2099-12-31 18:00:00Z" in line("snapshot", "list", line.v), "the list shows it")
    line("snapshot", "rename", f"{line.v}@one", "still")
    line.wrong("snapshot", "delete", f"{line.v}@still", code=FAILED, says="locked")


@test
def a_lock_ends_and_outlives_a_restart(c):
    line = Line(c)
    line("snapshot", "create", f"{line.v}@one", "--lock", "+4s")
    ends = time.time() + 4
    c.nfs.close()
    c.server.kill()
    c.server.start()
    c.nfs = c.server.connect()
    line.wrong("snapshot", "delete", f"{line.v}@one", code=FAILED, says="locked")
    time.sleep(max(0, ends - time.time()) + 1.1)
    line("snapshot", "delete", f"{line.v}@one")


@test
def clones_are_volumes(c):
    line = Line(c)
    line.put(line.v, b"data")
    line("volume", "set", line.v, "size=10G", "allow=127.0.0.0/8:rw,10.0.0.0/8:ro")
    line("snapshot", "create", f"{line.v}@one")
    clone = line.v + ".clone"
    check("read-only" in line("clone", "create", f"{line.v}@one", clone), "it says that it is read-only")
    answer = line.json("clone", "create", f"{line.v}@one", clone + "2", "--writable")
    eq((answer["name"], answer["writable"]), (clone + "2", True))
    origin, v = (line.json("volume", "show", name)["volume"] for name in (line.v, clone))
    for field in ("size", "allow", "squash", "owner", "mode", "files", "bytes_used"):
        eq(v[field], origin[field], field)
    eq((v["origin"], v["writable"], v["snapshots"], v["policy"]), (f"{line.v}@one", False, 0, "none"))
    eq(line.nfs.create(line.root(clone), b"new", GUARDED).status, "ROFS")
    line("volume", "set", clone, "writable=yes")
    eq(line.nfs.create(line.root(clone), b"new", GUARDED).status, "OK")
    line("snapshot", "create", f"{clone}@two")
    line("clone", "create", f"{clone}@two", clone + "3")
    eq(line.get(clone + "3"), b"data")
    for words, code, says in (
            ((line.v, "x"), USAGE, "a clone is made of a snapshot"), ((f"{line.v}@nope", "x"), FAILED, "no snapshot"),
            (("nope@one", "x"), FAILED, "no volume 'nope'"), ((f"{line.v}@one", line.w), FAILED, "already"),
            ((f"{line.v}@one", clone), FAILED, "already"), ((f"{line.v}@one", "a/b"), USAGE, "'/'"),
            ((f"{line.v}@one", "a@b"), USAGE, "'@'"), ((f"{line.v}@one", ".."), USAGE, "not . or .."),
            ((f"{line.v}@one", LONGEST + "n"), USAGE, "1 to 64")):
        line.wrong("clone", "create", *words, code=code, says=says)
    line("snapshot", "delete", f"{line.v}@one")
    line("volume", "delete", line.v, "--yes", "--now")
    eq(line.get(clone + "2"), b"data", "a clone whose origin has gone")
    check(line.json("volume", "show", clone)["volume"]["writable"], "and its settings")


@test
def a_volume_is_restored(c):
    line = Line(c)
    line.put(line.v, b"old")
    line("snapshot", "create", f"{line.v}@good")
    line.put(line.v, b"new")
    told = line("restore", f"{line.v}@good")
    safety = told.split()[-1]
    check(re.fullmatch(r"before-restore\.\d{4}-\d\d-\d\d_\d{6}Z(\.\d+)?", safety), told)
    eq((line.get(line.v), line.get(f"{line.v}@{safety}")), (b"old", b"new"))
    eq(line.json("snapshot", "list", line.v)["snapshots"][1]["by"], "restore")
    eq(line("restore", f"{line.v}@{safety}", "--no-safety"), "")
    eq((line.get(line.v), line.snapshots()), (b"new", ["good", safety]))
    answers = [line.json("restore", f"{line.v}@good")["safety"] for _ in range(3)]
    eq(len({safety, *answers}), 4, "names of snapshots taken before restores in one second")
    for words, code, says in (((line.v,), USAGE, "VOL@NAME"), ((f"{line.v}@nope",), FAILED, "no snapshot"),
                              (("nope@good",), FAILED, "no volume 'nope'"), (("@good",), USAGE, "VOL@NAME"),
                              ((f"{line.v}@",), USAGE, "VOL@NAME")):
        line.wrong("restore", *words, code=code, says=says)
    eq(line.get(line.v), b"old")
    eq(line.snapshots(), ["good", safety, *answers])


@test
def a_deleted_volume_is_kept_and_comes_back(c):
    line = Line(c)
    line.put(line.v, b"data")
    line("snapshot", "create", f"{line.v}@one")
    line("policy", "set", line.v, "default")
    line("volume", "delete", line.v, code=FAILED)  # nobody types its name
    check("nothing was deleted" in line.errors and line.v in line.volumes(), line.errors)
    check("volume undelete" in line("volume", "delete", line.v, "--yes"), "it says how to get it back")
    check(line.v not in line.volumes(), "it is gone")
    eq(line.nfs.mnt(f"/{line.v}".encode()).status, "NOENT")
    eq(line.nfs.mnt(f"/{line.v}@one".encode()).status, "NOENT")
    check(line.v in line.volumes("--deleted") and line.v in line("volume", "list", "--deleted"), "it is listed")
    line.wrong("volume", "show", line.v, code=FAILED, says="no volume")
    line("volume", "create", line.v)
    line.wrong("volume", "undelete", line.v, code=FAILED, says="already")
    line.wrong("volume", "undelete", line.v, "a/b", code=USAGE, says="'/'")
    line.wrong("volume", "undelete", "nope", code=FAILED, says="no deleted volume 'nope'")
    line("volume", "undelete", line.v, line.v + ".back")
    eq((line.get(line.v + ".back"), line.get(line.v + ".back@one")), (b"data", b"data"))
    eq(line.json("volume", "show", line.v + ".back")["volume"]["policy"], "default")
    line.wrong("volume", "undelete", line.v, code=FAILED, says="no deleted volume")
    line("volume", "delete", line.v + ".back", "--yes", "--now")
    line.wrong("volume", "undelete", line.v + ".back", code=FAILED, says="no deleted volume")
    check(line.v + ".back" not in line.volumes("--deleted"), "--now keeps nothing")
    for mark in ("first", "second"):  # of two with one name the later one comes back
        line("volume", "delete", line.v, "--yes")
        line("volume", "create", line.v, "--allow", "127.0.0.0/8:rw", "--squash", "none", "--owner", "0:0")
        line.put(line.v, mark.encode())
    line("volume", "delete", line.v, "--yes")
    line("volume", "undelete", line.v)
    eq(line.get(line.v), b"second")


@test
def policies_are_made_changed_set_and_deleted(c):
    line = Line(c)
    listed = lambda: {p["name"]: p for p in line.json("policy", "list")["policies"]}
    eq([listed()[name]["built_in"] for name in ("default", "none")], [True, True])
    line("policy", "create", "often", "--keep", "every=15m:4,hourly=6,monthly=3")
    keep = listed()["often"]["keep"]
    check(keep.startswith("every=15m:4") and "hourly=6" in keep and "monthly=3" in keep, keep)
    line("policy", "create", "copy", "--keep", keep)
    eq(listed()["copy"]["keep"], keep, "what it shows can be given to it")
    check("often" in line("policy", "list"), "the table")
    line("policy", "set", line.v, "often")
    eq(line.json("volume", "show", line.v)["volume"]["policy"], "often")
    eq(line.json("volume", "show", line.w)["volume"]["policy"], "none")
    line("policy", "change", "often", "--keep", "weekly=1")
    check(listed()["often"]["keep"].startswith("weekly=1"), listed())
    for words, code, says in (
            (("create", "often", "--keep", "daily=1"), FAILED, "already"),
            (("create", "x"), USAGE, "--keep"), (("create", "x", "--keep", ""), USAGE, ""),
            (("create", "x", "--keep", "frob=2"), USAGE, "'frob'"), (("create", "x", "--keep", "daily"), USAGE, ""),
            (("create", "x", "--keep", "daily=0"), USAGE, "'0'"), (("create", "x", "--keep", "daily=-1"), USAGE, ""),
            (("create", "x", "--keep", "daily=1@25:00"), USAGE, "25:00"),
            (("create", "x", "--keep", "every=4"), USAGE, ""), (("create", "x", "--keep", "every=0m:4"), USAGE, ""),
            (("create", "a/b", "--keep", "daily=1"), USAGE, "'/'"),
            (("create", "x", "--keep", "hourly=1,daily=1,weekly=1,monthly=1,every=5m:1,every=7m:1"), USAGE, ""),
            (("change", "default", "--keep", "daily=1"), USAGE, "built in"),
            (("change", "nope", "--keep", "daily=1"), FAILED, "no policy 'nope'"),
            (("set", line.v, "nope"), FAILED, "no policy 'nope'"), (("set", "nope", "often"), FAILED, "no volume"),
            (("delete", "often"), FAILED, f"policy set {line.v} none"), (("delete", "none"), USAGE, "built in"),
            (("delete", "nope"), FAILED, "no policy 'nope'")):
        line.wrong("policy", *words, code=code, says=says)
    eq(sorted(listed()), ["copy", "default", "none", "often"])
    line("policy", "set", line.v, "none")
    line("policy", "delete", "often")
    line("policy", "delete", "copy")
    eq(sorted(listed()), ["default", "none"])


@test
def help_names_every_command(c):
    line = Line(c)
    everything = line("help")
    for command in ("snapshot create", "snapshot list", "snapshot delete", "snapshot rename", "snapshot lock",
                    "restore", "clone create", "volume undelete", "policy create", "policy change", "policy set",
                    "policy list", "policy delete"):
        check(command in everything, command)
        check(f"usage: sluice {command}" in line("help", *command.split()), f"help {command}")


if __name__ == "__main__":
    harness.run("--cache", "64Mi")
