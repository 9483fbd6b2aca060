"""What a power loss could have left, built from recfs's record.

Record reads the record.  Disk plays it up to a position and keeps two things apart: what is durable, and what was
changed since but not covered by a completed sync.  build() makes a directory of the durable part and a choice of the
rest: each block of a file holds what it held at the last sync or after any later write of it, a file's size is one it
has had since, and a name that was made, moved or removed may or may not be so yet, for as long as its directory was
not synced.  What a sync failed to write may get lost although a later one succeeds, as Linux has it.  Classes of
syncs named in `without` count as if they had never been made.
"""
import bisect
import collections
import mmap
import os
import re
import shutil
import struct

EVENT = struct.Struct("<IIQQQQQIIII")
MAGIC = 0x52454346
(CREATE, MKDIR, UNLINK, RMDIR, RENAME, WRITE, TRUNCATE, ZERO, GROW, SYNC, SYNCDIR, FAILED) = range(1, 13)
DATASYNC, DSYNC = 1, 2
BLOCK, SECTOR = 4096, 512
FOREVER = 1 << 62

Event = collections.namedtuple("Event", "type file offset length began handle flags path data_at data_length")


class Record:
    """The events; positions count them: position p is the moment after events[p - 1]."""

    def __init__(self, path):
        self.file = open(path, "rb")
        size = os.fstat(self.file.fileno()).st_size
        self.map = mmap.mmap(self.file.fileno(), size, prot=mmap.PROT_READ)
        self.events, at = [], 0
        while at + EVENT.size <= size:
            magic, kind, file, offset, length, began, handle, flags, path_length, data_length, _ = EVENT.unpack_from(
                self.map, at)
            if magic != MAGIC:
                raise ValueError(f"{path}: no event at {at}")
            at += EVENT.size
            name = self.map[at:at + path_length].decode() if path_length else ""
            at += path_length
            self.events.append(Event(kind, file, offset, length, began, handle, flags, name, at, data_length))
            at += data_length
        self.classes = self._classes()

    def data(self, at, length):
        return self.map[at:at + length]

    def _classes(self):
        """Every sync in the record -> the name of its class, made of what was synced and how."""
        paths, synced, classes = {}, set(), {}
        for index, e in enumerate(self.events):
            if e.type == CREATE:
                paths[e.file] = e.path
            elif e.type == RENAME:
                moved = self.data(e.data_at, e.data_length).decode()
                paths.update({file: moved + path[len(e.path):] for file, path in paths.items()
                              if path == e.path or path.startswith(e.path + "/")})
            elif e.type == SYNC:
                path = re.sub(r"[0-9a-f]+\.seg$", "N.seg", paths.get(e.file, "?"))
                how = "O_DSYNC" if e.flags & DSYNC else "fdatasync" if e.flags & DATASYNC else "fsync"
                first = "" if e.file in synced or e.flags & DSYNC else "first "
                if not e.flags & DSYNC:
                    synced.add(e.file)
                classes[index] = f"{first}{how} {path}"
            elif e.type == SYNCDIR:
                classes[index] = f"fsync {e.path.rstrip('/')}/"
        return self._split_rare(classes)

    @staticmethod
    def _split_rare(classes):
        """What is synced a few times only, as when a pool is made: each of these calls is a class of its own."""
        counts, seen = collections.Counter(classes.values()), collections.Counter()
        for index, name in classes.items():
            if 1 < counts[name] < 5:
                seen[name] += 1
                classes[index] = f"{name} ({seen[name]} of {counts[name]})"
        return classes

    def class_names(self):
        return sorted(set(self.classes.values()))

    def covered(self, name, acknowledged):
        """The classes of syncs that do what this one does, each of this class being followed by some of them before the
        next reply; None if there is no such.  Losing this class then takes nothing back; whether the order in which
        things reach the disk mattered, only images can tell.  `acknowledged`: the sorted positions of replies."""
        events, others, covering = self.events, collections.defaultdict(list), set()
        for index, other in self.classes.items():
            e = events[index]
            if other != name and not e.flags & DSYNC:
                others[(e.type, e.file if e.type == SYNC else e.path)].append(index)
        for index, one in self.classes.items():
            if one != name:
                continue
            e = events[index]
            at = bisect.bisect_right(acknowledged, index)
            until = acknowledged[at] if at < len(acknowledged) else FOREVER
            found = [i for i in others[(e.type, e.file if e.type == SYNC else e.path)]
                     if e.began <= events[i].began and i < until]
            if not found:
                return None
            covering.update(self.classes[i] for i in found)
        return covering


