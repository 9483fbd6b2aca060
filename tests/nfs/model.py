"""A file system in memory: what NFSv3 operations must do, for tests that compare.

Nodes have numbers of the test's choosing.  apply(op) changes the model and gives what the reply must say: a set of
allowed statuses (more than one where several errors hold at once), and a tuple of results when it succeeds.
"""
import copy

PAGE = 4096
FILE_MAX = 2**63 - 1


class Sparse:
    """A file's bytes: pages that were written, zeroes elsewhere."""

    def __init__(self):
        self.size, self.pages = 0, {}

    def clone(self):
        other = Sparse()
        other.size, other.pages = self.size, dict(self.pages)
        return other

    def read(self, offset, count):
        end = min(self.size, offset + count)
        out, at = [], offset
        while at < end:
            page, start = divmod(at, PAGE)
            stop = min(PAGE, start + end - at)
            out.append(self.pages.get(page, bytes(PAGE))[start:stop])
            at += stop - start
        return b"".join(out)

    def write(self, offset, data):
        at = 0
        while at < len(data):
            page, start = divmod(offset + at, PAGE)
            piece = data[at:at + PAGE - start]
            old = self.pages.get(page, bytes(PAGE))
            self.pages[page] = old[:start] + piece + old[start + len(piece):]
            at += len(piece)
        if data:
            self.size = max(self.size, offset + len(data))

    def share(self, source, from_offset, to_offset, length, clone):
        """COPY or CLONE of a range; a clone's last block is filled with zeroes as far as this goes on behind it
        (RFC 7862, 15.13.3)."""
        whole = length // PAGE if from_offset % PAGE == to_offset % PAGE == 0 else 0
        first, shift = to_offset // PAGE, (to_offset - from_offset) // PAGE
        there = {page + shift: data for page, data in source.pages.items() if 0 <= page + shift - first < whole}
        self.pages = {page: data for page, data in self.pages.items() if not 0 <= page - first < whole} | there
        end, done = to_offset + length, whole * PAGE
        self.size = max(self.size, to_offset + done if done else 0)
        self.write(to_offset + done, source.read(from_offset + done, length - done))
        if clone and end < self.size:
            self.write(end, bytes(min(-length % PAGE, self.size - end)))

    def truncate(self, size):
        if size < self.size:
            last, keep = divmod(size, PAGE)
            self.pages = {p: d for p, d in self.pages.items() if p < last or p == last and keep}
            if last in self.pages:
                self.pages[last] = self.pages[last][:keep] + bytes(PAGE - keep)
        self.size = size


class Node:
    def __init__(self, kind, mode):
        self.kind, self.mode, self.nlink = kind, mode, 2 if kind == "dir" else 1
        self.data = Sparse() if kind == "reg" else None
        self.children = {} if kind == "dir" else None
        self.target = self.verifier = None
        self.parent = 0

    def clone(self):
        other = copy.copy(self)
        other.data = self.data.clone() if self.data else None
        other.children = dict(self.children) if self.children is not None else None
        return other

    def attributes(self):
        return (self.kind, self.mode, self.nlink, self.data.size if self.data else None)


OK = {"OK"}


