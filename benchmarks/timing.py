"""Measuring tools: times taken in turns, with their spread, and the peak memory of a call."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from ssmprune.sweeps.timing import time_in_turns as seconds_in_turns

CLEAR_PEAK = "5"  # resets VmHWM (proc(5), clear_refs)


@dataclass(frozen=True)
class Samples:
    """A figure measured round by round.

    Dividing two sets of samples divides round by round, so that whatever else slowed the machine down in a round
    cancels out of the ratio.

    >>> ratios = Samples((2.0, 40.0, 6.0)) / Samples((1.0, 10.0, 3.0))
    >>> ratios.median, ratios.quartiles
    (2.0, (2.0, 3.0))
    """

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """Return the middle value."""
        return float(np.median(self.values))

    @property
    def quartiles(self) -> tuple[float, float]:
        """Return the two values between which the middle half lies."""
        low, high = np.quantile(self.values, [0.25, 0.75])
        return float(low), float(high)

    def __truediv__(self, other: Samples) -> Samples:
        """Return the ratios of the rounds."""
        return Samples(tuple(a / b for a, b in zip(self.values, other.values, strict=True)))

    def scaled(self, factor: float) -> Samples:
        """Return the same in another unit."""
        return Samples(tuple(factor * value for value in self.values))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that JSON can hold."""
        return {"median": self.median, "quartiles": list(self.quartiles)}


def time_in_turns(
    calls: Mapping[str, Callable[[], object]], rounds: int, clock: Callable[[], float] = perf_counter
) -> dict[str, Samples]:
    """Return the seconds each call takes, once per round; the calls take turns."""
    return {name: Samples(tuple(seconds.tolist())) for name, seconds in seconds_in_turns(calls, rounds, clock).items()}


def peak_memory(call: Callable[[], object]) -> int | None:
    """Return the bytes by which the process grows at most while `call` runs; None where the system does not tell."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)  # what was freed but kept would hide what the call needs
        Path("/proc/self/clear_refs").write_text(CLEAR_PEAK)
    except (AttributeError, OSError, TypeError):
        return None
    before = _resident("VmRSS")
    call()
    return max(0, _resident("VmHWM") - before)


def _resident(field: str) -> int:
    """Return a memory figure of this process in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(field))
