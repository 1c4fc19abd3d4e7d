"""A toy task and a toy training, which many tests share."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from ssmprune.tasks.task import Split, Task, features
from ssmprune.training import Recipe, Run, train

RECIPE = Recipe(
    family="s5", depth=2, width=8, states=8, blocks=1, norm="batch", prenorm=True, dropout=0.1, lr=0.01, ssm_lr=0.002,
    batch=8, epochs=3, weight_decay=0.05, step_min=0.01, step_max=0.5, bidirectional=False, activation="half_glu1",
    warmup=0.5,
)  # fmt: skip
PATIENCE = 240  # seconds after which a process that should have ended counts as stuck
TWENTY_STEPS = dataclasses.replace(RECIPE, epochs=1, dropout=0.0)


@dataclass(frozen=True)
class Toy(Task):
    """Is the mean of a noisy sequence positive?"""

    name = "toy"
    inputs = 1
    outputs = 2
    length = 12

    def read(self, split: str, root: Path) -> Split:
        rng = np.random.default_rng(["train", "val", "test"].index(split))
        labels = rng.integers(0, 2, 160 if split == "train" else 40)
        noise = rng.standard_normal((len(labels), self.length, 1))
        return features((noise + labels[:, None, None] - 0.5).astype(np.float32), labels, 2, scale=1.0)


TOY = Toy()


def fit(run_dir: Path, recipe: Recipe = RECIPE, *, task=TOY, seed=0, save_every=7, progress=False, **options):
    return train(task, recipe, Run(run_dir, seed, save_every, progress), **options)


def events(run_dir: Path, kind: str) -> list[dict]:
    every = [json.loads(line) for line in (run_dir / "log.jsonl").read_text().splitlines()]
    return [event for event in every if event["event"] == kind]


def same(one: Path, other: Path) -> bool:
    """Equal to the bit (the header's order is not fixed, so the files' bytes may differ)."""
    a, b = load_file(one), load_file(other)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
