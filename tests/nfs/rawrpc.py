"""ONC RPC, MOUNT version 3 and NFS version 3 as bytes on a TCP connection, for tests.

Nothing is retried and nothing is hidden: a call that the server refuses raises RpcError, an NFS status is handed
back in the reply.  Names are bytes.
"""
import itertools
import socket
import struct

NFS, MOUNT = 100003, 100005
REG, DIR, BLK, CHR, LNK, SOCK, FIFO = range(1, 8)
UNSTABLE, DATA_SYNC, FILE_SYNC = range(3)
UNCHECKED, GUARDED, EXCLUSIVE = range(3)
ACCESS_READ, ACCESS_LOOKUP, ACCESS_MODIFY, ACCESS_EXTEND, ACCESS_DELETE, ACCESS_EXECUTE = (
    1 << bit for bit in range(6))

PROCEDURES = ("NULL GETATTR SETATTR LOOKUP ACCESS READLINK READ WRITE CREATE MKDIR SYMLINK MKNOD REMOVE RMDIR "
              "RENAME LINK READDIR READDIRPLUS FSSTAT FSINFO PATHCONF COMMIT").split()
PROC = {name: number for number, name in enumerate(PROCEDURES)}
MOUNT_PROCEDURES = "NULL MNT DUMP UMNT UMNTALL EXPORT".split()
MOUNT_PROC = {name: number for number, name in enumerate(MOUNT_PROCEDURES)}

STATUS = dict(OK=0, PERM=1, NOENT=2, IO=5, NXIO=6, ACCES=13, EXIST=17, XDEV=18, NODEV=19, NOTDIR=20, ISDIR=21,
              INVAL=22, FBIG=27, NOSPC=28, ROFS=30, MLINK=31, NAMETOOLONG=63, NOTEMPTY=66, DQUOT=69, STALE=70,
              REMOTE=71, BADHANDLE=10001, NOT_SYNC=10002, BAD_COOKIE=10003, NOTSUPP=10004, TOOSMALL=10005,
              SERVERFAULT=10006, BADTYPE=10007, JUKEBOX=10008)
STATUS_NAME = {number: name for name, number in STATUS.items()}

# accept_stat and reject_stat
SUCCESS, PROG_UNAVAIL, PROG_MISMATCH, PROC_UNAVAIL, GARBAGE_ARGS, SYSTEM_ERR = range(6)
RPC_MISMATCH, AUTH_ERROR = 0, 1
AUTH_BADCRED, AUTH_REJECTEDCRED, AUTH_BADVERF, AUTH_REJECTEDVERF, AUTH_TOOWEAK = range(1, 6)


class RpcError(Exception):
    """A reply that is not SUCCESS: kind is "accepted" or "denied", status its number, low and high the range of a
    mismatch (or the auth_stat in low)."""

    def __init__(self, kind, status, low=None, high=None):
        super().__init__(f"{kind} {status} {low} {high}")
        self.kind, self.status, self.low, self.high = kind, status, low, high


class Closed(Exception):
    """The server closed the connection."""


# ---- XDR ----

def u32(value):
    return struct.pack(">I", value & 0xffffffff)


def u64(value):
    return struct.pack(">Q", value & 0xffffffffffffffff)


def boolean(value):
    return u32(1 if value else 0)


def fixed(data):
    return data + b"\0" * (-len(data) % 4)


def opaque(data):
    return u32(len(data)) + fixed(data)


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, length):
        padded = length + -length % 4
        if self.at + padded > len(self.data):
            raise ValueError("reply is too short")
        piece = self.data[self.at:self.at + length]
        self.at += padded
        return piece

    def u32(self):
        return struct.unpack(">I", self.take(4))[0]

    def u64(self):
        return struct.unpack(">Q", self.take(8))[0]

    def boolean(self):
        value = self.u32()
        if value > 1:
            raise ValueError("not a boolean")
        return value == 1

    def opaque(self):
        return self.take(self.u32())

    def time(self):
        return (self.u32(), self.u32())

    def end(self):
        if self.at != len(self.data):
            raise ValueError(f"{len(self.data) - self.at} bytes too many in a reply")


# ---- RPC ----

class Cred:
    """AUTH_SYS; Cred(None) is AUTH_NONE."""

    def __init__(self, uid, gid=None, groups=(), machine=b"test", stamp=0):
        self.uid, self.gid, self.groups = uid, uid if gid is None else gid, tuple(groups)
        self.machine, self.stamp = machine, stamp

    def encode(self):
        if self.uid is None:
            return u32(0) + u32(0)
        body = (u32(self.stamp) + opaque(self.machine) + u32(self.uid) + u32(self.gid) + u32(len(self.groups)) +
                b"".join(map(u32, self.groups)))
        return u32(1) + opaque(body)


