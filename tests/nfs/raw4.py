"""NFS version 4 as bytes on a TCP connection, for tests: a COMPOUND is a list of operations, made by the functions
below; what comes back is a Result with its status and a list of replies, one for each operation that was run.

    done = nfs4.compound(putrootfh(), lookup(b"vol"), getattr("size", "fileid"))
    done.status, done[2].attr["size"]
"""
import rawrpc
from rawrpc import Reader, boolean, fixed, opaque, u32, u64

OPS = {name: number for number, name in enumerate(
    """. . . ACCESS CLOSE COMMIT CREATE DELEGPURGE DELEGRETURN GETATTR GETFH LINK LOCK LOCKT LOCKU LOOKUP LOOKUPP NVERIFY
    OPEN OPENATTR OPEN_CONFIRM OPEN_DOWNGRADE PUTFH PUTPUBFH PUTROOTFH READ READDIR READLINK REMOVE RENAME RENEW
    RESTOREFH SAVEFH SECINFO SETATTR SETCLIENTID SETCLIENTID_CONFIRM VERIFY WRITE RELEASE_LOCKOWNER BACKCHANNEL_CTL
    BIND_CONN_TO_SESSION EXCHANGE_ID CREATE_SESSION DESTROY_SESSION FREE_STATEID GET_DIR_DELEGATION GETDEVICEINFO
    GETDEVICELIST LAYOUTCOMMIT LAYOUTGET LAYOUTRETURN SECINFO_NO_NAME SEQUENCE SET_SSV TEST_STATEID WANT_DELEGATION
    DESTROY_CLIENTID RECLAIM_COMPLETE ALLOCATE COPY COPY_NOTIFY DEALLOCATE IO_ADVISE LAYOUTERROR LAYOUTSTATS
    OFFLOAD_CANCEL OFFLOAD_STATUS READ_PLUS SEEK WRITE_SAME CLONE GETXATTR SETXATTR LISTXATTRS REMOVEXATTR""".split())
    if name != "."}
OPS["ILLEGAL"] = 10044
OP_NAME = {number: name for name, number in OPS.items()}

STATUS = dict(rawrpc.STATUS)
for _name in ("REMOTE", "NODEV", "NOT_SYNC", "JUKEBOX", "ACCES"):
    del STATUS[_name]
STATUS.update(ACCESS=13, **{name: 10008 + number for number, name in enumerate(
    """DELAY SAME DENIED EXPIRED LOCKED GRACE FHEXPIRED SHARE_DENIED WRONGSEC CLID_INUSE RESOURCE MOVED NOFILEHANDLE
    MINOR_VERS_MISMATCH STALE_CLIENTID STALE_STATEID OLD_STATEID BAD_STATEID BAD_SEQID NOT_SAME LOCK_RANGE SYMLINK
    RESTOREFH LEASE_MOVED ATTRNOTSUPP NO_GRACE RECLAIM_BAD RECLAIM_CONFLICT BADXDR LOCKS_HELD OPENMODE BADOWNER BADCHAR
    BADNAME BAD_RANGE LOCK_NOTSUPP OP_ILLEGAL DEADLOCK FILE_OPEN ADMIN_REVOKED CB_PATH_DOWN BADIOMODE BADLAYOUT
    BAD_SESSION_DIGEST BADSESSION BADSLOT COMPLETE_ALREADY CONN_NOT_BOUND_TO_SESSION DELEG_ALREADY_WANTED
    BACK_CHAN_BUSY LAYOUTTRYLATER LAYOUTUNAVAILABLE NOMATCHING_LAYOUT RECALLCONFLICT UNKNOWN_LAYOUTTYPE SEQ_MISORDERED
    SEQUENCE_POS REQ_TOO_BIG REP_TOO_BIG REP_TOO_BIG_TO_CACHE RETRY_UNCACHED_REP UNSAFE_COMPOUND TOO_MANY_OPS
    OP_NOT_IN_SESSION HASH_ALG_UNSUPP 10073 CLIENTID_BUSY PNFS_IO_HOLE SEQ_FALSE_RETRY BAD_HIGH_SLOT DEADSESSION
    ENCR_ALG_UNSUPP PNFS_NO_LAYOUT NOT_ONLY_OP WRONG_CRED WRONG_TYPE DIRDELEG_UNAVAIL REJECT_DELEG RETURNCONFLICT
    DELEG_REVOKED PARTNER_NOTSUPP PARTNER_NO_AUTH UNION_NOTSUPP OFFLOAD_DENIED WRONG_LFS BADLABEL OFFLOAD_NO_REQS
    NOXATTR XATTR2BIG""".split())})
