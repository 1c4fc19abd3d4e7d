"""Pin the numbers of the shipped checkpoints: python scripts/pin.py [NAME ...] writes tests/pins.json.

Run it after a checkpoint was added or replaced on purpose, or after a change that is meant to change numbers; the
difference of tests/pins.json then shows what changed. `--masks` prints the masks of all checkpoints instead.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import ssmprune as sp
from ssmprune.arrays import Real
from ssmprune.files import write_atomically
from ssmprune.methods import Evidence, criteria, named
from ssmprune.models.classifier import Classifier
from ssmprune.planning.make import make_plan
from ssmprune.planning.plan import Plan
from ssmprune.tasks.smnist import load_sample
from ssmprune.training import evaluate

ROOT = Path(__file__).parents[1]
PINS = ROOT / "tests" / "pins.json"
RATIOS = (0.3, 0.5, 0.9)
IMAGES = 50  # of the MNIST images that ship with ssmprune


def shipped() -> dict[str, Path]:
    """Return every checkpoint in the repository by its name; a link and its target are one."""
    files = [*ROOT.glob("src/ssmprune/demo/*.safetensors"), *ROOT.glob("paper/checkpoints/*.safetensors")]
    return {file.stem: file for file in sorted({file.resolve() for file in files})}


def inputs(model: Classifier, batch: int, length: int) -> Tensor:
    """Return random sequences, tokens or numbers."""
    config, sequences = model.config, batch * (2 if model.config.retrieval else 1)
    if config.tokens:
        return torch.randint(config.inputs, (sequences, length))
    return torch.randn(sequences, length, config.inputs)


def pin(file: Path) -> dict[str, Any]:
    """Return what must stay the same of one checkpoint."""
    model = sp.load(file)
    numbers: dict[str, Any] = {
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "scores": scores(model),
        "masks": masks(model),
        "logits": logits(model).tolist(),
    }
    if (model.config.inputs, model.config.outputs, model.config.tokens) == (1, 10, False) and "smnist" in file.stem:
        numbers["right answers"] = right_answers(model)
    return numbers


def scores(model: Classifier) -> dict[str, dict[str, list[float]]]:
    """Return the quartiles of the log-scores of every layer, by every criterion that looks at parameters alone."""
    systems = sp.read(model)
    return {
        name: {layer: quartiles(criterion(system, Evidence.without_data(system))) for layer, system in systems.items()}
        for name, criterion in criteria().items()
        if name not in ("elimination", "energy")  # these look at data
    }


def quartiles(scores: Real) -> list[float]:
    """Return the least, the greatest and the three quartiles of log-scores, to nine digits."""
    return [float(f"{q:.9g}") for q in np.quantile(scores, [0, 0.25, 0.5, 0.75, 1])]


def masks(model: Classifier) -> dict[str, str]:
    """Return, for each of the paper's methods and every ratio, a digest of which states stay."""
    systems = sp.read(model)
    return {
        f"{name} {ratio:.0%}": digest(make_plan(systems, ratio, method))
        for name, method in named().items()
        if "/" not in name and not method.refits and method.reduce is None
        for ratio in RATIOS
    }


def digest(plan: Plan) -> str:
    """Return a few digits that change when any mask of a plan does."""
    sums = hashlib.sha256()
    for layer, keep in plan.keep.items():
        sums.update(layer.encode() + np.packbits(keep).tobytes())
    return f"{plan.kept} of {plan.total}: {sums.hexdigest()[:16]}"


@torch.no_grad()
def logits(model: Classifier, batch: int = 4) -> torch.Tensor:
    """Return what the model says of four random sequences of 300 steps, in double precision, `batch` at a time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        x = inputs(model, 4, 300)
    if model.config.retrieval:
        return model(x).double()  # pairs stand in two halves
    return torch.cat([model(part) for part in x.to(dtype=_type(model)).split(batch)]).double()


def _type(model: Classifier) -> torch.dtype:
    return torch.int64 if model.config.tokens else model.decoder.weight.dtype


def right_answers(model: Classifier) -> dict[str, int]:
    """Return how many shipped images the full model and those that LAST leaves get right."""
    answers = {}
    for ratio in (0.0, 0.5):
        small = sp.shrink(model, make_plan(sp.read(model), ratio))
        answers[f"{ratio:.0%}"] = round(IMAGES * evaluate(small, _images()).accuracy)
    return answers


@cache
def _images() -> Any:
    return load_sample("test").subset(np.arange(0, 1000, 1000 // IMAGES))


def main() -> None:
    """Pin the checkpoints that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="checkpoints to pin; else all")
    parser.add_argument("--masks", action="store_true", help="print the masks instead")
    options = parser.parse_args()
    if options.masks:
        print(json.dumps({name: masks(sp.load(file)) for name, file in shipped().items()}))
        return
    old = json.loads(PINS.read_text()) if PINS.exists() else {}
    pins = {
        name: pin(file) if name in options.names or not options.names else old[name]
        for name, file in shipped().items()
        if name in old or name in options.names or not options.names
    }
    write_atomically(PINS, (json.dumps(pins, indent=1) + "\n").encode())
    print(f"Pinned {', '.join(pins)} in {PINS.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
