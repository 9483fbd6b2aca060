#!/bin/sh
# Runs in the guest: what people do with a mounted volume.  MODE=root (squash none) or MODE=user (uid 1000, root
# squashed); VERS, the version of NFS (3); HOST, a directory of the host with a `tree` and a git repository `repo` in
# it; FIO, megabytes; CHANGES to what a snapshot was taken of.
set -u
server=10.0.2.2 VERS=${VERS:-3}
case $VERS in
3) opts=vers=3,proto=tcp,port=2049,mountport=2049,mountproto=tcp,nolock ;;
*) opts=vers=$VERS,proto=tcp,port=2049 ;;
esac
a=/h/mnt/a b=/h/mnt/b sub=/h/mnt/sub
TREE=/mnt/host/tree REPO=/mnt/host/repo
mkdir -p $a $b $sub
passed=0
fail() { : >/h/tmp/stop; echo "not ok kernel client, NFS $VERS, $MODE: $1"; exit 1; }
ok() { echo "ok kernel client, NFS $VERS, $MODE: $1 ($(cut -d. -f1 /proc/uptime) s)"; passed=$((passed + 1)); }
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

# ---- snapshots and clones ----
asked=0
# `sluice` on the server's machine
admin() {
    asked=$((asked + 1))
    echo "$@" >/h/mnt/host/asking && mv /h/mnt/host/asking /h/mnt/host/ask.$asked
    n=0
    while [ ! -e /h/mnt/host/done.$asked ]; do
        n=$((n + 1))
        [ $n -lt 600 ] || fail "sluice $*: no answer"
        sleep .05
    done
    [ "$(cat /h/mnt/host/done.$asked)" = 0 ] || { cat /h/mnt/host/said; fail "sluice $*"; }
}
same() { as "diff -r $1 $2" >/tmp/diff 2>&1 || { head -5 /tmp/diff; fail "$3"; }; }
refused() { as "$1" 2>/tmp/why && fail "$1 in a snapshot"; grep -q 'Read-only file system' /tmp/why || { cat /tmp/why; fail "not EROFS: $1"; }; }
mnt /$MODE $a
as 'mkdir -p /mnt/a/s/deep /tmp/copy && cd /mnt/a/s && for i in $(seq 200); do echo "file $i" >f$i; done &&
    head -c 3000000 /dev/urandom >deep/big && sync && cp -a /mnt/a/s /tmp/copy/s' || fail "a tree to keep"
admin snapshot create $MODE@one
as 'cd /mnt/a/s && for i in $(seq 100); do echo changed >>f$i; mv f$i g$i; done && rm f15*; mkdir new && echo x >new/y &&
    dd if=/dev/zero of=deep/big bs=1000 seek=500 count=7 conv=notrunc 2>/dev/null' || fail "change the live tree"
as "cd /mnt/a/s && for i in \$(seq $CHANGES); do echo \$i >w\$((i % 500)); done" || fail "$CHANGES changes"
mnt /$MODE@one $b ,ro
same /tmp/copy/s /mnt/b/s "a mounted snapshot differs"
refused 'echo x >/mnt/b/s/f1'
umount $b
mnt /$MODE@one $b # rw: the server has to refuse (opening for writing fails by ACCESS already, with EACCES)
as 'echo x >/mnt/b/s/f1' 2>/dev/null && fail "a file of a snapshot was written"
for change in 'rm -f /mnt/b/s/f1' 'mkdir /mnt/b/s/d' 'mv -f /mnt/b/s/f1 /mnt/b/s/f0' 'chmod 600 /mnt/b/s/f1'; do
    refused "$change"
