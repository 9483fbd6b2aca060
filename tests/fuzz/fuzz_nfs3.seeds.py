#!/usr/bin/env python3
"""fuzz_nfs3.seeds.py DIR: one valid call of each procedure, as fuzz_nfs3 reads them, for each thing the store may do."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "nfs"))
from rawrpc import (MOUNT_PROCEDURES, PROCEDURES, boolean, opaque, sattr, u32, u64)  # noqa: E402

FH = bytes((0xf0, 0, 0, 32)) + bytes(32)  # becomes a handle of the fake volume
ALL = sattr(mode=0o7777, uid=1, gid=2, size=3, atime=(4, 5), mtime="now")
ARGUMENTS = {
    "GETATTR": FH, "SETATTR": FH + ALL + boolean(True) + u64(7), "LOOKUP": FH + opaque(b"name"), "ACCESS": FH + u32(63),
    "READLINK": FH, "READ": FH + u64(1) + u32(1 << 20), "WRITE": FH + u64(9) + u32(5) + u32(2) + opaque(b"bytes"),
    "CREATE": FH + opaque(b"name") + u32(1) + ALL, "MKDIR": FH + opaque(b"name") + ALL,
    "SYMLINK": FH + opaque(b"name") + sattr() + opaque(b"target"),
    "MKNOD": FH + opaque(b"name") + u32(4) + sattr() + u64(5), "REMOVE": FH + opaque(b"name"),
    "RMDIR": FH + opaque(b"name"), "RENAME": (FH + opaque(b"name")) * 2, "LINK": FH * 2 + opaque(b"name"),
    "READDIR": FH + u64(0) * 2 + u32(4096), "READDIRPLUS": FH + u64(0) * 2 + u32(4096) + u32(65536), "FSSTAT": FH,
    "FSINFO": FH, "PATHCONF": FH, "COMMIT": FH + u64(0) + u32(0), "MNT": opaque(b"/vol/a//b"), "UMNT": opaque(b"/vol"),
}

LIST, PAST = (bytes((0xf0 + kind - 1, 0, 0, 32, 1, kind)) + bytes(30) for kind in (1, 2))  # .snapshot and .snapshot/NAME
VIEWS = {"GETATTR": b"", "LOOKUP": opaque(b"one"), "ACCESS": u32(63), "READDIR": u64(0) * 2 + u32(4096),
         "READDIRPLUS": u64(0) * 2 + u32(4096) + u32(65536), "MKDIR": opaque(b"x") + ALL, "FSSTAT": b""}

folder = sys.argv[1]
for number, name in enumerate(PROCEDURES):
    for view, fh in (("list", LIST), ("past", PAST)):
        if name in VIEWS:
            args = fh + VIEWS[name]
            with open(os.path.join(folder, f"seed-{view}-{name}"), "wb") as seed:
                seed.write(bytes((number, 0)) + len(args).to_bytes(2, "big") + args)
for mount, names in ((0, PROCEDURES), (32, MOUNT_PROCEDURES)):
    for number, name in enumerate(names):
        args = ARGUMENTS.get(name, b"")
        for behaviour in (0, 0x50, 0xa0, 0xff, 8, 12):
            with open(os.path.join(folder, f"seed-{mount}-{name}-{behaviour}"), "wb") as seed:
                seed.write(bytes((mount | number, behaviour)) + len(args).to_bytes(2, "big") + args)