ROOT, USER, OTHER = Cred(0), Cred(1000), Cred(1001)
_xids = itertools.count(0x51000000)


def call_message(xid, program, version, procedure, args=b"", cred=ROOT, rpc_version=2, verf=None):
    return (u32(xid) + u32(0) + u32(rpc_version) + u32(program) + u32(version) + u32(procedure) + cred.encode() +
            (u32(0) + u32(0) if verf is None else verf) + args)


def parse_reply(data):
    """xid and a Reader at the results, or RpcError."""
    reader = Reader(data)
    xid = reader.u32()
    if reader.u32() != 1:
        raise ValueError("not a reply")
    if reader.u32() == 1:
        status = reader.u32()
        if status == RPC_MISMATCH:
            raise RpcError("denied", status, reader.u32(), reader.u32())
        raise RpcError("denied", status, reader.u32())
    reader.u32()
    reader.opaque()
    status = reader.u32()
    if status == PROG_MISMATCH:
        raise RpcError("accepted", status, reader.u32(), reader.u32())
    if status != SUCCESS:
        raise RpcError("accepted", status)
    return xid, reader


class Connection:
    def __init__(self, port, host="127.0.0.1", timeout=30, source=None):
        self.socket = socket.create_connection((host, port), timeout, source)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def send_bytes(self, data):
        self.socket.sendall(data)

    def send(self, message, fragment=None):
        """One record, in fragments of at most `fragment` bytes."""
        step = fragment or max(len(message), 1)
        pieces = [message[at:at + step] for at in range(0, len(message), step)] or [b""]
        wire = b""
        for number, piece in enumerate(pieces):
            last = 0x80000000 if number == len(pieces) - 1 else 0
            wire += u32(last | len(piece)) + piece
        self.send_bytes(wire)

    def _exactly(self, length):
        data = bytearray()
        while len(data) < length:
            try:
                piece = self.socket.recv(length - len(data))
            except ConnectionError as error:
                raise Closed() from error
            if not piece:
                raise Closed()
            data += piece
        return bytes(data)

    def receive(self):
        record = b""
        while True:
            mark = struct.unpack(">I", self._exactly(4))[0]
            record += self._exactly(mark & 0x7fffffff)
            if mark & 0x80000000:
                return record

    def closed(self):
        """Whether the server closes the connection without another byte."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def call(self, program, version, procedure, args=b"", cred=ROOT, xid=None, fragment=None):
        xid = next(_xids) if xid is None else xid
        self.send(call_message(xid, program, version, procedure, args, cred), fragment)
        got, reader = parse_reply(self.receive())
        if got != xid:
            raise ValueError(f"reply to {got:#x}, not to {xid:#x}")
        return reader


# ---- NFS ----

class Reply:
    """What came back: .status (a name out of STATUS), and what the procedure gives."""

    def __init__(self, status):
        self.status = STATUS_NAME.get(status, status)

    @property
    def ok(self):
        return self.status == "OK"

    def __repr__(self):
        return f"Reply({self.__dict__})"


class Attr:
    NAMES = ("type", "mode", "nlink", "uid", "gid", "size", "used", "rdev", "fsid", "fileid", "atime", "mtime",
             "ctime")

    def __init__(self, r):
        self.type, self.mode, self.nlink, self.uid, self.gid = (r.u32() for _ in range(5))
        self.size, self.used = r.u64(), r.u64()
        self.rdev = (r.u32(), r.u32())
        self.fsid, self.fileid = r.u64(), r.u64()
        self.atime, self.mtime, self.ctime = r.time(), r.time(), r.time()

    def __eq__(self, other):
        return isinstance(other, Attr) and self.__dict__ == other.__dict__

    def __repr__(self):
        return f"Attr({self.__dict__})"


class Wcc:
    """before: None or (size, mtime, ctime); after: None or Attr."""

    def __init__(self, r):
        self.before = (r.u64(), r.time(), r.time()) if r.boolean() else None
        self.after = post_op_attr(r)

    def __repr__(self):
        return f"Wcc({self.before}, {self.after})"


def post_op_attr(r):
    return Attr(r) if r.boolean() else None


def post_op_fh(r):
    return r.opaque() if r.boolean() else None


NOW = "now"


def sattr(mode=None, uid=None, gid=None, size=None, atime=None, mtime=None):
    """Times: None, NOW, or (seconds, nanoseconds)."""
    out = b""
    for value, pack in ((mode, u32), (uid, u32), (gid, u32), (size, u64)):
        out += boolean(False) if value is None else boolean(True) + pack(value)
    for time in (atime, mtime):
        if time is None:
            out += u32(0)
        elif time == NOW:
            out += u32(1)
        else:
            out += u32(2) + u32(time[0]) + u32(time[1])
    return out


class Entry:
    def __init__(self, r, plus):
        self.fileid, self.name, self.cookie = r.u64(), r.opaque(), r.u64()
        self.attr = post_op_attr(r) if plus else None
        self.fh = post_op_fh(r) if plus else None


class Nfs(Connection):
    """Each procedure as a method; `cred` is who asks unless a call says otherwise."""

    def __init__(self, port, cred=ROOT, **options):
        super().__init__(port, **options)
        self.cred = cred

    def _nfs(self, procedure, args, cred, xid=None):
        reader = self.call(NFS, 3, PROC[procedure], args, cred or self.cred, xid)
        return reader, Reply(reader.u32())

    def null(self):
        self.call(NFS, 3, 0, cred=self.cred).end()

    def getattr(self, fh, cred=None):
        r, reply = self._nfs("GETATTR", opaque(fh), cred)
        if reply.ok:
            reply.attr = Attr(r)
        r.end()
        return reply

    def setattr(self, fh, guard=None, cred=None, xid=None, **what):
        check = boolean(False) if guard is None else boolean(True) + u32(guard[0]) + u32(guard[1])
        r, reply = self._nfs("SETATTR", opaque(fh) + sattr(**what) + check, cred, xid)
        reply.wcc = Wcc(r)
        r.end()
        return reply

    def lookup(self, fh, name, cred=None):
        r, reply = self._nfs("LOOKUP", opaque(fh) + opaque(name), cred)
        if reply.ok:
            reply.fh, reply.attr = r.opaque(), post_op_attr(r)
        reply.dir_attr = post_op_attr(r)
        r.end()
        return reply

    def access(self, fh, want=0x3f, cred=None):
        r, reply = self._nfs("ACCESS", opaque(fh) + u32(want), cred)
        reply.attr = post_op_attr(r)
        if reply.ok:
            reply.access = r.u32()
        r.end()
        return reply

    def readlink(self, fh, cred=None):
        r, reply = self._nfs("READLINK", opaque(fh), cred)
        reply.attr = post_op_attr(r)
        if reply.ok:
            reply.target = r.opaque()
        r.end()
        return reply

    def read(self, fh, offset, count, cred=None):
        r, reply = self._nfs("READ", opaque(fh) + u64(offset) + u32(count), cred)
        reply.attr = post_op_attr(r)
        if reply.ok:
            reply.count, reply.eof, reply.data = r.u32(), r.boolean(), r.opaque()
            if reply.count != len(reply.data):
                raise ValueError("READ: count is not the data's length")
        r.end()
        return reply

    def write(self, fh, offset, data, stable=UNSTABLE, count=None, cred=None, xid=None):
        args = opaque(fh) + u64(offset) + u32(len(data) if count is None else count) + u32(stable) + opaque(data)
        r, reply = self._nfs("WRITE", args, cred, xid)
        reply.wcc = Wcc(r)
        if reply.ok:
            reply.count, reply.committed, reply.verifier = r.u32(), r.u32(), r.take(8)
        r.end()
        return reply

    def _made(self, procedure, args, cred, xid):
        r, reply = self._nfs(procedure, args, cred, xid)
        if reply.ok:
            reply.fh, reply.attr = post_op_fh(r), post_op_attr(r)
        reply.wcc = Wcc(r)
        r.end()
        return reply

    def create(self, fh, name, how=UNCHECKED, verifier=b"", cred=None, xid=None, **what):
        args = opaque(fh) + opaque(name) + u32(how) + (verifier if how == EXCLUSIVE else sattr(**what))
        return self._made("CREATE", args, cred, xid)

    def mkdir(self, fh, name, cred=None, xid=None, **what):
        return self._made("MKDIR", opaque(fh) + opaque(name) + sattr(**what), cred, xid)

    def symlink(self, fh, name, target, cred=None, xid=None, **what):
        return self._made("SYMLINK", opaque(fh) + opaque(name) + sattr(**what) + opaque(target), cred, xid)

    def mknod(self, fh, name, kind, rdev=(0, 0), cred=None, xid=None, **what):
        args = opaque(fh) + opaque(name) + u32(kind)
        if kind in (CHR, BLK):
            args += sattr(**what) + u32(rdev[0]) + u32(rdev[1])
        elif kind in (SOCK, FIFO):
            args += sattr(**what)
        return self._made("MKNOD", args, cred, xid)

    def _removed(self, procedure, fh, name, cred, xid):
        r, reply = self._nfs(procedure, opaque(fh) + opaque(name), cred, xid)
        reply.wcc = Wcc(r)
        r.end()
        return reply

    def remove(self, fh, name, cred=None, xid=None):
        return self._removed("REMOVE", fh, name, cred, xid)

    def rmdir(self, fh, name, cred=None, xid=None):
        return self._removed("RMDIR", fh, name, cred, xid)

    def rename(self, from_fh, from_name, to_fh, to_name, cred=None, xid=None):
        args = opaque(from_fh) + opaque(from_name) + opaque(to_fh) + opaque(to_name)
        r, reply = self._nfs("RENAME", args, cred, xid)
        reply.from_wcc, reply.to_wcc = Wcc(r), Wcc(r)
        r.end()
        return reply

    def link(self, fh, dir_fh, name, cred=None, xid=None):
        r, reply = self._nfs("LINK", opaque(fh) + opaque(dir_fh) + opaque(name), cred, xid)
        reply.attr, reply.wcc = post_op_attr(r), Wcc(r)
        r.end()
        return reply

    def _listing(self, r, reply, plus):
        start = r.at
        reply.attr = post_op_attr(r)
        if reply.ok:
            reply.verifier = r.take(8)
            reply.entries = []
            while r.boolean():
                reply.entries.append(Entry(r, plus))
            reply.eof = r.boolean()
            reply.size = r.at - start
        r.end()
        return reply

    def readdir(self, fh, cookie=0, verifier=bytes(8), count=65536, cred=None):
        r, reply = self._nfs("READDIR", opaque(fh) + u64(cookie) + verifier + u32(count), cred)
        return self._listing(r, reply, False)

    def readdirplus(self, fh, cookie=0, verifier=bytes(8), dircount=65536, maxcount=65536, cred=None):
        r, reply = self._nfs("READDIRPLUS", opaque(fh) + u64(cookie) + verifier + u32(dircount) + u32(maxcount), cred)
        return self._listing(r, reply, True)

    def listing(self, fh, plus=False, **counts):
        """Every entry, over as many calls as it takes."""
        entries, cookie, verifier = [], 0, bytes(8)
        while True:
            part = (self.readdirplus if plus else self.readdir)(fh, cookie, verifier, **counts)
            if not part.ok:
                raise ValueError(f"listing: {part.status}")
            entries += part.entries
            if part.eof:
                return entries
            cookie, verifier = part.entries[-1].cookie, part.verifier

    def fsstat(self, fh, cred=None):
        r, reply = self._nfs("FSSTAT", opaque(fh), cred)
        reply.attr = post_op_attr(r)
        if reply.ok:
            (reply.tbytes, reply.fbytes, reply.abytes, reply.tfiles, reply.ffiles, reply.afiles) = (
                r.u64() for _ in range(6))
            reply.invarsec = r.u32()
        r.end()
        return reply

    def fsinfo(self, fh, cred=None):
        r, reply = self._nfs("FSINFO", opaque(fh), cred)
        reply.attr = post_op_attr(r)
        if reply.ok:
            (reply.rtmax, reply.rtpref, reply.rtmult, reply.wtmax, reply.wtpref, reply.wtmult, reply.dtpref) = (
                r.u32() for _ in range(7))
            reply.maxfilesize, reply.time_delta, reply.properties = r.u64(), r.time(), r.u32()
        r.end()
        return reply

    def pathconf(self, fh, cred=None):
        r, reply = self._nfs("PATHCONF", opaque(fh), cred)
        reply.attr = post_op_attr(r)
        if reply.ok:
            reply.linkmax, reply.name_max = r.u32(), r.u32()
            (reply.no_trunc, reply.chown_restricted, reply.case_insensitive, reply.case_preserving) = (
                r.boolean() for _ in range(4))
        r.end()
        return reply

    def commit(self, fh, offset=0, count=0, cred=None):
        r, reply = self._nfs("COMMIT", opaque(fh) + u64(offset) + u32(count), cred)
        reply.wcc = Wcc(r)
        if reply.ok:
            reply.verifier = r.take(8)
        r.end()
        return reply

    # ---- MOUNT ----

    def _mount(self, procedure, args=b"", cred=None):
        return self.call(MOUNT, 3, MOUNT_PROC[procedure], args, cred or self.cred)

    def mnt(self, path, cred=None):
        r = self._mount("MNT", opaque(path), cred)
        reply = Reply(r.u32())
        if reply.ok:
            reply.fh = r.opaque()
            reply.flavors = [r.u32() for _ in range(r.u32())]
        r.end()
        return reply

    def dump(self):
        r, mounts = self._mount("DUMP"), []
        while r.boolean():
            mounts.append((r.opaque(), r.opaque()))
        r.end()
        return mounts

    def umnt(self, path):
        self._mount("UMNT", opaque(path)).end()

    def umntall(self):
        self._mount("UMNTALL").end()

    def export(self):
        r, exports = self._mount("EXPORT"), []
        while r.boolean():
            path, groups = r.opaque(), []
            while r.boolean():
                groups.append(r.opaque())
            exports.append((path, groups))
        r.end()
        return exports
