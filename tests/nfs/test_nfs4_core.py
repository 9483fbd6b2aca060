#!/usr/bin/env python3
"""NFSv4's operations on objects, names and data, with anonymous stateids over minor version 0."""
import struct

import rawrpc
from harness import check, eq, run, test
from raw4 import (ANONYMOUS, ATTRS, BYPASS, Nfs4, Op, access, bitmap, commit, create, fattr, getattr_, getfh, link,
                  lookup, lookupp, putfh, putrootfh, read, readdir, readlink, remove, rename, restorefh, savefh, secinfo,
                  setattr_, verify, write)
from rawrpc import DIR, FIFO, LNK, USER, opaque, u32, u64


def open4(context, **options):
    return Nfs4(context.server.port, **options)


def all_ok(result):
    eq(result.status, "OK", repr(list(result)))
    return result


@test
def pseudo_root_lists_what_may_be_mounted(context):
    context.server.create("hidden", allow="10.9.9.9/32:rw")
    context.server.create("other")
    try:
        with open4(context) as nfs:
            done = all_ok(nfs.compound(putrootfh(), readdir(attrs=("fileid", "mounted_on_fileid", "fsid", "type")),
                                       getattr_("fsid", "fileid", "type", "mounted_on_fileid")))
            entries = {name: attr for _, name, attr in done[1].entries}
            eq(set(entries), {b"vol", b"other"}, "entries")
            root = done[2].attr
            eq(root["type"], DIR)
            check(all(attr["fsid"] != root["fsid"] for attr in entries.values()), "a volume has its own fsid")
            check(entries[b"vol"]["fsid"] != entries[b"other"]["fsid"], "each its own")
            eq(len({attr["mounted_on_fileid"] for attr in entries.values()} | {root["fileid"]}), 3, "mounted_on_fileid")
            inside = all_ok(nfs.compound(putrootfh(), lookup(b"vol"), getattr_("fsid", "fileid", "mounted_on_fileid")))
            eq(inside[2].attr, {k: entries[b"vol"][k] for k in ("fsid", "fileid", "mounted_on_fileid")}, "inside")
            eq(nfs.compound(putrootfh(), lookup(b"hidden")).status, "ACCESS", "a volume that may not be mounted")
            eq(nfs.compound(putrootfh(), lookup(b"none")).status, "NOENT")
            back = all_ok(nfs.compound(putrootfh(), getfh(), lookup(b"vol"), lookupp(), getfh()))
            eq(back[1].fh, back[4].fh, "up from a volume's root")
            eq(nfs.compound(putrootfh(), lookupp()).status, "NOENT")
            for change in (create(b"x", DIR), remove(b"vol"), setattr_(mode=0o700), write(0, b"x")):
                eq(nfs.compound(putrootfh(), change).status, "ROFS", "the pseudo root does not change")
            eq(nfs.compound(putrootfh(), savefh(), rename(b"vol", b"x")).status, "ROFS")
            cut = all_ok(nfs.compound(putrootfh(), readdir(maxcount=70)))[1]
            eq((len(cut.entries), cut.eof), (1, False), "room for one")
            rest = all_ok(nfs.compound(putrootfh(), readdir(cookie=cut.entries[0][0])))[1]
            eq({name for _, name, _ in cut.entries + rest.entries}, {b"vol", b"other"}, "goes on")
    finally:
        context.server.cli("volume", "delete", "hidden", "--now", "--yes", check=False)
        context.server.cli("volume", "delete", "other", "--now", "--yes", check=False)


@test
def handles_are_those_of_version_3(context):
    with open4(context) as nfs:
        done = all_ok(nfs.compound(putrootfh(), lookup(b"vol"), lookup(b"handles_are_those_of_version_3"), getfh()))
        eq(done[3].fh, context.dir, "handle")
        for bad, status in ((b"", "BADHANDLE"), (b"x" * 32, "BADHANDLE"), (b"x" * 128, "BADHANDLE"),
                            (b"x" * 129, "BADXDR")):
            eq(nfs.compound(putfh(bad), getattr_("type")).status, status, repr(bad))


