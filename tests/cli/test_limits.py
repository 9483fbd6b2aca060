#!/usr/bin/env python3
"""Tiers and limits on the command line.  SLUICE_BUILD: the directory with sluiced and sluice.  Names of tests as
arguments run only these."""
import json
import os
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "tests", "nfs"))
import harness
from harness import check, eq, test

DONE, FAILED, USAGE = 0, 1, 2
TIB = 1 << 40


def start(c, *words):
    return subprocess.Popen([os.path.join(harness.BUILD, "sluice"), "--socket", c.server.socket, *words],
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def line(c, *words, code=DONE):
    process = start(c, *words)
    out, errors = process.communicate(timeout=60)
    eq(process.returncode, code, f"{words}: {out.decode()}{errors.decode()}")
    return out.decode() if code == DONE else errors.decode()


def wrong(c, *words, code, says):
    said = line(c, *words, code=code)
    eq(len(said.strip().split("\n")), 1, f"{words}: {said}")
    check(says in said, f"{words}: {said}")


def volume(c, name="vol"):
    """What is set, not what the machine has room for at the moment."""
    shown = json.loads(line(c, "--json", "volume", "show", name))["volume"]
    return {key: value for key, value in shown.items() if key != "bytes_available"}


def tiers(c):
    return {t["name"]: t for t in json.loads(line(c, "--json", "tier", "list"))["tiers"]}


def limits(c, name="vol"):
    """Of all clients together: bytes and operations a second."""
    shown = volume(c, name)["limits"]
    return shown["bandwidth"], shown["iops"]


@test
def tiers_are_there_from_the_start(c):
    eq({n: (t["limits"], t["built_in"]) for n, t in tiers(c).items()}, {
        "standard": ({"bandwidth": "16Mi/s/TiB", "iops": "1k/TiB"}, True),
        "premium": ({"bandwidth": "64Mi/s/TiB", "iops": "4k/TiB"}, True),
        "extreme": ({"bandwidth": "128Mi/s/TiB", "iops": "8k/TiB"}, True),
        "unlimited": ({}, True)})
    eq(volume(c)["tier"], "unlimited", "the default")
    eq(limits(c), (0, 0))


@test
def a_tier_changes_all_that_are_in_it(c):
    line(c, "tier", "create", "gold", "--bandwidth", "2G/s", "--iops", "200k", "--burst", "1s")
    line(c, "volume", "create", "one", "--tier", "gold")
    line(c, "volume", "create", "two", "--size", "4Ti")
    line(c, "volume", "set", "two", "tier=gold")
    eq([limits(c, n) for n in ("one", "two")], [(2 * 10**9, 200000)] * 2)
    eq(volume(c, "one")["limits"]["burst_ms"], 1000)
    line(c, "tier", "set", "gold", "--bandwidth", "500Mi/s", "--burst", "none")
    eq([limits(c, n) for n in ("one", "two")], [(500 << 20, 200000)] * 2)
    eq(volume(c, "one")["limits"]["burst_ms"], 100)
    eq(tiers(c)["gold"], {"name": "gold", "limits": {"bandwidth": "500Mi/s", "iops": "200k"}, "volumes": 2,
                          "built_in": False})
    check("gold" in line(c, "volume", "list"), "the list names it")
    shown = line(c, "volume", "show", "one")
    check("tier      gold" in shown and "bandwidth 500Mi/s, iops 200k" in shown, shown)
    wrong(c, "tier", "delete", "gold", code=FAILED, says="volume one is in this tier")
    line(c, "volume", "set", "one", "tier=none")
    line(c, "volume", "set", "two", "tier=extreme")
    eq([limits(c, n) for n in ("one", "two")], [(0, 0), (512 << 20, 32000)])
    line(c, "volume", "set", "two", "size=8Ti")
    eq(limits(c, "two"), (1 << 30, 64000), "it follows the size")
    line(c, "tier", "delete", "gold")
    check("gold" not in tiers(c), "it is gone")


@test
def a_volumes_own_limits_come_and_go(c):
    line(c, "volume", "set", "vol", "size=2Ti", "tier=premium")
    line(c, "volume", "set", "vol", "read-bandwidth=300M/s", "iops=1k/TiB", "burst=20ms", "min-bandwidth=10M/s")
    shown = volume(c)
    eq(shown["own_limits"], {"read-bandwidth": "300M/s", "iops": "1k/TiB", "burst": "20ms"})
    eq(shown["limits"], {"bandwidth": 128 << 20, "read_bandwidth": 300 * 10**6, "write_bandwidth": 0, "iops": 2000,
                         "read_iops": 0, "write_iops": 0, "burst_ms": 20, "min_bandwidth": 10**7})
    line(c, "volume", "set", "vol", "iops=none")
    eq(limits(c), (128 << 20, 8000), "the tier's again")
    line(c, "volume", "set", "vol", "bandwidth=1G/s", "tier=standard")
    eq(volume(c)["own_limits"], {"bandwidth": "1G/s"}, "a tier goes first")
    eq(limits(c), (10**9, 2000))
    line(c, "snapshot", "create", "vol@s")
    line(c, "clone", "create", "vol@s", "copy")
    eq((limits(c, "copy"), volume(c, "copy")["limits"]["min_bandwidth"]), ((0, 0), 0), "a clone has none")
    line(c, "volume", "set", "vol", "tier=unlimited", "min-bandwidth=none", "size=none")
    eq((limits(c), volume(c)["limits"]["min_bandwidth"]), ((0, 0), 0))


@test
def wrong_limits_change_nothing(c):
    line(c, "tier", "create", "silver", "--iops", "5k")
    line(c, "volume", "set", "vol", "tier=silver")
    before = volume(c), tiers(c)
    for value, says in (("0", "from 100k"), ("-1G/s", "2G/s"), ("1000", "with their unit"), ("5000T/s", "to 1T"),
                        ("fast", "2G/s"), ("", "2G/s"), ("1G/min", "2G/s"), ("99999999999999999999G/s", "to 1T")):
        wrong(c, "volume", "set", "vol", f"bandwidth={value}", code=USAGE, says=says)
        wrong(c, "tier", "set", "silver", "--bandwidth", value, code=USAGE, says=says)
        wrong(c, "tier", "create", "new", "--bandwidth", value, code=USAGE, says=says)
        wrong(c, "volume", "set", "vol", f"min-bandwidth={value}", code=USAGE, says="min-bandwidth")
    for value in ("0", "-1", "3", "2.5", "1T"):
        wrong(c, "volume", "set", "vol", "size=1T", f"iops={value}", code=USAGE, says="iops")
    for words, code, says in (
            (("volume", "set", "vol", "tier=silvr"), FAILED, "did you mean 'silver'?"),
            (("volume", "set", "vol", "tier=something"), FAILED, "sluice tier list"),
            (("volume", "set", "vool", "tier=silver"), FAILED, "did you mean 'vol'?"),
            (("volume", "create", "new", "--tier", "extrem"), FAILED, "did you mean 'extreme'?"),
            (("volume", "create", "new", "--tier", "extreme"), USAGE, "size=2T"),
            (("volume", "set", "vol", "tier=extreme"), USAGE, "size=2T"),
            (("volume", "set", "vol", "read-iops=5/TiB"), USAGE, "from 10"),
            (("volume", "set", "vol", "read-iops=50/TiB"), USAGE, "size=2T"),
            (("volume", "set", "vol", "bandwidth=1M/s", "min-bandwidth=2M/s"), USAGE, "more than"),
            (("volume", "set", "vol", "min-bandwidth=2M/s/TiB"), USAGE, "not for each TiB"),
            (("volume", "set", "vol", "bandwith=1M/s"), USAGE, "unknown key 'bandwith'"),
            (("tier", "set", "silver"), USAGE, "no limit is given"),
            (("tier", "set", "silver", "--iops", "none"), USAGE, "no limit"),
            (("tier", "set", "silver", "--iops", "50/TiB"), USAGE, "has no size"),
            (("tier", "set", "sliver", "--iops", "50"), FAILED, "did you mean 'silver'?"),
            (("tier", "set", "premium", "--iops", "50"), USAGE, "built in"),
            (("tier", "create", "silver", "--iops", "50"), FAILED, "already"),
            (("tier", "create", "a/b", "--iops", "50"), USAGE, "'/' cannot be in a name"),
            (("tier", "create", "new"), USAGE, "no limit is given"),
            (("tier", "create", "new", "--burst", "1s"), USAGE, "no limit"),
            (("tier", "delete", "premium"), USAGE, "built in"),
            (("tier", "delete", "nothing.like.it"), FAILED, "sluice tier list")):
        wrong(c, *words, code=code, says=says)
    eq((volume(c), tiers(c)), before, "nothing has changed")
    line(c, "volume", "set", "vol", "tier=none")
    line(c, "tier", "delete", "silver")


@test
def two_admins_at_once_lose_nothing(c):
    keys = {"read-bandwidth": "1M/s", "write-bandwidth": "2M/s", "read-iops": "30", "write-iops": "40", "burst": "50ms"}
    for round_ in range(4):
        line(c, "volume", "set", "vol", "tier=none")
        for process in [start(c, "volume", "set", "vol", f"{k}={v}") for k, v in keys.items()]:
            eq((process.wait(60), process.stderr.read()), (DONE, b""))
        eq(volume(c)["own_limits"], {k: v for k, v in keys.items()}, f"round {round_}")
    made = [start(c, "tier", "create", "race", "--iops", "50") for _ in range(6)]
    eq(sorted(p.wait(60) for p in made), [DONE] + 5 * [FAILED], "one of them made it")
    for process in made:
        check(process.returncode == DONE or b"already" in process.stderr.read(), "and the others are told")
    both = [start(c, "volume", "set", "vol", "tier=race"), start(c, "tier", "delete", "race")]
    codes = tuple(p.wait(60) for p in both)
    check(codes in ((DONE, FAILED), (FAILED, DONE)), f"a tier in use was deleted: {codes}")
    if codes[1] == FAILED:
        line(c, "volume", "set", "vol", "tier=none")
        line(c, "tier", "delete", "race")


@test
def limits_outlive_a_restart(c):
    line(c, "tier", "create", "gold", "--bandwidth", "64Mi/s/TiB", "--read-iops", "777", "--burst", "250ms")
    line(c, "volume", "create", "kept", "--size", "3Ti", "--tier", "gold")
    line(c, "volume", "set", "kept", "write-bandwidth=7M/s", "min-bandwidth=5M/s")
    before = volume(c, "kept"), tiers(c)
    eq(c.server.stop(), None, "the server leaves")
    c.server.start()
    eq((volume(c, "kept"), tiers(c)), before, "after a restart")


@test
def help_names_every_command(c):
    everything = line(c, "help")
    for command in ("tier create", "tier list", "tier set", "tier delete"):
        check(command in everything, command)
        check(f"usage: sluice {command}" in line(c, "help", *command.split()), f"help {command}")
    for option in ("--bandwidth", "--read-iops", "--burst"):
        check(option in line(c, "help", "tier", "create"), option)
    for key in ("tier=", "write-bandwidth=", "min-bandwidth="):
        check(key in line(c, "help", "volume", "set"), key)


if __name__ == "__main__":
    harness.run("--cache", "64Mi")
