#!/usr/bin/env python3
"""What a program may send to the control socket that is not as it should be: nothing is done, a sentence says why, and
the server goes on.  SLUICE_BUILD: the directory with sluiced and sluice.  Names of tests as arguments run only these."""
import json
import os
import socket
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "tests", "nfs"))
import harness
from harness import check, eq, test


class Raw:
    def __init__(self, server):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(30)
        self.socket.connect(server.socket)
        self.file = self.socket.makefile("rwb")

    def line(self, text):
        self.file.write(text.encode() + b"\n")
        self.file.flush()
        return json.loads(self.file.readline())

    def ask(self, command, **arguments):
        return self.line(json.dumps({"command": command, **arguments}))

    def wrong(self, says, command, **arguments):
        answer = self.ask(command, **arguments)
        eq((answer["ok"], says in answer.get("error", "")), (False, True), f"{command} {arguments}: {answer}")


def snapshots(raw, volume):
    return [s["name"] for s in raw.ask("snapshot-list", name=volume)["snapshots"]]


@test
def an_argument_of_another_type_is_not_one_that_is_missing(c):
    raw = Raw(c.server)
    c.server.create("typed")
    for name in ("a", "b"):
        eq(raw.ask("snapshot-create", name=f"typed@{name}")["ok"], True)
    raw.wrong("older: right would be a text", "snapshot-delete", names=["typed@*"], older=7)
    raw.wrong("names: right would be a list", "snapshot-delete", names="typed@*")
    raw.wrong("lock: right would be a text", "snapshot-create", name="typed@c", lock=1893456000)
    raw.wrong("now: right would be true or false", "volume-delete", name="typed", now="yes")
    raw.wrong("safety: right would be true or false", "restore", name="typed@a", safety="no")
    raw.wrong("writable: right would be true or false", "clone-create", name="typed@a", to="x", writable=1)
    raw.wrong("name: right would be a text", "volume-show", name=None)
    raw.wrong("last: right would be a whole number", "events", last="5")
    raw.wrong("set: right would be a list", "volume-set", name="typed", set={"size": "1G"})
    raw.wrong("no argument", "volume-show", name="typed", nome="x")
    eq(snapshots(raw, "typed"), ["a", "b"])


@test
def what_is_nested_deep_is_refused_before_it_is_read(c):
    raw = Raw(c.server)
    for depth in (17, 2000, 100000):
        for open_, close in (("[", "]"), ('{"a":', "}")):
            middle = open_ * depth + "1" + close * depth
            answer = raw.line('{"command":"volume-show","name":' + middle + "}")
            check("nested too deep" in answer["error"], answer)
    answer = raw.line(json.dumps({"command": "volume-show", "name": '\\"[[[[[[[[[[[[[[[[[[[[[[[['}))
    check("no volume" in answer["error"], answer)


@test
def names_that_a_list_sends_are_not_nested_either(c):
    """They are read on a coroutine's small stack."""
    c.server.create("listed")
    raw = Raw(c.server)
    answer = raw.ask("warm", name="listed", list=True)
    eq(answer.get("event"), "more", answer)
    answer = raw.line('{"names":' + "[" * 2000 + "]" * 2000 + "}")
    eq(answer["ok"], False)


@test
def bytes_of_a_name_are_pairs_of_digits(c):
    raw = Raw(c.server)
    c.server.create("hex")
    with tempfile.TemporaryDirectory() as source:
        for bad in ("2", "zz", "2f0", "2f00", " 1", "0x2f"):
            raw.wrong("to_hex: right would be two hexadecimal digits", "import", name="hex", **{"from": source},
                      to_hex=bad)
        eq(raw.ask("import", name="hex", **{"from": source}, to_hex="2f61")["ok"], True)
    eq(raw.ask("ls", name="hex", path_hex="2f")["name"], "a")


@test
def a_read_only_volume_takes_no_import(c):
    raw = Raw(c.server)
    c.server.create("origin")
    raw.ask("snapshot-create", name="origin@s")
    eq(raw.ask("clone-create", name="origin@s", to="copy")["ok"], True)
    with tempfile.TemporaryDirectory() as source:
        open(os.path.join(source, "file"), "w").close()
        raw.wrong("sluice volume set copy writable=yes", "import", name="copy", **{"from": source})
        raw.wrong("is a snapshot", "import", name="origin@s", **{"from": source})


@test
def a_snapshot_is_warmed(c):
    raw = Raw(c.server)
    c.server.create("warmed")
    made = c.nfs.create(c.nfs.mnt(b"/warmed").fh, b"file", mode=0o644)
    eq(c.nfs.write(made.fh, 0, b"x" * 100000).status, "OK")
    raw.ask("snapshot-create", name="warmed@then")
    eq(c.nfs.remove(c.nfs.mnt(b"/warmed").fh, b"file").status, "OK")
    answer = raw.ask("warm", name="warmed@then")
    eq((answer["ok"], answer["done_files"], answer["done_bytes"]), (True, 1, 100000), answer)
    raw.wrong("no snapshot 'warmed@never'", "warm", name="warmed@never")


@test
def a_clone_of_a_clone_being_split_is_not_split_itself(c):
    raw = Raw(c.server)
    c.server.create("base")
    made = c.nfs.create(c.nfs.mnt(b"/base").fh, b"file", mode=0o644)
    for at in range(64):
        eq(c.nfs.write(made.fh, at << 20, b"x" * (1 << 20)).status, "OK")
    raw.ask("snapshot-create", name="base@s")
    raw.ask("clone-create", name="base@s", to="half", writable=True)
    raw.ask("snapshot-create", name="half@s")
    eq(raw.ask("clone-split", name="half")["ok"], True)
    eq(raw.ask("clone-split", name="half", pause=True)["state"] in ("paused", "done"), True)
    eq(raw.ask("clone-create", name="half@s", to="whole")["ok"], True)
    raw.wrong("it is not being split", "clone-split", name="whole", pause=True)
    raw.wrong("it is no clone", "clone-split", name="base")


@test
def a_mistyped_command_is_offered(c):
    for typed, meant in (("acces", "access"), ("tpo", "top"), ("volumes", "volume"), ("frobnicate", None)):
        said = c.server.cli(typed, "x", check=False).decode()
        eq(f"did you mean '{meant}'?" in said, meant is not None, said)


sys.exit(harness.run("--cache", "64Mi"))
