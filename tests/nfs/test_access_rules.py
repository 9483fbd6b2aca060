#!/usr/bin/env python3
"""Access rules, from clients with addresses of their own: network namespaces with IPv4 and IPv6.  Needs root.

The server runs in a namespace of its own; /etc/passwd and /etc/group are copies with one user more, in 40 groups.
"""
import ctypes
import os
import socket
import subprocess
import sys
import tempfile
import time
import traceback

import rawrpc
from harness import BUILD, Server, eq
from rawrpc import GUARDED, ROOT, Cred

CLONE_NEWNS, CLONE_NEWNET, MS_REC, MS_PRIVATE, MS_BIND = 0x20000, 0x40000000, 0x4000, 1 << 18, 0x1000
libc = ctypes.CDLL(None, use_errno=True)
MANY = Cred(4242, 4242, range(5000, 5016))  # the call's sixteen groups


def run(*words):
    subprocess.run(words, check=True)


def check_call(result):
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Network:
    """The server's namespace is this process's; a client's is held by a child and entered for a connect()."""

    def __init__(self):
        check_call(libc.unshare(CLONE_NEWNET | CLONE_NEWNS))
        check_call(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))
        run("ip", "link", "set", "lo", "up")
        self.own = os.open("/proc/self/ns/net", os.O_RDONLY)
        self.holders, self.clients = [], {}

    def client(self, number):
        """10.77.N.2 and fd77:N::2; the server is .1 and ::1."""
        holder = subprocess.Popen(["unshare", "-n", "sleep", "600"])
        self.holders.append(holder)
        own = os.readlink("/proc/self/ns/net")
        while os.readlink(f"/proc/{holder.pid}/ns/net") == own:
            time.sleep(0.01)
        here, there = f"sv{number}", f"cl{number}"
        run("ip", "link", "add", here, "type", "veth", "peer", "name", there, "netns", str(holder.pid))
        enter = ("nsenter", "-t", str(holder.pid), "-n")
        for prefix, device, last in (((), here, 1), (enter, there, 2)):
            run(*prefix, "ip", "address", "add", f"10.77.{number}.{last}/24", "dev", device)
            run(*prefix, "ip", "-6", "address", "add", f"fd77:{number}::{last}/64", "dev", device, "nodad")
            run(*prefix, "ip", "link", "set", device, "up")
        run(*enter, "ip", "link", "set", "lo", "up")
        self.clients[number] = os.open(f"/proc/{holder.pid}/ns/net", os.O_RDONLY)

    def connect(self, number, port, six=False, source=0):
        check_call(libc.setns(self.clients[number], CLONE_NEWNET))
        try:
            host = f"fd77:{number}::1" if six else f"10.77.{number}.1"
            own = f"fd77:{number}::2" if six else f"10.77.{number}.2"
            return rawrpc.Nfs(port, ROOT, host=host, source=(own, source))
        finally:
            check_call(libc.setns(self.own, CLONE_NEWNET))

    def close(self):
        for holder in self.holders:
            holder.kill()
            holder.wait()


def extra_user(folder):
    """uid 4242 in groups 6000 to 6039 by the name service of this mount namespace."""
    for name, lines in (("passwd", "many:x:4242:6000::/:/bin/false\n"),
                        ("group", "".join(f"many{n}:x:{6000 + n}:many\n" for n in range(40)))):
        copy = os.path.join(folder, name)
        with open("/etc/" + name) as old, open(copy, "w") as new:
            new.write(old.read() + lines)
        check_call(libc.mount(copy.encode(), b"/etc/" + name.encode(), None, MS_BIND, None))


# ---- tests ----

def set_rules(server, rules, *more):
    server.cli("volume", "set", "vol", f"allow={rules}", *more)


def outcome(nfs):
    """none, ro or rw; and as whom root acts."""
    reply = nfs.mnt(b"/vol")
    if reply.status == "ACCES":
        return "none", None
    name = b"f%d" % time.monotonic_ns()
    made = nfs.create(reply.fh, name, GUARDED, mode=0o644)
    if made.status == "ROFS":
        return "ro", None
    eq(made.status, "OK", "creating")
    return "rw", (made.attr.uid, made.attr.gid)


NOBODY = (65534, 65534)
ROOT_IDS = (0, 0)


