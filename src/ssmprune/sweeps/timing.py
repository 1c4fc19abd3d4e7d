"""Times of calls that take turns, and the name of the machine that they were measured on."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter

import numpy as np
import torch

from ..arrays import Real
from ..errors import InputError


def time_in_turns(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, Real]:
    """Return the seconds (rounds,) that each call takes; the calls take turns, so that all see the same machine.

    Divide two of them before taking a median: what else slowed the machine down in a round cancels out of the ratio.
    A first round does not count. Every second round runs backwards, since a call may be helped or hindered by what
    its predecessor left in the caches.
    """
    if rounds < 1:
        raise InputError(f"Timing needs at least one round, not {rounds}.")
    for call in calls.values():
        call()
    seconds = {name: np.empty(rounds) for name in calls}
    for turn in range(rounds):
        for name in list(calls)[:: -1 if turn % 2 else 1]:
            start = perf_counter()
            calls[name]()
            seconds[name][turn] = perf_counter() - start
    return seconds


def machine() -> str:
    """Describe this machine, for figures that are measured on it."""
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    return f"{processor()}, {os.cpu_count()} cores; {versions}"


def processor() -> str:
    """Return the name of the processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
