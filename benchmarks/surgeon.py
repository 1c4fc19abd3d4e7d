"""How long calibration takes beside evaluation, and how long the surgeon thinks.

Seconds of processor time on one thread, so that other work on the machine does not count; figures of wall-clock time
are lower where numpy has several threads.
"""

from __future__ import annotations

from collections.abc import Callable
from time import process_time

import numpy as np
import torch

import ssmprune as sp
from ssmprune.core import white_noise
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config
from table import Figure, of, show
from timing import Samples

ROUNDS = 3
SEQUENCES, LENGTH = 200, 784
SMNIST = Config("s5", inputs=1, outputs=10, width=96, states=(64,) * 4)


def measure() -> list[Figure]:
    torch.set_num_threads(1)
    return [calibration(), *thinking()]


def calibration() -> Figure:
    """Collecting moments from 200 sequences beside evaluating them, in turns."""
    model, batches = Classifier(SMNIST).eval(), torch.rand(SEQUENCES, LENGTH, 1).split(50)
    collecting, evaluating = [], []
    for _ in range(ROUNDS):
        collecting.append(seconds(lambda: sp.collect(model, batches)))
        evaluating.append(seconds(lambda: evaluate(model, batches)))
    ratios = Samples(tuple(collecting)) / Samples(tuple(evaluating))
    beside = {"seconds": float(np.median(collecting))}
    return of("collecting moments / evaluating, 200 sequences of sMNIST, S5", ratios, at_most=3.0, beside=beside)


def thinking() -> list[Figure]:
    """Deciding at all ratios at once and re-fitting at 70 %, on the moments of white noise."""
    sizes = {
        "surgeon, S5, 4 layers of 64 pairs": (Config("s5", 1, 10, 96, (64,) * 4), 2.0),
        "surgeon, S5, 6 layers of 192 pairs": (Config("s5", 1, 10, 512, (192,) * 6, bidirectional=True), 30.0),
        "surgeon, S4D, 6 layers of 256 channels of 32 pairs": (
            Config("s4d", 1, 10, 256, (256 * 32,) * 6, bidirectional=True),
            60.0,
        ),
        "surgeon, S5, 1 layer of 1,024 pairs and 1,024 outputs": (Config("s5", 1, 10, 1024, (1024,)), 60.0),
    }
    figures = []
    for what, (config, limit) in sizes.items():
        systems = sp.read(Classifier(config))
        moments = {layer: white_noise(system) for layer, system in systems.items()}
        taken = seconds(lambda: sp.make_plan(systems, 0.7, sp.SURGEON, moments=moments))  # noqa: B023 (called at once)
        figures.append(Figure(what, taken, "s", at_most=limit))
    return figures


def seconds(call: Callable[[], object]) -> float:
    start = process_time()
    call()
    return process_time() - start


@torch.no_grad()
def evaluate(model: Classifier, batches: tuple[torch.Tensor, ...]) -> None:
    for x in batches:
        model(x)


if __name__ == "__main__":
    show(__doc__, measure)
