#!/usr/bin/env python3
"""sluice warm: trees and lists, read back over NFS from a server of their own.  SLUICE_BUILD: the directory with sluiced
and sluice."""
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "tests", "nfs"))
import harness
from harness import check, eq, test

SLUICE = os.path.join(TOP, os.environ.get("SLUICE_BUILD", "build"), "sluice")
SCRATCH = tempfile.mkdtemp(prefix="sluice-warm-")
SIZES, BIG = {}, 256 << 10


def fill(server):
    """30 MiB in 400 files of two directories, and a volume with twice as much as the cache holds."""
    pick = random.Random(7)
    for folder in ("tree/a/b", "tree/c", "big"):
        os.makedirs(os.path.join(SCRATCH, folder))
    for i in range(400):
        name = f"a/b/f{i}" if i % 2 else f"c/f{i}"
        SIZES[name] = pick.choice((0, 900, 5000, 60000, 110000, 270000))
        with open(os.path.join(SCRATCH, "tree", name), "wb") as file:
            file.write(os.urandom(SIZES[name]))
    for i in range(512):
        with open(os.path.join(SCRATCH, "big", f"big{i}"), "wb") as file:
            file.write(os.urandom(BIG))
    for volume, folder in (("v", "tree"), ("big", "big")):
        server.create(volume)
        server.cli("import", volume, os.path.join(SCRATCH, folder))


def cold(c):
    """Nothing is in RAM any more; a new connection and the volume's directories."""
    eq(c.server.stop(), None, "the server's end")
    c.server.start()
    c.nfs.close()
    c.nfs = c.server.connect()
    root = c.nfs.mnt(b"/v").fh
    a = c.nfs.lookup(root, b"a").fh
    return {"a/b": c.nfs.lookup(a, b"b").fh, "c": c.nfs.lookup(root, b"c").fh}


def warm(c, *words, code=0, stdin=b""):
    done = subprocess.run([SLUICE, "--socket", c.server.socket, *words], input=stdin, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=100)
    said = (done.stdout + done.stderr).decode()
    eq(done.returncode, code, f"{words}: {said}")
    return said


def ended(said):
    return json.loads(said.splitlines()[-1])


def metrics(c):
    return {k: m["value"] for k, m in json.loads(c.server.cli("--json", "metrics"))["metrics"].items()}


def read_file(c, dirs, name):
    folder, _, last = name.rpartition("/")
    fh, at = c.nfs.lookup(dirs[folder], last.encode()).fh, 0
    while at < SIZES.get(name, BIG):
        got = c.nfs.read(fh, at, 1 << 20)
        eq(got.status, "OK", name)
        at += len(got.data)


def misses(c, dirs, names):
    before = metrics(c)
    for name in names:
        read_file(c, dirs, name)
    return metrics(c)["cache_misses"] - before["cache_misses"]


def write_list(names, end="\n"):
    path = tempfile.mktemp(prefix="list", dir=SCRATCH)
    with open(path, "w") as file:
        file.write("\n".join(names) + end)
    return path


def wait_for(what, why):
    until = time.monotonic() + 20
    while not what():
        check(time.monotonic() < until, why)
        time.sleep(0.02)


def running(c):
    return json.loads(c.server.cli("--json", "status"))["warming"]


@test
def a_warmed_tree_is_read_without_a_miss(c):
    dirs = cold(c)
    check(misses(c, dirs, [n for n in SIZES if SIZES[n]][:20]) > 0, "the server was not cold")
    dirs = cold(c)
    answer = ended(warm(c, "--json", "warm", "v"))
    eq((answer["done_files"], answer["done_bytes"], answer["cut"]), (len(SIZES), sum(SIZES.values()), False))
    eq((answer["total_files"], answer["total_bytes"]), (len(SIZES), sum(SIZES.values())), "totals")
    eq(misses(c, dirs, SIZES), 0, "misses")
    again = ended(warm(c, "--json", "warm", "v", "/"))
    eq((again["disk_bytes"], again["present_bytes"]), (0, answer["disk_bytes"]), "warmed again")
    check("in RAM already" in warm(c, "warm", "v"), "for people")


@test
def only_the_path_is_warmed(c):
    dirs = cold(c)
    below = [n for n in SIZES if n.startswith("a/")]
    eq(ended(warm(c, "--json", "warm", "v", "a"))["done_files"], len(below), "files")
    eq(misses(c, dirs, below), 0, "misses below the path")
    one = next(n for n in SIZES if n.startswith("c/") and SIZES[n] > 100000)
    check(misses(c, dirs, [n for n in SIZES if n.startswith("c/") and n != one and SIZES[n] > 5000][:5]) > 0,
          "more than the path was warmed")
    warm(c, "warm", "v", one)
    eq(misses(c, dirs, [one]), 0, "misses of one file")


@test
def a_tree_larger_than_the_cache_is_said_to_be(c):
    cold(c)
    said = warm(c, "warm", "big")
    check("the cache holds 64Mi, the tree 128Mi: the first " in said, said)
    c.server.cli("volume", "set", "big", "cache-share=25%")
    said = warm(c, "warm", "big")
    check("the volume may have of the cache 16Mi, the tree 128Mi: the first " in said, said)
    c.server.cli("volume", "set", "big", "cache-share=none")
    answer = ended(warm(c, "--json", "warm", "big"))
    check(answer["cut"] and 48 << 20 < answer["done_bytes"] < 64 << 20, answer)