class Pending:
    """One change of a file that no sync has covered: a write, zeroes (data_at None), or a change of size alone."""
    __slots__ = ("index", "handle", "offset", "length", "data_at", "size", "doomed")

    def __init__(self, index, handle, offset, length, data_at, size):
        self.index, self.handle, self.offset, self.length = index, handle, offset, length
        self.data_at, self.size = data_at, size
        self.doomed = False  # a sync has failed to write it

    def blocks(self, unit):
        return range(self.offset // unit, -(-(self.offset + self.length) // unit))

    def part(self, start, end):
        other = Pending(self.index, self.handle, start, end - start,
                        None if self.data_at is None else self.data_at + start - self.offset, self.size)
        other.doomed = self.doomed
        return other


class File:
    __slots__ = ("number", "mode", "size", "live_size", "pending", "path", "gone")

    def __init__(self, number, mode, path):
        self.number, self.mode, self.path, self.gone = number, mode, path, False
        self.size = self.live_size = 0
        self.pending = []


class Folder:
    __slots__ = ("mode", "durable", "live", "pending")

    def __init__(self, mode=0o755):
        self.mode = mode
        self.durable, self.live = {}, {}  # name -> File or Folder
        self.pending = []                 # (index, [(folder, name, child or None)...]): steps that go together


def pieces(p, blocks):
    """A change cut where it enters or leaves the blocks that were written at it or later (block -> when): (start, end,
    whether inside)."""
    def inside(at):
        return blocks.get(at // BLOCK, -1) > p.index
    end = p.offset + p.length
    start = at = p.offset
    while at < end:
        at = min(end, (at // BLOCK + 1) * BLOCK)
        if at == end or inside(at) != inside(start):
            yield start, at, inside(start)
            start = at
    if p.length == 0:
        yield start, start, False


def copy_sparse(source, target, size):
    """The first `size` bytes of an open file into another, without its holes."""
    os.ftruncate(target, size)
    at = 0
    while at < size:
        try:
            start = os.lseek(source, at, os.SEEK_DATA)
        except OSError:
            return
        if start >= size:
            return
        end = min(os.lseek(source, start, os.SEEK_HOLE), size)
        os.lseek(target, start, os.SEEK_SET)
        at = start
        while at < end:
            at += os.sendfile(target, source, at, end - at)


class Disk:
    def __init__(self, record, work, without=()):
        self.record, self.without = record, without
        self.base = os.path.join(work, "durable")  # what is durable, a file each by number
        os.makedirs(self.base)
        self.root, self.files, self.at = Folder(), {}, 0

    # ---- playing ----

    def advance(self, position):
        for index in range(self.at, position):
            self._play(index, self.record.events[index])
        self.at = max(self.at, position)

    def _find(self, path):
        """The folder that holds a path's last name (as it is live), and that name."""
        *parents, name = path.strip("/").split("/")
        folder = self.root
        for parent in parents:
            folder = folder.live[parent]
        return folder, name

    def _folder(self, path):
        folder = self.root
        for name in filter(None, path.split("/")):
            folder = folder.live[name]
        return folder

    def _steps(self, index, *steps):
        for folder, name, child in steps:
            if child is None:
                folder.live.pop(name, None)
            else:
                folder.live[name] = child
        for folder in {id(step[0]): step[0] for step in steps}.values():
            folder.pending.append((index, steps))

    def _base(self, file):
        return os.path.join(self.base, str(file.number))

    def _play(self, index, e):
        file = self.files.get(e.file)
        if file and file.gone:
            return
        if e.type == CREATE:
            file = self.files[e.file] = File(e.file, e.length & 0o777, e.path)
            os.close(os.open(self._base(file), os.O_CREAT | os.O_WRONLY, 0o600))
            self._steps(index, (*self._find(e.path), file))
        elif e.type == MKDIR:
            self._steps(index, (*self._find(e.path), Folder(e.length & 0o777)))
        elif e.type in (UNLINK, RMDIR):
            self._steps(index, (*self._find(e.path), None))
        elif e.type == RENAME:
            folder, name = self._find(e.path)
            target = self._find(self.record.data(e.data_at, e.data_length).decode())
            self._steps(index, (folder, name, None), (*target, folder.live[name]))
        elif e.type == WRITE:
            file.live_size = max(file.live_size, e.offset + e.length)
            file.pending.append(Pending(index, e.handle, e.offset, e.length, e.data_at, file.live_size))
        elif e.type == TRUNCATE:
            length = max(file.live_size - e.length, 0)
            file.live_size = e.length
            file.pending.append(Pending(index, e.handle, e.length, length, None, e.length))
        elif e.type == ZERO:
            file.pending.append(Pending(index, e.handle, e.offset, e.length, None, file.live_size))
        elif e.type == GROW:
            file.live_size = e.length
            file.pending.append(Pending(index, e.handle, 0, 0, None, e.length))
        elif e.type == FAILED:
            for p in file.pending:
                p.doomed |= p.index < e.began and (p.handle == e.handle or not e.flags & DSYNC)
        elif self.record.classes[index] not in self.without:
            if e.type == SYNC:
                self._sync(file, e)
            else:
                self._sync_folder(self._folder(e.path), e.began)

    def _sync(self, file, e):
        """Makes durable what was written before the sync began.  Of what an earlier sync failed to write only the
        blocks that were written again since.  O_DSYNC: only the blocks written through this handle, as they are."""
        covered = [p for p in file.pending if p.index < e.began]
        good = {p for p in covered if not p.doomed and (not e.flags & DSYNC or p.handle == e.handle)}
        if not good:
            return
        rest, some = [], e.flags & DSYNC or len(good) < len(covered)
        blocks = {block: p.index for p in covered if p in good for block in p.blocks(BLOCK)} if some else {}
        with open(self._base(file), "r+b") as target:
            for p in covered:
                if p in good:
                    self._make_durable(file, target.fileno(), p, p.offset, p.offset + p.length)
                    continue
                for start, end, inside in pieces(p, blocks):
                    if inside:
                        self._make_durable(file, target.fileno(), p, start, end)
                    else:
                        rest.append(p.part(start, end))
        file.pending = rest + file.pending[len(covered):]

    def _make_durable(self, file, target, p, start, end):
        if p.size != file.size:
            os.ftruncate(target, p.size)
            file.size = p.size
        self._write(target, p, start, end)

    def _write(self, target, p, start, end):
        """The part [start, end) of a pending change."""
        if p.data_at is not None:
            if start < end:
                at = p.data_at + start - p.offset
                os.pwrite(target, self.record.data(at, end - start), start)
            return
        end = min(end, os.fstat(target).st_size)
        while start < end:
            try:
                start = os.lseek(target, start, os.SEEK_DATA)  # holes are zero already
            except OSError:
                return
            step = min(end - start, 1 << 20)
            if step > 0:
                os.pwrite(target, bytes(step), start)
                start += step

    def _sync_folder(self, folder, began):
        rest = []
        for index, steps in folder.pending:
            if index < began:
                self._settle(steps)
                for other in {id(step[0]): step[0] for step in steps}.values():
                    if other is not folder:
                        other.pending = [entry for entry in other.pending if entry[0] != index]
            else:
                rest.append((index, steps))
        folder.pending = rest

    def _settle(self, steps):
        for folder, name, child in steps:
            if child is None:
                gone = folder.durable.pop(name, None)
                if isinstance(gone, File) and len(steps) == 1:
                    os.unlink(self._base(gone))
                    gone.gone, gone.pending = True, []
            else:
                folder.durable[name] = child

    # ---- building ----

    def build(self, target, rng, how=None):
        """An image in the new directory `target`; gives what was chosen, in words."""
        how = how or rng.choice(HOWS)
        os.mkdir(target)
        choice = Choice(how, rng, self)
        self._build_folder(self.root, target, choice, self._names(choice))
        return str(choice)

    def _names(self, choice):
        """folder -> its entries in this image; changes of names are taken or left in their order."""
        result, todo, changes = {}, [self.root], {}
        seen = set()
        while todo:
            folder = todo.pop()
            if id(folder) in seen:
                continue
            seen.add(id(folder))
            result[id(folder)] = dict(folder.durable)
            changes.update(folder.pending)
            todo += [child for child in list(folder.durable.values()) + [
                step[2] for _, steps in folder.pending for step in steps] if isinstance(child, Folder)]
        for index in sorted(changes):
            if choice.name(index):
                for folder, name, child in changes[index]:
                    entries = result.setdefault(id(folder), {})
                    if child is None:
                        entries.pop(name, None)
                    else:
                        entries[name] = child
        return result

    def _build_folder(self, folder, target, choice, names):
        for name, child in names.get(id(folder), {}).items():
            path = os.path.join(target, name)
            if isinstance(child, Folder):
                os.mkdir(path, child.mode | 0o700)
                self._build_folder(child, path, choice, names)
            else:
                self._build_file(child, path, choice)

    def _build_file(self, file, path, choice):
        source = os.open(self._base(file), os.O_RDONLY)
        target = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, file.mode | 0o600)
        try:
            size = choice.size(file)
            copy_sparse(source, target, min(size, file.size))
            os.ftruncate(target, size)
            for p, start, end in choice.blocks(file):
                choice.written += max(min(end, size) - start, 0)
                self._write(target, p, start, min(end, size))
        finally:
            os.close(source)
            os.close(target)


HOWS = ("nothing", "nothing", "nothing", "all", "some", "some", "few", "most", "torn", "one file", "all but one file",
        "until", "sectors", "sizes only")


class Choice:
    """What of the changes not yet synced has reached the disk."""

    def __init__(self, how, rng, disk):
        self.how, self.rng = how, rng
        pending = [f for f in disk.files.values() if f.pending]
        indices = [p.index for f in pending for p in f.pending]
        self.file = rng.choice(pending) if pending else None
        self.until = rng.choice(indices) if indices else 0
        self.written, self.unsynced = 0, sum(p.length for f in pending for p in f.pending if p.data_at is not None)

    def __str__(self):
        detail = f" {self.file.path}" if "file" in self.how and self.file else ""
        detail += f" {self.until}" if self.how == "until" else ""
        return f"{self.how}{detail}: {self.written >> 10} of {self.unsynced >> 10} unsynced KiB written"

    def _all_or_nothing(self, file):
        if self.how in ("nothing", "sizes only"):
            return False
        if self.how == "all":
            return True
        if self.how == "one file":
            return file is self.file
        if self.how == "all but one file":
            return file is not self.file
        return None

    def name(self, index):
        if self.how in ("nothing", "one file"):
            return False
        if self.how in ("all", "all but one file", "sizes only"):
            return True
        return index <= self.until if self.how == "until" else self.rng.random() < 0.5

    def size(self, file):
        sizes = [file.size] + [p.size for p in file.pending]
        whole = self._all_or_nothing(file)
        if self.how == "sizes only" or whole:
            return sizes[-1]
        if whole is False:
            return sizes[0]
        if self.how == "until":
            return ([file.size] + [p.size for p in file.pending if p.index <= self.until])[-1]
        return sizes[-1] if self.rng.random() < 0.7 else self.rng.choice(sizes)

    def blocks(self, file):
        """(pending change, start, end) in the order in which to write them."""
        whole = self._all_or_nothing(file)
        if whole is False or not file.pending:
            return
        if whole or self.how == "until":
            for p in file.pending:
                if whole or p.index <= self.until:
                    yield p, p.offset, p.offset + p.length
            if self.how == "until":
                yield from self._torn([p for p in file.pending if p.index > self.until][:1])
            return
        if self.how == "torn":  # all but one, and that in part
            victim = self.rng.choice(file.pending)
            for p in file.pending:
                if p is victim:
                    yield from self._torn([p])
                else:
                    yield p, p.offset, p.offset + p.length
            return
        yield from self._mixed(file)

    def _unit(self, file):
        return SECTOR if "/meta" in file.path and (self.how == "sectors" or self.rng.random() < 0.3) else BLOCK

    def _torn(self, changes):
        for p in changes:
            unit = SECTOR if self.rng.random() < 0.5 else BLOCK
            cut = p.offset + self.rng.randrange(p.length // unit + 1) * unit
            cut -= cut % unit
            if self.rng.random() < 0.5:
                yield p, p.offset, min(max(cut, p.offset), p.offset + p.length)
            else:
                yield p, max(cut, p.offset), p.offset + p.length

    def _mixed(self, file):
        """Each block on its own: as it was, or after some change of it."""
        unit, versions = self._unit(file), collections.defaultdict(list)
        for p in file.pending:
            for block in p.blocks(unit):
                versions[block].append(p)
        odds = {"few": 0.1, "most": 0.9}.get(self.how, 0.5)
        for block, changes in versions.items():
            if self.rng.random() >= odds:
                continue
            last = self.rng.randrange(len(changes)) if self.rng.random() < 0.3 else len(changes) - 1
            for p in changes[:last + 1]:
                yield p, max(p.offset, block * unit), min(p.offset + p.length, (block + 1) * unit)


def remove(path):
    shutil.rmtree(path, ignore_errors=True)
