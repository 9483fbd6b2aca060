#!/usr/bin/env python3
"""fuzz_state4.seeds.py DIR: histories that get somewhere, as fuzz_state4 reads them: four bytes a step."""
import os
import random
import sys

(OPEN, CLOSE, DOWNGRADE, IO, LOCK, LOCKU, LOCKT, TEST, RETURN, EXCHANGE, EXCHANGE2, CREATE, CREATE2, SEQUENCE, SEQUENCE2, SEQUENCE3,
 DESTROY, DESTROY_ID, RECLAIM, SET, CONFIRM, OPEN4, STATE4, RELEASE, TIME, ANSWER, CHANGE,
 RECHECK) = range(28)


def step(what, *rest):
    return bytes((what, *rest, 0, 0, 0))[:4]


def begin(session, slot=0, how=0x10):
    return step(SEQUENCE, session + 8 * slot, random.randrange(256), how)


def clients(many):
    """They have a session each and have said that they reclaim nothing."""
    return b"".join(step(EXCHANGE, i, 0) + step(CREATE, i, 0x10, 0xc0) + begin(i) + step(RECLAIM, 0, i, 0) + step(ANSWER)
                    for i in range(many))


def in_sessions(rng, steps):
    out = clients(3)
    for _ in range(steps):
        out += begin(rng.randrange(3), rng.randrange(4), 0x10 * rng.randrange(2))
        what = rng.choice((OPEN, OPEN, LOCK, LOCK, LOCKU, LOCKT, IO, CLOSE, DOWNGRADE, TEST))
        number = rng.randrange(4) | rng.randrange(3) << 5 if what == OPEN else rng.randrange(12)
        out += step(what, number, rng.randrange(256), rng.randrange(0x1f))
        if rng.random() < 0.2:
            out += step(rng.choice((RETURN, CHANGE, RECHECK, ANSWER)), rng.randrange(12), rng.randrange(12), rng.randrange(2))
        if rng.random() < 0.1:
            out += step(TIME, rng.randrange(256), 1)
    return out


def minor_0(rng, steps):
    out = b"".join(step(SET, i, 0) + step(CONFIRM, i, 0) for i in range(2))
    seqids = {}
    for _ in range(steps):
        who = (rng.randrange(2), rng.randrange(2))
        seqid = seqids[who] = seqids.get(who, 0) + 1
        out += step(OPEN4, who[0], who[1] | rng.randrange(3) << 4, (seqid & 15) << 4 | rng.randrange(16))
        out += step(STATE4, rng.randrange(8), rng.randrange(6), seqid + 1 & 15)
        if rng.random() < 0.2:
            out += step(RELEASE, who[0], rng.randrange(4))
    return out


def repeats(rng, steps):
    out = clients(2)
    for _ in range(steps):
        kind = rng.choice((0, 0, 4, 6, 7)) << 1
        out += step(SEQUENCE, rng.randrange(2) + 8 * rng.randrange(5), rng.randrange(2), kind | 0x10 | rng.randrange(2))
        if rng.random() < 0.3:
            out += step(rng.choice((DESTROY, CREATE, EXCHANGE, DESTROY_ID)), rng.randrange(3), rng.randrange(8), 0xc0)
    return out


def restarts(rng, steps):
    out = b""
    for _ in range(3):
        out += in_sessions(rng, steps // 3) + step(0xee, 0, 0, 0)
    return out


folder = sys.argv[1]
for maker in (in_sessions, minor_0, repeats, restarts):
    for seed in range(6):
        random.seed(seed)
        with open(os.path.join(folder, f"seed-{maker.__name__}-{seed}"), "wb") as out:
            out.write(maker(random.Random(seed), 40 + 10 * seed))
