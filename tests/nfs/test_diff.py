#!/usr/bin/env python3
"""test_diff.py [--rounds N] [--seed S]: `sluice snapshot diff` against what a walk through both snapshots shows.

Random changes (files, directories, renames across directories, hard links, times set back) are made between snapshots
of a volume and of a clone of it; every pair of snapshots is compared, also after others in between were deleted."""
import argparse
import json
import random
import sys

import harness
import rawrpc
from rawrpc import GUARDED

DIRECTORY = 2


def shown(nfs, root, number):
    """inode -> (attributes, contents, set of paths) of a whole tree."""
    found, todo = {}, [(b"", root)]
    first = nfs.getattr(root).attr
    found[first.fileid % (1 << 40)] = ((first.mode, first.uid), b"", {b"/"}, True)
    while todo:
        path, fh = todo.pop()
        for entry in nfs.listing(fh):
            if entry.name in (b".", b".."):
                continue
            at = nfs.lookup(fh, entry.name)
            attr, ino = at.attr, at.attr.fileid % (1 << 40)
            here = path + b"/" + entry.name
            if ino in found:
                found[ino][2].add(here)
                continue
            data = b""
            if attr.type == DIRECTORY:
                todo.append((here, at.fh))
                kept = (attr.mode, attr.uid)
            else:
                kept = (attr.mode, attr.uid, attr.size, attr.mtime)
                if attr.type == 1:
                    data = nfs.read(at.fh, 0, 1 << 20).data
            found[ino] = (kept, data, {here}, attr.type == DIRECTORY)
    return found


def expected(a, b):
    """The differences, as a sorted list; renames as sets for each inode, since their pairing is free."""
    lines, renames = [], []
    for ino in a.keys() | b.keys():
        gone = a[ino][2] if ino in a else set()
        come = b[ino][2] if ino in b else set()
        # a path is a name in a directory: whether the directory moved does not count
        gone, come = names(ino, gone, a), names(ino, come, b)
        went, came = gone.keys() - come.keys(), come.keys() - gone.keys()
        went, came = [gone[k] for k in went], [come[k] for k in came]
        pairs = min(len(went), len(came))
        if pairs:
            renames.append((pairs, frozenset(went), frozenset(came)))
        if ino in a and ino in b and (a[ino][0], a[ino][1]) != (b[ino][0], b[ino][1]):
            lines += [("changed", path) for path in come.values()] if ino != 1 and come else []
            if b"/" in b[ino][2]:
                lines.append(("changed", b"/"))
        if len(went) > pairs:
            lines.append(("removed", len(went) - pairs, frozenset(went)))
        if len(came) > pairs:
            lines.append(("created", len(came) - pairs, frozenset(came)))
    return lines, renames


def names(ino, paths, tree):
    """(inode of the directory, name) -> path"""
    directories = {next(iter(node[2])): number for number, node in tree.items() if node[3]}
    directories[b""] = directories.pop(b"/", 0)
    return {(directories[path.rpartition(b"/")[0]], path.rpartition(b"/")[2]): path for path in paths if path != b"/"}


def told(server, *which):
    out = server.cli("--json", "snapshot", "diff", *which).decode(errors="surrogateescape")
    lines = [json.loads(line) for line in out.splitlines()]
    assert lines[-1]["ok"], lines[-1]
    got = []
    for line in lines[:-1]:
        path = lambda key: bytes.fromhex(line[key + "_hex"]) if key + "_hex" in line else line[key].encode()
        got.append((line["event"], path("path")) + ((path("new_path"),) if line["event"] == "renamed" else ()))
    if got != sorted(got, key=lambda g: g[1]):
        raise AssertionError("not in the order of paths")
    return got


def compare(server, a, b, what, *which):
    got = told(server, *which)
    lines, renames = expected(a, b)
    left = list(got)
    for kind, *rest in lines:
        if kind == "changed":
            if ("changed", rest[0]) not in left:
                raise AssertionError(f"{what}: changed {rest[0]} is not told in {got}")
            left.remove(("changed", rest[0]))
            continue
        count, paths = rest
        found = [g for g in left if g[0] == kind and g[1] in paths]
        if len(found) < count:
            raise AssertionError(f"{what}: {count} {kind} of {set(paths)} are not told in {got}")
        for g in found[:count]:
            left.remove(g)
    for count, went, came in renames:
        found = [g for g in left if g[0] == "renamed" and g[1] in went and g[2] in came]
        if len(found) != count:
            raise AssertionError(f"{what}: renames {set(went)} to {set(came)}, told {got}")
        for g in found:
            left.remove(g)
    if left:
        raise AssertionError(f"{what}: told without reason: {left}")
    return len(got)


