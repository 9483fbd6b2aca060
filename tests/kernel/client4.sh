#!/bin/sh
# Runs in the guest: what NFSv4 has and NFSv3 has not, over each minor version: locks between two mounts, opens that
# outlive a name, ranges of files, and clones of them.  HOST as in client.sh.
set -u
server=10.0.2.2 a=/h/mnt/a b=/h/mnt/b
mkdir -p $a $b
passed=0
fail() { echo "not ok kernel client, NFS $VERS: $1"; exit 1; }
ok() { echo "ok kernel client, NFS $VERS: $1 ($(cut -d. -f1 /proc/uptime) s)"; passed=$((passed + 1)); }
as() { chroot /h /bin/sh -c "$1"; }
for VERS in 4.0 4.1 4.2; do
    opts=vers=$VERS,proto=tcp,port=2049,nosharecache,noac
    mount.nfs $server:/root $a -o $opts || fail mount
    mount.nfs $server:/root $b -o $opts || fail "second mount"

    # ---- locks ----
    as ': >/mnt/a/l; flock -n /mnt/a/l sleep 4' &
    sleep 1
    as 'flock -n /mnt/b/l true' && fail "flock: both have it"
    wait
    as 'flock -w 20 /mnt/b/l true' || fail "flock: nobody has it"
    as 'flock /mnt/a/l sleep 3' &
    sleep 1
    as 'flock -s -w 20 /mnt/b/l true' || fail "flock: waiting"
    wait
    for i in $(seq 12); do as "flock /mnt/a/l sh -c 'n=\$(cat /mnt/a/n 2>/dev/null || echo 0); echo \$((n + 1)) >/mnt/a/n'"; done &
    for i in $(seq 12); do as "flock /mnt/b/l sh -c 'n=\$(cat /mnt/b/n 2>/dev/null || echo 0); echo \$((n + 1)) >/mnt/b/n'"; done
    wait
    [ "$(cat $a/n)" = 24 ] || fail "counted to $(cat $a/n) of 24 under a lock"
    as 'rm /mnt/a/l /mnt/a/n'
    ok "flock between two mounts"

    # ---- opens ----
    as 'echo here >/mnt/a/o; exec 3</mnt/a/o; rm /mnt/a/o; [ "$(cat <&3)" = here ]' || fail "an open file that was removed"
    as 'set -C; : >/mnt/a/x; ! (: >/mnt/b/x) 2>/dev/null' || fail "O_EXCL"
    as 'rm /mnt/a/x; umask 027; : >/mnt/a/m; [ $(stat -c %a /mnt/a/m) = 640 ] && rm /mnt/a/m' || fail "the mode of a new file"
    ok opens

    # ---- ranges ----
    if [ $VERS = 4.2 ]; then
        as 'head -c 3000000 /dev/urandom >/mnt/a/r && cp /mnt/a/r /tmp/r && fallocate -p -o 500000 -l 1000000 /mnt/a/r &&
            fallocate -p -o 500000 -l 1000000 /tmp/r && cmp /tmp/r /mnt/b/r' || fail "a hole"
        [ "$(as 'stat -c %b /mnt/b/r')" -lt 4200 ] || fail "a hole holds space"
        # not by b: both are one client, which may have a delegation for b's file and does not tell its two inodes apart
        as 'fallocate -l 4000000 /mnt/a/r && [ $(stat -c %s /mnt/a/r) = 4000000 ]' || fail fallocate
        as 'cp --sparse=auto --reflink=never /mnt/a/r /mnt/b/r2 && cmp /mnt/a/r /mnt/a/r2' || fail "cp of a file with a hole"
        as 'cp --reflink=auto /mnt/a/r /mnt/a/r3 && cmp /mnt/a/r /mnt/b/r3 && rm /mnt/a/r*' || fail "cp by COPY"
        ok "holes, fallocate, copies"

        # ---- reflinks: 5 GB by their sizes, which would be another segment ----
        segments() { ls /h/mnt/host/pool-4/data | wc -l; }
        as 'head -c 9000001 /dev/urandom >/mnt/a/c && cp /mnt/a/c /tmp/c'
        before=$(segments)
        as 'cat >/tmp/big.py' <<'P' || fail "no script"