done
umount $b
ok "a snapshot is mounted, is as it was, and is not written"
as 'cd /mnt/a/s && i=0; while [ ! -e /tmp/stop ]; do i=$((i + 1)); echo $i >live; mv live live2; done' &
same /tmp/copy/s /mnt/a/.snapshot/one/s "a tree read through .snapshot differs"
as 'cmp /tmp/copy/s/deep/big /mnt/a/s/deep/.snapshot/one/big' || fail ".snapshot of a directory below"
: >/h/tmp/stop; wait; rm /h/tmp/stop
as 'cp /mnt/a/.snapshot/one/s/f1 /mnt/a/s/f1 && cmp /tmp/copy/s/f1 /mnt/a/s/f1' || fail "cp out of .snapshot"
refused 'rm -f /mnt/a/.snapshot/one/s/f1'
ok "files are read and brought back through .snapshot"
admin clone create $MODE@one $MODE.clone --writable
mnt /$MODE.clone $b
same /tmp/copy/s /mnt/b/s "a clone differs"
as 'echo mine >/mnt/b/s/mine && echo more >>/mnt/b/s/f1 && rm /mnt/b/s/f2 && cmp /tmp/copy/s/f1 /mnt/a/.snapshot/one/s/f1' ||
    fail "writing to a clone"
umount $b
ok "a clone is mounted and written"
i=2
while [ $i -le 100 ]; do
    admin snapshot create $MODE@s$i
    i=$((i + 1))
done
admin volume set $MODE show-snapshots=yes
again
each=$(as 'find /mnt/a -path /mnt/a/.snapshot -prune -o -print | wc -l')
as 'find /mnt/a/.snapshot | wc -l' >/tmp/found || fail "find in .snapshot"
one=$(as 'find /mnt/a/.snapshot/one | wc -l')
[ "$(cat /tmp/found)" = $((1 + one + 99 * each)) ] || fail "find saw $(cat /tmp/found), not 1 + $one + 99 * $each"
as 'du -s /mnt/a >/tmp/du && tar -cf - -C /mnt/a . | tar -tf - | wc -l >/tmp/tar' || fail "du, tar over .snapshot"
[ "$(cat /h/tmp/tar)" = $((each + $(cat /tmp/found))) ] || fail "tar saw $(cat /h/tmp/tar) of $((each + $(cat /tmp/found)))"
umount $a || fail "umount after a walk through .snapshot"
ok "find, du and tar over a hundred snapshots"
mnt /$MODE $a ,actimeo=2
as 'echo newer >/mnt/a/s/f199 && cat /mnt/a/s/f199 >/dev/null'
exec 4<$a/s/f199
admin restore $MODE@one
sleep 3
[ "$(cat $a/s/f199)" = "file 199" ] || fail "after a restore: $(cat $a/s/f199)"
[ "$(cat <&4)" = "file 199" ] || fail "an open file after a restore"
exec 4<&-
again
same /tmp/copy/s /mnt/a/s "a restored volume differs"
umount $a
ok "a restored volume is seen by who has it mounted"

# ---- access rules ----
admin volume create $MODE.rules --allow 10.0.2.0/24:rw --squash none --owner 1000:1000 --mode 777
mnt /$MODE.rules $b ,actimeo=0
as 'echo first >/mnt/b/f' || fail "writing to a volume of rw"
exec 4<$b/f 5>>$b/f
admin volume set $MODE.rules allow=10.0.2.0/24:ro
as 'dd if=/dev/zero bs=4k count=1 conv=fsync' >&5 2>/tmp/why && fail "an open file was written under a rule of ro"
grep -q 'Read-only file system' /tmp/why || fail "writing under a rule of ro: $(cat /tmp/why)"
exec 5>&-
refused 'mkdir /mnt/b/d'
[ "$(cat <&4)" = first ] || fail "reading an open file under a rule of ro"
exec 4<&-
admin volume set $MODE.rules allow=10.0.3.0/24:rw
cat $b/f >/tmp/said 2>&1 && fail "a file was read without a rule"
admin volume set $MODE.rules allow=10.0.2.0/24:rw:squash=all:anon=77.78
as 'echo second >>/mnt/b/g && mkdir /mnt/b/d' || fail "writing after a rule let it in again"
[ "$(stat -c %u:%g $b/g)" = 77:78 ] || fail "squash=all: $(stat -c %u:%g $b/g)"
umount $b
ok "rules changed under an open mount: ro, none, all squashed"

# ---- limits ----
mnt /$MODE $a
as "cd /mnt/a && fio --name=l --size=${FIO}M --rw=randrw --bsrange=4k-256k --verify=crc32c --verify_fatal=1 --fsync=64 \
    --do_verify=1 --randseed=11 --end_fsync=1 --thread --ioengine=psync --output-format=terse" >/tmp/fio 2>&1 &
