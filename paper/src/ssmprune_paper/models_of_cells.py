"""What a sweep's cells lack that the paper's tables and pages show: how fast a model is, a plan that was lost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from statistics import median
from time import perf_counter

import numpy as np
import torch

from ssmprune.errors import InputError
from ssmprune.models import Classifier
from ssmprune.sweeps import FULL, Cell, Subject, Writer, get_approach
from ssmprune.tasks import Split, fewer

from . import masks

ROUNDS = 3  # of timing
STEPS = 40_000  # of the batch that is timed, over all its sequences: about 50 of sMNIST


def measure_speed(writer: Writer, subject: Subject, cells: Iterable[Cell | None]) -> None:
    """Measure how fast the models of cells are where that is not known, and write it down."""
    for cell in cells:
        if cell is not None and cell.speed is None:
            small, _ = subject.prune(cell.key, writer.plan(cell.key))
            faster = _speed(subject.model, small, fewer(subject.splits[cell.split], cell.examples))
            writer.write(cell.key, replace(cell, speed=faster))


@torch.no_grad()
def _speed(full: Classifier, small: Classifier, split: Split) -> float:
    """Return how many times faster than the unpruned model the pruned one evaluates a batch, timed in turns."""
    x = torch.from_numpy(split.batch(np.arange(min(max(1, STEPS // split.length), len(split)))).x)
    ratios = []
    for _ in range(ROUNDS + 1):
        times = [perf_counter()]
        for model in (full, small):
            model.eval()(x)
            times.append(perf_counter())
        ratios.append((times[1] - times[0]) / (times[2] - times[1]))
    return median(ratios[1:])  # the first round warms up


def restore_plans(writer: Writer, subject: Subject, cells: Iterable[Cell | None]) -> None:
    """Make the plans again that cells had when they were measured: results are committed without them."""
    known = masks.read(writer.results.folder)  # with these a plan need not be made again
    for cell in cells:
        if cell is None or cell.method == FULL or not get_approach(cell.method).plans:
            continue
        if masks.place(cell) in known or writer.plan(cell.key):
            continue
        try:
            small, plan = subject.prune(cell.key)
        except InputError:  # what was measured stands nevertheless
            continue
        if small.layer_states != cell.states:
            raise InputError(
                f"{cell.method} at {cell.ratio:.10g} leaves {cell.checkpoint!r} other states than when it was "
                "measured; sweep into a new folder."
            )
        assert plan is not None
        plan.save(writer.results.plan_path(cell))
