#!/bin/sh
# Runs in the guest: the server is restarted, and killed, in the middle of things, and no program sees an error.  VERS
# and HOST as in client.sh; FIO, megabytes; LEASE, seconds.
set -u
server=10.0.2.2 a=/h/mnt/a b=/h/mnt/b
case $VERS in
3) opts=vers=3,proto=tcp,port=2049,mountport=2049,mountproto=tcp,nolock ;;
*) opts=vers=$VERS,proto=tcp,port=2049 ;;
esac
mkdir -p $a $b
passed=0
fail() { echo "not ok kernel client, restarts, NFS $VERS: $1"; dmesg | tail -3; exit 1; }
ok() { echo "ok kernel client, restarts, NFS $VERS: $1 ($(cut -d. -f1 /proc/uptime) s)"; passed=$((passed + 1)); }
as() { chroot /h /bin/sh -c "$1"; }

# ---- fio ----
mount.nfs $server:/restart $a -o $opts,nconnect=8 || fail "mount with nconnect=8"
as "cd /mnt/a && for seed in 13 14 15; do fio --name=v --size=${FIO}M --rw=randrw --bsrange=4k-256k --verify=crc32c \
    --verify_fatal=1 --fsync=32 --do_verify=1 --randseed=\$seed --end_fsync=1 --thread --ioengine=psync --output-format=terse ||
    exit 1; done" >/tmp/fio 2>&1 &
running=$! kills=0
while kill -0 $running 2>/dev/null && [ $kills -lt 5 ]; do
    sleep 1
    ask kill $([ $((kills % 2)) = 0 ] && echo KILL || echo TERM)
    kills=$((kills + 1))
done
wait $running || { tail -5 /tmp/fio; fail "fio while the server is restarted"; }
[ $kills -ge 2 ] || fail "fio was over after $kills restarts"
as 'rm /mnt/a/v*'
umount $a
ok "fio with crc32c verify and nconnect=8 over $kills restarts"
[ $VERS != 3 ] || { echo "kernel-restart-3: $passed passed, 0 failed"; exit 0; }

# ---- a lock, an open file, one that is removed ----
mount.nfs $server:/restart $a -o $opts,nosharecache || fail mount
mount.nfs $server:/restart $b -o $opts,nosharecache,noac || fail "second mount"
for signal in TERM KILL; do
    as 'cd /mnt/a && : >l && echo first >open && echo gone >gone && echo other >other'
    as "exec 3>>/mnt/a/l 4<>/mnt/a/open 5</mnt/a/gone 6</mnt/a/other; flock 3; rm /mnt/a/gone /mnt/b/other; : >/tmp/have
        while [ ! -e /tmp/again ]; do sleep .1; done
        echo locked >&3 && read -r x <&4 && [ \$x = first ] && echo second >&4 && read -r y <&5 && [ \$y = gone ] && read -r z <&6 && [ \$z = other ] && sync &&
        : >/tmp/well; while [ ! -e /tmp/enough ]; do sleep .1; done" &
    holder=$!
    while [ ! -e /h/tmp/have ]; do sleep .1; done
    as 'flock -n /mnt/b/l true' && fail "a lock that is held was given before the restart"
    [ $VERS = 4.0 ] || [ -z "$(find $a -name '.nfs*')" ] || fail "the client keeps what was removed under a name of its own"
    ask kill $signal
    # new opens wait for the end of grace, the holder's reclaim does not
    : >/h/tmp/again
    as 'flock -n /mnt/b/l true' && fail "a lock was lost by a restart ($signal)"
    n=0
    while [ ! -e /h/tmp/well ]; do
        n=$((n + 1))
        [ $n -lt 600 ] && kill -0 $holder 2>/dev/null || fail "the holder of a lock saw an error ($signal)"
        sleep .1
    done
    [ "$(cat $b/l)" = locked ] || fail "what the holder wrote after the restart ($signal): $(cat $b/l)"
    : >/h/tmp/enough
    wait $holder || fail "the holder of a lock ($signal)"
    as 'flock -w 30 /mnt/b/l true' || fail "the lock is not free after its holder has gone ($signal)"
    [ "$(tail -n 1 $b/open)" = second ] || fail "an open file after a restart ($signal)"
    as 'rm /mnt/a/l /mnt/a/open; rm -f /tmp/have /tmp/again /tmp/well /tmp/enough'
done
ok "a lock, an open file and removed ones over TERM and kill -9"

# ---- a restore ----
as 'cd /mnt/a && echo old >kept && echo old >changed'
ask snapshot create restart@r$VERS
as 'cd /mnt/a && echo new >changed && echo new >made && cat kept changed made >/dev/null'
exec 3<$a/kept 4<$a/changed 5<$a/made
cat <&3 >/dev/null
ask restore restart@r$VERS
sleep 4
[ "$(as 'cat /mnt/b/changed')" = old ] || fail "after a restore, noac: $(as 'cat /mnt/b/changed')"
umount $b
mount.nfs $server:/restart $b -o $opts,nosharecache,noac || fail "mount after a restore"
as '[ ! -e /mnt/b/made ] && [ $(cat /mnt/b/kept) = old ]' || fail "after a restore"
exec 3<&- 4<&- 5<&-
umount $a && mount.nfs $server:/restart $a -o $opts,nosharecache || fail "mount after a restore"
as '[ $(cat /mnt/a/changed) = old ] && echo newer >/mnt/a/changed && [ $(cat /mnt/b/changed) = newer ]' || fail "a write after a restore"
as 'rm /mnt/a/kept /mnt/a/changed'
umount $a; umount $b
ok "a volume restored whose files are open"
echo "kernel-restart-$VERS: $passed passed, 0 failed"
