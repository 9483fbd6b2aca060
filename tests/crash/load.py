"""The load of the crash tests: clients that change a volume at random, each remembering what was acknowledged."""
import random
import threading
import time
import types

from rig import mount, volume  # first: it makes tests/nfs importable
import rawrpc
from client41 import Sharer, clone
from view import HOME, ROOT, SHARED, SHARED_NAME, Op, Tree, View, differences

KIB, MIB = 1 << 10, 1 << 20
LOST = (rawrpc.Closed, OSError)


class Picker:
    """Picks the next operation that can succeed, as the view stands."""
    WEIGHTS = {"create": 14, "write": 40, "share": 9, "truncate": 9, "rename": 8, "link": 4, "remove": 8, "mkdir": 4, "rmdir": 3,
               "chmod": 3, "own": 4, "symlink": 3}
    FILES, FOLDERS, BYTES = 24, 6, 3 * MIB

    def __init__(self, rng, biggest=MIB):
        self.rng, self.biggest = rng, biggest
        self.count = 0

    def pick(self, view):
        if HOME not in view.model.nodes:
            return ("mkdir", ROOT, view.name, HOME, 0o755)
        self._look(view)
        while True:
            kind = self.rng.choices(list(self.WEIGHTS), list(self.WEIGHTS.values()))[0]
            if len(self.files) < 3 and self.rng.random() < 0.5:
                kind = "create"
            elif len(self.files) > self.FILES or self.bytes > self.BYTES:
                kind = self.rng.choice(("remove", "truncate", "rename"))
            args = getattr(self, "_" + kind)(view)
            if args:
                return args

    def _look(self, view):
        """What there is: names of files and of folders."""
        nodes = view.model.nodes
        self.folders, self.names, self.bytes = [], [], 0
        for number, node in nodes.items():
            if node.kind == "dir" and number != ROOT:
                if number != SHARED:
                    self.folders.append(number)
                self.names += [(number, name, child) for name, child in node.children.items()
                               if nodes[child].kind != "dir"]
            elif node.kind == "reg":
                self.bytes += len(node.data.pages) * 4096
        self.files = [number for number, node in nodes.items() if node.kind == "reg"]

    def _fresh(self, view):
        """A place for a new name: (folder, name)."""
        self.count += 1
        if self.rng.random() < 0.2:
            return SHARED, view.name + b"-%d" % self.count
        return self.rng.choice(self.folders), b"n%d" % self.count

    def _create(self, view):
        if self.names and self.rng.random() < 0.1:  # as open(O_CREAT | O_TRUNC) of what is there
            where, name, child = self.rng.choice(self.names)
            if view.model.nodes[child].kind == "reg":
                return ("create", where, name, view.next, 0o644, "UNCHECKED", bytes(8), 0)
        where, name = self._fresh(view)
        size = self.rng.choice((None, None, None, 0, 1000, 3 * MIB))
        how = self.rng.choice(("UNCHECKED", "GUARDED"))
        return ("create", where, name, view.next, self.rng.choice((0o644, 0o600, 0o755)), how, bytes(8), size)

    def _mkdir(self, view):
        if len(self.folders) >= self.FOLDERS:
            return None
        where, name = self.rng.choice(self.folders), b"d%d" % self.count
        self.count += 1
        return ("mkdir", where, name, view.next, self.rng.choice((0o755, 0o700)))

    def _symlink(self, view):
        where, name = self._fresh(view)
        return ("symlink", where, name, view.next, b"../" + b"x" * self.rng.randrange(1, 300))

    def _file(self):
        return self.rng.choice(self.files) if self.files else None

    def _write(self, view):
        number = self._file()
        if number is None:
            return None
        rng, size = self.rng, view.model.nodes[number].data.size
        near = min(size, 4 * MIB)
        style = rng.random()
        if style < 0.25:    # tiny files, growing beyond what is kept inline
            offset, length = rng.choice((0, near, near // 2)), rng.randrange(1, 900)
        elif style < 0.45:  # whole blocks
            offset, length = rng.randrange(near // 4096 + 1) * 4096, rng.choice((1, 1, 1, 2, 8, 16)) * 4096
        elif style < 0.65:  # across blocks
            offset, length = rng.randrange(near + 1), rng.randrange(1, 20000)
        elif style < 0.8:   # at the end
            offset, length = size, rng.choice((100, 4096, 5000, 65536, 70001))
        elif style < 0.92:  # much
            offset = rng.choice((0, near, near // 4096 * 4096))
            length = rng.choice((128 * KIB, 256 * KIB, 300001, self.biggest))
        else:               # with a hole before it
            offset, length = size + rng.choice((1, 4096, 100000, MIB)), rng.randrange(1, 10000)
        return ("write", number, offset, (rng.getrandbits(48), min(length, self.biggest)))

    def _share(self, view):
        """A CLONE, which is there or not."""
        rng, nodes = self.rng, view.model.nodes
        sources = [n for n in self.files if nodes[n].data.size]
        if not sources:
            return None
        source, target = rng.choice(sources), rng.choice(self.files)
        big = [n for n in sources if nodes[n].data.size > 33 * MIB]
        if big and rng.random() < 0.5:  # more than one mutation does, behind the target's end
            source, after = rng.choice(big), -(-nodes[target].data.size // (256 * KIB)) * 256 * KIB
            size = nodes[source].data.size
            return None if after + size > 1 << 42 or source == target else ("share", source, target, 0, after, size, True)
        size = min(nodes[source].data.size, 4 * MIB)
        a = rng.choice((0, 0, rng.randrange(size))) // 4096 * 4096
        b = rng.choice((0, a, rng.randrange(MIB), min(nodes[target].data.size, 4 * MIB))) // 4096 * 4096
        length = min(nodes[source].data.size - a, rng.choice((self.biggest, rng.randrange(1, 70) * 4096)))
        overlap = source == target and a < b + length and b < a + length
        return None if overlap else ("share", source, target, a, b, length, True)

    def _truncate(self, view):
        number = self._file()
        if number is None:
            return None
        size = view.model.nodes[number].data.size
        near = min(size, 4 * MIB)
        return ("truncate", number, self.rng.choice((
            0, near // 2, near // 4096 * 4096, self.rng.randrange(near + 1), size + 1, size + 5000, size + MIB,
            self.rng.randrange(1 << 40))))

    def _chmod(self, view):
        number = self._file()
        return number and ("chmod", number, self.rng.choice((0o644, 0o600, 0o755, 0o444)))

    def _own(self, view):
        number = self._file()
        how = self.rng.choice(({"uid": self.rng.randrange(3000)}, {"gid": self.rng.randrange(3000)},
                               {"mtime": (self.rng.randrange(1 << 31), self.rng.randrange(10**9))},
                               {"atime": rawrpc.NOW}))
        return number and ("own", number, how)

    def _rename(self, view):
        rng, nodes = self.rng, view.model.nodes
        if rng.random() < 0.15 and len(self.folders) > 1:
            folder = rng.choice([n for n in self.folders if n != HOME])
            where, name = next((w, n) for w in self.folders for n, child in nodes[w].children.items()
                               if child == folder)
            targets = [n for n in self.folders if not view.model._inside(n, folder)]
            self.count += 1
            return ("rename", where, name, rng.choice(targets), b"m%d" % self.count)
        if not self.names:
            return None
        where, name, child = rng.choice(self.names)
        if rng.random() < 0.5:  # over another
            to, new, there = rng.choice(self.names)
            return None if there == child else ("rename", where, name, to, new)
        return ("rename", where, name, *self._fresh(view))

    def _link(self, view):
        number = self._file()
        return number and ("link", number, *self._fresh(view))

    def _remove(self, view):
        return ("remove", *self.rng.choice(self.names)[:2]) if self.names else None

    def _rmdir(self, view):
        nodes = view.model.nodes
        empty = [(w, name) for w in self.folders for name, child in nodes[w].children.items()
                 if nodes[child].kind == "dir" and not nodes[child].children]
        return ("rmdir", *self.rng.choice(empty)) if empty else None


def send(nfs, view, op):
    """Sends an operation; gives the reply, and notes in `op` what it says about attributes and handles."""
    args, handles = op.args, view.handles
    kind = args[0]
    if kind == "write":
        reply = nfs.write(handles[args[1]], args[2], op.data())
        if reply.ok and (reply.count != args[3][1] or reply.committed != rawrpc.FILE_SYNC):
            raise AssertionError(f"a short or unstable write: {op}: {reply}")
        op.attrs = {args[1]: reply.wcc.after}
    elif kind == "share":
        status = nfs.sharer.run(clone, handles[args[1]], handles[args[2]], *args[3:6])
        reply = types.SimpleNamespace(ok=status == "OK", status=status)
        op.attrs = {args[2]: nfs.getattr(handles[args[2]]).attr}
    elif kind in ("truncate", "chmod", "own"):
        what = args[2] if kind == "own" else {"size" if kind == "truncate" else "mode": args[2]}
        reply = nfs.setattr(handles[args[1]], **what)
        op.attrs = {args[1]: reply.wcc.after}
    elif kind in ("create", "mkdir", "symlink"):
        if kind == "create":
            reply = nfs.create(handles[args[1]], args[2], getattr(rawrpc, args[5]), mode=args[4], size=args[7])
        elif kind == "mkdir":
            reply = nfs.mkdir(handles[args[1]], args[2], mode=args[4])
        else:
            reply = nfs.symlink(handles[args[1]], args[2], args[4], mode=0o777)
        op.attrs = {args[1]: reply.wcc.after}
        if reply.ok:
            op.made = reply.fh
            op.attrs[args[3]] = reply.attr
    elif kind == "rename":
        reply = nfs.rename(handles[args[1]], args[2], handles[args[3]], args[4])
        op.attrs = {args[1]: reply.from_wcc.after, args[3]: reply.to_wcc.after}
    elif kind == "link":
        reply = nfs.link(handles[args[1]], handles[args[2]], args[3])
        op.attrs = {args[1]: reply.attr, args[2]: reply.wcc.after}
    else:
        reply = (nfs.remove if kind == "remove" else nfs.rmdir)(handles[args[1]], args[2])
        op.attrs = {args[1]: reply.wcc.after}
    return reply


class Client(threading.Thread):
    """Changes its part of the volume.  When the server goes away it waits until there is one again and finds out
    whether the operation in flight was done: its part must be what it knew, or that and the operation."""

    def __init__(self, load, index, seed):
        super().__init__(daemon=True)
        self.load, self.view = load, View(b"c%d" % index)
        self.rng = random.Random(seed)
        self.picker = Picker(self.rng, load.biggest)
        self.ops, self.nfs, self.generation = [], None, 0

    def run(self):
        try:
            while not self.load.stopping.is_set():
                if self.nfs is None and not self._connect():
                    continue
                self._once()
        except Exception as error:
            self.load.problem(f"{self.view.name.decode()}: {type(error).__name__}: {error}")
        finally:
            self._disconnect()

    def _disconnect(self):
        if self.nfs:
            self.nfs.close()
        if self.nfs and self.nfs.sharer:
            self.nfs.sharer.close()
        self.nfs = None

    def _connect(self):
        generation = self.load.wait_for_server(self.generation)
        if generation is None:
            return False
        self.generation = generation
        try:
            self.nfs, root = mount(self.load.server, timeout=60)
            self.nfs.sharer = None
            self.nfs.sharer = Sharer(self.load.server.port, self.view.name, timeout=60)
            self.view.handles[ROOT] = root
            self.view.handles[SHARED] = self.nfs.lookup(root, SHARED_NAME).fh
            self._settle(root)
        except LOST:
            self._disconnect()
            return False
        return True

    def _settle(self, root):
        """After a restart or a fault: everything acknowledged is there, and the operation whose outcome is not known
        wholly or not at all."""
        op = self.ops[-1] if self.ops and not self.ops[-1].outcome else None
        tree = Tree(self.nfs, root)
        problems = differences(self.view, tree)
        after = None
        if problems and op:
            after = self.view.clone()
            after.apply(op)
            with_op = differences(after, tree)
            if with_op:
                problems += [f"with {op}:"] + with_op
                after = None
        if op:
            op.outcome, op.acked = "done" if after else "lost", self.load.position()
        if after:
            self._find_handle(after, op, tree)
            self.view = after
        elif problems:
            self.load.problem(*[f"with server {self.load.generation}: {p}" for p in problems])

    def _find_handle(self, view, op, tree):
        if op.args[0] in ("create", "mkdir", "symlink"):
            fh, op.attrs[op.args[3]] = tree.listing(view.handles[op.args[1]])[op.args[2]]
            op.made = fh
            view.learn(op)

    def _once(self):
        op = Op(self.picker.pick(self.view))
        self.ops.append(op)
        op.sent = self.load.position()
        try:
            reply = send(self.nfs, self.view, op)
        except LOST:
            self._disconnect()
            return
        op.acked = self.load.position()
        if reply.ok:
            op.outcome = "done"
            self.view.apply(op)
            self.view.learn(op)
        else:
            op.attrs = {}
            if not self.load.undecided:
                op.outcome = "refused"
            self.load.refused(op, reply.status)
        self.load.answered(reply.status)
        if not reply.ok:
            try:
                self._sit_out()
            except LOST:
                self._disconnect()


    def _sit_out(self):
        """After an error: looks on until the fault is over, and then at what there is."""
        root = self.view.handles[ROOT]
        while self.load.fault.is_set() and not self.load.stopping.is_set():
            if self.load.readable:
                problems = candidates(self.view, self.ops[-1:], Tree(self.nfs, root))
                self.load.problem(*[f"while the disk fails: {p}" for p in problems])
            time.sleep(0.1)
        self._settle(root)


class Observer(threading.Thread):
    """Looks at files that others are changing.  What it has seen must be there after a crash, too: each object's ctime
    is never less than what was seen before."""

    def __init__(self, load, seed):
        super().__init__(daemon=True)
        self.load, self.rng, self.seen = load, random.Random(seed), []  # (position, handle, ctime)

    def run(self):
        nfs, generation = None, 0
        while not self.load.stopping.is_set():
            try:
                if nfs is None:
                    generation = self.load.wait_for_server(generation)
                    if generation is None:
                        return
                    nfs, _ = mount(self.load.server, timeout=60)
                known = list(self.rng.choice(self.load.clients).view.handles.values())
                fh = self.rng.choice(known) if known else None
                reply = nfs.getattr(fh) if fh else None
                if reply and reply.ok:
                    self.seen.append((self.load.position(), fh, reply.attr.ctime))
            except RuntimeError:  # the dictionary changed meanwhile
                continue
            except LOST:
                nfs = None
            time.sleep(0.001)


class Load:
    """Clients on one server.  up() says that the server was started (again)."""

    def __init__(self, server, clients=8, seed=0, position=lambda: 0, biggest=MIB, tolerant=()):
        self.server, self.position, self.biggest = server, position, biggest
        self.tolerant = tolerant       # statuses with which operations may be refused
        self.undecided = False         # what is refused may have been done all the same
        self.readable = True           # while there is a fault
        self.fault = threading.Event() # those who were refused wait until it is over
        self.stopping, self.changed = threading.Event(), threading.Condition()
        self.generation, self.problems = 0, []
        self.counts = {}               # status -> answers
        self.clients = [Client(self, i, f"{seed}/{i}") for i in range(clients)]
        self.observer = self.keeper = None

    def start(self, observe=False, seed=0, keeper=None):
        """keeper: a thread that takes snapshots (keeper.py)."""
        self.keeper = keeper
        if keeper:
            keeper.start()
        if observe:
            self.observer = Observer(self, f"{seed}/observer")
            self.observer.start()
        for client in self.clients:
            client.start()

    def up(self):
        with self.changed:
            self.generation += 1
            self.changed.notify_all()

    def wait_for_server(self, newer_than):
        """The generation of the server that is running, if it is a new one; None when the load is ending."""
        with self.changed:
            began = time.monotonic()
            while self.generation <= newer_than and not self.stopping.is_set():
                self.changed.wait(0.1)
                if time.monotonic() - began > 60:
                    raise RuntimeError("the connection was lost, and no server came")
            return None if self.stopping.is_set() else self.generation

    def problem(self, *sentences):
        with self.changed:
            self.problems += sentences

    def refused(self, op, status):
        if status not in self.tolerant:
            self.problem(f"{op}: {status}")

    def answered(self, status):
        with self.changed:
            self.counts[status] = self.counts.get(status, 0) + 1

    def done(self):
        return self.counts.get("OK", 0)

    def wait(self, operations, timeout=120):
        """Until so many more operations have been acknowledged, or something is wrong."""
        until, target = time.monotonic() + timeout, self.done() + operations
        while self.done() < target and not self.problems:
            if time.monotonic() > until:
                self.problem(f"only {self.done()} of {target} operations were acknowledged in {timeout} s")
            if not self.server.alive():
                self.problem("the server has ended by itself:", *self.server.stderr().decode(
                    errors="replace").split("\n")[-20:])
            time.sleep(0.005)

    def stop(self):
        """The load ends; the problems that it met."""
        self.stopping.set()
        with self.changed:
            self.changed.notify_all()
        for thread in [*self.clients, *(t for t in (self.observer, self.keeper) if t)]:
            if thread.ident:
                thread.join(70)
        return self.problems

    def check(self):
        """After stop(): compares the whole volume with what every client knows.  Sentences."""
        nfs, root = mount(self.server)
        with nfs:
            tree, problems = Tree(nfs, root), []
            for client in self.clients:
                problems += candidates(client.view, client.ops[-1:], tree)
            return problems + strangers([client.view for client in self.clients], tree)


def candidates(view, in_flight, tree):
    """Differences of the tree from what the client knows, or from that and the operation in flight."""
    problems = differences(view, tree)
    for op in in_flight:
        if problems and op.outcome is None:
            after = view.clone()
            after.apply(op)
            with_op = differences(after, tree)
            problems = with_op + [f"(these with {op}; without it:)"] + problems if with_op else []
    return problems


def strangers(views, tree):
    """Names in the root and in `shared` that are nobody's."""
    problems = []
    top = tree.listing(tree.root)
    for where, fh in ((ROOT, tree.root), (SHARED, top[SHARED_NAME][0] if SHARED_NAME in top else None)):
        for name in tree.listing(fh) if fh else ():
            if not any(view.name_of(where, name) for view in views) and not (where == ROOT and name == SHARED_NAME):
                problems.append(f"{name} is nobody's, and there")
    return problems


def prepare(server):
    """The volume and the directory that all share: what the load stands on."""
    volume(server)
    nfs, root = mount(server)
    with nfs:
        reply = nfs.mkdir(root, SHARED_NAME, mode=0o777)
        if not reply.ok:
            raise RuntimeError(f"MKDIR {SHARED_NAME}: {reply.status}")