@test
def attributes_agree_with_version_3(context):
    fh = context.file(b"f", b"x" * 5000, mode=0o640, uid=1000, gid=1001)
    old = context.nfs.getattr(fh).attr
    with open4(context) as nfs:
        everything = all_ok(nfs.compound(putfh(fh), getattr_("supported_attrs")))[1].attr["supported_attrs"]
        done = all_ok(nfs.compound(putfh(fh), getattr_(*(everything - {ATTRS["time_access_set"],
                                                                       ATTRS["time_modify_set"]}))))
        attr = done[1].attr
        eq((attr["type"], attr["mode"], attr["size"], attr["fileid"], attr["numlinks"], attr["space_used"]),
           (1, 0o640, 5000, old.fileid, 1, old.used))
        eq((attr["owner"], attr["owner_group"]), (b"1000", b"1001"), "owners are numbers")
        eq(attr["time_modify"], old.mtime)
        eq(attr["fsid"], (old.fsid, 0))
        eq(attr["filehandle"], fh)
        eq(nfs.compound(putfh(fh), getattr_("time_access_set")).status, "INVAL", "write-only")
        eq(all_ok(nfs.compound(putfh(fh), Op("GETATTR", u32(4) + u32(1 << 4) + u32(0) * 2 + u32(0xffffffff),
                                             lambda r, reply: r.take(20))))[1].ok, True, "unknown bits are left out")
        before = attr["change"]
        all_ok(nfs.compound(putfh(fh), setattr_(mode=0o600)))
        check(all_ok(nfs.compound(putfh(fh), getattr_("change")))[1].attr["change"] > before, "change grows")


@test
def setattr_sets_and_says_what(context):
    fh = context.file(b"f", b"x" * 10)
    with open4(context) as nfs:
        done = all_ok(nfs.compound(putfh(fh), setattr_(size=4, mode=0o4711, owner=b"7", owner_group=b"8",
                                                       time_access_set=(-5, 9), time_modify_set=(5000000000, 1)),
                                   getattr_("size", "mode", "owner", "owner_group", "time_access", "time_modify")))
        eq(done[1].set, {ATTRS[name] for name in ("size", "mode", "owner", "owner_group", "time_access_set",
                                                  "time_modify_set")})
        eq(done[2].attr, dict(size=4, mode=0o4711, owner=b"7", owner_group=b"8",
                              time_access=(2**64 - 5, 9), time_modify=(5000000000, 1)))
        eq(all_ok(nfs.compound(putfh(fh), setattr_(owner=b"root@example.org"), getattr_("owner")))[2].attr["owner"],
           b"0", "a name of this host")
        for wrong, status in ((fattr(mode=0o10000), "INVAL"), (bitmap(["change"]) + opaque(u64(1)), "INVAL"),
                              (bitmap(["acl"]) + opaque(u32(0)), "ATTRNOTSUPP"), (fattr(owner=b"nobody-at-all@x"), "BADOWNER"),
                              (fattr(owner=b""), "INVAL"), (fattr(owner=b"4294967295"), "BADOWNER"),
                              (fattr(time_access_set=(1, 10**9)), "INVAL"), (bitmap(["size"]) + opaque(u32(1)), "BADXDR"),
                              (bitmap(["mode"]) + opaque(u64(1)), "BADXDR"),
                              (bitmap(["mode_umask"]) + opaque(u64(0)), "ATTRNOTSUPP")):
            result = nfs.compound(putfh(fh), Op("SETATTR", ANONYMOUS + wrong, on_error=lambda r, reply: r.u32()))
            eq(result.status, status, repr(wrong))
        eq(nfs.compound(putfh(context.dir), setattr_(size=0)).status, "ISDIR", "a directory has no size to set")
        eq(nfs.compound(putfh(fh), setattr_(mode=0o600), cred=USER).status, "PERM")
        eq(nfs.compound(putfh(fh), setattr_(stateid=b"\xfe" * 16, size=0)).status, "BAD_STATEID")


@test
def read_and_write(context):
    fh = context.file(b"f")
    data = bytes(range(256)) * 1024
    with open4(context) as nfs:
        done = all_ok(nfs.compound(putfh(fh), write(0, data, stable=0), commit(), read(0, len(data)), getattr_("size"),
                                   read(len(data) - 3, 100), read(len(data), 1), read(2**64 - 1, 1)))
        eq((done[1].count, done[1].committed), (len(data), 2), "WRITE is durable at once")
        eq(done[1].verifier, done[2].verifier)
        eq((done[3].data, done[3].eof), (data, True))
        eq(done[4].attr["size"], len(data))
        eq((done[5].data, done[5].eof), (data[-3:], True))
        eq((done[6].data, done[6].eof, done[7].data, done[7].eof), (b"", True, b"", True))
        eq(all_ok(nfs.compound(putfh(fh), read(5, 7, BYPASS)))[1].data, data[5:12])
        eq(nfs.compound(putfh(context.dir), read(0, 1)).status, "ISDIR")
        eq(nfs.compound(putfh(context.dir), write(0, b"x")).status, "ISDIR")
        eq(nfs.compound(putfh(context.dir), commit()).status, "ISDIR")
        all_ok(nfs.compound(putfh(context.dir), create(b"l", LNK, target=b"t")))
        eq(nfs.compound(putfh(context.dir), lookup(b"l"), read(0, 1)).status, "INVAL")
        eq(nfs.compound(putfh(fh), read(0, 1, b"\xfe" * 16)).status, "BAD_STATEID")
        many = [op for at in range(40) for op in (read(at * 100, 100), getattr_("size"))]
        done = all_ok(nfs.compound(putfh(fh), *many))
        eq(b"".join(reply.data for reply in done[1::2]), data[:4000], "many READs in one COMPOUND")


