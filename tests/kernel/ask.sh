# In front of every script that runs in the guest: words to the host (see serve() in run).

mkdir -p /h/mnt/host
[ -z "${HOST:-}" ] || mount -t hostfs -o "$HOST" none /h/mnt/host || exit 1
asked=0
ask() { # kill SIGNAL, which returns when the server is there again; or words for `sluice`, whose answer is in host/said
    asked=$((asked + 1))
    name=${GUEST:-1}.$asked
    echo "$@" >/h/mnt/host/asking && mv /h/mnt/host/asking /h/mnt/host/ask.$name
    n=0
    while [ ! -e /h/mnt/host/done.$name ]; do
        n=$((n + 1))
        [ $n -lt 600 ] || fail "$*: no answer"
        sleep .05
    done
    [ "$(cat /h/mnt/host/done.$name)" = 0 ] || { cat /h/mnt/host/said; fail "$*"; }
}