STATUS_NAME = {number: name for name, number in STATUS.items()}

ATTRS = {name: number for number, name in enumerate(
    """supported_attrs type fh_expire_type change size link_support symlink_support named_attr fsid unique_handles
    lease_time rdattr_error acl aclsupport archive cansettime case_insensitive case_preserving chown_restricted
    filehandle fileid files_avail files_free files_total fs_locations hidden homogeneous maxfilesize maxlink maxname
    maxread maxwrite mimetype mode no_trunc numlinks owner owner_group quota_avail_hard quota_avail_soft quota_used
    rawdev space_avail space_free space_total space_used system time_access time_access_set time_backup time_create
    time_delta time_metadata time_modify time_modify_set mounted_on_fileid""".split())}
ATTRS.update(suppattr_exclcreat=75, clone_blksize=77, change_attr_type=79, mode_umask=81, xattr_support=82)
ATTR_NAME = {number: name for name, number in ATTRS.items()}

ANONYMOUS, BYPASS = b"\0" * 16, b"\xff" * 16
CURRENT = u32(1) + b"\0" * 12


def _time(r):
    return (r.u64(), r.u32())


def _bitmap(r):
    words = [r.u32() for _ in range(r.u32())]
    return {bit for bit in range(32 * len(words)) if words[bit // 32] >> bit % 32 & 1}


_READ = {name: Reader.u64 for name in """change size fileid files_avail files_free files_total maxfilesize maxread
         maxwrite space_avail space_free space_total space_used mounted_on_fileid""".split()}
_READ.update({name: Reader.u32 for name in """type fh_expire_type lease_time rdattr_error maxlink maxname mode numlinks
         clone_blksize change_attr_type""".split()})
_READ.update({name: Reader.boolean for name in """link_support symlink_support named_attr unique_handles cansettime
         case_insensitive case_preserving chown_restricted homogeneous no_trunc xattr_support""".split()})
_READ.update({name: Reader.opaque for name in ("filehandle", "owner", "owner_group")})
_READ.update({name: _time for name in "time_access time_create time_delta time_metadata time_modify".split()})
_READ.update(supported_attrs=_bitmap, suppattr_exclcreat=_bitmap, fsid=lambda r: (r.u64(), r.u64()),
             rawdev=lambda r: (r.u32(), r.u32()))


def bitmap(names):
    words = [0, 0, 0]
    for name in names:
        bit = ATTRS[name] if isinstance(name, str) else name
        words[bit // 32] |= 1 << bit % 32
    while words and not words[-1]:
        words.pop()
    return u32(len(words)) + b"".join(map(u32, words))


def fattr(**what):
    """size, mode, owner, owner_group, time_access_set and time_modify_set (NOW or (seconds, nanoseconds)), mode_umask."""
    values = b""
    for name in sorted(what, key=ATTRS.get):
        value = what[name]
        if name == "size":
            values += u64(value)
        elif name == "mode":
            values += u32(value)
        elif name in ("owner", "owner_group"):
            values += opaque(value)
        elif name == "mode_umask":
            values += u32(value[0]) + u32(value[1])
        elif isinstance(value, bytes):
            values += value
        else:
            values += u32(0) if value == rawrpc.NOW else u32(1) + u64(value[0]) + u32(value[1])
    return bitmap(what) + opaque(values)


def read_fattr(r):
    bits = sorted(_bitmap(r))
    values = Reader(r.opaque())
    attr = {ATTR_NAME[bit]: _READ[ATTR_NAME[bit]](values) for bit in bits}
    values.end()
    return attr


class Reply:
    def __init__(self, op, status):
        self.op, self.status = OP_NAME.get(op, op), STATUS_NAME.get(status, status)

    @property
    def ok(self):
        return self.status == "OK"

    def __repr__(self):
        return f"Reply({self.__dict__})"


class Result(list):
    """The replies; .status of the whole, .tag."""


class Op:
    def __init__(self, name, args=b"", read=None, on_error=None):
        self.number = OPS[name] if isinstance(name, str) else name
        self.args, self.read, self.on_error = args, read, on_error

    def encode(self):
        return u32(self.number) + self.args


def _keep(**readers):
    def read(r, reply):
        for name, reader in readers.items():
            setattr(reply, name, reader(r))
    return read


def _change(r):
    return (r.boolean(), r.u64(), r.u64())


def _stateid(r):
    return r.take(16)


def putrootfh():
    return Op("PUTROOTFH")


def putfh(fh):
    return Op("PUTFH", opaque(fh))


def getfh():
    return Op("GETFH", read=_keep(fh=Reader.opaque))


def savefh():
    return Op("SAVEFH")


def restorefh():
    return Op("RESTOREFH")


def lookup(name):
    return Op("LOOKUP", opaque(name))


def lookupp():
    return Op("LOOKUPP")


def getattr_(*names):
    return Op("GETATTR", bitmap(names), _keep(attr=read_fattr))


def verify(attrs, negative=False):
    return Op("NVERIFY" if negative else "VERIFY", attrs)


def setattr_(stateid=ANONYMOUS, **what):
    return Op("SETATTR", stateid + fattr(**what), _keep(set=_bitmap), _keep(set=_bitmap))


def access(want=0x3f):
    return Op("ACCESS", u32(want), _keep(supported=Reader.u32, granted=Reader.u32))


def read(offset, count, stateid=ANONYMOUS):
    return Op("READ", stateid + u64(offset) + u32(count), _keep(eof=Reader.boolean, data=Reader.opaque))


def write(offset, data, stable=2, stateid=ANONYMOUS):
    return Op("WRITE", stateid + u64(offset) + u32(stable) + opaque(data),
              _keep(count=Reader.u32, committed=Reader.u32, verifier=lambda r: r.take(8)))


def commit(offset=0, count=0):
    return Op("COMMIT", u64(offset) + u32(count), _keep(verifier=lambda r: r.take(8)))


def readlink():
    return Op("READLINK", read=_keep(target=Reader.opaque))


def _entries(r):
    entries = []
    while r.boolean():
        entries.append((r.u64(), r.opaque(), read_fattr(r)))
    return entries


def readdir(cookie=0, verifier=0, dircount=8192, maxcount=32768, attrs=("fileid",)):
    return Op("READDIR", u64(cookie) + u64(verifier) + u32(dircount) + u32(maxcount) + bitmap(attrs),
              _keep(verifier=Reader.u64, entries=_entries, eof=Reader.boolean))


def create(name, kind, attrs=None, target=None, device=(0, 0)):
    """kind: rawrpc.DIR and its neighbours."""
    args = u32(kind)
    if kind == rawrpc.LNK:
        args += opaque(target)
    elif kind in (rawrpc.BLK, rawrpc.CHR):
        args += u32(device[0]) + u32(device[1])
    return Op("CREATE", args + opaque(name) + (fattr(mode=0o755) if attrs is None else attrs),
              _keep(change=_change, set=_bitmap))


def remove(name):
    return Op("REMOVE", opaque(name), _keep(change=_change))


def rename(old, new):
    return Op("RENAME", opaque(old) + opaque(new), _keep(source=_change, target=_change))


def link(name):
    return Op("LINK", opaque(name), _keep(change=_change))


def _flavours(r):
    return [r.u32() for _ in range(r.u32())]


def secinfo(name):
    return Op("SECINFO", opaque(name), _keep(flavours=_flavours))


class Nfs4(rawrpc.Connection):
    def __init__(self, port, cred=rawrpc.ROOT, minor=0, **options):
        super().__init__(port, **options)
        self.cred, self.minor = cred, minor

    def raw(self, args, cred=None):
        """A COMPOUND's arguments as bytes; a Reader of the results."""
        return self.call(rawrpc.NFS, 4, 1, args, cred or self.cred)

    def compound(self, *ops, minor=None, tag=b"", cred=None):
        minor = self.minor if minor is None else minor
        r = self.raw(opaque(tag) + u32(minor) + u32(len(ops)) + b"".join(op.encode() for op in ops), cred)
        result = Result()
        status = r.u32()
        result.status, result.tag = STATUS_NAME.get(status, status), r.opaque()
        for index in range(r.u32()):
            reply = Reply(r.u32(), r.u32())
            reader = ops[index].read if reply.ok else ops[index].on_error
            if reader:
                reader(r, reply)
            result.append(reply)
        r.end()
        return result
