#!/usr/bin/env python3
"""What one can watch: counters and latencies of volumes, Prometheus' metrics, clients, slow operations."""
import json
import os
import re
import socket
import subprocess
import time
import urllib.error
import urllib.request

import harness
import raw4
from harness import check, eq, run, test
from rawrpc import NFS, PROC, ROOT, call_message, opaque, u32, u64

SAMPLE = re.compile(r'^([a-z0-9_]+)(?:\{(.*)\})? (\S+)$')


def url(server):
    return json.loads(server.cli("status", "--json"))["metrics"]


def scrape(server):
    """All samples: {(name, labels as text): value}."""
    with urllib.request.urlopen(url(server), timeout=20) as answer:
        check(answer.headers["Content-Type"].startswith("text/plain; version=0.0.4"), answer.headers)
        text = answer.read().decode()
    samples = {}
    for line in text.split("\n"):
        if line and not line.startswith("#"):
            name, labels, value = SAMPLE.match(line).groups()
            check((name, labels) not in samples, f"{line} comes twice")
            samples[name, labels] = float(value)
    return text, samples


def of(samples, name, operation=None, volume="vol", rest=""):
    labels = f'volume="{volume}"' + (f',protocol="nfs3",operation="{operation}"' if operation else "") + rest
    return samples.get((name, labels), 0)


@test
def calls_bytes_errors_and_latencies_are_those_of_the_calls_made(t):
    fh = t.file(b"f", bytes(10000))
    _, before = scrape(t.server)
    for offset in (0, 4096, 8192):
        eq(t.nfs.read(fh, offset, 4096).status, "OK")
    eq(t.nfs.write(fh, 0, bytes(5000)).status, "OK")
    eq(t.nfs.lookup(t.dir, b"no").status, "NOENT")
    eq(t.nfs.getattr(b"\0" * 32).status, "BADHANDLE")
    _, after = scrape(t.server)

    def more(name, operation, **options):
        return of(after, name, operation, **options) - of(before, name, operation, **options)
    eq(more("sluice_operations_total", "READ"), 3)
    eq(more("sluice_operation_bytes_total", "READ"), 10000)
    eq(more("sluice_operation_errors_total", "READ"), 0)
    eq(more("sluice_operations_total", "WRITE"), 1)
    eq(more("sluice_operation_bytes_total", "WRITE"), 5000)
    eq(more("sluice_operations_total", "LOOKUP"), 1)
    eq(more("sluice_operation_errors_total", "LOOKUP"), 1)
    eq(more("sluice_operation_errors_total", "GETATTR", volume=""), 1)
    for operation in ("READ", "WRITE", "LOOKUP"):
        name = "sluice_operation_duration_seconds_"
        eq(more(name + "count", operation), more("sluice_operations_total", operation), operation)
        eq(more(name + "bucket", operation, rest=',le="+Inf"'), more(name + "count", operation), operation)
        check(0 < more(name + "sum", operation) < 10, f"{operation}: {more(name + 'sum', operation)} s")
    check(more("sluice_operation_duration_seconds_sum", "WRITE") > 20e-6, "a WRITE waits for the disk")


@test
def what_the_cache_does_is_told_by_volume(t):
    t.server.create("cold")
    with t.server.connect() as nfs:
        root = nfs.mnt(b"/cold").fh
        fh = nfs.create(root, b"f").fh
        for offset in range(0, 8 << 20, 1 << 20):
            eq(nfs.write(fh, offset, os.urandom(1 << 20)).status, "OK")
    t.nfs.close()
    eq(t.server.stop(), None, "stopping")
    t.server.start()
    with t.server.connect() as nfs:
        for _ in range(2):
            for offset in range(0, 8 << 20, 1 << 20):
                eq(nfs.read(fh, offset, 1 << 20).status, "OK")
    t.nfs = t.server.connect()
    _, samples = scrape(t.server)
    hit, missed, ahead = (of(samples, f"sluice_volume_{what}_bytes_total", volume="cold")
                          for what in ("cache_hit", "cache_miss", "readahead"))
    eq(hit + missed, 16 << 20, "READ's bytes")
    check(0 < missed <= 8 << 20, f"missed {missed}")
    check(missed + ahead >= 8 << 20, f"missed {missed}, ahead {ahead}")
    eq(of(samples, "sluice_volume_used_bytes", volume="cold"), 8 << 20)
    eq(of(samples, "sluice_volume_size_limit_bytes", volume="cold"), 0, "a limit that there is not")


