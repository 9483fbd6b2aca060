"""What one client knows of the volume: what its acknowledged operations have made, and what the replies said.

Each client has a directory of its own, and in the directory `shared` the names that begin with its own.  It has one
operation in flight, so after a crash its part of the tree is what it knew, or that and the operation in flight.
"""
import copy
import random

import rawrpc
from model import Model  # tests/nfs/model.py

ROOT, SHARED, HOME = 0, 1, 2  # numbers of the nodes that every view has
SHARED_NAME = b"shared"
KINDS = {rawrpc.REG: "reg", rawrpc.DIR: "dir", rawrpc.LNK: "lnk"}
SMALL = 4 << 20  # files up to this are compared as a whole


class Op:
    """One operation.  args: the model's, but data as (seed, length); for what the model does not know (owners and
    times) ("own", number, how).  sent, acked: the recorder's positions; outcome: "done", "refused", "lost" (in flight
    when the server ended, and not there afterwards), None (never answered)."""
    __slots__ = ("args", "sent", "acked", "outcome", "attrs", "made")

    def __init__(self, args):
        self.args, self.sent, self.acked, self.outcome, self.attrs, self.made = args, 0, 1 << 62, None, {}, None

    def __repr__(self):
        return f"{self.args} (sent at {self.sent}, {self.outcome or 'in flight'} at {self.acked})"

    def data(self):
        seed, length = self.args[3]
        return random.Random(seed).randbytes(length)


class View:
    def __init__(self, name):
        self.name = name                # of the client, and of its directory
        self.model = Model()
        self.model._new(ROOT, SHARED_NAME, SHARED, "dir", 0o777)
        self.handles, self.known = {}, {}  # by number; known: attributes that the last reply gave, while they hold
        self.next = HOME
        self.foreign = False            # it is compared with a snapshot, whose objects are others

    def clone(self):
        other = copy.copy(self)
        other.model = self.model.clone()
        other.handles, other.known = dict(self.handles), dict(self.known)
        return other

    def touched(self, args):
        """Numbers of the nodes whose attributes an operation may change."""
        nodes = self.model.nodes
        kind = args[0]
        if kind in ("write", "truncate", "chmod", "own"):
            return [args[1]]
        if kind == "share":
            return [args[2]]
        if kind == "link":
            return [args[1], args[2]]
        numbers = [args[1]]
        if kind in ("create", "remove", "rmdir", "rename"):
            numbers.append(nodes[args[1]].children.get(args[2]))
        if kind == "rename":
            numbers += [args[3], nodes[args[3]].children.get(args[4])]
        return [n for n in numbers if n is not None]

    def apply(self, op):
        args = op.args
        for number in self.touched(args):
            self.known.pop(number, None)
        if args[0] == "write":
            args = (*args[:3], op.data())
        if args[0] != "own":
            allowed, _ = self.model.apply(args)
            if allowed != {"OK"}:
                raise AssertionError(f"the load made an operation that must fail: {op}")
        if args[0] in ("create", "mkdir", "symlink"):
            self.next = max(self.next, args[3] + 1)

    def learn(self, op):
        """What the reply told."""
        if op.made:
            self.handles[op.args[3]] = op.made
        for number, attr in op.attrs.items():
            if number not in (ROOT, SHARED) and attr:
                self.known[number] = attr

    def name_of(self, where, name):
        """Whether a name in the root or in `shared` is this client's."""
        return name == self.name if where == ROOT else name.startswith(self.name + b"-")


# ---- what the server has ----

class Tree:
    """The volume as the server shows it: directories are listed once; files are read when they are compared."""

    def __init__(self, nfs, root):
        self.nfs, self.root = nfs, root
        self.lists, self.whole = {}, {}

    def listing(self, fh):
        """name -> (handle, attributes), by READDIRPLUS and, where that left them out, LOOKUP."""
        if fh not in self.lists:
            entries = {}
            for entry in self.nfs.listing(fh, plus=True):
                if entry.name in (b".", b".."):
                    continue
                if entry.name in entries:
                    raise AssertionError(f"{entry.name} is listed twice")
                if entry.fh is None or entry.attr is None:
                    found = self.nfs.lookup(fh, entry.name)
                    if not found.ok:
                        raise AssertionError(f"{entry.name} is listed, but LOOKUP says {found.status}")
                    entry.fh, entry.attr = found.fh, found.attr or self.nfs.getattr(found.fh).attr
                entries[entry.name] = (entry.fh, entry.attr)
            self.lists[fh] = entries
        return self.lists[fh]

    def read(self, fh, offset, length):
        pieces, end = [], offset + length
        while offset < end:
            reply = self.nfs.read(fh, offset, min(end - offset, 1 << 20))
            if not reply.ok:
                raise AssertionError(f"READ at {offset}: {reply.status}")
            if not reply.data:
                break
            pieces.append(reply.data)
            offset += len(reply.data)
        return b"".join(pieces)

    def all_of(self, fh, size):
        if fh not in self.whole:
            self.whole[fh] = self.read(fh, 0, size + 1)
        return self.whole[fh]

    def handles(self):
        """handle -> attributes of everything."""
        found, todo = {}, [self.root]
        while todo:
            for fh, attr in self.listing(todo.pop()).values():
                found[fh] = attr
                if attr.type == rawrpc.DIR:
                    todo.append(fh)
        return found


