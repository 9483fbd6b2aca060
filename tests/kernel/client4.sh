#!/bin/sh
# Runs in the guest: what NFSv4 has and NFSv3 has not, over each minor version: locks between two mounts, opens that
# outlive a name, and ranges of files.
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
        as 'fallocate -l 4000000 /mnt/a/r && [ $(stat -c %s /mnt/b/r) = 4000000 ]' || fail fallocate
        as 'cp --sparse=auto --reflink=never /mnt/a/r /mnt/b/r2 && cmp /mnt/a/r /mnt/a/r2' || fail "cp of a file with a hole"
        as 'cp --reflink=auto /mnt/a/r /mnt/a/r3 && cmp /mnt/a/r /mnt/b/r3 && rm /mnt/a/r*' || fail "cp by COPY"
        ok "holes, fallocate, copies"
    fi
    umount $a; umount $b
done
echo "kernel-4: $passed passed, 0 failed"
