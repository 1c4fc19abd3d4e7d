"""The demo: a trained model that ships with the package, pruned by the paper's methods, on images that ship too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from .. import surgery
from ..checkpoint import load
from ..methods import GLOBAL_HINF, LAST, RANDOM, UNIFORM_HINF
from ..models.classifier import Classifier
from ..plan import make_plan
from ..tasks.sample import load_sample
from .counts import parameters
from .evaluate import evaluate
from .figures import trade_off
from .measure import interleaved

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHECKPOINT = Path(__file__).parents[1] / "demo" / "smnist-s5.safetensors"
METHODS = {"LAST": LAST, "Uniform": UNIFORM_HINF, "Global": GLOBAL_HINF, "Random": RANDOM}
RATIOS = [k / 10 for k in range(11)]
EVALUATIONS = 1 + (len(RATIOS) - 1) * len(METHODS)  # how often `tick` is called
ROUNDS = 3  # of timing


@dataclass(frozen=True)
class Row:
    """One pruning ratio: states and parameters that LAST leaves, its speed-up, and each method's accuracy."""

    ratio: float
    states: int
    parameters: int
    speed: float
    accuracy: dict[str, float]


def demo(tick: Callable[[], object] = lambda: None) -> list[Row]:
    """Prune by every method at 0 to 100 % and count right answers; `tick` is called after each evaluation."""
    model, images = load(CHECKPOINT), load_sample()
    systems = surgery.read(model)
    pruned: dict[float, Classifier] = {}
    accuracies: dict[float, dict[str, float]] = {}
    for ratio in RATIOS:
        accuracies[ratio] = {}
        for name, method in METHODS.items():
            if ratio == 0 and pruned:  # nothing is pruned, so all methods agree
                accuracies[ratio][name] = accuracies[ratio]["LAST"]
                continue
            small = surgery.shrink(model, make_plan(systems, ratio, method))
            accuracies[ratio][name] = evaluate(small, images).accuracy
            pruned.setdefault(ratio, small)  # LAST's is the first
            tick()
    speed = _speed(pruned, torch.from_numpy(images.batch(np.arange(50)).x))
    return [
        Row(ratio, 2 * sum(small.config.states), parameters(small), speed[ratio], accuracies[ratio])
        for ratio, small in pruned.items()
    ]


def picture(rows: list[Row]) -> Figure:
    """Draw the accuracies of a demo."""
    curves = {name: [row.accuracy[name] for row in rows] for name in METHODS}
    title = "A trained sMNIST S5, pruned without retraining"
    return trade_off(curves, [row.ratio for row in rows], rows[0].accuracy["LAST"], title)


@torch.no_grad()
def _speed(models: dict[float, Classifier], x: torch.Tensor) -> dict[float, float]:
    """How many times faster than the first each model evaluates x, timed in turns."""
    calls = {str(ratio): lambda model=model: model(x) for ratio, model in models.items()}
    seconds = interleaved(calls, ROUNDS)
    return {ratio: (seconds["0.0"] / seconds[str(ratio)]).median for ratio in models}