@test
def bad_words_are_answered_with_a_sentence(c):
    for words, code, part in ((("none",), 1, "there is no volume 'none'"), (("v", "/nope/x"), 1, "no such file"),
                              (("v", "../v"), 2, ".."), (("v", "a/../.."), 2, ".."), ((), 2, "missing"),
                              (("v", "--list", "/not/there"), 1, "/not/there"), (("v", "--list", SCRATCH), 1, SCRATCH),
                              (("v", "--list", "/dev/null"), 1, "names no file"), (("v", "a", "--list", "x"), 2, "not both"),
                              (("v", "--ahead", "1Gi"), 2, "--list"), (("v", "--list", "/dev/null", "--ahead", "x"), 2, "'x'"),
                              (("v", "--list", "/dev/null", "--ahead", "40Mi"), 2, "more than half")):
        said = warm(c, "warm", *words, code=code)
        check(part in said, f"{words}: {said}")
    eq(ended(warm(c, "--json", "warm", "none", code=1))["ok"], False)


@test
def names_that_are_not_there_are_counted_and_the_rest_is_warmed(c):
    dirs = cold(c)
    good = [n for n in SIZES if SIZES[n]][:30]
    names = good[:15] + [f"a/no{i}" for i in range(25)] + ["a/b", "../v", "c/../a/b/f1", "", "x" * 5000] + good[15:]
    said = warm(c, "warm", "v", "--list", write_list(names), code=1)
    eq(said.count(": no such file"), 10, said)
    check("29 could not be warmed" in said, said)
    eq(misses(c, dirs, good), 0, "misses")
    said = warm(c, "warm", "v", "--list", "-", code=1, stdin=b"\xff\xfe\n" + good[0].encode() + b"\na/b\0/f1")
    check("\\377\\376: no such file" in said and "2 could not" in said and "1 file," in said, said)


def paced(c, dirs, order, pause=0.002):
    """Reads while a warm-up runs; the share of blocks found in RAM."""
    before = metrics(c)
    for name in order:
        read_file(c, dirs, name)
        time.sleep(pause)
    after = metrics(c)
    delta = {k: after[k] - before[k] for k in after}
    missed = delta["cache_misses"] - delta["warm_blocks"]
    return delta["cache_hits"] / (delta["cache_hits"] + missed)


def start_list(c, order, *words):
    return subprocess.Popen([SLUICE, "--json", "--socket", c.server.socket, "warm", *words, "--list", write_list(order)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def list_stays_ahead(c, policy, least):
    c.server.cli("volume", "set", "big", "cache=" + policy)
    cold(c)
    pick, order = random.Random(3), []
    for _ in range(3):
        epoch = [f"big{i}" for i in range(512)]
        pick.shuffle(epoch)
        order += epoch
    process = start_list(c, order, "big")
    wait_for(lambda: running(c) and running(c)[0]["waiting"], "the list does not wait for its reader")
    loaded, part = running(c)[0], 16 << 20
    check(part - (2 << 20) <= loaded["ahead_bytes"] <= part, loaded)
    check(loaded["done_bytes"] <= part, loaded)
    share = paced(c, {"": c.nfs.mnt(b"/big").fh}, order)
    check(share > least, f"{policy}: hits {share}")
    out = process.communicate(timeout=30)[0]
    eq(process.returncode, 0, out)
    answer = ended(out.decode())
    check(answer["read_files"] > 1300 and answer["passed_files"] < 20, answer)
    eq(running(c), [], "jobs after the end")


@test
def a_list_stays_ahead_of_a_paced_reader_with_a_cache_of_half_the_data(c):
    list_stays_ahead(c, "auto", 0.95)


@test
def a_list_stays_ahead_also_under_the_other_policies(c):
    list_stays_ahead(c, "lru", 0.95)
    list_stays_ahead(c, "epoch", 0.8) # which keeps other data in two thirds of the room; 0.5 without a list


@test
def a_list_gets_in_front_of_a_reader_that_leaves_files_out(c):
    dirs = cold(c)
    order = list(SIZES)
    random.Random(4).shuffle(order)
    process = start_list(c, order, "v", "--ahead", "8Mi")
    wait_for(lambda: running(c) and running(c)[0]["waiting"], "the list does not wait for its reader")
    share = paced(c, dirs, order[40:][::2], 0.004)
    out = process.communicate(timeout=30)[0]
    eq(process.returncode, 0, out)
    check(share > 0.8 and ended(out.decode())["passed_files"] > 40, f"{share} {out[-600:]}")


@test
def a_warm_up_ends_with_its_client(c):
    cold(c)
    jobs = [start_list(c, list(SIZES), "v", "--ahead", "1Mi") for _ in range(8)]
    wait_for(lambda: len(running(c)) == 8, "eight lists at once")
    check("8 warm-ups run already" in warm(c, "warm", "v", code=1), "a ninth")
    check(c.server.cli("status").count(b"warming ") == 8, "status")
    for i, job in enumerate(jobs):
        job.send_signal(signal.SIGINT if i else signal.SIGKILL)
        job.communicate(timeout=20)
    wait_for(lambda: running(c) == [], "jobs go on without their clients")
    warm(c, "warm", "v")
    left = start_list(c, list(SIZES), "v", "--ahead", "1Mi")
    wait_for(lambda: len(running(c)) == 1, "a list")
    begin = time.monotonic()
    cold(c)
    check(time.monotonic() - begin < 8, "the server waited for the list")
    left.communicate(timeout=20)
    check(left.returncode in (1, 3), left.returncode)


try:
    harness.run("--cache", "64Mi", prepare=fill)
finally:
    shutil.rmtree(SCRATCH, ignore_errors=True)