@test
def names(context):
    with open4(context) as nfs:
        done = all_ok(nfs.compound(putfh(context.dir), create(b"d", DIR, fattr(mode=0o750)), getattr_("mode", "type"),
                                   lookupp(), create(b"p", FIFO), getattr_("type")))
        eq(done[2].attr, dict(type=DIR, mode=0o750))
        eq(done[1].change[0], True, "atomic")
        eq(nfs.compound(putfh(context.dir), create(b"d", DIR)).status, "EXIST")
        eq(nfs.compound(putfh(context.dir), create(b"f", 1)).status, "BADTYPE", "files are made by OPEN")
        all_ok(nfs.compound(putfh(context.dir), create(b"l", LNK, target=b"some/where"), readlink(), getattr_("type")))
        eq(all_ok(nfs.compound(putfh(context.dir), lookup(b"l"), readlink()))[2].target, b"some/where")
        eq(nfs.compound(putfh(context.dir), readlink()).status, "INVAL")
        eq(nfs.compound(putfh(context.dir), lookup(b"l"), lookup(b"x")).status, "SYMLINK")
        f = context.file(b"f")
        eq(nfs.compound(putfh(f), lookup(b"x")).status, "NOTDIR")
        all_ok(nfs.compound(putfh(f), savefh(), putfh(context.dir), link(b"g")))
        eq(all_ok(nfs.compound(putfh(f), getattr_("numlinks")))[1].attr["numlinks"], 2)
        all_ok(nfs.compound(putfh(context.dir), savefh(), lookup(b"d"), rename(b"g", b"h")))
        eq(nfs.compound(putfh(context.dir), remove(b"d")).status, "NOTEMPTY")
        eq(nfs.compound(putfh(context.dir), savefh(), rename(b"f", b"d")).status, "EXIST", "a file onto a directory")
        eq(nfs.compound(putfh(context.dir), savefh(), rename(b"d", b"f")).status, "EXIST", "a directory onto a file")
        all_ok(nfs.compound(putfh(context.dir), lookup(b"d"), remove(b"h"), lookupp(), remove(b"d")))
        for name, status in ((b"", "INVAL"), (b".", "BADNAME"), (b"..", "BADNAME"), (b"a/b", "BADCHAR"),
                             (b"a\0b", "BADCHAR"), (b"x" * 256, "NAMETOOLONG"), (b"nothing", "NOENT")):
            for op in (lookup(name), remove(name)):
                eq(nfs.compound(putfh(context.dir), op).status, status, repr(name))
        eq(nfs.compound(putfh(context.dir), savefh(), rename(b"f", b"..")).status, "BADNAME")
        eq(all_ok(nfs.compound(putfh(context.dir), secinfo(b"f")))[1].flavours, [1])
        eq(nfs.compound(putfh(context.dir), secinfo(b"nothing")).status, "NOENT")


@test
def listings(context):
    made = {b"name%d" % i: context.nfs.create(context.dir, b"name%d" % i, rawrpc.GUARDED).fh for i in range(300)}
    with open4(context) as nfs:
        seen, cookie, eof = {}, 0, False
        while not eof:
            done = all_ok(nfs.compound(putfh(context.dir), readdir(
                cookie, maxcount=4096, attrs=("fileid", "filehandle", "type", "rdattr_error", "change"))))
            check(done[1].entries or done[1].eof, "something comes")
            for cookie, name, attr in done[1].entries:
                seen[name] = attr
            eof = done[1].eof
        eq({name: attr["filehandle"] for name, attr in seen.items()}, made, "entries and their handles")
        plain = all_ok(nfs.compound(putfh(context.dir), readdir(maxcount=1 << 20, attrs=("mounted_on_fileid",))))[1]
        eq({name: attr["mounted_on_fileid"] for _, name, attr in plain.entries},
           {name: attr["fileid"] for name, attr in seen.items()}, "file ids")
        eq(nfs.compound(putfh(context.dir), readdir(maxcount=15)).status, "TOOSMALL")
        eq(nfs.compound(putfh(context.dir), readdir(maxcount=20)).status, "TOOSMALL")
        eq(nfs.compound(putfh(context.dir), readdir(cookie=1)).status, "BAD_COOKIE")
        eq(nfs.compound(putfh(context.dir), readdir(cookie=cookie, verifier=9)).status, "NOT_SAME")
        eq(nfs.compound(putfh(made[b"name1"]), readdir()).status, "NOTDIR")
        few = all_ok(nfs.compound(putfh(context.dir), readdir(dircount=100)))[1]
        check(1 <= len(few.entries) <= 8, "dircount")