def throttled(server, name):
    volumes = json.loads(server.cli("top", "--once", "--json", "--interval", "0.5"))["volumes"]
    return {v["name"]: v for v in volumes}[name]["gate_seconds"]


@test
def what_waits_at_the_gate_is_told_by_volume(t):
    t.server.create("slow")
    t.server.cli("volume", "set", "slow", "bandwidth=4M/s", "burst=10ms", "write-iops=500")
    with t.server.connect(source=("127.5.5.5", 0)) as nfs:
        fh = nfs.create(nfs.mnt(b"/slow").fh, b"f").fh
        nfs.write(fh, 0, bytes(200000))
        for _ in range(10):
            eq(nfs.read(fh, 0, 200000).status, "OK")
        _, samples = scrape(t.server)
        for way, name, value in (("all", "bytes", 4e6), ("write", "operations", 500)):
            eq(of(samples, f"sluice_volume_limit_{name}_per_second", volume="slow", rest=f',way="{way}"'), value)
        check(("sluice_volume_limit_bytes_per_second", 'volume="slow",way="read"') not in samples, "no such limit")
        waits = of(samples, "sluice_volume_gate_waits_total", volume="slow", rest=',way="read"')
        waited = of(samples, "sluice_volume_gate_wait_seconds_total", volume="slow", rest=',way="read"')
        check(8 <= waits <= 11 and 0.3 < waited < 5, f"{waits} READs waited for {waited} s")
        eq(of(samples, "sluice_volume_gate_queue", volume="slow"), 0)
        took = of(samples, "sluice_operation_duration_seconds_sum", "READ", volume="slow")
        check(took >= waited, f"waiting is part of the latency: {took} s, of which waited {waited}")
        check(b"calls waited" in t.server.cli("stats", "slow"), "sluice stats")
        client = {c["address"]: c for c in json.loads(t.server.cli("clients", "--json"))["clients"]}["127.5.5.5"]
        check(abs(client["throttled_seconds"] - waited) < 0.2 + 0.1 * waited, client)
        for _ in range(4):  # more than the limit for the time in which top looks
            m = call_message(1, NFS, 3, PROC["READ"], opaque(fh) + u64(0) + u32(1000000), ROOT)
            nfs.send(m)
        check(throttled(t.server, "slow") > 0.01, "sluice top")
        for _ in range(4):
            nfs.receive()


@test
def a_compound_counts_for_each_operation_and_takes_as_long_as_what_it_is_about(t):
    fh = t.file(b"f", bytes(10000))
    _, before = scrape(t.server)
    with raw4.Nfs4(t.server.port) as nfs:
        done = nfs.compound(raw4.putfh(fh), raw4.write(0, bytes(5000)), raw4.getattr_("size"))
        eq(done.status, "OK")
        eq(nfs.compound(raw4.putfh(fh), raw4.getattr_("size")).status, "OK")
        eq(nfs.compound(raw4.putfh(fh), raw4.lookup(b"no")).status, "NOTDIR")
    _, after = scrape(t.server)

    def more(name, operation):
        key = name, f'volume="vol",protocol="nfs4",operation="{operation}"'
        return after.get(key, 0) - before.get(key, 0)
    for operation, calls, latencies in (("PUTFH", 3, 0), ("WRITE", 1, 1), ("GETATTR", 2, 1), ("LOOKUP", 1, 1)):
        eq(more("sluice_operations_total", operation), calls, operation)
        eq(more("sluice_operation_duration_seconds_count", operation), latencies, operation)
    eq((more("sluice_operation_errors_total", "LOOKUP"), more("sluice_operation_bytes_total", "WRITE")), (1, 5000))


