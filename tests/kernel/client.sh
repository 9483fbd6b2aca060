#!/bin/sh
# Runs in the guest: what people do with a mounted volume.  MODE=root (squash none) or MODE=user (uid 1000, root
# squashed); HOST, a directory of the host with a `tree` and a git repository `repo` in it; FIO, megabytes.
set -u
server=10.0.2.2 opts=vers=3,proto=tcp,port=2049,mountport=2049,mountproto=tcp,nolock
a=/h/mnt/a b=/h/mnt/b sub=/h/mnt/sub
TREE=/mnt/host/tree REPO=/mnt/host/repo
mkdir -p $a $b $sub /h/mnt/host
mount -t hostfs -o "$HOST" none /h/mnt/host || exit 1
passed=0
fail() { echo "not ok kernel client, $MODE: $1"; exit 1; }
ok() { echo "ok kernel client, $MODE: $1 ($(cut -d. -f1 /proc/uptime) s)"; passed=$((passed + 1)); }
# host programs, as the user under test; a and b are /mnt/a and /mnt/b there
as() {
    if [ "$MODE" = root ]; then chroot /h /bin/sh -c "$1"
    else chroot /h /usr/bin/setpriv --reuid 1000 --regid 1000 --clear-groups /bin/sh -c "HOME=/tmp; $1"; fi
}
mnt() { mount.nfs "$server:$1" "$2" -o "$opts${3:-}" || fail "mount $1"; }
again() { umount $a && mnt /$MODE $a; }

mnt /$MODE $a
if [ "$MODE" = user ]; then
    (: >$a/x) 2>/dev/null && fail "root may write although it is squashed"
    ok "root is squashed"
fi

# ---- smoke ----
as 'mkdir /mnt/a/smoke && cd /mnt/a/smoke && dd if=/dev/urandom of=/tmp/r bs=64k count=129 2>/dev/null && cp /tmp/r a' ||
    fail "mkdir, write"
again
as 'cd /mnt/a/smoke && cmp /tmp/r a' || fail "read back after a remount"
as 'cd /mnt/a/smoke && mv a b && ln b c && ln -s b l && [ $(stat -c %h b) = 2 ] && [ $(readlink l) = b ]' ||
    fail "rename, link, symlink"
as 'cd /mnt/a/smoke && chmod 640 b && [ $(stat -c %a c) = 640 ]' || fail chmod
as 'cd /mnt/a/smoke && truncate -s 100000 b && [ $(stat -c %s c) = 100000 ] && head -c 100000 /tmp/r | cmp - b' ||
    fail truncate
as 'cd /mnt/a/smoke && truncate -s 1T big && [ $(stat -c %s big) = 1099511627776 ] && rm big' || fail "a sparse file"
as 'cd /mnt/a/smoke && for i in $(seq 300); do : >n$i; done' || fail "create 300"
again
[ "$(ls $a/smoke | grep -c ^n)" = 300 ] || fail "readdir"
as 'cd /mnt/a/smoke && rm n1* && [ $(ls | grep -c ^n) = 189 ]' || fail "remove"
as 'cd /mnt/a/smoke && mkfifo p && [ -p p ] && touch -d 2001-02-03T04:05:06.123456789Z t &&
    [ $(stat -c %Y t) = 981173106 ]' || fail "fifo, times"
as 'exec 3>/mnt/a/smoke/open && rm /mnt/a/smoke/open && echo still >&3' || fail "write to a removed open file"
as 'rm -r /mnt/a/smoke' || fail "rm -r"
ok smoke

