#!/usr/bin/env python3
"""test_random_model.py [--operations N] [--seed S] [--versions V,V...]: random operations against a server and a model
in memory, by clients of these versions of NFS (3,3,3): what one has done all others see at once.

Most go one after another over changing connections; some go two or three at once, on the same files, and then some
order of them must explain all replies.  In between: the whole tree is compared, handles of removed objects are used,
the volume is mounted anew, the server is restarted (SIGTERM or kill -9).
"""
import argparse
import concurrent.futures
import itertools
import os
import random
import sys
import time

import harness
import rawrpc
from model import FILE_MAX, Model
from model_client4 import ALTERNATIVES, Client4
from state_random import StateRun

KIND = {rawrpc.REG: "reg", rawrpc.DIR: "dir", rawrpc.LNK: "lnk", rawrpc.FIFO: "fifo"}
NAMES = [b"a", b"b", b"c", b"dd", b"e" * 255, "ü".encode(), b"\xff\x01", b"with blank", b"f1", b"f2", b"f3", b"f4"]


def attributes(attr):
    kind = KIND[attr.type]
    return (kind, attr.mode, attr.nlink, attr.size if kind == "reg" else None)


class Client:
    """Runs a model's operation over NFS; gives (status, results, handle of what was made)."""

    def __init__(self, nfs, handles):
        self.nfs, self.handles = nfs, handles

    def run(self, op):
        return getattr(self, "op_" + op[0])(*op[1:])

    def can(self, op, at_once):
        return True

    def op_getattr(self, number):
        r = self.nfs.getattr(self.handles[number])
        return r.status, attributes(r.attr) if r.ok else (), None

    def op_lookup(self, number, name):
        r = self.nfs.lookup(self.handles[number], name)
        return r.status, attributes(r.attr) if r.ok else (), None

    def op_read(self, number, offset, count):
        r = self.nfs.read(self.handles[number], offset, count)
        return r.status, (r.data, r.eof) if r.ok else (), None

    def op_write(self, number, offset, data):
        r = self.nfs.write(self.handles[number], offset, data)
        if r.ok and (r.count != len(data) or r.committed != rawrpc.FILE_SYNC):
            raise AssertionError(f"short or unstable write: {r}")
        return r.status, (r.wcc.after.size,) if r.ok else (), None

    def op_truncate(self, number, size):
        r = self.nfs.setattr(self.handles[number], size=size)
        return r.status, (r.wcc.after.size,) if r.ok else (), None

    def op_chmod(self, number, mode):
        r = self.nfs.setattr(self.handles[number], mode=mode)
        return r.status, (r.wcc.after.mode,) if r.ok else (), None

    def op_create(self, where, name, number, mode, how, verifier, size):
        if how == "EXCLUSIVE":
            r = self.nfs.create(self.handles[where], name, rawrpc.EXCLUSIVE, verifier)
        else:
            r = self.nfs.create(self.handles[where], name, getattr(rawrpc, how), mode=mode, size=size)
        return r.status, (KIND[r.attr.type], r.attr.nlink, r.attr.size) if r.ok else (), getattr(r, "fh", None)

    def _made(self, r):
        return r.status, (KIND[r.attr.type],) if r.ok else (), getattr(r, "fh", None)

    def op_mkdir(self, where, name, number, mode):
        return self._made(self.nfs.mkdir(self.handles[where], name, mode=mode))

    def op_mkfifo(self, where, name, number, mode):
        return self._made(self.nfs.mknod(self.handles[where], name, rawrpc.FIFO, mode=mode))

    def op_symlink(self, where, name, number, target):
        return self._made(self.nfs.symlink(self.handles[where], name, target, mode=0o777))

    def op_readlink(self, number):
        r = self.nfs.readlink(self.handles[number])
        return r.status, (r.target,) if r.ok else (), None

    def op_remove(self, where, name):
        return self.nfs.remove(self.handles[where], name).status, (), None

    def op_rmdir(self, where, name):
        return self.nfs.rmdir(self.handles[where], name).status, (), None

    def op_rename(self, where, name, to, new):
        return self.nfs.rename(self.handles[where], name, self.handles[to], new).status, (), None

    def op_link(self, number, where, name):
        r = self.nfs.link(self.handles[number], self.handles[where], name)
        return r.status, (r.attr.nlink,) if r.ok else (), None

    def _listing(self, number, plus):
        first = (self.nfs.readdirplus if plus else self.nfs.readdir)(self.handles[number])
        if not first.ok:
            return first.status, (), None
        counts = {"maxcount": 1024} if plus else {"count": 512}
        return "OK", (tuple(sorted(e.name for e in self.nfs.listing(self.handles[number], plus, **counts))),), None

    def op_readdir(self, number):
        return self._listing(number, False)

    def op_readdirplus(self, number):
        return self._listing(number, True)


