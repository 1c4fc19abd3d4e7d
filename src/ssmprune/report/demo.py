"""The demo: a trained model pruned by five methods and evaluated on images; model and images ship with ssmprune."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..budgets import GRID
from ..deploy.compiled import forward
from ..deploy.timing import time_in_turns
from ..methods import GLOBAL_HINF, LAST, RANDOM, SURGEON, UNIFORM_HINF
from ..models import load
from ..models.checkpoint import parameters
from ..models.classifier import Classifier
from ..pruning import Pruning
from ..tasks.smnist import load_sample
from ..training import evaluate
from .curves import draw_accuracies

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHECKPOINT = Path(__file__).parents[1] / "demo" / "smnist-s5.safetensors"
METHODS = {"Surgeon": SURGEON, "LAST": LAST, "Uniform": UNIFORM_HINF, "Global": GLOBAL_HINF, "Random": RANDOM}
EVALUATIONS = 1 + len(GRID) * len(METHODS)  # how often `tick` is called
TIMED, ROUNDS = 10, 15  # images of a pass and passes of a model; of many short passes few meet a busy moment


@dataclass(frozen=True)
class DemoRow:
    """A pruning ratio: states and parameters that the surgeon leaves, its speed-up, and each method's accuracy."""

    ratio: float
    states: int
    parameters: int
    speed: float
    accuracy: dict[str, float]


def demo(
    tick: Callable[[], object] = lambda: None, ratios: Sequence[float] = GRID, engine: str = "torch"
) -> list[DemoRow]:
    """Prune by every method at every ratio and count right answers; `tick` is called after each evaluation.

    engine: the one of `deploy.compiled` that evaluates, and whose speed is reported.
    """
    model, images = load(CHECKPOINT), load_sample("test")
    unlabelled = [torch.from_numpy(load_sample("train").batch(np.arange(100)).x)]
    works = {
        name: Pruning(model, method, data=unlabelled if method.refits else None) for name, method in METHODS.items()
    }

    def accuracy(candidate: Classifier) -> float:
        share = evaluate(candidate, images, engine=engine).accuracy
        tick()
        return share

    small = {0.0: model}
    accuracies = {0.0: dict.fromkeys(METHODS, accuracy(model))}
    for ratio in ratios:
        pruned = {name: work.shrink(work.plan(ratio)) for name, work in works.items()}
        accuracies[ratio] = {name: accuracy(candidate) for name, candidate in pruned.items()}
        small[ratio] = pruned["Surgeon"]
    speed = _speed(small, torch.from_numpy(images.batch(np.arange(TIMED)).x), engine)
    return [
        DemoRow(ratio, sum(candidate.layer_states.values()), parameters(candidate), speed[ratio], accuracies[ratio])
        for ratio, candidate in small.items()
    ]


def picture(rows: list[DemoRow]) -> Figure:
    """Draw the accuracies of a demo."""
    curves = {METHODS[name].name: [row.accuracy[name] for row in rows] for name in rows[0].accuracy}
    title = "A trained sMNIST S5, pruned without retraining"
    return draw_accuracies(curves, [row.ratio for row in rows], title)


@torch.no_grad()
def _speed(models: dict[float, Classifier], x: torch.Tensor, engine: str) -> dict[float, float]:
    """Return how many times faster than the first each model evaluates x, timed in turns."""
    with ExitStack() as lent:
        engines = {str(ratio): lent.enter_context(forward(model, engine)) for ratio, model in models.items()}
        calls = {ratio: lambda engine=engine: engine(x) for ratio, engine in engines.items()}
        seconds = time_in_turns(calls, ROUNDS)
    return {ratio: float(np.median(seconds["0.0"] / seconds[str(ratio)])) for ratio in models}
