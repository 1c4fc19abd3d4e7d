"""Times of calls that take turns, speed and size of a model in C, and the name of the machine that measured them."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any

import numpy as np
import torch

from ..arrays import Real
from ..deploy.compiled import Compiled, Forward
from ..errors import InputError
from ..models.checkpoint import parameters
from ..models.classifier import Classifier

STREAMS, STEPS, ROUNDS = 64, 20, 15  # many streams side by side, to amortise the overhead of a call


def time_in_turns(
    calls: Mapping[str, Callable[[], object]], rounds: int, clock: Callable[[], float] = perf_counter
) -> dict[str, Real]:
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
            start = clock()
            calls[name]()
            seconds[name][turn] = clock() - start
    return seconds


@torch.no_grad()
def speeds_in_turns(engines: Sequence[Forward], x: torch.Tensor) -> list[float]:
    """Return how many steps of x each engine computes in a second, timed in turns; compare them with the first."""
    calls = {str(place): partial(engine, x) for place, engine in enumerate(engines)}
    first, *others = time_in_turns(calls, ROUNDS).values()
    speed = x.shape[0] * x.shape[1] / float(np.median(first))
    return [speed, *(speed * float(np.median(first / seconds)) for seconds in others)]


def measure(model: Classifier, forward: Forward) -> dict[str, Any]:
    """Return how large a model is and, if `forward` computes it in C, how much memory and time a stream takes."""
    figures: dict[str, Any] = {"states": sum(model.layer_states.values()), "width": model.config.width}
    figures["parameters"] = parameters(model)
    if isinstance(forward, Compiled):
        figures["state_bytes"] = forward.state_bytes
        figures["steps_per_second"] = None if model.config.bidirectional else steps_per_second(forward)
    return figures


def steps_per_second(fast: Compiled) -> float:
    """Return the steps of streams that one thread computes in a second of processor time, as a median over rounds."""
    config, stream = fast.config, fast.stream(STREAMS)
    step = np.zeros(STREAMS, np.int64) if config.tokens else np.full((STREAMS, config.inputs), 0.5, np.float32)

    def run() -> None:
        for _ in range(STEPS):
            stream(step)

    seconds = time_in_turns({"stream": run}, ROUNDS, thread_time)["stream"]
    return STREAMS * STEPS / float(np.median(seconds))


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