class Chooser:
    def __init__(self, rng, model, handles, crowd=60):
        self.rng, self.model, self.handles = rng, model, handles
        self.next, self.crowd = 1, crowd

    def number(self, kind=None):
        rng, nodes = self.rng, self.model.nodes
        if rng.random() < .02:
            return rng.choice(list(self.handles))  # perhaps one that is gone
        fitting = [n for n, node in nodes.items() if n in self.handles and (kind is None or node.kind == kind)]
        return rng.choice(fitting) if fitting else 0

    def offset(self):
        rng = self.rng
        top = rng.choice((100, 1536, 5000, 20000, 300000, 300000, 600000, 2**40))
        at = rng.randrange(top)
        return at & ~4095 if rng.random() < .4 else at

    def length(self):
        return self.rng.choice((0, 1, self.rng.randrange(200), 1500, 1537, 4096, 4097, 8192,
                                self.rng.randrange(20000), self.rng.randrange(300000)))

    def op(self):
        rng, d, name = self.rng, self.number("dir"), self.rng.choice(NAMES)
        crowded = len(self.model.nodes) > self.crowd
        kind = rng.choices(
            ("create", "mkdir", "symlink", "mkfifo", "write", "truncate", "read", "chmod", "getattr", "lookup",
             "readlink", "remove", "rmdir", "rename", "link", "readdir", "readdirplus"),
            (8, 3, 1, 1, 22, 7, 14, 2, 4, 4, 1, 14 if crowded else 5, 6 if crowded else 2, 7, 4, 2, 2))[0]
        self.next += 1
        fresh, mode = self.next, rng.choice((0o644, 0o755, 0o600, 0o444))
        if kind == "create":
            how = rng.choice(("UNCHECKED", "UNCHECKED", "GUARDED", "EXCLUSIVE"))
            verifier = rng.choice((b"verifier", bytes(range(8)))) if how == "EXCLUSIVE" else None
            size = rng.choice((None, None, 0, 5000)) if how != "EXCLUSIVE" else None
            return ("create", d, name, fresh, mode, how, verifier, size)
        if kind in ("mkdir", "mkfifo"):
            return (kind, d, name, fresh, mode)
        if kind == "symlink":
            return (kind, d, name, fresh, rng.randbytes(rng.randrange(1, 900)).replace(b"\0", b"x"))
        file = self.number("reg" if rng.random() < .97 else None)
        if kind == "write":
            if rng.random() < .01:
                return (kind, file, rng.choice((FILE_MAX - 10, FILE_MAX, 2**63, 2**64 - 1)), rng.randbytes(10))
            return (kind, file, self.offset(), rng.randbytes(self.length()))
        if kind == "truncate":
            return (kind, file, rng.choice((0, self.offset(), self.offset(), self.offset())))
        if kind == "read":
            return (kind, file, self.offset(), rng.choice((1, 4096, 70000, 1 << 20)))
        if kind == "chmod":
            return (kind, self.number(rng.choice(("reg", "dir", "fifo"))), mode)
        if kind in ("getattr", "readlink"):
            return (kind, self.number("lnk" if kind == "readlink" else None))
        if kind == "rename":
            return (kind, d, name, self.number("dir"), rng.choice(NAMES))
        if kind == "link":
            return (kind, self.number("reg"), d, name)
        if kind in ("readdir", "readdirplus"):
            return (kind, d)
        return (kind, d, name)  # lookup, remove, rmdir


def same(op, allowed, results, status, got):
    if not allowed & ALTERNATIVES.get(status, {status}):
        return False
    if status != "OK":
        return True
    if len(got) != len(results):
        return False
    got = tuple(r if g is None else g for g, r in zip(got, results))
    if op[0] in ("getattr", "lookup") and results[1] is None:  # a mode left open
        return got[0] == results[0] and got[2:] == results[2:]
    return got == results


def places(op):
    """The names in directories that an operation is about."""
    if op[0] == "rename":
        return [(op[1], op[2]), (op[3], op[4])]
    if op[0] == "link":
        return [(op[2], op[3])]
    return [(op[1], op[2])] if len(op) > 2 and isinstance(op[2], bytes) else []


