#!/bin/sh
# Runs in each of two guests: locks and files between two clients.  GUEST, which of them this is; HOST, a directory of
# the host where they wait for each other.
set -u
server=10.0.$((GUEST + 1)).2 a=/h/mnt/a
mkdir -p $a
passed=0 met=0
fail() { echo "not ok two kernel clients, NFS $VERS, $GUEST: $1"; : >/h/mnt/host/failed; exit 1; }
ok() { [ "$GUEST" = 2 ] || { echo "ok two kernel clients, NFS $VERS: $1 ($(cut -d. -f1 /proc/uptime) s)"; passed=$((passed + 1)); }; }
as() { chroot /h /bin/sh -c "$1"; }
meet() { # waits until the other has come as far
    met=$((met + 1)) n=0
    : >/h/mnt/host/met.$met.$GUEST
    while [ ! -e /h/mnt/host/met.$met.$((3 - GUEST)) ]; do
        [ ! -e /h/mnt/host/failed ] || exit 1
        n=$((n + 1))
        [ $n -lt 2400 ] || fail "the other does not come"
        sleep .05
    done
}
turn() { [ "$GUEST" = "$1" ]; }
count='n=$(cat /mnt/a/n 2>/dev/null || echo 0); echo $((n + 1)) >/mnt/a/n'
# LOCK_EX|LOCK_SH FROM LENGTH COMMAND...: runs it under that lock, or fails at once
cat >/h/tmp/fcntl.py <<'P'
import fcntl, subprocess, sys
with open("/mnt/a/l", "r+b") as f:
    how, start, length = getattr(fcntl, sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    fcntl.lockf(f, how | fcntl.LOCK_NB, length, start)
    sys.exit(subprocess.call(" ".join(sys.argv[4:]), shell=True))
P
fcntl='/usr/bin/env python3 /tmp/fcntl.py'
for VERS in 4.0 4.1 4.2; do
    mount.nfs $server:/two $a -o vers=$VERS,proto=tcp,port=2049 || fail mount
    meet
    # a whole file
    if turn 1; then
        as ": >/mnt/a/l; flock /mnt/a/l sh -c ': >/tmp/has; while [ ! -e /tmp/let ]; do sleep .05; done'" &
        while [ ! -e /h/tmp/has ]; do sleep .05; done
    fi
    meet
    turn 1 || ! as 'flock -n /mnt/a/l true' || fail "flock: both have it"
    meet
    turn 2 || { : >/h/tmp/let; wait; rm /h/tmp/has /h/tmp/let; }
    turn 1 || as 'flock -w 40 /mnt/a/l true' || fail "flock: nobody has it"
    meet
    for i in $(seq 10); do as "flock /mnt/a/l sh -c '$count'" || fail flock; done
    meet
    [ "$(as 'flock -s /mnt/a/l cat /mnt/a/n')" = 20 ] || fail "counted to $(cat $a/n) of 20 under a lock"
    meet
    # ranges: the first has bytes 10 to 19 for itself
    if turn 1; then
        as "$fcntl LOCK_EX 10 10 : '>/tmp/has; while [ ! -e /tmp/let ]; do sleep .05; done'" &
        while [ ! -e /h/tmp/has ]; do sleep .05; done
    fi
    meet
    if turn 2; then
        as "$fcntl LOCK_EX 20 10 true && $fcntl LOCK_SH 0 10 true" || fail "fcntl: bytes beside those that are locked"
        as "$fcntl LOCK_SH 15 10 true" && fail "fcntl: bytes that are locked"
    fi
    meet
    turn 2 || { : >/h/tmp/let; wait; rm /h/tmp/has /h/tmp/let; }
    meet
    turn 1 || as "$fcntl LOCK_EX 15 10 true" || fail "fcntl: bytes that were let go"
    meet
    # the first is evicted while it has a lock and an open file: the other has the lock, the first goes on
    if turn 1; then
        exec 3>$a/e
        as "flock /mnt/a/l sh -c ': >/tmp/has; while [ ! -e /tmp/let ]; do sleep .05; done'" &
        while [ ! -e /h/tmp/has ]; do sleep .05; done
    fi
    meet
    if turn 2; then
        as 'flock -n /mnt/a/l true' && fail "evicting: both have the lock"
        ask clients
        ask clients evict "$(awk -v v="$VERS" '$3 == v && $2 ~ /^10\.0\.2\./ { print $1; exit }' /h/mnt/host/said)"
        as 'flock -n /mnt/a/l true' || fail "an evicted client has a lock"
    fi
    meet
    if turn 1; then
        echo on >&3 || fail "a file that an evicted client has open"
        exec 3>&-
        : >/h/tmp/let; wait; rm /h/tmp/has /h/tmp/let
        as 'flock -w 40 /mnt/a/l true' || fail "an evicted client gets no lock again"
    fi
    meet
    [ "$(cat $a/e)" = on ] || fail "what an evicted client wrote when it had come again: $(cat $a/e)"
    meet
    turn 2 || as 'rm /mnt/a/l /mnt/a/n /mnt/a/e'
    meet
    ok "locks, and a client that is evicted"
    # close to open, with what delegations there are; a file removed by the other while it is open
    for i in 1 2 3 4 5 6; do
        turn $((i % 2 + 1)) && { as "echo $i >/mnt/a/c" || fail "write $i"; }
        meet
        [ "$(as 'cat /mnt/a/c')" = $i ] || fail "round $i: $(as 'cat /mnt/a/c')"
        meet
    done
    ok "each opens what the other has closed"
    if turn 1; then
        as 'echo still >/mnt/a/u'
        exec 3<$a/u
    fi
    meet
    turn 1 || as 'rm /mnt/a/u' || fail rm
    meet
    if turn 1; then
        echo 3 >/proc/sys/vm/drop_caches
        [ "$(cat <&3)" = still ] || fail "a file that is open and removed by the other"
        exec 3<&-
        rm -f $a/c
    fi
    meet
    umount $a
done
meet
[ "$GUEST" = 2 ] && exit 0
# 4.1 and 4.2 have read with delegations, and writers have had them recalled
echo metrics >/h/mnt/host/asking && mv /h/mnt/host/asking /h/mnt/host/ask.metrics
while [ ! -e /h/mnt/host/done.metrics ]; do sleep .05; done
for what in nfs4_delegations nfs4_recalls; do
    grep -q "^$what *[1-9]" /h/mnt/host/said || { grep nfs4 /h/mnt/host/said; fail "no $what"; }
done
ok "delegations, given and recalled"
echo "kernel-two: $passed passed, 0 failed"