# ---- a tree out and back ----
columns='%P %y %m %s %n %T@ %l' part=/usr
[ "$MODE" = root ] && columns='%P %y %m %U %G %s %n %T@ %l' part=
list() { chroot /h /bin/sh -c "cd $1 && find . ! -type d -printf '$columns\n' -o -printf '%P %y %m %T@\n' | LC_ALL=C sort"; }
as "mkdir /mnt/a/out /tmp/back; cp -a $TREE$part /mnt/a/out/tree" || fail "cp -a out"
again
as "cp -a /mnt/a/out/tree /tmp/back/tree" || fail "cp -a back"
again
as "diff -r --no-dereference --exclude=fifo $TREE$part /mnt/a/out/tree" >/tmp/diff 2>&1 || { head -5 /tmp/diff; fail "diff -r out"; }
as "diff -r --no-dereference --exclude=fifo $TREE$part /tmp/back/tree" >/tmp/diff 2>&1 || { head -5 /tmp/diff; fail "diff -r back"; }
list $TREE$part >/tmp/l1
for where in /mnt/a/out /tmp/back; do
    list $where/tree >/tmp/l2
    cmp -s /tmp/l1 /tmp/l2 || { diff /tmp/l1 /tmp/l2 | head -6; fail "owners, modes, times or links differ ($where)"; }
done
ok "a tree of $(wc -l </tmp/l1) entries out and back"
rm -rf /h/tmp/back; as "rm -r /mnt/a/out" || fail "remove the tree"
[ -z "$(ls $a)" ] || fail "entries left after rm -r"
ok "rm -r of it"

# ---- fio ----
as "cd /mnt/a && fio --name=v --size=${FIO}M --rw=randrw --bsrange=4k-1m --verify=crc32c --verify_fatal=1 --fsync=32 \
    --do_verify=1 --randseed=7 --end_fsync=1 --thread --ioengine=psync --output-format=terse" >/tmp/fio 2>&1 ||
    { tail -5 /tmp/fio; fail fio; }
again
as "cd /mnt/a && fio --name=v --size=${FIO}M --rw=randwrite --bsrange=4k-1m --verify=crc32c --verify_fatal=1 \
    --do_verify=1 --randseed=9 --thread --ioengine=psync --output-format=terse" >/tmp/fio 2>&1 || { tail -5 /tmp/fio; fail "fio writes"; }
as "rm /mnt/a/v*"
ok "fio with crc32c verify"

# ---- git ----
as "cd /mnt/a && git clone -q --no-hardlinks file://$REPO clone && cd clone && git fsck --strict && git status --porcelain &&
    echo more >>file1 && git -c user.name=a -c user.email=a@b commit -qam more && git gc -q && git log --oneline | wc -l" \
    >/tmp/git 2>&1 || { cat /tmp/git; fail git; }
as "rm -rf /mnt/a/clone" || fail "rm -rf of the clone"
ok "git clone, commit, gc"

# ---- two mounts ----
umount $a; mount.nfs "$server:/$MODE" $a -o "$opts,noac,nosharecache" || fail "mount noac"
mount.nfs "$server:/$MODE" $b -o "$opts,noac,nosharecache" || fail "second mount"
i=0
while [ $i -lt 20 ]; do
    as "echo $i >/mnt/a/seen; [ \$(cat /mnt/b/seen) = $i ] && echo b$i >>/mnt/b/seen && tail -1 /mnt/a/seen | grep -qx b$i &&
        mv /mnt/b/seen /mnt/b/seen2 && [ -e /mnt/a/seen2 ] && [ ! -e /mnt/a/seen ] && mv /mnt/a/seen2 /mnt/a/seen" ||
        fail "two mounts, round $i"
    i=$((i + 1))
done
as "rm /mnt/b/seen; [ ! -e /mnt/a/seen ]" || fail "two mounts, remove"
umount $b
ok "two mounts see each other's changes"

# ---- a subdirectory ----
as "mkdir -p /mnt/a/x/y && echo deep >/mnt/a/x/y/z" || fail "mkdir -p"
mnt "//$MODE/x//y/" $sub
[ "$(cat $sub/z)" = deep ] || fail "read below a mounted subdirectory"
umount $sub; as "rm -r /mnt/a/x"; umount $a
ok "a mounted subdirectory"
echo "kernel-$MODE: $passed passed, 0 failed"
