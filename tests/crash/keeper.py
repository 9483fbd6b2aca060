"""Snapshots, clones, restores and deletions beside the load of the crash tests, and what must be there afterwards.

The keeper has volumes of its own, which nobody else changes: what is in them and in their snapshots and clones is what
it knows, or that and the act in flight.  It also takes snapshots of the load's volume, and clones of these: in them
each client's part is as it was after some number of its operations, no fewer than had been acknowledged when the
command was sent, and no more than had been sent when it returned.
"""
import copy
import json
import os
import random
import subprocess
import threading
import time

import rig
from rig import VOLUME
import rawrpc
from view import ROOT, SHARED, Tree, View, differences

LOST = (rawrpc.Closed, OSError)
VOLUMES, SNAPSHOTS, FILES = 4, 4, (b"f0", b"f1", b"f2")


class Lost(Exception):
    """The server went away in the middle of a command."""


class State:
    """What the keeper knows.  volumes: name -> [files, snapshots]; files: name -> bytes; snapshots: name -> files.
    of_load and copies: snapshots of the load's volume, and clones of them: name -> number of the act that took it."""

    def __init__(self):
        self.volumes, self.of_load, self.copies = {}, {}, {}

    def clone(self):
        other = copy.copy(self)
        other.volumes = {name: [dict(files), dict(snapshots)] for name, (files, snapshots) in self.volumes.items()}
        other.of_load, other.copies = dict(self.of_load), dict(self.copies)
        return other

    def apply(self, act):
        getattr(self, "do_" + act.args[0])(act.number, *act.args[1:])

    def do_make(self, number, volume):
        self.volumes[volume] = [{}, {}]

    def do_create(self, number, volume, file):
        self.volumes[volume][0][file] = b""

    def do_write(self, number, volume, file, offset, seed, length):
        old, data = self.volumes[volume][0][file], random.Random(seed).randbytes(length)
        self.volumes[volume][0][file] = old[:offset].ljust(offset, b"\0") + data + old[offset + length:]

    def do_remove(self, number, volume, file):
        del self.volumes[volume][0][file]

    def do_snapshot(self, number, volumes, name):
        for volume in volumes:
            if volume == VOLUME:
                self.of_load[name] = number
            else:
                files, snapshots = self.volumes[volume]
                snapshots[name] = dict(files)

    def do_delete(self, number, volume, name):
        del (self.of_load if volume == VOLUME else self.volumes[volume][1])[name]

    def do_clone(self, number, volume, name, new):
        if volume == VOLUME:
            self.copies[new] = self.of_load[name]
        else:
            self.volumes[new] = [dict(self.volumes[volume][1][name]), {}]

    def do_restore(self, number, volume, name):
        self.volumes[volume][0] = dict(self.volumes[volume][1][name])

    def do_drop(self, number, volume):
        (self.copies if volume in self.copies else self.volumes).pop(volume)


class Act:
    """args: (kind, ...), as State applies them; the rest as in view.Op."""

    def __init__(self, number, args):
        self.number, self.args, self.sent, self.acked, self.outcome = number, args, 0, 1 << 62, None

    def __repr__(self):
        return f"act {self.number} {self.args} (sent at {self.sent}, {self.outcome or 'in flight'} at {self.acked})"