running=$! changes=0
while kill -0 $running 2>/dev/null && [ $changes -lt 60 ]; do
    changes=$((changes + 3))
    admin volume set $MODE bandwidth=8M/s iops=none
    admin volume set $MODE bandwidth=200M/s iops=300
    admin volume set $MODE bandwidth=none iops=5000
done
admin volume set $MODE bandwidth=none iops=none
wait $running || { tail -5 /tmp/fio; fail "fio while limits change"; }
[ $changes -ge 6 ] || fail "fio was over after $changes changes"
as "rm /mnt/a/l*"
ok "fio with crc32c verify while limits change ($changes times)"
admin volume create $MODE.other --allow 10.0.2.0/24:rw --squash none --owner 1000:1000
mnt /$MODE.other $b
as 'head -c 68000000 /dev/zero >/mnt/a/slow && for i in $(seq 50); do echo "$i" >/mnt/b/f$i; done' || fail "files for slow reads"
use_other() { # the other volume; $took: seconds
    start=$(cut -d. -f1 /proc/uptime)
    as 'cat /mnt/b/f* >/dev/null && for i in $(seq 20); do echo x >/mnt/b/g$i && ls /mnt/b >/dev/null; done' || fail "the other volume"
    took=$(($(cut -d. -f1 /proc/uptime) - start))
}
again
use_other
before=$took # on a busy machine this takes its time, too
admin volume set $MODE bandwidth=1M/s
as 'for i in $(seq 0 63); do dd if=/mnt/a/slow of=/dev/null bs=1M count=1 skip=$i iflag=direct 2>/dev/null & done; wait' &
running=$!
sleep 1
use_other
[ $took -lt $((5 + 3 * before)) ] || fail "behind slow reads the other volume took $took s, before them $before"
kill -0 $running || fail "64 READs of 1 MiB at 1 MB/s were over at once"
sleep 25 # longer than the server has anybody wait
admin volume set $MODE bandwidth=none
wait $running || fail "slow reads"
dmesg | grep -q 'not responding' && fail "the client timed out"
as 'rm /mnt/a/slow'
umount $a; umount $b
ok "64 slow READs stall no other volume ($took s)"

# ---- space ----
admin volume create $MODE.limited --size 20Mi --files 50 --allow 10.0.2.0/24:rw --squash none --owner 1000:1000 --mode 777
mnt /$MODE.limited $b
df_is() { # bytes there are, used and available; the same of files
    as 'df -B1 --output=size,used,avail /mnt/b | tail -1; df --output=itotal,iused,iavail /mnt/b | tail -1' |
        tr -s ' \n' ' ' | grep -q "^ *$1 *$" || fail "df is not $1: $(as 'df -B1 /mnt/b; df -i /mnt/b')"
}
full() { # with this error
    as "$1" >/tmp/said 2>&1 && fail "$1: there was room"
    grep -q "No space left" /tmp/said || fail "$1: $(cat /tmp/said)"
}
df_is "20971520 0 20971520 50 1 49"
full 'dd if=/dev/zero of=/mnt/b/big bs=1M count=30 conv=fsync'
df_is "20971520 20971520 0 50 2 48"
as 'dd if=/dev/urandom of=/mnt/b/big bs=1M count=10 conv=notrunc,fsync 2>/dev/null' || fail "overwriting in a full volume"
admin volume set $MODE.limited size=30Mi
df_is "31457280 20971520 10485760 50 2 48"
as 'dd if=/dev/zero of=/mnt/b/more bs=1M count=10 conv=fsync 2>/dev/null' || fail "after the size was raised"
as 'rm /mnt/b/big /mnt/b/more' || fail "rm in a full volume"
sleep 1
df_is "31457280 0 31457280 50 1 49"
full 'for i in $(seq 60); do : >/mnt/b/n$i || exit 1; done'
[ "$(ls $b | wc -l)" = 49 ] || fail "$(ls $b | wc -l) files of 49"
umount $b
ok "limits of bytes and files, raised live, and df"
echo "kernel-$VERS-$MODE: $passed passed, 0 failed"
