"""Data twice the cache, read once an epoch in a new order each time: what each policy keeps of it."""
import measure as m
from servers import Sluice, Unavailable, need_load

POLICIES = ("epoch", "auto", "lru")
EPOCHS = 6
SHARE = 0.5  # of the data that the cache holds
FILE_SIZE = 110592  # 27 blocks


def hit_rates(server, files, first_seed):
    """Blocks found in RAM, as a share, for each of some epochs."""
    rates = []
    for epoch in range(EPOCHS):
        before = server.counters("cache_hits", "cache_misses")
        server.load(
            "files",
            dir="set",
            files=files,
            file_size=FILE_SIZE,
            conns=4,
            depth=8,
            epochs=1,
            order="shuffled",
            seed=first_seed + epoch,
        )
        hits, misses = (now - was for now, was in zip(server.counters("cache_hits", "cache_misses"), before))
        rates.append(hits / (hits + misses) if hits + misses else 0)
    return rates


def one_policy(bench, policy, cache_mib, files):
    """A fresh server, so that no policy finds what another left."""
    servers = bench.start(Sluice(bench, cache=f"{cache_mib}M"))
    if not servers:
        raise Unavailable("Sluice is not there")
    server = servers[0]
    try:
        server.cli("volume", "set", "bench", f"cache={policy}")
        server.load("files", prepare=True, dir="set", files=files, file_size=FILE_SIZE)
        server.stop()
        server.start()  # with an empty cache
        return hit_rates(server, files, 1)
    finally:
        bench.stop(servers)


def epochs(bench):
    need_load("files", "--epochs", "--seed")
    cache_mib = 128 if bench.quick else 1024 if bench.full else 512
    files = int((cache_mib << 20) / SHARE / FILE_SIZE)
    table = m.Table(
        bench,
        f"Share of blocks found in RAM: {files:,} files, cache {cache_mib} MiB, {SHARE:.0%} of the data",
        [f"epoch {epoch + 1}" for epoch in range(EPOCHS)],
    )
    lines = []
    for policy in POLICIES:
        try:
            rates = one_policy(bench, policy, cache_mib, files)
        except Unavailable as reason:
            bench.note(f"cache={policy} is not available: {reason}")
            continue
        table.row(f"cache={policy}", *[f"{rate:.3f}" for rate in rates])
        lines.append({"policy": policy, "share": SHARE, "hit_rates": rates})
    goals(bench, {line["policy"]: line["hit_rates"] for line in lines})
    return lines


def goals(bench, rates):
    least = 0.95 * SHARE
    if "epoch" in rates:
        bench.goal("epochs, cache=epoch: hits from the second epoch on", min(rates["epoch"][1:]), least)
    if "auto" in rates:
        bench.goal("epochs, cache=auto: hits from the third epoch on", min(rates["auto"][2:]), least)
