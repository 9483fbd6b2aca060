#!/usr/bin/env python3
"""The recorder and the image builder themselves, on a program small enough to see through: a log of blocks in files of
a few blocks each, and an index that says how many blocks there are.  Done right no image may lose a block that was
acknowledged; each sync that is left out must be noticed."""
import mmap
import os
import random
import shutil

import images
from rig import Results, Rig, run_main

BLOCK, PER_FILE, BLOCKS = 4096, 5, 40
INDEX = 100  # bytes of the index that an entry takes


def block(number):
    return random.Random(number).randbytes(BLOCK)


class Toy:
    """Appends blocks; `acked` is (position, number of blocks)."""

    def __init__(self, recorder, skip):
        self.recorder, self.skip, self.acked = recorder, skip, []
        self.folder = os.path.join(recorder.mount, "toy")

    def sync(self, what, fd):
        if what != self.skip:
            os.fsync(fd)

    def sync_folder(self, what, path):
        fd = os.open(path, os.O_RDONLY)
        self.sync(what, fd)
        os.close(fd)

    def run(self):
        os.mkdir(self.folder)
        os.mkdir(os.path.join(self.folder, "data"))
        self.sync_folder("top", self.recorder.mount)
        index_fd = os.open(os.path.join(self.folder, "index.new"), os.O_CREAT | os.O_RDWR)
        os.write(index_fd, b"0".ljust(BLOCK))
        self.sync("index", index_fd)
        os.close(index_fd)
        os.rename(os.path.join(self.folder, "index.new"), os.path.join(self.folder, "index"))
        self.sync_folder("rename", self.folder)
        index_fd = os.open(os.path.join(self.folder, "index"), os.O_RDWR | (0 if self.skip == "dsync" else os.O_DSYNC))
        self.acked.append((self.recorder.position(), 0))
        memory, data = mmap.mmap(-1, BLOCK), None
        for number in range(BLOCKS):
            if number % PER_FILE == 0:
                if data is not None:
                    os.close(data)
                data = os.open(os.path.join(self.folder, "data", str(number // PER_FILE)),
                               os.O_CREAT | os.O_RDWR | os.O_DIRECT)
                os.posix_fallocate(data, 0, PER_FILE * BLOCK)
                self.sync_folder("data folder", os.path.join(self.folder, "data"))
            memory[:] = block(number)
            os.pwrite(data, memory, number % PER_FILE * BLOCK)
            self.sync("data", data)
            os.pwrite(index_fd, str(number + 1).encode().ljust(INDEX), 0)
            self.acked.append((self.recorder.position(), number + 1))
        os.close(data)
        os.close(index_fd)


def look(folder, least, most):
    """What is wrong with an image, or None."""
    try:
        with open(os.path.join(folder, "toy", "index"), "rb") as file:
            count = int(file.read(INDEX))
    except (OSError, ValueError) as error:
        return f"no index: {error}"
    if not least <= count <= most:
        return f"{count} blocks, not {least} to {most}"
    for number in range(count):
        try:
            with open(os.path.join(folder, "toy", "data", str(number // PER_FILE)), "rb") as file:
                file.seek(number % PER_FILE * BLOCK)
                if file.read(BLOCK) != block(number):
                    return f"block {number} differs"
        except OSError as error:
            return f"block {number}: {error}"
    return None


def play(rig, skip, count=150):
    """Records a run, and gives what is wrong with images of it."""
    recorder = rig.recorder()
    toy = Toy(recorder, skip)
    toy.run()
    recorder.unmount()
    record = images.Record(recorder.log)
    work = os.path.join(rig.folder, f"work-{skip}")
    disk, rng, wrong = images.Disk(record, work), random.Random(skip), []
    moments = sorted(rng.randrange(toy.acked[0][0], len(record.events) + 1) for _ in range(count))
    for position in moments:
        disk.advance(position)
        target = os.path.join(work, "image")
        chosen = disk.build(target, rng)
        least = max(n for p, n in toy.acked if p <= position)
        most = min([n for p, n in toy.acked if p >= position], default=BLOCKS)
        problem = look(target, least, most)
        if problem:
            wrong.append(f"at {position}, {chosen}: {problem}")
        shutil.rmtree(target)
    return wrong


def unsynced_all_is_what_was_written(rig):
    """Without any sync an image of everything is the directory itself."""
    recorder, rng = rig.recorder(), random.Random(5)
    path = os.path.join(recorder.mount, "file")
    with open(path, "w+b", buffering=0) as file:
        for _ in range(200):
            kind, offset = rng.random(), rng.randrange(60000)
            if kind < 0.7:
                os.pwrite(file.fileno(), rng.randbytes(rng.randrange(1, 9000)), offset)
            elif kind < 0.85:
                os.ftruncate(file.fileno(), offset)
            elif kind < 0.95:
                os.fsync(file.fileno())
            else:
                with open(path + str(offset), "wb"):
                    pass
                os.rename(path + str(offset), path + ".last")
        shared = mmap.mmap(file.fileno(), 4096)
        shared[5:10] = b"hello"
        shared.flush()
    backing = os.path.join(recorder.folder, "backing")
    recorder.unmount()
    disk = images.Disk(images.Record(recorder.log), os.path.join(rig.folder, "work-all"))
    disk.advance(len(disk.record.events))
    target = os.path.join(rig.folder, "image-all")
    disk.build(target, rng, "all")
    problems = []
    if sorted(os.listdir(target)) != sorted(os.listdir(backing)):
        problems.append(f"{os.listdir(target)} in the image, {os.listdir(backing)} on disk")
    for name in os.listdir(backing):
        with open(os.path.join(backing, name), "rb") as one, open(os.path.join(target, name), "rb") as other:
            if one.read() != other.read():
                problems.append(f"{name} differs")
    return problems


def main():
    results = Results()
    with Rig(ram=True) as rig:
        results.run("an image of all that was written is the directory", unsynced_all_is_what_was_written, rig)
        results.run("no image of a careful program loses anything", play, rig, None)
        for skip in ("top", "index", "rename", "dsync", "data folder", "data"):
            wrong = play(rig, skip)
            results.note(f"without its sync '{skip}' a program loses something",
                         () if wrong else ["150 images and none shows it"])
    results.end()


if __name__ == "__main__":
    run_main(main)
