"""Does the whole path hold at Path-X, which two cores cannot train?

The paper's S5 for Path-X (both directions, H = 128, 128 pairs, 6 layers, random weights) on pictures of the task, each
16,384 steps: a training step of the recipe's optimiser, an evaluation, a pruning by LAST at the paper's 30 %, one by
the surgeon on two pictures, and an evaluation of the smaller model. The batch is one picture; the paper's is 32, for
which time and, without accumulating gradients, memory grow in proportion. An epoch of the paper is 160,000 pictures.
Each is done once; memory is what the process grows by.
"""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np
import torch
from torch.nn.functional import cross_entropy

import ssmprune as sp
import subjects
from ssmprune import tasks
from ssmprune.models.classifier import Classifier
from ssmprune.training.evaluation import evaluate, tensors
from ssmprune.training.recipes import get, parameter_groups
from table import Figure, show
from timing import peak_memory

PICTURES, RATIO = 20, 0.3  # 16 to train with, 2 to validate, 2 to test
EPOCH = 160_000  # pictures


def measure() -> list[Figure]:
    with TemporaryDirectory() as folder:
        task = tasks.get("pathx").replace(examples=PICTURES)
        train, test = (task.load(split, Path(folder)) for split in ("train", "test"))
        (x, _), labels = tensors(train.batch(np.arange(2)), torch.device("cpu"))
    model = subjects.untrained(subjects.found()["pathx-s5"].config)
    before = {name: value.clone() for name, value in model.named_parameters()}
    step = training_step(model, x[:1], labels[:1])
    figures = once("training step of one picture", step)
    still = [name for name, value in model.named_parameters() if torch.equal(value, before[name])]
    assert not still, f"Not trained: {still}"
    figures[0].beside["days for an epoch of the paper"] = EPOCH * figures[0].value / 86_400
    one = test.subset([0])
    figures += once("evaluation of one picture", lambda: evaluate(model, one, 1))
    figures += once(f"pruning by LAST at {RATIO:.0%}", lambda: sp.prune(model, RATIO, method=sp.LAST))
    small = []
    figures += once(
        f"pruning by the surgeon at {RATIO:.0%}, two pictures",
        lambda: small.append(sp.prune(model, RATIO, method=sp.SURGEON, data=[x])),
    )
    kept = sum(small[0].config.states) / sum(model.config.states)
    assert abs(kept - (1 - RATIO)) < 0.01, f"{kept:.0%} of the states are left."
    return figures + once("evaluation of one picture, shrunk", lambda: evaluate(small[0], one, 1))


def training_step(model: Classifier, x: torch.Tensor, labels: torch.Tensor) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(parameter_groups(model, get("pathx", "s5", "paper")), fused=True)

    def run() -> None:
        model.train().zero_grad()
        loss = cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()

    return run


def once(what: str, run: Callable[[], object]) -> list[Figure]:
    """Time and memory of the same call."""
    seconds = []

    def timed() -> None:
        start = perf_counter()
        run()
        seconds.append(perf_counter() - start)

    peak = peak_memory(timed)
    memory = None if peak is None else peak / 1e6
    return [Figure(what, seconds[0], "s"), Figure(f"{what}, memory", memory, "MB")]


if __name__ == "__main__":
    show(__doc__, measure)
