"""Runs a model's operations over NFSv4, as test_random_model.Client does over NFSv3.  Where one operation of the model
takes several that are not atomic together, what came of the later ones is not told (None) unless the client is alone."""
import rawrpc
from client41 import EXCLUSIVE, GUARDED, UNCHECKED, WRITE, Client41, close, open_op
from raw4 import (CURRENT, Nfs4, bitmap, create, fattr, getattr_, getfh, link, lookup, putfh, read, readdir, readlink,
                  remove, rename, savefh, setattr_, verify, write)
from rawrpc import opaque, u32

KIND = {rawrpc.REG: "reg", rawrpc.DIR: "dir", rawrpc.LNK: "lnk", rawrpc.FIFO: "fifo"}
# NFSv4 says more precisely what is wrong than the model, which is NFSv3's.
ALTERNATIVES = {"SYMLINK": {"INVAL", "NOTDIR", "EXIST"}, "WRONG_TYPE": {"INVAL", "EXIST"}, "SAME": {"ISDIR"},
                "NOT_SAME": {"NOTDIR"}}
IS_DIR = bitmap(["type"]) + opaque(u32(rawrpc.DIR))


class Failed(Exception):
    pass


class Client4:
    """Minor version 1 or 2 in a session; 0 without state, which cannot make regular files.  `changes` is common to all
    clients of a run: each object's change attribute as it was last seen."""

    def __init__(self, port, handles, minor, changes, name):
        self.handles, self.minor, self.changes, self.alone = handles, minor, changes, True
        if minor:
            self.session = Client41(port, minor=minor, name=name, response=1 << 21)
            self.nfs = self.session.nfs
        else:
            self.nfs = Nfs4(port, minor=0)

    def call(self, *ops):
        done = self.session.call(*ops) if self.minor else self.nfs.compound(*ops)
        if done.status != "OK":
            raise Failed(done.status)
        return done

    def run(self, op):
        try:
            results, handle = getattr(self, "op_" + op[0])(*op[1:])
            return "OK", results, handle
        except Failed as status:
            # a directory that is there and is to be opened
            return "EXIST" if op[0] == "create" and status.args[0] == "ISDIR" else status.args[0], (), None

    def can(self, op, at_once):
        """REMOVE of NFSv4 takes directories as well: looked at before, which is not one step."""
        return not (op[0] == "create" and not self.minor) and not (at_once and op[0] in ("remove", "rmdir"))

    def _told(self, value):
        return value if self.alone else None

    def _attributes(self, number, attr):
        if self.alone and number is not None:
            before, changed = self.changes.get(number, (0, False))
            if attr["change"] < before or changed and attr["change"] == before:
                raise AssertionError(f"object {number}: change {attr['change']} after {before}, changed: {changed}")
            self.changes[number] = attr["change"], False
        kind = KIND[attr["type"]]
        return kind, attr["mode"], attr["numlinks"], attr["size"] if kind == "reg" else None

    def op_getattr(self, number):
        done = self.call(putfh(self.handles[number]), getattr_("type", "change", "size", "mode", "numlinks"))
        return self._attributes(number, done[1].attr), None

    def op_lookup(self, number, name):
        done = self.call(putfh(self.handles[number]), lookup(name), getattr_("type", "change", "size", "mode", "numlinks"))
        return self._attributes(None, done[2].attr), None

    def op_read(self, number, offset, count):
        done = self.call(putfh(self.handles[number]), read(offset, count))
        return (done[1].data, done[1].eof), None

    def op_write(self, number, offset, data):
        done = self.call(putfh(self.handles[number]), write(offset, data, stable=0), getattr_("size"))
        if done[1].count != len(data) or done[1].committed != rawrpc.FILE_SYNC:
            raise AssertionError(f"short or unstable write: {done}")
        return (self._told(done[2].attr["size"]),), None

    def op_truncate(self, number, size):
        done = self.call(putfh(self.handles[number]), setattr_(size=size), getattr_("size"))
        return (self._told(done[2].attr["size"]),), None

    def op_chmod(self, number, mode):
        done = self.call(putfh(self.handles[number]), setattr_(mode=mode), getattr_("mode"))
        return (self._told(done[2].attr["mode"]),), None

    def op_create(self, where, name, number, mode, how, verifier, size):
        if how == "EXCLUSIVE":
            how = u32(EXCLUSIVE) + verifier
        else:
            what = {"mode": mode} if size is None else {"mode": mode, "size": size}
            how = u32(GUARDED if how == "GUARDED" else UNCHECKED) + fattr(**what)
        done = self.call(putfh(self.handles[where]),
                         open_op(0, WRITE, 0, self.session.clientid, b"maker", how, u32(0) + opaque(name)), getfh(),
                         getattr_("type", "numlinks", "size"), close(CURRENT))
        attr = done[3].attr
        return (KIND[attr["type"]], self._told(attr["numlinks"]), self._told(attr["size"])), done[2].fh

    def _make(self, where, op):
        done = self.call(putfh(self.handles[where]), op, getfh(), getattr_("type"))
        return (KIND[done[3].attr["type"]],), done[2].fh

    def op_mkdir(self, where, name, number, mode):
        return self._make(where, create(name, rawrpc.DIR, fattr(mode=mode)))

    def op_mkfifo(self, where, name, number, mode):
        return self._make(where, create(name, rawrpc.FIFO, fattr(mode=mode)))

    def op_symlink(self, where, name, number, target):
        return self._make(where, create(name, rawrpc.LNK, fattr(mode=0o777), target=target))

    def op_readlink(self, number):
        return (self.call(putfh(self.handles[number]), readlink())[1].target,), None

    def _remove(self, where, name, not_dir):
        folder = putfh(self.handles[where])
        self.call(folder, lookup(name), verify(IS_DIR, negative=not_dir), folder, remove(name))
        return (), None

    def op_remove(self, where, name):
        return self._remove(where, name, True)

    def op_rmdir(self, where, name):
        return self._remove(where, name, False)

    def op_rename(self, where, name, to, new):
        self.call(putfh(self.handles[where]), savefh(), putfh(self.handles[to]), rename(name, new))
        return (), None

    def op_link(self, number, where, name):
        file = putfh(self.handles[number])
        done = self.call(file, savefh(), putfh(self.handles[where]), link(name), file, getattr_("numlinks"))
        return (self._told(done[5].attr["numlinks"]),), None

    def op_readdir(self, number):
        names, cookie, verifier, end = [b".", b".."], 0, 0, False
        while not end:
            done = self.call(putfh(self.handles[number]), readdir(cookie, verifier, 8192, 1 << 16 if cookie else 1 << 14))
            names += [entry[1] for entry in done[1].entries]
            cookie, verifier, end = names and done[1].entries and done[1].entries[-1][0], done[1].verifier, done[1].eof
        return (tuple(sorted(names)),), None

    op_readdirplus = op_readdir
