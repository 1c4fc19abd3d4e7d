"""Kill a sweep at random moments and compare its tables with those of one left alone.

python scripts/kill_sweep.py WORK -- CKPT --methods last,surgeon --ratios 0.2:0.8:0.2 --examples 50 --data DATA
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from pathlib import Path

KINDS = ("curves", "own", "tasks", "average")


def main() -> None:
    """Sweep twice, once with kills, and say what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="folder for both sweeps; those of an earlier call must be gone")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("options", nargs="+", help="what `ssmprune sweep` takes, after --")
    given = parser.parse_args()
    alone, killed = given.work / "alone", given.work / "killed"
    if alone.exists() or killed.exists():
        parser.error(f"{given.work} has sweeps in it already; remove them or give another folder")
    started = time.monotonic()
    if started_sweep(given.options, alone).wait():
        sys.exit("The sweep fails even when left alone.")
    whole, seconds = lines(alone), time.monotonic() - started
    print(f"Left alone: {whole} cells in {seconds:.0f} s.")
    for number in range(1, given.kills + 1):
        print(f"Kill {number}: {kill_at_random(given.options, killed, whole // given.kills)} cells are there.")
    if started_sweep(given.options, killed).wait():
        sys.exit("The sweep fails after the kills.")
    report(alone, killed)


def started_sweep(options: list[str], out: Path) -> subprocess.Popen[bytes]:
    """Start `ssmprune sweep` in a process of its own."""
    command = [sys.executable, "-m", "ssmprune", "sweep", *options, "--out", str(out)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def kill_at_random(options: list[str], out: Path, most: int) -> int:
    """Let a sweep do a random number of cells, up to `most`, and a part of the next; then kill it."""
    victim, enough = started_sweep(options, out), lines(out) + random.randint(0, most)
    began = time.monotonic()
    while victim.poll() is None and (lines(out) < enough or not (out / "sweep.json").exists()):
        time.sleep(0.001)
    time.sleep(random.random() * min(3.0, time.monotonic() - began))
    victim.kill()
    victim.wait()
    return lines(out)


def lines(out: Path) -> int:
    """How many cells are there."""
    cells = out / "cells.jsonl"
    return cells.read_bytes().count(b"\n") if cells.exists() else 0


def table(out: Path, kind: str) -> str:
    """A table of a sweep as JSON."""
    command = [sys.executable, "-m", "ssmprune", "table", str(out), "--kind", kind, "--format", "json"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def report(alone: Path, killed: Path) -> None:
    """Compare cells and tables; exit with 1 if they differ."""
    differ = [kind for kind in KINDS if table(alone, kind) != table(killed, kind)]
    print(f"Cells: {lines(alone)} left alone, {lines(killed)} killed and resumed.")
    print(f"Tables that differ: {', '.join(differ) or 'none'}.")
    sys.exit(bool(differ) or lines(alone) != lines(killed))


if __name__ == "__main__":
    main()
