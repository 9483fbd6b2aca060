#!/usr/bin/env python3
"""powerloss.py [--images N] [--seed S] [--without CLASS | --try-each | --classes]: what a power loss may leave.

A server works on a pool beneath the recorder (recfs.c): clients change a volume, and in between the server is stopped
and started, and killed and started.  From the record come images: everything that was synced at some moment, and of
what was not any part, in blocks (images.py).  A server must open each without help; everything acknowledged up to that
moment must be there, an operation in flight wholly or not at all, and nothing else.  Snapshots, clones and restores
beside the load (keeper.py) must be there in the same way.

--without CLASS leaves one class of syncs out of account, and then images must fail; --try-each does so for each class
found in the record (--classes lists them).  What is proved redundant by the record is said to be so.
--save DIR keeps the recording, --load DIR uses one, --at P [--how HOW] looks at one moment only.
"""
import argparse
import bisect
import multiprocessing
import os
import pickle
import random
import shutil
import sys
import tempfile
import time
import traceback

import images
import rig as rigs
from keeper import Histories, Keeper, look, state_at
from load import LOST, Load, candidates, strangers
from rig import Results, Rig, Server, mount, run_main
from view import ROOT, SHARED, Tree, View

WORKERS = 2
PER_RECORDING = 250
READY_SECONDS = 5
KEPT_MAX = 3
EXTRA = b"after-the-loss"
LOOKS = 3


class Recording:
    """The record and what the clients know, to be replayed side by side."""

    def __init__(self, log, seed):
        self.log, self.seed = log, seed
        self.prepared = None   # (position before the volume was asked for, after it was there, after `shared` was)
        self.clients = []      # (name, handles of root and shared, [Op])
        self.seen = []         # (position, handle, ctime): what was new to the observer
        self.acts = []         # the keeper's
        self.marks = []        # positions at stops, kills and starts
        self.record = None

    def take(self, load, prepared):
        self.prepared = prepared
        self.clients = [(c.view.name, {n: c.view.handles[n] for n in (ROOT, SHARED)}, c.ops) for c in load.clients]
        self.acts = load.keeper.acts if load.keeper else []
        newest = {}
        for position, fh, ctime in load.observer.seen if load.observer else ():
            if newest.get(fh) != ctime:  # seen for the first time
                newest[fh] = ctime
                self.seen.append((position, fh, ctime))

    def open(self):
        self.record = images.Record(self.log)
        done = [op for _, _, ops in self.clients for op in ops] + self.acts
        self.acks = sorted({op.acked for op in done if op.outcome == "done"})
        return self

    def save(self, folder):
        os.makedirs(folder, exist_ok=True)
        shutil.copy(self.log, os.path.join(folder, "record"))
        with open(os.path.join(folder, "clients"), "wb") as file:
            pickle.dump([self.seed, self.prepared, self.clients, self.seen, self.marks, self.acts], file)

    @staticmethod
    def load(folder):
        with open(os.path.join(folder, "clients"), "rb") as file:
            seed, *rest = pickle.load(file)
        recording = Recording(os.path.join(folder, "record"), seed)
        recording.prepared, recording.clients, recording.seen, recording.marks, recording.acts = rest
        return recording.open()


