#!/usr/bin/env python3
"""fuzz_nfs4.seeds.py DIR: valid COMPOUNDs, as fuzz_nfs4 reads them, for each thing the store may do."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "nfs"))
import raw4  # noqa: E402
from raw4 import Op, fattr, opaque, u32  # noqa: E402

FH = Op("PUTFH", bytes((0xf0, 0, 0, 32)) + bytes(32))  # becomes a handle of the fake volume
LIST, PAST = (Op("PUTFH", bytes((0xf0 + kind - 1, 0, 0, 32, 1, kind)) + bytes(30)) for kind in (1, 2))
ROOT = raw4.putrootfh()
EVERYTHING = raw4.getattr_(*(set(raw4.ATTRS) - {"time_access_set", "time_modify_set"}))
ALL = fattr(size=3, mode=0o777, owner=b"7", owner_group=b"8", time_access_set=(1, 2), time_modify_set="now")
COMPOUNDS = {
    "root": [ROOT, EVERYTHING, raw4.readdir(attrs=("fileid", "fsid", "type", "filehandle")), raw4.lookup(b"vol"),
             raw4.getfh(), raw4.lookupp(), raw4.access()],
    "object": [FH, EVERYTHING, raw4.access(), raw4.readlink()],
    "data": [FH, raw4.write(9, b"bytes"), raw4.commit(), raw4.read(1, 1 << 20), raw4.read(5, 3), raw4.getattr_("size")],
    "setattr": [FH, raw4.setattr_(size=5, mode=0o644), Op("SETATTR", raw4.ANONYMOUS + ALL)],
    "names": [FH, raw4.savefh(), raw4.create(b"d", 2, ALL), raw4.create(b"l", 5, target=b"t"),
              raw4.create(b"c", 4, device=(1, 2)), raw4.rename(b"a", b"b"), raw4.link(b"x"), raw4.remove(b"y"),
              raw4.restorefh(), raw4.lookup(b"z"), raw4.lookupp(), raw4.secinfo(b"n")],
    "readdir": [FH, raw4.readdir(attrs=("fileid", "filehandle", "type", "rdattr_error")), raw4.readdir(3, maxcount=512)],
    "verify": [FH, raw4.verify(raw4.bitmap(["size"]) + opaque(bytes(7) + b"\x0a")),
               raw4.verify(raw4.bitmap(["type"]) + opaque(u32(2)), True)],
    "list": [LIST, EVERYTHING, raw4.readdir(), raw4.lookup(b"one"), raw4.lookupp()],
    "past": [PAST, EVERYTHING, raw4.readdir(attrs=("fileid", "type")), raw4.create(b"x", 2), raw4.remove(b"y")],
}

folder = sys.argv[1]
for name, ops in COMPOUNDS.items():
    args = opaque(b"tag") + u32(0) + u32(len(ops)) + b"".join(op.encode() for op in ops)
    for behaviour in (0, 0x50, 0xa0, 0xff, 0xfe, 8, 12):
        with open(os.path.join(folder, f"seed-{name}-{behaviour}"), "wb") as seed:
            seed.write(bytes((behaviour,)) + len(args).to_bytes(2, "big") + args)
