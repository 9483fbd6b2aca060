"""fio on the file system under the pool: what the disk gives a program that does nothing but ask for it."""
import json
import os
import shutil
import subprocess

from servers import LoadFailed, Unavailable


class Fio:
    """One file in the scratch directory; direct I/O through io_uring, as the pool's own."""

    def __init__(self, bench):
        if not shutil.which("fio"):
            raise Unavailable("not available: fio is not installed")
        self.bench = bench
        self.directory = bench.directory("fio")
        self.file = os.path.join(self.directory, "data")

    def run(self, *options):
        command = [
            "fio",
            "--name=fio",
            f"--filename={self.file}",
            "--ioengine=io_uring",
            "--direct=1",
            "--group_reporting",
            "--randrepeat=0",
            "--output-format=json",
            *options,
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        try:
            return json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]
        except (ValueError, LookupError):
            raise LoadFailed(f"fio: {done.stderr.strip() or done.stdout.strip()}") from None

    def lay_out(self, size):
        """Writes the file, so that reads of it reach the disk."""
        self.run("--rw=write", "--bs=1M", f"--size={size}", "--iodepth=16", "--end_fsync=1")

    def read(self, pattern, block, depth, size, streams=1):
        """Reads for as long as a run takes; each stream has its own part of the file."""
        job = self.run(
            f"--rw={pattern}",
            f"--bs={block}",
            f"--iodepth={depth}",
            f"--size={size // streams}",
            f"--numjobs={streams}",
            f"--offset_increment={size // streams if streams > 1 else 0}",
            "--norandommap",
            "--time_based",
            f"--runtime={self.bench.seconds}s",
            "--ramp_time=300ms",
        )
        return figures(job, "read")

    def write(self, depth, size, writers=1, seconds=None):
        """Fresh 1 MiB writes to the end of `size` in all, synced at the end; or for so many seconds at most."""
        self.remove()
        job = self.run(
            "--rw=write",
            "--bs=1M",
            f"--iodepth={depth}",
            f"--size={size // writers}",
            f"--numjobs={writers}",
            f"--offset_increment={size // writers if writers > 1 else 0}",
            "--fallocate=native",
            "--end_fsync=1",
            *([f"--runtime={seconds}s"] if seconds else []),
        )
        self.remove()
        return figures(job, "write")

    def remove(self):
        if os.path.exists(self.file):
            os.unlink(self.file)


def figures(job, direction):
    """What fio says, with the names that the load generator uses."""
    part = job[direction]
    percentiles = part["clat_ns"].get("percentile", {})
    return {
        "ops_per_s": part["iops"],
        "mb_per_s": part["bw_bytes"] / 1e6,
        "p50_us": percentiles.get("50.000000", 0) / 1e3,
        "p99_us": percentiles.get("99.000000", 0) / 1e3,
    }