@test
def verify_compares(context):
    fh = context.file(b"f", b"12345")
    with open4(context) as nfs:
        size = bitmap(["size"]) + opaque(u64(5))
        other = bitmap(["size"]) + opaque(u64(6))
        eq(nfs.compound(putfh(fh), verify(size)).status, "OK")
        eq(nfs.compound(putfh(fh), verify(other)).status, "NOT_SAME")
        eq(nfs.compound(putfh(fh), verify(size, True)).status, "SAME")
        eq(nfs.compound(putfh(fh), verify(other, True)).status, "OK")
        eq(nfs.compound(putfh(fh), verify(bitmap(["rdattr_error"]) + opaque(u32(0)))).status, "INVAL")
        eq(nfs.compound(putfh(fh), verify(bitmap(["acl"]) + opaque(u32(0)))).status, "ATTRNOTSUPP")


@test
def file_handles_are_needed_and_kept(context):
    with open4(context) as nfs:
        for op in (getattr_("type"), getfh(), lookup(b"x"), lookupp(), access(), read(0, 1), write(0, b""), savefh(),
                   commit(), readdir(), create(b"x", DIR), remove(b"x"), setattr_(mode=0)):
            eq(nfs.compound(op).status, "NOFILEHANDLE", str(op.number))
        eq(nfs.compound(restorefh()).status, "RESTOREFH")
        eq(nfs.compound(putfh(context.dir), link(b"x")).status, "NOFILEHANDLE")
        done = all_ok(nfs.compound(putfh(context.dir), savefh(), putrootfh(), restorefh(), getfh()))
        eq(done[4].fh, context.dir)
        granted = all_ok(nfs.compound(putfh(context.dir), access(0x3f)))[1]
        eq((granted.supported, granted.granted), (0x1f, 0x1f), "all but EXECUTE of a directory")
        eq(nfs.compound(putfh(context.dir), access(0x40)).status, "INVAL")


@test
def wrong_compounds(context):
    with open4(context) as nfs:
        done = nfs.compound(tag=b"a tag")
        eq((done.status, done.tag, len(done)), ("OK", b"a tag", 0), "no operation")
        eq(nfs.compound(putrootfh(), minor=3).status, "MINOR_VERS_MISMATCH")
        eq(nfs.compound(putrootfh(), Op(0)).status, "OP_ILLEGAL")
        eq(nfs.compound(Op(99))[0].op, "ILLEGAL")
        eq(nfs.compound(Op("SEQUENCE")).status, "OP_ILLEGAL", "of another minor version")
        eq(nfs.compound(putrootfh(), Op("OPENATTR", u32(0))).status, "NOTSUPP")
        eq(nfs.compound(putrootfh(), Op("GETATTR", u32(0xffffffff))).status, "BADXDR", "an absurd bitmap")
        eq(nfs.compound(putrootfh(), Op("GETATTR", u32(0x3fffffff) + u32(1) * 4)).status, "BADXDR")
        long = all_ok(nfs.compound(putrootfh(), Op("GETATTR", u32(20000) + u32(1 << 1) + u32(0) * 19999,
                                                   lambda r, reply: r.take(16))))
        check(long[1].ok, "a long one that is there")
        eq(nfs.compound(*[putrootfh()] * 1024).status, "OK")
        eq(nfs.compound(*[putrootfh()] * 1025).status, "RESOURCE")
        eq(nfs.compound(putfh(context.dir), *[readdir(maxcount=1 << 20)] * 300, getattr_("type")).status, "OK")
        eq(nfs.raw(opaque(b"") + u32(0) + u32(3) + putrootfh().encode()).u32(), 10036, "fewer than it says: BADXDR")
        eq(nfs.raw(opaque(b"") + u32(0) + u32(1)).u32(), 10036)
        for garbage in (b"", u32(100), opaque(b"x" * 8), opaque(b"") + u32(0)):
            try:
                nfs.raw(garbage)
                check(False, "garbage was accepted")
            except rawrpc.RpcError as error:
                eq((error.kind, error.status), ("accepted", rawrpc.GARBAGE_ARGS))
        file = context.file(b"big", b"x" * 1048576)
        done = nfs.compound(putfh(file), *[read(0, 1048576)] * 5)
        eq(done.status, "RESOURCE", "a reply of 5 MiB")
        eq([len(reply.data) for reply in done[1:-1]], [1048576] * 3)


if __name__ == "__main__":
    run("--cache", "64Mi", "--nfs-versions", "3, 4")