class Model:
    def __init__(self):
        self.nodes = {0: Node("dir", 0o755)}

    def clone(self):
        other = Model()
        other.nodes = {number: node.clone() for number, node in self.nodes.items()}
        return other

    def apply(self, op):
        return getattr(self, "op_" + op[0])(*op[1:])

    def _dir(self, number):
        node = self.nodes.get(number)
        if node is None:
            return None, {"STALE"}
        if node.kind != "dir":
            return None, {"NOTDIR"}
        return node, None

    def _file(self, number):
        node = self.nodes.get(number)
        if node is None:
            return None, {"STALE"}
        if node.kind == "dir":
            return None, {"ISDIR", "INVAL"}
        if node.kind != "reg":
            return None, {"INVAL"}
        return node, None

    def _unlink(self, number):
        node = self.nodes[number]
        node.nlink -= 1
        if node.kind == "dir" or node.nlink == 0:
            del self.nodes[number]

    # ---- operations: each gives (allowed statuses, results) ----

    def op_getattr(self, number):
        node = self.nodes.get(number)
        return (OK, node.attributes()) if node else ({"STALE"}, ())

    def op_lookup(self, number, name):
        node, bad = self._dir(number)
        if bad:
            return bad, ()
        if name not in node.children:
            return {"NOENT"}, ()
        return OK, self.nodes[node.children[name]].attributes()

    def op_read(self, number, offset, count):
        node, bad = self._file(number)
        if bad:
            return bad, ()
        return OK, (node.data.read(offset, count), offset + count >= node.data.size)

    def op_write(self, number, offset, data):
        node, bad = self._file(number)
        if bad:
            return bad, ()
        if offset + len(data) > FILE_MAX:
            return {"FBIG"}, ()
        node.data.write(offset, data)
        return OK, (node.data.size,)

    def op_truncate(self, number, size):
        node, bad = self._file(number)
        if bad:
            return bad, ()
        node.data.truncate(size)
        return OK, (size,)

    def op_share(self, source, target, from_offset, to_offset, length, clone):
        node, bad = self._file(target)
        if bad:
            return bad, ()
        node.data.share(self.nodes[source].data, from_offset, to_offset, length, clone)
        return OK, (node.data.size,)

    def op_chmod(self, number, mode):
        node = self.nodes.get(number)
        if not node:
            return {"STALE"}, ()
        if node.kind != "lnk":  # whose mode is 0777 and stays so, as on Linux
            node.mode = mode
        return OK, (node.mode,)

    def _new(self, where, name, number, kind, mode):
        node = self.nodes[number] = Node(kind, mode)
        node.parent = where
        parent = self.nodes[where]
        parent.children[name] = number
        if kind == "dir":
            parent.nlink += 1
        return node

    def op_create(self, where, name, number, mode, how, verifier, size):
        parent, bad = self._dir(where)
        if bad:
            return bad, ()
        there = parent.children.get(name)
        if there is not None:
            node = self.nodes[there]
            if how == "EXCLUSIVE" and node.verifier == verifier and node.kind == "reg":
                return OK, ("reg", node.nlink, node.data.size)
            if how != "UNCHECKED" or node.kind != "reg":
                return {"EXIST"}, ()
            if size is not None:
                node.data.truncate(size)
            return OK, ("reg", node.nlink, node.data.size)
        node = self._new(where, name, number, "reg", mode)
        if how == "EXCLUSIVE":
            node.verifier, node.mode = verifier, None  # the mode is open until a SETATTR
        elif size is not None:
            node.data.truncate(size)
        return OK, ("reg", 1, node.data.size)

    def op_mkdir(self, where, name, number, mode):
        return self._make(where, name, number, "dir", mode)

    def op_mkfifo(self, where, name, number, mode):
        return self._make(where, name, number, "fifo", mode)

    def op_symlink(self, where, name, number, target):
        allowed, results = self._make(where, name, number, "lnk", 0o777)
        if allowed == OK:
            self.nodes[number].target = target
        return allowed, results

    def _make(self, where, name, number, kind, mode):
        parent, bad = self._dir(where)
        if bad:
            return bad, ()
        if name in parent.children:
            return {"EXIST"}, ()
        self._new(where, name, number, kind, mode)
        return OK, (kind,)

    def op_readlink(self, number):
        node = self.nodes.get(number)
        if not node:
            return {"STALE"}, ()
        return (OK, (node.target,)) if node.kind == "lnk" else ({"INVAL"}, ())

    def op_remove(self, where, name):
        parent, bad = self._dir(where)
        if bad:
            return bad, ()
        number = parent.children.get(name)
        if number is None:
            return {"NOENT"}, ()
        if self.nodes[number].kind == "dir":
            return {"ISDIR"}, ()
        del parent.children[name]
        self._unlink(number)
        return OK, ()

    def op_rmdir(self, where, name):
        parent, bad = self._dir(where)
        if bad:
            return bad, ()
        number = parent.children.get(name)
        if number is None:
            return {"NOENT"}, ()
        node = self.nodes[number]
        if node.kind != "dir":
            return {"NOTDIR"}, ()
        if node.children:
            return {"NOTEMPTY"}, ()
        del parent.children[name]
        parent.nlink -= 1
        self._unlink(number)
        return OK, ()

    def _inside(self, number, of):
        while number:
            if number == of:
                return True
            number = self.nodes[number].parent
        return of == 0

    def op_rename(self, where, name, to, new):
        source, bad = self._dir(where)
        target, bad_to = self._dir(to)
        if bad or bad_to:
            return (bad or set()) | (bad_to or set()), ()
        number = source.children.get(name)
        if number is None:
            return {"NOENT"}, ()
        node, there = self.nodes[number], target.children.get(new)
        if there == number:
            return OK, ()
        errors = set()
        if node.kind == "dir" and self._inside(to, number):
            errors.add("INVAL")
        if there is not None:
            old = self.nodes[there]
            if node.kind == "dir" and old.kind != "dir":
                errors |= {"NOTDIR", "EXIST"}
            elif node.kind != "dir" and old.kind == "dir":
                errors |= {"ISDIR", "EXIST"}
            elif old.kind == "dir" and old.children:
                errors |= {"NOTEMPTY", "EXIST"}
        if errors:
            return errors, ()
        if there is not None:
            if self.nodes[there].kind == "dir":
                target.nlink -= 1
            self._unlink(there)
        del source.children[name]
        target.children[new] = number
        if node.kind == "dir":
            source.nlink -= 1
            target.nlink += 1
            node.parent = to
        return OK, ()

    def op_link(self, number, where, name):
        parent, bad = self._dir(where)
        node = self.nodes.get(number)
        errors = set(bad or ())
        if not node:
            errors.add("STALE")
        elif node.kind == "dir":
            errors |= {"ISDIR", "INVAL", "PERM"}
        if parent and name in parent.children:
            errors.add("EXIST")
        if errors:
            return errors, ()
        parent.children[name] = number
        node.nlink += 1
        return OK, (node.nlink,)

    def op_readdir(self, number):
        node, bad = self._dir(number)
        return (bad, ()) if bad else (OK, (tuple(sorted([b".", b".."] + list(node.children))),))

    op_readdirplus = op_readdir