import fcntl, os, struct
source, target = os.open("/mnt/a/c", os.O_RDONLY), os.open("/mnt/a/big", os.O_RDWR | os.O_CREAT)
for i in range(300):
    fcntl.ioctl(target, 0x4020940d, struct.pack("qQQQ", source, 0, 8 << 20, i << 23)) # FICLONERANGE
P
        as '/usr/bin/python3 /tmp/big.py && cp --reflink=always /mnt/a/big /mnt/a/big2' || fail "a large file"
        as 'for i in 1 2 3 4; do cp --reflink=always /mnt/a/c /mnt/a/c$i || exit 1; done' || fail "cp --reflink=always"
        [ "$(segments)" = "$before" ] || fail "clones take space: $before segments, then $(segments)"
        as 'cmp -n 8388608 /tmp/c /mnt/b/big2 && cmp -n 8388608 /tmp/c /mnt/b/big2 0 2508193792 && cmp /tmp/c /mnt/b/c4' ||
            fail "a clone is not its source"
        as 'cp /tmp/c /tmp/d && for f in /mnt/a/c1 /tmp/d; do
                printf changed | dd of=$f bs=1 seek=1000003 conv=notrunc 2>/dev/null; truncate -s 3000000 $f; done
            cmp /tmp/d /mnt/b/c1 && cmp /tmp/c /mnt/b/c' || fail "what changes in a clone"
        as 'rm /mnt/a/c && cmp /tmp/c /mnt/b/c2' || fail "the source is removed"
        as 'cat >/tmp/ranges.py' <<'P' || fail "no script"
import fcntl, os, struct
def clone(source, a, length, target, b):
    fcntl.ioctl(target, 0x4020940d, struct.pack("qQQQ", source, a, length, b)) # FICLONERANGE
source, target = os.open("/mnt/a/c2", os.O_RDONLY), os.open("/mnt/a/e", os.O_RDWR | os.O_CREAT)
data = bytearray(open("/tmp/c", "rb").read())
want = bytearray(data[:6 << 20])
clone(source, 0, 6 << 20, target, 0)
clone(source, 5 << 20, 3 << 20, target, 4096)
want[4096:4096 + (3 << 20)] = data[5 << 20:8 << 20]
clone(target, 0, 1 << 20, target, 4 << 20)
want[4 << 20:5 << 20] = want[:1 << 20]
at = 0
while at < 3000001: # COPY, with offsets that do not agree
    at += os.copy_file_range(source, target, 3000001 - at, 12345 + at, 777 + at)
want[777:777 + at] = data[12345:12345 + at]
for a, b, length in ((1, 0, 4096), (0, 1, 4096), (0, 0, 4097)):
    try:
        clone(source, a, length, target, b)
        raise SystemExit("an unaligned clone was done")
    except OSError:
        pass
os.close(target)
if open("/mnt/b/e", "rb").read() != want:
    raise SystemExit("ranges")
P
        as '/usr/bin/python3 /tmp/ranges.py' || fail "ranges"
        ask snapshot create root@then
        as 'echo gone >/mnt/a/c3' || fail "over a file"
        as 'cp /mnt/a/.snapshot/then/c3 /mnt/a/c5 && cmp /tmp/c /mnt/b/c5' || fail "cp out of a snapshot"
        [ "$(segments)" = "$before" ] || fail "a copy out of a snapshot takes space"
        as 'rm /mnt/a/c* /mnt/a/e /mnt/a/big*'
        ask snapshot delete root@then
        ask pool check --data
        ok "reflinks, ranges, out of a snapshot"
    fi
    umount $a; umount $b
done
echo "kernel-4: $passed passed, 0 failed"