class Changer:
    serial = 0  # names are new ones in every volume

    def __init__(self, nfs, root, dice):
        self.nfs, self.root, self.dice = nfs, root, dice

    def pick(self, kind=None):
        """(directory, name, attributes and handle) of anything."""
        at, path = self.root, None
        for _ in range(self.dice.randrange(1, 5)):
            entries = [e for e in self.nfs.listing(at) if e.name not in (b".", b"..")]
            if not entries:
                break
            name = self.dice.choice(entries).name
            found = self.nfs.lookup(at, name)
            path = (at, name, found)
            if found.attr.type != DIRECTORY:
                break
            at = found.fh
        return path

    def directory(self):
        path = self.pick()
        return path[2].fh if path and path[2].attr.type == DIRECTORY else self.root

    def name(self):
        Changer.serial += 1
        return self.dice.choice((b"n%d", b"\xffname %d", b"x%d.bin")) % Changer.serial

    def one(self):
        nfs, dice, path = self.nfs, self.dice, self.pick()
        what = dice.random()
        if what < .3 or not path:
            made = nfs.create(self.directory(), self.name(), GUARDED, mode=0o644)
            nfs.write(made.fh, 0, dice.randbytes(dice.choice((0, 10, 5000, 300000))))
        elif what < .38:
            nfs.mkdir(self.directory(), self.name(), mode=0o755)
        elif what < .42:
            nfs.symlink(self.directory(), self.name(), b"target")
        elif what < .5:
            nfs.link(path[2].fh, self.directory(), self.name())
        elif what < .62:
            nfs.rename(path[0], path[1], self.directory(), self.name())
        elif what < .66:
            other = self.pick()
            nfs.rename(path[0], path[1], other[0], other[1])
        elif what < .76:
            nfs.remove(path[0], path[1])
            nfs.rmdir(path[0], path[1])
        elif what < .8:
            nfs.setattr(path[2].fh, mode=dice.choice((0o600, 0o755, 0o700)))
        elif what < .84:
            nfs.setattr(path[2].fh, size=dice.choice((0, 3, 4096, 300000)))
        elif path[2].attr.type == 1:
            nfs.write(path[2].fh, dice.choice((0, 4000, 262140)), dice.randbytes(dice.choice((1, 100, 9000))))
            if dice.random() < .3:
                nfs.setattr(path[2].fh, mtime=path[2].attr.mtime)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    print(f"# seed {options.seed}", flush=True)
    dice = random.Random(options.seed)
    server = harness.Server("--cache", "64Mi").start()
    passed = failed = 0
    try:
        server.create("v")
        nfs = server.connect()
        volumes = ["v"]
        trees = {}  # snapshot -> what it shows
        changers = {"v": Changer(nfs, nfs.mnt(b"/v").fh, dice)}
        number, compared = 0, 0
        for turn in range(options.rounds):
            for _ in range(3):
                volume = dice.choice(volumes)
                for _ in range(dice.choice((0, 5, 40))):
                    changers[volume].one()
                number += 1
                name = f"{volume}@s{number}"
                server.cli("snapshot", "create", name)
                trees[name] = shown(nfs, nfs.mnt(b"/" + name.encode()).fh, number)
            if len(volumes) < 3:
                clone = f"c{turn}"
                server.cli("clone", "create", name, clone, "--writable")
                volumes.append(clone)
                changers[clone] = Changer(nfs, nfs.mnt(b"/" + clone.encode()).fh, dice)
            if turn % 3 == 2:
                server.cli("restore", dice.choice([n for n in trees if n.startswith("v@")]))
            if len(trees) > 8:
                for gone in dice.sample(sorted(trees), 3):
                    server.cli("snapshot", "delete", gone)
                    del trees[gone]
                if dice.random() < .5:
                    server.cli("settle")
            for _ in range(12):
                a, b = dice.choice(sorted(trees)), dice.choice(sorted(trees))
                compared += compare(server, trees[a], trees[b], f"{a} and {b}", a, b)
            live = shown(nfs, changers["v"].root, 0)
            a = dice.choice([n for n in trees if n.startswith("v@")] or [None])
            if a:
                compared += compare(server, trees[a], live, f"{a} and v", a)
        print(f"ok every pair differs as a walk through both shows ({compared} lines)")
        passed += 1
        nfs.close()
        problem = server.stop()
        if problem:
            print(f"not ok the server leaves cleanly: {problem}\n{server.stderr().decode(errors='replace')[-4000:]}")
            failed += 1
    except Exception as error:  # pylint: disable=broad-except
        import traceback
        print(f"not ok seed {options.seed}: {error}\n{traceback.format_exc()[-1500:]}")
        failed += 1
    finally:
        server.close()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