def each_kind_of_rule(server, net):
    """rules, client, IPv6, privileged port: what is expected"""
    cases = [
        ("none", 1, False, False, ("none", None)),
        ("10.77.1.0/24:rw", 1, False, False, ("rw", ROOT_IDS)),
        ("10.77.1.0/24:rw", 2, False, False, ("none", None)),
        ("10.77.1.0/24:rw", 1, True, False, ("none", None)),
        ("10.77.1.2", 1, False, False, ("rw", ROOT_IDS)),
        ("[fd77:1::]/64:ro", 1, True, False, ("ro", None)),
        ("[fd77:1::]/64:ro", 2, True, False, ("none", None)),
        ("fd77::/16:rw", 2, True, False, ("rw", ROOT_IDS)),
        ("::ffff:10.77.0.0/112:rw", 2, False, False, ("rw", ROOT_IDS)),
        ("0.0.0.0/0", 2, True, False, ("none", None)),
        ("all:ro", 2, True, False, ("ro", None)),
        ("10.77.2.0/24:ro,10.77.0.0/16:rw", 2, False, False, ("ro", None)),
        ("10.77.2.0/24:ro,10.77.0.0/16:rw", 1, False, False, ("rw", ROOT_IDS)),
        ("10.77.0.0/16:rw,10.77.2.0/24:ro", 2, False, False, ("rw", ROOT_IDS)),
        ("10.77.1.0/24:rw:squash=root", 1, False, False, ("rw", NOBODY)),
        ("10.77.1.0/24:rw:squash=root:anon=77.88", 1, False, False, ("rw", (77, 88))),
        ("10.77.1.0/24:rw:squash=all:anon=99.98", 1, False, False, ("rw", (99, 98))),
        ("10.77.1.0/24:squash=none", 1, False, False, ("rw", ROOT_IDS)),
        ("10.77.1.0/24:rw:secure", 1, False, False, ("none", None)),
        ("10.77.1.0/24:rw:secure", 1, False, True, ("rw", ROOT_IDS)),
        ("[fd77:1::]/64:secure:ro", 1, True, True, ("ro", None)),
        ("10.77.1.0/24:secure,all:rw", 1, False, False, ("none", None)),
        ("host", 1, False, False, ("none", None)),
    ]
    port = 600
    for rules, client, six, privileged, expected in cases:
        set_rules(server, rules)
        port += 1
        with net.connect(client, server.port, six, port if privileged else 0) as nfs:
            eq(outcome(nfs), expected, f"{rules}, client {client}{' IPv6' if six else ''}{' secure' if privileged else ''}")


def the_check_says_what_a_client_gets(server, net):
    set_rules(server, "10.77.1.0/24:ro,10.77.2.0/24:rw:squash=all:anon=7.8,[fd77::]/16:secure", "squash=root")
    said = lambda *words: server.cli("access", "check", "vol", *words).decode()
    for words, expected in ((("10.77.1.2",), ("read only", "rule      1: 10.77.1.0/24:ro", "root acts as 65534")),
                            (("10.77.2.9", "1000"), ("read and write", "rule      2", "acts as 7")),
                            (("::ffff:10.77.2.9",), ("rule      2",)),
                            (("fd77::9",), ("rule      3", "below 1024")),
                            (("192.0.2.1",), ("no access", "sluice volume set vol allow=192.0.2.1/32:rw,10.77.1.0/24"))):
        text = said(*words)
        for piece in expected:
            assert piece in text, (words, piece, text)
    remedy = said("10.77.3.3").split("allow it: ")[1].split()
    server.cli(*remedy[1:])
    assert "read and write" in said("10.77.3.3")
    for words, piece in ((("10.77.1",), "no address"), (("10.77.1.1", "joe"), "no user's number")):
        assert piece in server.cli("access", "check", "vol", *words, check=False).decode()
    set_rules(server, "10.77.0.0/16:rw", "squash=none")


def a_change_takes_effect_on_an_open_mount(server, net):
    set_rules(server, "10.77.0.0/16:rw", "squash=none")
    with net.connect(1, server.port) as nfs:
        root = nfs.mnt(b"/vol").fh
        file = nfs.create(root, b"open", mode=0o666).fh
        eq(nfs.write(file, 0, b"x").status, "OK")
        set_rules(server, "10.77.0.0/16:ro")
        eq(nfs.write(file, 0, b"y").status, "ROFS")
        eq(nfs.read(file, 0, 1).data, b"x")
        set_rules(server, "10.77.2.0/24:rw")
        eq(nfs.read(file, 0, 1).status, "ACCES")
        set_rules(server, "10.77.0.0/16:rw:secure")
        eq(nfs.read(file, 0, 1).status, "ACCES")
        set_rules(server, "10.77.0.0/16:rw:squash=all:anon=5.5")
        eq(nfs.read(file, 0, 1).data, b"x")
        eq(nfs.create(root, b"as5", mode=0o644).attr.uid, 5)
        set_rules(server, "10.77.0.0/16:rw")