def differences(view, tree):
    """Where the tree differs from what a client knows: sentences, none if nowhere."""
    problems = []
    _compare_folder(view, tree, ROOT, tree.root, b"", problems)
    return problems


def _compare_folder(view, tree, number, fh, path, problems):
    there, wanted = tree.listing(fh), view.model.nodes[number].children
    if number in (ROOT, SHARED):
        there = {name: entry for name, entry in there.items()
                 if view.name_of(number, name) or number == ROOT and name == SHARED_NAME}
    for name in sorted(set(there) | set(wanted)):
        where = (path + b"/" + name).decode()
        if name not in there:
            problems.append(f"{where} is missing")
        elif name not in wanted:
            problems.append(f"{where} is there and should not be")
        else:
            _compare_node(view, tree, wanted[name], *there[name], path + b"/" + name, problems)


def _compare_node(view, tree, number, fh, attr, path, problems):
    node, where = view.model.nodes[number], path.decode()
    if number in view.handles and view.handles[number] != fh:
        problems.append(f"{where} has another handle")
    if KINDS.get(attr.type) != node.kind:
        problems.append(f"{where} is of type {attr.type}, not {node.kind}")
        return
    if number == SHARED:
        _compare_folder(view, tree, number, fh, path, problems)
        return
    for what, got, want in (("mode", attr.mode, node.mode), ("nlink", attr.nlink, node.nlink)):
        if got != want and want is not None:
            problems.append(f"{where}: {what} is {got:o}, not {want:o}")
    known = view.known.get(number)
    if known:
        for what in ("uid", "gid", "size", "atime", "mtime", "ctime") + (() if view.foreign else ("fileid", "fsid")):
            if getattr(attr, what) != getattr(known, what):
                problems.append(f"{where}: {what} is {getattr(attr, what)}, a reply said {getattr(known, what)}")
    if node.kind == "dir":
        _compare_folder(view, tree, number, fh, path, problems)
    elif node.kind == "lnk":
        target = tree.nfs.readlink(fh)
        if not target.ok or target.target != node.target:
            problems.append(f"{where}: target is {getattr(target, 'target', target.status)}, not {node.target}")
    elif attr.size != node.data.size:
        problems.append(f"{where}: size is {attr.size}, not {node.data.size}")
    else:
        try:
            _compare_data(tree, fh, node.data, where, problems)
        except AssertionError as error:
            problems.append(f"{where}: {error}")


def _compare_data(tree, fh, data, where, problems):
    if data.size <= SMALL:
        ranges = [(0, data.size, tree.all_of(fh, data.size))]
    else:
        ranges = [(start, end - start, tree.read(fh, start, end - start)) for start, end in _runs(data)]
    for start, length, got in ranges:
        want = data.read(start, length)
        if got != want:
            at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
            zero = " (zeroes)" if not any(got[at:at + 512]) else ""
            problems.append(f"{where}: byte {start + at} of {data.size} differs{zero}; {len(got)} bytes read at "
                            f"{start}, {length} wanted")
            return


def _runs(data):
    """The parts of a sparse file to look at: what was written, with the blocks around it, and its end."""
    pages = set()
    for page in list(data.pages) + [data.size // 4096]:
        pages.update((max(page - 1, 0), page, page + 1))
    runs = []
    for page in sorted(pages):
        start, end = page * 4096, min((page + 1) * 4096, data.size)
        if start >= end:
            continue
        if runs and runs[-1][1] == start and end - runs[-1][0] <= 1 << 20:
            runs[-1][1] = end
        else:
            runs.append([start, end])
    return runs