def brief(op):
    return tuple(f"<{len(x)} bytes>" if isinstance(x, bytes) and len(x) > 40 else x for x in op)


class Run:
    def __init__(self, seed, operations, restarts, versions):
        self.versions, self.changes = versions, {}
        self.four = any(version != "3" for version in versions)
        self.rng = random.Random(seed)
        self.operations, self.restarts = operations, restarts
        self.server = harness.Server("--cache", "64Mi", "--nfs-versions", "3, 4")
        self.state = StateRun(self.rng, self.server)
        self.model, self.handles = Model(), {}
        self.pool = concurrent.futures.ThreadPoolExecutor(3)
        self.done = 0
        self.history = []  # (operations at once, in the order that explains them; their statuses)

    def mount(self):
        self.clients = []
        for version in self.versions:
            if version == "3":
                nfs = self.server.connect()
                self.handles[0] = nfs.mnt(b"/vol").fh
                self.clients.append(Client(nfs, self.handles))
            else:
                name = b"of the model %d" % len(self.clients)
                self.clients.append(Client4(self.server.port, self.handles, int(version[2:]), self.changes, name))

    def hang_up(self):
        for client in self.clients:
            client.nfs.close()

    def learn(self, op, status, handle):
        if status == "OK" and op[0] in ("create", "mkdir", "mkfifo", "symlink") and op[3] in self.model.nodes:
            self.handles[op[3]] = handle

    def one(self, op):
        op = self.fitting(op)
        allowed, results = self.model.apply(op)
        status, got, handle = self.rng.choice([c for c in self.clients if c.can(op, False)]).run(op)
        self.written([op], [status])
        self.history.append(([brief(op)], [status]))
        if not same(op, allowed, results, status, got):
            raise AssertionError(f"{brief(op)}: {status} {brief(got)}, must be {allowed} {brief(results)}")
        self.learn(op, status, handle)

    def fitting(self, op):
        """NFSv4 gives a file that is there no other size than 0 when it is opened to be made (RFC 8881, 18.16.3)."""
        return (*op[:-1], None) if self.four and op[0] == "create" and op[-1] else op

    def written(self, ops, statuses):
        """The change attributes of these are greater from now on."""
        for op, status in zip(ops, statuses):
            if status == "OK" and op[0] == "write" and op[3]:
                self.changes[op[1]] = self.changes.get(op[1], (0, False))[0], True

    def on_clients(self, ops):
        """Each by another client that can do it; those for which there is none are left out."""
        chosen = []
        for op in ops:
            free = [c for c in self.clients if c not in [taken for _, taken in chosen] and c.can(op, True)]
            if free:
                chosen.append((op, self.rng.choice(free)))
        return chosen

    def at_once(self, ops):
        chosen = self.on_clients([self.fitting(op) for op in ops])
        ops = [op for op, _ in chosen]
        for _, client in chosen:
            client.alone = False
        futures = [self.pool.submit(client.run, op) for op, client in chosen]
        replies = [future.result() for future in futures]
        for _, client in chosen:
            client.alone = True
        self.written(ops, [reply[0] for reply in replies])
        for order in itertools.permutations(range(len(ops))):
            model = self.model.clone()
            if all(same(ops[i], *model.apply(ops[i]), replies[i][0], replies[i][1]) for i in order):
                # every order that fits the replies must be tried against the tree later; the first that also fits
                # the attributes of what was touched is taken
                if self.fits(model, ops, replies):
                    self.model = model
                    self.history.append(([brief(ops[i]) for i in order], [replies[i][0] for i in order]))
                    for i in order:
                        self.learn(ops[i], replies[i][0], replies[i][2])
                    return
        raise AssertionError(f"no order explains {[brief(op) for op in ops]} -> {[brief(r[1]) for r in replies]}, "
                             f"{[r[0] for r in replies]}")

    def fits(self, model, ops, replies):
        handles = dict(self.handles)
        for op, reply in zip(ops, replies):
            if op[0] in ("create", "mkdir", "mkfifo", "symlink") and op[3] in model.nodes:
                handles[op[3]] = reply[2]
        client = Client(self.clients[0].nfs, handles)
        touched = {x for op in ops for x in op[1:4] if isinstance(x, int) and x in handles}
        for number in touched:
            for op in [("getattr", number), ("readdir", number), ("read", number, 0, 1 << 20)]:
                status, got, _ = client.run(op)
                if not same(op, *model.apply(op), status, got):
                    return False
        for where, name in {place for op in ops for place in places(op)}:
            if where in model.nodes and model.nodes[where].kind == "dir":
                found, child = client.nfs.lookup(handles[where], name), model.nodes[where].children.get(name)
                if found.ok != (child is not None) or child is not None and found.fh != handles.get(child):
                    return False  # two orders may leave the same names, and other objects behind them
        return True

    def whole_tree(self):
        client, model = self.rng.choice(self.clients), self.model
        todo = [0]
        while todo:
            number = todo.pop()
            node = model.nodes[number]
            for op in [("getattr", number), ("readdirplus", number)]:
                self.compare(client, op)
            for name, child in node.children.items():
                self.compare(client, ("lookup", number, name))
                found = self.clients[0].nfs.lookup(self.handles[number], name)
                if found.fh != self.handles[child]:
                    raise AssertionError(f"the handle of {name} has changed")
                kind = model.nodes[child].kind
                if kind == "dir":
                    todo.append(child)
                elif kind == "lnk":
                    self.compare(client, ("readlink", child))
                elif kind == "reg":
                    self.contents(client, child)

    def contents(self, client, number):
        data = self.model.nodes[number].data
        spots = sorted({p * 4096 & ~0xfffff for p in data.pages} | {max(0, data.size - 5000)})
        for at in spots:
            self.compare(client, ("read", number, at, 1 << 20))

    def compare(self, client, op):
        allowed, results = self.model.apply(op)
        status, got, _ = client.run(op)
        if not same(op, allowed, results, status, got):
            raise AssertionError(f"whole tree: {brief(op)}: {status} {brief(got)}, must be {brief(results)}")

    def restart(self):
        self.hang_up()
        if self.rng.random() < .5:
            self.server.kill()
        else:
            problem = self.server.stop()
            if problem:
                raise AssertionError(problem)
        self.server.start()
        if self.four:
            self.state.reclaim()
        self.mount()

    def run(self):
        self.server.start()
        self.server.create("vol")
        self.mount()
        if self.four:
            self.state.begin()
        self.model.nodes[0].mode = None
        chooser = Chooser(self.rng, self.model, self.handles)
        every = max(1, self.operations // (self.restarts + 1))
        next_restart = every
        while self.done < self.operations:
            chooser.model = self.model
            if self.four and self.rng.random() < .6:
                self.state.step()
            if self.rng.random() < .12:
                ops = [chooser.op() for _ in range(self.rng.choice((2, 3)))]
                self.at_once(ops)
                self.done += len(ops)
            else:
                self.one(chooser.op())
                self.done += 1
            for gone in [n for n in self.handles if n not in self.model.nodes]:
                if self.rng.random() < .005:
                    del self.handles[gone]
            if self.rng.random() < .0005:
                self.hang_up()
                self.mount()
            if self.done >= next_restart:
                next_restart += every
                self.whole_tree()
                self.restart()
                self.whole_tree()
        self.whole_tree()
        self.hang_up()
        if self.four:
            self.state.end()


def tell(history, numbers):
    """What has lately been done to these objects, and what was done at once."""
    for ops, statuses in history[-3000:]:
        if any(x in numbers for op in ops for x in op[1:] if isinstance(x, int)):
            print("at once:" if len(ops) > 1 else "        ", *ops, "->", *statuses)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--operations", type=int, default=6000)
    parser.add_argument("--restarts", type=int, default=4)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    parser.add_argument("--versions", default="3,3,3", help="of NFS, of the clients; the first is 3")
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    run, started = Run(args.seed, args.operations, args.restarts, args.versions.split(",")), time.monotonic()
    try:
        run.run()
        problem = run.server.stop()
        if problem:
            raise AssertionError(problem)
    except Exception:
        print(f"after {run.done} operations, seed {args.seed}")
        tell(run.history, {x for op in run.history[-1][0] for x in op[1:2]} if run.history else set())
        print(run.server.stderr().decode(errors="replace")[-4000:])
        import traceback
        traceback.print_exc()
        print("not ok a random history matches the model\n0 passed, 1 failed")
        sys.exit(1)
    finally:
        run.server.close()
    of_state = f" and {run.state.done} of opens and locks" if run.four else ""
    print(f"ok a random history of {run.done} operations{of_state} matches the model ({time.monotonic() - started:.0f} s)")
    print("1 passed, 0 failed")


if __name__ == "__main__":
    main()
