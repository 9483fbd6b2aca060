#!/usr/bin/env python3
"""Runs every test program of this folder, one after another, and adds up."""
import glob
import os
import re
import subprocess
import sys

here = os.path.dirname(os.path.abspath(__file__))
passed = failed = 0
for program in sorted(glob.glob(os.path.join(here, "test_*.py"))):
    print(f"# {os.path.basename(program)}", flush=True)
    run = subprocess.Popen([sys.executable, "-B", program], stdout=subprocess.PIPE, text=True, errors="replace")
    last = ""
    for line in run.stdout:
        summary = re.fullmatch(r"(\d+) passed, (\d+) failed\n", line)
        if not summary:
            sys.stdout.write(line)
            sys.stdout.flush()
        last = line
    status = run.wait()
    summary = re.fullmatch(r"(\d+) passed, (\d+) failed\n", last)
    if summary:
        passed += int(summary.group(1))
        failed += int(summary.group(2))
    if not summary or (status != 0) != (int(summary.group(2)) != 0):
        print(f"not ok {os.path.basename(program)} ended with status {status}")
        failed += 1
print(f"{passed} passed, {failed} failed")
sys.exit(1 if failed else 0)