def make_recording(rig, seed, operations):
    recorder = rig.recorder()
    recorder.set(sync_us=300, sync_meta_us=300)
    server = rig.server(pool=os.path.join(recorder.mount, "pool"))
    recording, rng = Recording(recorder.log, seed), random.Random(f"{seed}/recording")
    server.start()
    asked = recorder.position()
    rigs.volume(server)
    there = recorder.position()
    nfs, root = mount(server)
    with nfs:
        nfs.mkdir(root, b"shared", mode=0o777)
    ready = recorder.position()
    load = Load(server, seed=seed, position=recorder.position)
    load.up()
    load.start(observe=True, seed=seed, keeper=Keeper(load, seed))
    # what should be waited for and is not shows where it is slower than the rest
    for step, data_us, meta_us in (("stop", 300, 300), ("kill", 4000, 100), ("kill again", 100, 1000),
                                   ("end", 2000, 100)):
        recorder.set(sync_us=data_us, sync_meta_us=meta_us)
        load.wait(operations // 4)
        recording.marks.append(recorder.position())
        if load.problems or step == "end":
            break
        if step == "stop":
            server.process.terminate()
            server.process.wait(20)
        else:
            server.kill()
        if step == "kill again":  # while it recovers
            server.begin()
            time.sleep(rng.random() * 0.08)
            server.kill()
        server.start()
        recording.marks.append(recorder.position())
        load.up()
    problems = load.stop()
    server.kill()
    recorder.unmount()
    if problems:
        raise AssertionError("\n".join(["while recording:"] + problems[:20]))
    recording.take(load, (asked, there, ready))
    return recording.open()


class Replay:
    """What had been acknowledged at a position."""

    def __init__(self, recording):
        self.recording, self.views, self.at = recording, [], []
        for name, handles, _ in recording.clients:
            view = View(name)
            view.handles.update(handles)
            self.views.append(view)
            self.at.append(0)
        self.seen, self.seen_at = {}, 0

    def advance(self, position):
        for i, (_, _, ops) in enumerate(self.recording.clients):
            while self.at[i] < len(ops) and ops[self.at[i]].acked <= position:
                op = ops[self.at[i]]
                if op.outcome == "done":
                    self.views[i].apply(op)
                    self.views[i].learn(op)
                self.at[i] += 1
        seen = self.recording.seen
        while self.seen_at < len(seen) and seen[self.seen_at][0] <= position:
            self.seen[seen[self.seen_at][1]] = seen[self.seen_at][2]
            self.seen_at += 1

    def in_flight(self, i, position):
        _, _, ops = self.recording.clients[i]
        op = ops[self.at[i]] if self.at[i] < len(ops) else None
        return [Undecided(op)] if op and op.sent < position else []


class Undecided:
    """An operation as it was before its reply."""
    outcome, acked = None, None

    def __init__(self, op):
        self.args, self.data, self.text = op.args, op.data, repr(op)

    def __repr__(self):
        return self.text


class Checker:
    """One of the processes that build images and look at them."""

    def __init__(self, folder, recording, without=()):
        self.folder, self.recording = folder, recording
        os.makedirs(folder)
        self.disk = images.Disk(recording.record, folder, without)
        self.replay = Replay(recording)
        self.histories = Histories([(name, ops) for name, _, ops in recording.clients], recording.acts)
        self.slowest = 0

    def check(self, position, rng, how=None):
        """(problems, description); the image is left in self.image, until discard()."""
        self.disk.advance(position)
        self.replay.advance(position)
        self.image = os.path.join(self.folder, "image")
        state = rng.getstate()
        chosen = self.disk.build(self.image, rng, how)
        self.server = Server(self.folder, os.path.join(self.image, "pool"))
        try:
            problems = self._look(position, rng)
        except LOST as error:
            problems = [f"the server broke off: {error!r}"]
        except Exception as error:
            problems = str(error).rstrip().split("\n")
            if not isinstance(error, RuntimeError):
                problems += traceback.format_exc().rstrip().split("\n")
        finally:
            self.server.kill()
        if problems:
            problems += [f"stderr: {line}" for line in self.server.stderr().decode(errors="replace").split("\n")[-12:]]
            shutil.rmtree(self.image)  # the server has changed it
            rng.setstate(state)
            self.disk.build(self.image, rng, how)
        return problems, chosen

    def discard(self):
        shutil.rmtree(self.image, ignore_errors=True)
        self.server.close()

    def _look(self, position, rng):
        asked, there, ready = self.recording.prepared
        seconds = self.server.started()
        self.slowest = max(self.slowest, seconds)
        problems = [f"the server was ready after {seconds:.2f} s"] if seconds > READY_SECONDS else []
        try:
            nfs, root = mount(self.server)
        except LookupError as error:
            return problems + ([str(error)] if position >= there else [])
        if position <= asked:
            return problems + ["there is a volume that nobody had asked for"]
        if position < ready:
            return problems
        with nfs:
            problems += self._compare(nfs, root, position)
            if not problems:
                problems += self._work(nfs, root)
        if not problems and rng.random() < 0.2:
            problems = self._again(position, rng)
        return problems

    def _compare(self, nfs, root, position):
        tree, problems = Tree(nfs, root), []
        for i, view in enumerate(self.replay.views):
            problems += candidates(view, self.replay.in_flight(i, position), tree)
        there = tree.handles()
        for fh, ctime in self.replay.seen.items():
            if fh in there and there[fh].ctime < ctime:
                problems.append(f"an object's ctime is {there[fh].ctime}, and others had seen {ctime}")
        tree.listing(root).pop(EXTRA, None)
        return problems + strangers(self.replay.views, tree) + self._versions(nfs, position)

    def _versions(self, nfs, position):
        """The keeper's state, or that and the act in flight; of the load's snapshots the latest few are read."""
        state, act = state_at(self.recording.acts, position)
        problems = look(self.server, nfs, state, self.histories, LOOKS)
        if problems and act:
            state.apply(act)
            with_act = look(self.server, nfs, state, self.histories, LOOKS)
            problems = with_act + [f"(these with {act}; without it:)"] + problems if with_act else []
        return problems

    def _work(self, nfs, root):
        """A few new operations."""
        data = random.Random(1).randbytes(70000)
        folder = nfs.mkdir(root, EXTRA, mode=0o755)
        made = folder.ok and nfs.create(folder.fh, b"file", mode=0o644)
        written = made and made.ok and nfs.write(made.fh, 1000, data)
        if not written or not written.ok:
            return [f"new operations fail: {folder.status}, {made and made.status}, {written and written.status}"]
        return self._worked(nfs, root)

    def _worked(self, nfs, root):
        folder = nfs.lookup(root, EXTRA)
        found = folder.ok and nfs.lookup(folder.fh, b"file")
        read = found and found.ok and nfs.read(found.fh, 0, 100000)
        if not read or not read.ok:
            return [f"what was made after the loss is not there: {folder.status}, {found and found.status}"]
        return [] if read.data == bytes(1000) + random.Random(1).randbytes(70000) else ["new data read back wrongly"]

    def _again(self, position, rng):
        """Ends the server, starts it once more, and looks again."""
        problems = []
        if rng.random() < 0.5:
            self.server.kill()
        else:
            end = self.server.stop()
            problems += [f"the server {end}"] if end else []
        self.server.start()
        nfs, root = mount(self.server)
        with nfs:
            problems += self._compare(nfs, root, position) + self._worked(nfs, root)
        return [f"after another start: {p}" for p in problems]


# ---- which moments ----

def positions(recording, rng, count):
    record, (_, there, ready) = recording.record, recording.prepared
    syncs = sorted(record.classes)
    commits = [index for index in syncs if record.events[index].flags & images.DSYNC]
    removals = [i for i, e in enumerate(record.events) if e.type in (images.ZERO, images.UNLINK)]
    last = len(record.events)
    chosen = []
    for _ in range(count):
        kind = rng.random()
        if kind < 0.25:
            p = rng.choice(recording.acks)
        elif kind < 0.45:
            p = rng.choice(commits or syncs) + 1
        elif kind < 0.53 and recording.seen:
            p = rng.choice(recording.seen)[0]
        elif kind < 0.62:
            p = rng.choice(syncs) + 1
        elif kind < 0.7:
            p = rng.choice(syncs)
        elif kind < 0.78:
            p = rng.randrange(ready + 1)
        elif kind < 0.86:
            p = rng.choice(recording.marks) + rng.randrange(60)
        elif kind < 0.94:
            p = rng.choice(removals or syncs) + 1 + rng.randrange(4)
        else:
            p = rng.randrange(last + 1)
        chosen.append(min(p, last))
    return sorted(chosen)


def aimed(recording, rng, name, count):
    """Moments at which the loss of one class of syncs should show: soon after them, before something else is synced,
    right after the first replies that relied on them, and any time later."""
    after = sorted(recording.acks + list(recording.prepared[1:]))
    indices = [index for index, one in recording.record.classes.items() if one == name]
    chosen = []
    for number in range(count):
        index = rng.choice(indices)
        later = after[bisect.bisect_right(after, index):]
        if later and number % 3:
            chosen.append(rng.choice(later[:3] if number % 3 == 1 else later))
        else:
            chosen.append(min(index + 1 + rng.randrange(8), len(recording.record.events)))
    return sorted(chosen)


# ---- running ----

def check_some(queue, folder, recording, without, moments, seed, how, stop_at_failure):
    """A process: looks at some images, and says for each what was found."""
    done = 0
    try:
        checker = Checker(folder, recording, without)
        for number, position in moments:
            problems, chosen = checker.check(position, random.Random(f"{seed}/{number}/{position}"), how)
            kept = None
            if problems and not without:
                kept = tempfile.mkdtemp(prefix=f"sluice-powerloss-{seed}-{position}-")
                shutil.copytree(checker.image, os.path.join(kept, "image"))
                with open(os.path.join(kept, "why"), "w") as file:
                    file.write("\n".join([f"seed {seed}, position {position}, {chosen}"] + problems) + "\n")
            checker.discard()
            done += 1
            queue.put(("image", number, position, chosen, problems, kept, checker.slowest))
            if problems and stop_at_failure:
                break
    except KeyboardInterrupt:
        pass
    except Exception:
        queue.put(("broken", traceback.format_exc()))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        queue.put(("end",))


class Crew:
    """Runs check_some in several processes."""

    def __init__(self, rig, recording, seed):
        self.rig, self.recording, self.seed = rig, recording, seed
        self.context, self.count, self.processes = multiprocessing.get_context("fork"), 0, []
        rig.add(self)

    def look(self, moments, without=(), how=None, stop_at_failure=False, workers=WORKERS):
        """Yields what the processes say, image by image.  moments: [(number, position)], sorted by position."""
        queue, running = self.context.Queue(), []
        share = -(-len(moments) // workers)
        for at in range(0, len(moments), share or 1):
            self.count += 1
            process = self.context.Process(target=check_some, args=(
                queue, os.path.join(self.rig.folder, f"crew{self.count}"), self.recording, without,
                moments[at:at + share], self.seed, how, stop_at_failure))
            process.start()
            running.append(process)
        self.processes += running
        while running:
            message = queue.get()
            if message[0] == "broken":
                raise RuntimeError(message[1])
            if message[0] == "image":
                yield message[1:]
            else:
                running.pop()

    def close(self):
        for process in self.processes:
            process.join(1 if sys.exc_info()[0] is None else 0)
            if process.is_alive():
                process.terminate()
                process.join(20)


def check_images(rig, recording, seed, count, results, arguments):
    crew, began = Crew(rig, recording, seed), time.monotonic()
    rng = random.Random(f"{seed}/moments")
    moments = [arguments.at] * count if arguments.at is not None else positions(recording, rng, count)
    failures, slowest, looked = [], 0, 0
    for number, position, chosen, problems, kept, slow in crew.look(list(enumerate(moments)), arguments.without,
                                                                    arguments.how):
        looked, slowest = looked + 1, max(slowest, slow)
        if problems:
            failures.append((position, chosen, problems, kept))
            if arguments.without:
                continue
            print(f"# image {number} at {position} ({chosen}): kept in {kept}", flush=True)
    seconds = time.monotonic() - began
    print(f"# {looked} images in {seconds:.1f} s ({looked / seconds:.1f}/s), slowest start {slowest * 1000:.0f} ms")
    results.note(f"{looked} images, {len(recording.record.events)} events, {len(recording.acks)} replies, "
                 f"seed {seed}" + "".join(f", without {name}" for name in arguments.without),
                 [line for position, chosen, problems, kept in failures
                  for line in [f"at {position}, {chosen}:"] + ["  " + p for p in problems]])
    if failures and not arguments.without:
        folder = tempfile.mkdtemp(prefix=f"sluice-powerloss-{seed}-recording-")
        recording.save(folder)
        print(f"# the recording is kept in {folder} (--load)", flush=True)


EACH = 60  # images that may be needed to notice that a class of syncs is missing


def noticed(crew, name, without):
    """(what an image without these classes showed, or None; images looked at)"""
    rng, looked, found = random.Random(f"{crew.seed}/{name}"), 0, None
    moments = list(enumerate(aimed(crew.recording, rng, name, EACH)))
    for _, position, chosen, problems, _, _ in crew.look(moments, without, None, True):
        looked += 1
        if problems and not found:
            found = f"at {position}, {chosen}: {problems[0]}"
    return found, looked


def try_each(rig, recording, seed, results):
    """Takes each class of syncs out, and expects that images show it.  A class that another one makes redundant must
    be shown by images in which both are missing."""
    crew = Crew(rig, recording, seed)
    acknowledged = sorted(recording.acks + list(recording.prepared[1:]))
    for name in recording.record.class_names():
        found, looked = noticed(crew, name, [name])
        title = f"without {name}"
        covering = None if found else recording.record.covered(name, acknowledged)
        if covering:
            title += f": nothing is lost in {looked} images; without {' and '.join(sorted(covering))} as well"
            found, _ = noticed(crew, name, [name, *covering])
        if found:
            print(f"# {name}: {found}")
        results.note(f"{title}: noticed", () if found else ["no image has failed"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--seed", default=str(random.randrange(1 << 32)))
    parser.add_argument("--operations", type=int, default=1200, help="of one recording")
    parser.add_argument("--without", metavar="CLASS", action="append", default=[])
    parser.add_argument("--try-each", action="store_true")
    parser.add_argument("--classes", action="store_true")
    parser.add_argument("--save", metavar="DIR")
    parser.add_argument("--load", metavar="DIR")
    parser.add_argument("--at", type=int, metavar="POSITION")
    parser.add_argument("--how", choices=sorted(set(images.HOWS)))
    arguments = parser.parse_args()
    results = Results()
    print(f"# seed {arguments.seed}", flush=True)
    count = 1 if arguments.try_each or arguments.classes or arguments.load else -(-arguments.images // PER_RECORDING)
    for number in range(count):
        seed = arguments.seed if count == 1 else f"{arguments.seed}.{number}"
        with Rig(ram=True) as rig:
            recording = (Recording.load(arguments.load) if arguments.load else
                         make_recording(rig, seed, arguments.operations))
            if arguments.save:
                recording.save(arguments.save)
            if arguments.classes:
                for name in recording.record.class_names():
                    print(f"{sum(one == name for one in recording.record.classes.values()):6} {name}")
                return
            if arguments.try_each:
                try_each(rig, recording, seed, results)
            else:
                share = arguments.images // count + (number < arguments.images % count)
                check_images(rig, recording, seed, share, results, arguments)
    results.end()


if __name__ == "__main__":
    run_main(main)