def sluice(server, *words):
    """What a command answers, in JSON; Lost when it cannot be known whether it was done."""
    done = subprocess.run([os.path.join(rig.BUILD, "sluice"), "--socket", server.socket, "--json", *words],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
    if done.returncode == 3 or not server.alive():
        raise Lost()
    if done.returncode:
        time.sleep(0.3)
        if not server.alive():
            raise Lost()
        raise AssertionError(f"sluice {' '.join(words)}: {done.stdout.decode(errors='replace')}")
    return json.loads(done.stdout)


def look(server, nfs, state, candidates, most):
    """How what the server has differs from a state: sentences.  candidates(number) gives for each client the views
    that a snapshot of the load may hold; at most `most` of these snapshots and clones are read."""
    problems = []
    there = {v["name"] for v in sluice(server, "volume", "list")["volumes"]} - {VOLUME}
    wanted = set(state.volumes) | set(state.copies)
    if there != wanted:
        return [f"the volumes are {sorted(there)}, not {sorted(wanted)}"]
    for volume, snapshots in [(VOLUME, state.of_load)] + [(v, s) for v, (_, s) in state.volumes.items()]:
        there = {s["name"] for s in sluice(server, "snapshot", "list", volume)["snapshots"]}
        if there != set(snapshots):
            problems.append(f"the snapshots of {volume} are {sorted(there)}, not {sorted(snapshots)}")
    if problems:
        return problems
    for volume, (files, snapshots) in state.volumes.items():
        problems += _compare_files(nfs, volume, files)
        for name, then in snapshots.items():
            problems += _compare_files(nfs, f"{volume}@{name}", then)
    of_load = [(f"{VOLUME}@{name}", number) for name, number in state.of_load.items()] + list(state.copies.items())
    for path, number in of_load[-most:] if most else ():
        problems += _compare_load(nfs, path, candidates(number))
    return problems


def _compare_files(nfs, path, files):
    reply = nfs.mnt(b"/" + path.encode())
    if not reply.ok:
        return [f"MNT {path}: {reply.status}"]
    tree = Tree(nfs, reply.fh)
    there = tree.listing(reply.fh)
    if set(there) != set(files):
        return [f"in {path} are {sorted(there)}, not {sorted(files)}"]
    problems = []
    for name, (fh, attr) in there.items():
        data = tree.all_of(fh, attr.size)
        if data != files[name]:
            at = next((i for i, (a, b) in enumerate(zip(data, files[name])) if a != b), min(len(data), attr.size))
            problems.append(f"{name} in {path}: {len(data)} bytes, not {len(files[name])}; byte {at} differs")
    return problems


def _compare_load(nfs, path, clients):
    reply = nfs.mnt(b"/" + path.encode())
    if not reply.ok:
        return [f"MNT {path}: {reply.status}"]
    tree, problems = Tree(nfs, reply.fh), []
    for views in clients:
        found = []
        for view in views:
            found = differences(view, tree)
            if not found:
                break
        if found:
            problems += [f"{path} holds none of {len(views)} states of {view.name.decode()}; the last:"] + found[:3]
    return problems


class Histories:
    """What each snapshot of the load may hold: for each client its views after so many operations."""

    def __init__(self, clients, acts):
        """clients: [(name, [Op])]"""
        self.clients, self.found = clients, {}
        self.views = [_foreign(name) for name, _ in clients]
        self.at = [0] * len(clients)
        self.pending = [act for act in acts if act.args[0] == "snapshot" and VOLUME in act.args[1]]

    def __call__(self, number):
        while number not in self.found:
            act = self.pending.pop(0)
            self.found[act.number] = [self._between(i, act) for i in range(len(self.clients))]
        return self.found[number]

    def _between(self, i, act):
        _, ops = self.clients[i]
        while self.at[i] < len(ops) and ops[self.at[i]].acked <= act.sent:
            self._step(self.views[i], ops[self.at[i]])
            self.at[i] += 1
        views, at = [self.views[i].clone()], self.at[i]
        while at < len(ops) and ops[at].sent <= act.acked:
            view = views[-1].clone()
            self._step(view, ops[at])
            views.append(view)
            at += 1
        return views

    @staticmethod
    def _step(view, op):
        if op.outcome == "done":
            view.apply(op)
            view.learn(op)
            view.handles.clear()


def _foreign(name):
    view = View(name)
    view.foreign = True
    return view


class Keeper(threading.Thread):
    WEIGHTS = {"make": 2, "create": 4, "write": 14, "remove": 2, "snapshot": 10, "delete": 7, "clone": 5, "restore": 4,
               "drop": 4}

    def __init__(self, load, seed):
        super().__init__(daemon=True)
        self.load, self.rng = load, random.Random(f"{seed}/keeper")
        self.state, self.acts, self.nfs, self.generation = State(), [], None, 0
        self.names = 0

    def run(self):
        try:
            while not self.load.stopping.is_set():
                if self.nfs is None and not self._connect():
                    continue
                self._once()
        except Exception as error:
            self.load.problem(f"keeper: {type(error).__name__}: {error}")
        finally:
            self._disconnect()

    def _disconnect(self):
        if self.nfs:
            self.nfs.close()
        self.nfs = None

    def _connect(self):
        generation = self.load.wait_for_server(self.generation)
        if generation is None:
            return False
        self.generation = generation
        try:
            self.nfs = self.load.server.connect(timeout=60)
            self.settle()
        except (Lost, *LOST):
            self._disconnect()
            return False
        return True

    def settle(self):
        """After a restart: what is known, or that and the act in flight."""
        act = self.acts[-1] if self.acts and not self.acts[-1].outcome else None
        problems, after = look(self.load.server, self.nfs, self.state, None, 0), None
        if problems and act:
            after = self.state.clone()
            after.apply(act)
            with_act = look(self.load.server, self.nfs, after, None, 0)
            if with_act:
                problems += [f"with {act}:"] + with_act
                after = None
        if act:
            act.outcome, act.acked = "done" if after else "lost", self.load.position()
        if after:
            self.state = after
        elif problems:
            self.load.problem(*[f"keeper, with server {self.load.generation}: {p}" for p in problems])

    def _once(self):
        act = Act(len(self.acts), self._pick())
        self.acts.append(act)
        act.sent = self.load.position()
        try:
            self._send(*act.args)
        except (Lost, *LOST):
            self._disconnect()
            return
        act.acked, act.outcome = self.load.position(), "done"
        self.state.apply(act)

    # ---- what to do next ----

    def _fresh(self, what):
        self.names += 1
        return f"{what}{self.names}"

    def _pick(self):
        while True:
            kind = self.rng.choices(list(self.WEIGHTS), list(self.WEIGHTS.values()))[0]
            if not self.state.volumes:
                kind = "make"
            args = getattr(self, "_" + kind)()
            if args:
                return (kind, *args)

    def _volume(self):
        return self.rng.choice(list(self.state.volumes))

    def _full(self):
        return len(self.state.volumes) + len(self.state.copies) >= VOLUMES

    def _make(self):
        return None if self._full() else (self._fresh("k"),)

    def _create(self):
        volume = self._volume()
        free = [name for name in FILES if name not in self.state.volumes[volume][0]]
        return (volume, self.rng.choice(free)) if free else None

    def _write(self):
        volume, rng = self._volume(), self.rng
        files = self.state.volumes[volume][0]
        if not files:
            return None
        return (volume, rng.choice(list(files)), rng.choice((0, 100, 4096, 5000, 262000)), rng.getrandbits(40),
                rng.choice((10, 1000, 4096, 9000, rng.randrange(1, 40000))))

    def _remove(self):
        volume = self._volume()
        files = self.state.volumes[volume][0]
        return (volume, self.rng.choice(list(files))) if files else None

    def _snapshot(self):
        some = self.rng.choice(((VOLUME,), (VOLUME, self._volume()), (self._volume(),), tuple(self.state.volumes)))
        counts = [len(self.state.of_load if v == VOLUME else self.state.volumes[v][1]) for v in some]
        return (some, self._fresh("s")) if max(counts) < SNAPSHOTS else None

    def _a_snapshot(self, of_load=True):
        there = [(v, name) for v, (_, snapshots) in self.state.volumes.items() for name in snapshots]
        there += [(VOLUME, name) for name in self.state.of_load] if of_load else []
        return self.rng.choice(there) if there else None

    def _delete(self):
        return self._a_snapshot()

    def _clone(self):
        one = self._a_snapshot()
        return (*one, self._fresh("k")) if one and not self._full() else None

    def _restore(self):
        return self._a_snapshot(False)

    def _drop(self):
        return (self.rng.choice([*self.state.volumes, *self.state.copies]),) if self._full() else None

    # ---- doing it ----

    def _send(self, kind, *args):
        server = self.load.server
        if kind == "make":
            sluice(server, "volume", "create", args[0], "--allow", "127.0.0.0/8:rw", "--squash", "none")
        elif kind == "snapshot":
            sluice(server, "snapshot", "create", f"{','.join(args[0])}@{args[1]}")
        elif kind == "delete":
            sluice(server, "snapshot", "delete", f"{args[0]}@{args[1]}")
        elif kind == "clone":
            sluice(server, "clone", "create", f"{args[0]}@{args[1]}", args[2], "--writable")
        elif kind == "restore":
            sluice(server, "restore", f"{args[0]}@{args[1]}", "--no-safety")
        elif kind == "drop":
            sluice(server, "volume", "delete", args[0], "--yes", "--now")
        else:
            self._send_file(kind, *args)

    def _send_file(self, kind, volume, file, *args):
        root = self.nfs.mnt(b"/" + volume.encode()).fh
        if kind == "create":
            reply = self.nfs.create(root, file, rawrpc.GUARDED, mode=0o644)
        elif kind == "remove":
            reply = self.nfs.remove(root, file)
        else:
            offset, seed, length = args
            data = random.Random(seed).randbytes(length)
            reply = self.nfs.write(self.nfs.lookup(root, file).fh, offset, data)
        if not reply.ok:
            raise AssertionError(f"{kind} of {file} in {volume}: {reply.status}")


def state_at(acts, position):
    """(what was known at a position, the act then in flight or None)"""
    state = State()
    for act in acts:
        if act.acked > position:
            return state, act if act.sent < position and act.outcome == "done" else None
        if act.outcome == "done":
            state.apply(act)
    return state, None
