#!/usr/bin/env python3
"""The duplicate request cache: what changes something is not run twice."""
import select

from harness import check, eq, run, test
from rawrpc import GUARDED, NFS, PROC, USER, call_message, opaque, parse_reply, sattr, u32, u64


@test
def a_repeated_call_gets_the_first_answer(t):
    first = t.nfs.create(t.dir, b"f", GUARDED, mode=0o600, xid=1001)
    again = t.nfs.create(t.dir, b"f", GUARDED, mode=0o600, xid=1001)
    eq((again.status, again.fh, again.attr), ("OK", first.fh, first.attr))
    eq(t.nfs.create(t.dir, b"f", GUARDED, mode=0o600, xid=1002).status, "EXIST", "another xid is another call")


@test
def every_changing_procedure_is_kept(t):
    t.file(b"a"), t.file(b"c")
    sub = t.nfs.mkdir(t.dir, b"sub").fh
    eq(t.nfs.mkdir(t.dir, b"d", xid=2001).status, "OK")
    eq(t.nfs.rename(t.dir, b"a", sub, b"b", xid=2004).status, "OK")
    eq(t.nfs.remove(t.dir, b"c", xid=2005).status, "OK")
    eq(t.nfs.rmdir(t.dir, b"d", xid=2006).status, "OK")
    moved = t.nfs.lookup(sub, b"b").fh
    for call in (lambda: t.nfs.symlink(t.dir, b"s", b"t", xid=2002), lambda: t.nfs.mknod(t.dir, b"m", 7, xid=2003),
                 lambda: t.nfs.link(moved, t.dir, b"l", xid=2007), lambda: t.nfs.write(moved, 0, b"abc", xid=2008)):
        for _ in range(2):
            eq(call().status, "OK")
    eq(t.nfs.remove(t.dir, b"c", xid=2005).status, "OK", "REMOVE again")
    eq(t.nfs.rmdir(t.dir, b"d", xid=2006).status, "OK", "RMDIR again")
    eq(t.nfs.mkdir(t.dir, b"d", xid=2001).status, "OK", "MKDIR again")
    eq(t.nfs.lookup(t.dir, b"d").status, "NOENT", "but it was not made again")
    eq(t.nfs.rename(t.dir, b"a", sub, b"b", xid=2004).status, "OK", "RENAME again")


@test
def a_guarded_setattr_is_kept(t):
    fh = t.file()
    ctime = t.nfs.getattr(fh).attr.ctime
    eq(t.nfs.setattr(fh, guard=ctime, mode=0o600, xid=2101).status, "OK")
    eq(t.nfs.setattr(fh, guard=ctime, mode=0o600, xid=2101).status, "OK")
    eq(t.nfs.setattr(fh, guard=ctime, mode=0o600, xid=2102).status, "NOT_SYNC")


@test
def errors_are_kept_too(t):
    eq(t.nfs.remove(t.dir, b"f", xid=3001).status, "NOENT")
    t.file(b"f")
    eq(t.nfs.remove(t.dir, b"f", xid=3001).status, "NOENT")
    eq(t.nfs.lookup(t.dir, b"f").status, "OK", "it was not run")


@test
def the_answer_reaches_another_connection_of_the_host(t):
    first = t.nfs.mkdir(t.dir, b"d", xid=4001)
    with t.server.connect() as another:
        again = another.mkdir(t.dir, b"d", xid=4001)
        eq((again.status, again.fh), ("OK", first.fh))


@test
def another_address_credential_or_argument_is_another_call(t):
    eq(t.nfs.mkdir(t.dir, b"d", xid=5001).status, "OK")
    eq(t.nfs.mkdir(t.dir, b"d", xid=5001, cred=USER).status, "EXIST", "another credential")
    eq(t.nfs.mkdir(t.dir, b"e", xid=5001).status, "OK", "another argument")
    with t.server.connect(source=("127.0.0.2", 0)) as another:
        eq(another.mkdir(t.dir, b"d", xid=5001).status, "EXIST", "another address")


@test
def reads_are_not_kept(t):
    fh = t.file(data=b"one")
    read = call_message(6001, NFS, 3, PROC["READ"], opaque(fh) + u64(0) + u32(3))
    t.nfs.send(read)
    check(parse_reply(t.nfs.receive())[1].data.endswith(b"one\0"), "the first time")
    t.nfs.write(fh, 0, b"two")
    t.nfs.send(read)
    check(parse_reply(t.nfs.receive())[1].data.endswith(b"two\0"), "the second time")


@test
def copies_of_a_call_in_progress_run_once(t):
    connections = [t.server.connect() for _ in range(4)]
    answers = 0
    for number in range(50):
        message = call_message(7000 + number, NFS, 3, PROC["MKDIR"], opaque(t.dir) + opaque(b"%d" % number) + sattr())
        for connection in connections:
            connection.send(message)
        # In whatever order the copies arrive: the newest one's connection is answered, and so are those that come
        # when the call is done.
        readable = select.select([c.socket for c in connections], [], [], 10)[0]
        check(readable, "an answer")
        for connection in connections:
            if connection.socket in readable:
                eq(parse_reply(connection.receive())[1].u32(), 0, "no copy sees EXIST")
                answers += 1
        t.nfs.send(message)
        eq(parse_reply(t.nfs.receive())[1].u32(), 0, "a copy after the answer")
    for connection in connections:
        connection.socket.settimeout(0.2)
        try:
            while True:
                eq(parse_reply(connection.receive())[1].u32(), 0, "no copy sees EXIST")
                answers += 1
        except TimeoutError:
            pass
        connection.close()
    check(50 <= answers <= 200, f"{answers} answers")
    eq(len(t.nfs.listing(t.dir)), 52)


@test
def the_cache_is_bounded(t):
    for number in range(3000):
        t.nfs.mkdir(t.dir, b"x", xid=8000 + number)
    eq(t.nfs.lookup(t.dir, b"x").status, "OK")


if __name__ == "__main__":
    run()