def groups_come_from_the_server(server, net):
    set_rules(server, "10.77.0.0/16:rw", "squash=none", "groups=client")
    with net.connect(1, server.port) as nfs:
        root = nfs.mnt(b"/vol").fh
        by_server = nfs.create(root, b"g6039", mode=0o640, gid=6039).fh
        by_call = nfs.create(root, b"g5003", mode=0o640, gid=5003).fh
        nfs.write(by_server, 0, b"server")
        nfs.write(by_call, 0, b"call")
        eq(nfs.read(by_call, 0, 9, cred=MANY).data, b"call")
        eq(nfs.read(by_server, 0, 9, cred=MANY).status, "ACCES")
        server.cli("volume", "set", "vol", "groups=server")
        eq(nfs.read(by_server, 0, 9, cred=MANY).data, b"server", "the fortieth group")
        eq(nfs.read(by_call, 0, 9, cred=MANY).status, "ACCES", "what the call says does not count")
        unknown = Cred(987654, 987654, range(5000, 5016))
        eq(nfs.read(by_call, 0, 9, cred=unknown).data, b"call", "an unknown user keeps the call's groups")
        before = server.cli("access", "check", "vol", "10.77.1.2", "4242").decode()
        assert " 6039" in before and " 6000" in before, before
        server.cli("volume", "set", "vol", "groups=client")
        eq(nfs.read(by_call, 0, 9, cred=MANY).data, b"call")


def wrong_rules_change_nothing(server, net):
    set_rules(server, "10.77.0.0/16:rw")
    before = server.cli("volume", "show", "vol")
    for rules, piece in (("10.77.0.0/33", "0 to 32"), ("10.77.1.1/16", "10.77.0.0/16"), ("10.0.0.0/8:squash=x", "root, none"),
                         ("10.0.0.0/8:anon=5", "UID.GID"), ("10.0.0.0/8:anon=5.4294967295", "UID.GID"),
                         ("nonsense", "not an address"), ("10.0.0.0/8:wr", "10.0.0.0/8:wr"), (":ro", ":ro")):
        said = server.cli("volume", "set", "vol", f"allow={rules}", check=False).decode()
        assert piece in said, (rules, said)
    eq(server.cli("volume", "show", "vol"), before)


TESTS = [each_kind_of_rule, the_check_says_what_a_client_gets, a_change_takes_effect_on_an_open_mount,
         groups_come_from_the_server, wrong_rules_change_nothing]


def start(server):
    """All addresses, whatever they will be."""
    server.options = ("--cache", "64Mi", "--metrics", "off")
    server.log = os.path.join(server.folder, "stderr")
    server.port = 21049
    with open(server.log, "wb") as log:
        server.process = subprocess.Popen(
            [os.path.join(BUILD, "sluiced"), "--pool", server.pool, "--listen", f"0.0.0.0:{server.port}", "--listen",
             f"[::]:{server.port}", "--socket", server.socket, *server.options], stdout=log, stderr=log,
            stdin=subprocess.DEVNULL)
    until = time.monotonic() + 30
    while b"ready:" not in server.stderr():
        assert server.process.poll() is None and time.monotonic() < until, server.stderr().decode()
        time.sleep(0.02)


def main():
    if os.getuid():
        print("test_access_rules.py needs root (network namespaces)")
        return 1
    net, server, folder = Network(), Server(), tempfile.TemporaryDirectory()
    passed = failed = 0
    try:
        extra_user(folder.name)
        for number in (1, 2):
            net.client(number)
        start(server)
        server.cli("volume", "create", "vol", "--squash", "none", "--owner", "0:0", "--mode", "0777")
        for function in TESTS:
            try:
                function(server, net)
                print(f"ok {function.__name__.replace('_', ' ')}", flush=True)
                passed += 1
            except Exception:
                traceback.print_exc()
                print(f"not ok {function.__name__.replace('_', ' ')}", flush=True)
                failed += 1
        problem = server.stop()
        if problem:
            print(f"not ok the server {problem}\n{server.stderr().decode(errors='replace')}")
            failed += 1
    finally:
        server.close()
        net.close()
        for name in (b"/etc/passwd", b"/etc/group"):
            libc.umount2(name, 2)
        folder.cleanup()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
