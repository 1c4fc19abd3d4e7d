"""The demo: a trained model pruned by several methods and evaluated on images; model and images ship with ssmprune."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..budgets import GRID
from ..deploy.compiled import Forward, forward
from ..methods import GLOBAL_HINF, LAST, RANDOM, SURGEON, UNIFORM_HINF
from ..models import load
from ..models.checkpoint import parameters, stored_bytes
from ..models.classifier import Classifier
from ..pruning import Pruning
from ..sweeps.timing import speeds_in_turns
from ..tasks.smnist import load_sample
from ..tasks.task import fewer
from ..training import evaluate
from .curves import frame
from .style import label, panels, styles

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHECKPOINT = Path(__file__).parents[1] / "demo" / "smnist-s5.safetensors"
METHODS = {"Surgeon": SURGEON, "LAST": LAST, "Uniform": UNIFORM_HINF, "Global": GLOBAL_HINF, "Random": RANDOM}
TIMED = 10  # images of a pass; of many short passes few meet a busy moment


@dataclass(frozen=True)
class Scope:
    """What a demo compares: methods, by their names in `METHODS`, ratios, and how many of the 1,000 images."""

    methods: Sequence[str]
    ratios: Sequence[float]
    examples: int

    @property
    def evaluations(self) -> int:
        """How often a model answers all images."""
        return 1 + len(self.methods) * len(self.ratios)


BRIEF, FULL = Scope(("Surgeon", "LAST"), (0.4, 0.6, 0.8, 0.9), 500), Scope(tuple(METHODS), GRID, 1000)


@dataclass(frozen=True)
class DemoRow:
    """A pruning ratio: what the surgeon leaves, how fast that is, and each method's accuracy."""

    ratio: float
    states: int
    parameters: int
    bytes: int
    steps_per_second: float
    speed: float  # times as fast as the whole model
    accuracy: dict[str, float]


def demo(scope: Scope = BRIEF, tick: Callable[[], object] = lambda: None, engine: str = "auto") -> list[DemoRow]:
    """Prune by every method at every ratio and count right answers; `tick` is called after each evaluation.

    engine: the one of `deploy.compiled` that evaluates, and whose speed is reported.
    """
    model, images = load(CHECKPOINT), fewer(load_sample("test"), scope.examples)
    unlabelled = [torch.from_numpy(load_sample("train").batch(np.arange(100)).x)]
    methods = {name: METHODS[name] for name in scope.methods}
    works = {
        name: Pruning(model, method, data=unlabelled if method.refits else None) for name, method in methods.items()
    }

    def accuracy(candidate: Classifier, engine: str | Forward = engine) -> float:
        share = evaluate(candidate, images, engine=engine).accuracy
        tick()
        return share

    with ExitStack() as lent:
        small, fast = {0.0: model}, {0.0: lent.enter_context(forward(model, engine))}
        accuracies = {0.0: dict.fromkeys(methods, accuracy(model, fast[0.0]))}
        for ratio in scope.ratios:
            pruned = {name: work.shrink(work.plan(ratio)) for name, work in works.items()}
            small[ratio] = pruned["Surgeon"]
            fast[ratio] = lent.enter_context(forward(small[ratio], engine))  # lent until it is timed
            engines = {name: fast[ratio] if name == "Surgeon" else engine for name in methods}
            accuracies[ratio] = {name: accuracy(pruned[name], computes) for name, computes in engines.items()}
        speeds = speeds_in_turns(list(fast.values()), torch.from_numpy(images.batch(np.arange(TIMED)).x))
    return [
        DemoRow(
            ratio,
            states=sum(candidate.layer_states.values()),
            parameters=parameters(candidate),
            bytes=stored_bytes(candidate),
            steps_per_second=speed,
            speed=speed / speeds[0],
            accuracy=accuracies[ratio],
        )
        for (ratio, candidate), speed in zip(small.items(), speeds, strict=True)
    ]


def picture(rows: list[DemoRow]) -> Figure:
    """Draw the accuracies of a demo."""
    figure, [panel] = panels(1, width=6.4, height=4.0)
    methods = {name: METHODS[name].name for name in rows[0].accuracy}
    looks, ratios = styles(methods.values()), 100 * np.array([row.ratio for row in rows])
    for name, method in methods.items():
        accuracies = 100 * np.array([row.accuracy[name] for row in rows])
        panel.plot(ratios, accuracies, label=label(method), markersize=5, **looks[method])
    frame(panel, next(iter(rows[0].accuracy.values())), "A trained sMNIST S5, pruned without retraining")
    panel.legend(frameon=False, loc="lower left")
    return figure