@test
def promtool_finds_nothing_wrong(t):
    text, _ = scrape(t.server)
    try:
        done = subprocess.run(["promtool", "check", "metrics"], input=text.encode(), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=60)
    except FileNotFoundError:
        raise AssertionError("promtool is missing: Debian's package prometheus has it, conf/deps installs it") from None
    eq((done.returncode, done.stdout.decode()), (0, ""))


def queries(node):
    """Every PromQL expression of the dashboard."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("expr", "definition", "query") and isinstance(value, str):
                yield value
            else:
                yield from queries(value)
    elif isinstance(node, list):
        for value in node:
            yield from queries(value)


@test
def the_dashboard_asks_only_for_what_there_is(t):
    fh = t.file(b"f", bytes(10000))
    eq(t.nfs.read(fh, 0, 4096).status, "OK")
    text, samples = scrape(t.server)
    known = set(re.findall(r"^# TYPE (\S+)", text, re.M)) | {name for name, _ in samples}
    labels = {label for _, texts in samples for label in re.findall(r'(\w+)="', texts or "")} | {"instance", "job"}
    with open(os.path.join(harness.TOP, "conf", "grafana-dashboard.json")) as file:
        dashboard = json.load(file)
    asked = [query for query in queries(dashboard) if query != "prometheus"]
    check(len(asked) > 20, f"{len(asked)} queries")
    names = {name for query in asked for name in re.findall(r"\b(?:sluice|process)_\w+", query)}
    eq(names - known, set(), "metrics that there are not")
    used = {label for query in asked for label in re.findall(r"(\w+)=~?\"", query)}
    used |= {label.strip() for query in asked for some in re.findall(r"by \(([^)]*)\)", query)
             for label in some.split(",")}
    eq(used - labels, set(), "labels that there are not")
    rules = [{"record": f"a:b{n}", "expr": query.replace("$__rate_interval", "1m").replace("$volume", ".*")}
             for n, query in enumerate(asked) if not query.startswith("label_values")]
    path = os.path.join(t.server.folder, "rules.json")  # JSON is YAML as well
    with open(path, "w") as file:
        json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)
    done = subprocess.run(["promtool", "check", "rules", path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    eq(done.returncode, 0, done.stdout.decode())
    check(f"{len(rules)} rules found" in done.stdout.decode(), done.stdout.decode())


@test
def a_deleted_volume_takes_its_series_with_it(t):
    t.server.create("gone")
    with t.server.connect() as nfs:
        nfs.getattr(nfs.mnt(b"/gone").fh)
    check(any('volume="gone"' in (labels or "") for _, labels in scrape(t.server)[1]), "series of the volume")
    t.server.cli("volume", "delete", "gone", "--now", "--yes")
    check(not any('volume="gone"' in (labels or "") for _, labels in scrape(t.server)[1]), "series after its deletion")


def visit(t, source, fh):
    """A client with an address and a port of its own: what it asks for is known to the server already."""
    with socket.create_connection(("127.0.0.1", t.server.port), timeout=30, source_address=(source, 0)) as s:
        s.sendall(b"".join((0x80000000 | len(m)).to_bytes(4, "big") + m
                           for m in (call_message(n, NFS, 3, PROC["GETATTR"], opaque(fh), ROOT) for n in range(2))))
        check(len(s.recv(65536)) > 20, "a reply")


@test
def series_do_not_grow_with_clients(t):
    """Thousands of them come and go; those that were here last are remembered, and no more."""
    visit(t, "127.0.0.1", t.root)
    before = set(scrape(t.server)[1])
    for n in range(3000):
        visit(t, f"127.{1 + n % 200}.{n // 200}.{1 + n % 250}", t.root)
    _, after = scrape(t.server)
    eq(set(after) - before, set(), "new series")
    check(after["sluice_rpc_connections_total", None] >= 3000, "connections")
    clients = json.loads(t.server.cli("clients", "--json"))["clients"]
    check(1000 <= len(clients) <= 1100, f"{len(clients)} clients are remembered")


@test
def clients_are_told_by_address_with_what_they_did(t):
    t.server.create("second")
    with t.server.connect(source=("127.9.8.7", 0)) as a, t.server.connect(source=("127.9.8.7", 0)) as b:
        fh = t.file(b"f", bytes(100000))
        for _ in range(5):
            eq(a.read(fh, 0, 100000).status, "OK")
        b.getattr(b.mnt(b"/second").fh)
        clients = {c["address"]: c for c in json.loads(t.server.cli("clients", "--json"))["clients"]}
        c = clients["127.9.8.7"]
        eq((c["connections"], c["calls"], sorted(c["volumes"])), (2, 7, ["second", "vol"]))
        check(500000 < c["bytes_sent"] < 510000 and 500 < c["bytes_received"] < 5000, c)
        check(c["seconds"] > 0, c)
        said = t.server.cli("clients").decode()
        line = next(line for line in said.split("\n") if line.startswith("127.9.8.7"))
        check("second" in line and "vol" in line, said)
    until = time.monotonic() + 10
    while time.monotonic() < until:
        clients = {c["address"]: c for c in json.loads(t.server.cli("clients", "--json"))["clients"]}
        if clients["127.9.8.7"]["connections"] == 0:
            break
        time.sleep(0.05)
    eq(clients["127.9.8.7"]["connections"], 0)
    check("127.9.8.7" not in t.server.cli("clients").decode(), "one that has left is not listed")
    check(b"127.9.8.7" in t.server.cli("clients", "--all"), "--all lists those that have left")


def slow_lines(server):
    return re.findall(r"slow: (\w+) on (\S+) from (\S+), uid (\d+), took ([\d.]+) ms: gate ([\d.]+), "
                      r"metadata ([\d.]+), disk ([\d.]+), socket ([\d.]+), else ([\d.]+)", server.stderr().decode())


@test
def slow_operations_are_logged_with_where_their_time_went(t):
    server = harness.Server("--cache", "16M", "--slow-operation-ms", "100", "--metrics", "off", "--workers", "1")
    try:
        server.start()
        server.create("v")
        with server.connect() as nfs:
            fh = nfs.create(nfs.mnt(b"/v").fh, b"f").fh
            for offset in range(0, 8 << 20, 1 << 20):
                eq(nfs.write(fh, offset, bytes(1 << 20)).status, "OK")
        # A client that takes no replies for a while: what is on its way to it waits for the socket.
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        s.connect(("127.0.0.1", server.port))
        wanted = 0
        for n in range(8):
            m = call_message(n, NFS, 3, PROC["READ"], opaque(fh) + u64(n << 20) + u32(1 << 20), ROOT)
            s.sendall((0x80000000 | len(m)).to_bytes(4, "big") + m)
            wanted += 1 << 20
        time.sleep(0.4)
        while wanted > 0:
            wanted -= len(s.recv(1 << 20))
        s.close()
        until = time.monotonic() + 10
        while not slow_lines(server) and time.monotonic() < until:
            time.sleep(0.05)
        lines = slow_lines(server)
        check(lines, server.stderr().decode())
        operation, volume, address, uid, *times = lines[0]
        total, gate, meta, disk, sock, other = map(float, times)
        eq((operation, volume, address, uid), ("READ", "v", "127.0.0.1", "0"))
        check(total >= 100 and sock >= 100 and gate == 0, lines[0])
        check(abs(total - gate - meta - disk - sock - other) < 1, f"parts of {lines[0]}")
        slow = json.loads(server.cli("metrics", "--json"))["metrics"]["rpc_slow"]["value"]
        check(slow >= len(lines), f"{slow} slow ones, {len(lines)} lines")
        eq(json.loads(server.cli("status", "--json"))["metrics"], "")
        eq(server.stop(), None, "stopping")
    finally:
        server.close()


@test
def a_slow_operation_that_waited_at_the_gate_is_told_so(t):
    server = harness.Server("--cache", "16M", "--slow-operation-ms", "100", "--metrics", "off")
    try:
        server.start()
        server.create("v")
        with server.connect() as nfs:
            fh = nfs.create(nfs.mnt(b"/v").fh, b"f").fh
            eq(nfs.write(fh, 0, bytes(300000)).status, "OK")
            server.cli("volume", "set", "v", "read-bandwidth=1M/s", "burst=10ms")
            for _ in range(2):
                eq(nfs.read(fh, 0, 300000).status, "OK")
            eq(nfs.read(fh, 0, 10).status, "OK")
        lines = [line for line in slow_lines(server) if line[0] == "READ"]
        check(lines, server.stderr().decode())
        total, gate = float(lines[0][4]), float(lines[0][5])
        check(gate >= 100 and total - gate < 100, lines[0])
    finally:
        server.close()


def mostly_metadata(line):
    return float(line[6]) > 0.5 * float(line[4])


@test
def every_operation_is_slow_where_the_bound_is_a_millisecond(t):
    """Changes wait for a group's commit: their time is told apart from the disk's."""
    server = harness.Server("--cache", "16M", "--slow-operation-ms", "1", "--metrics", "off")
    try:
        server.start()
        server.create("v")
        until = time.monotonic() + 20
        with server.connect() as nfs:
            root = nfs.mnt(b"/v").fh
            n = 0
            while not any(line[0] == "CREATE" and mostly_metadata(line) for line in slow_lines(server)):
                check(time.monotonic() < until, f"a CREATE waits for metadata: {server.stderr().decode()[-2000:]}")
                nfs.create(root, b"f%d" % n)
                n += 1
            fh = nfs.create(root, b"f").fh
            while not any(line[0] == "WRITE" for line in slow_lines(server)) and time.monotonic() < until:
                nfs.write(fh, 0, bytes(1 << 20))
        lines = [line for line in slow_lines(server) if line[0] == "WRITE"]
        check(lines and float(lines[0][6]) > 0 and float(lines[0][7]) > 0, f"a WRITE waits for both: {lines}")
    finally:
        server.close()


@test
def only_metrics_are_served_and_only_read(t):
    base = url(t.server)
    for path, method, status in (("/", "GET", 200), ("/metrics", "HEAD", 200), ("/other", "GET", 404),
                                 ("/metrics", "POST", 405), ("/metrics", "DELETE", 405)):
        request = urllib.request.Request(base[:-len("/metrics")] + path, method=method,
                                         data=b"x" * 100000 if method == "POST" else None)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                got = answer.status
                if method == "HEAD":
                    eq(answer.read(), b"")
        except urllib.error.HTTPError as error:
            got = error.code
        eq(got, status, f"{method} {path}")
    host, port = re.match(r"http://([\d.]+):(\d+)/", base).groups()
    idle = [socket.create_connection((host, int(port))) for _ in range(100)]
    for s in idle:
        s.close()
    for rubbish in (b"\0" * 1000, b"GET / HTTP/9.9\r\n\r\n", b"GET " + b"x" * 100000, b"\r\n" * 1000):
        with socket.create_connection((host, int(port)), timeout=20) as s:
            try:
                s.sendall(rubbish)
                s.shutdown(socket.SHUT_WR)
                while s.recv(65536):
                    pass
            except OSError:
                pass
    check(scrape(t.server)[1], "metrics are still there")


run("--cache", "64M", "--metrics", "127.0.0.1:0", "--connections-max", "4096", "--nfs-versions", "3, 4")
