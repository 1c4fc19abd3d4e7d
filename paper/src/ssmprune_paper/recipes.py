"""How the models of the paper's tasks are trained: its two hyperparameter tables as data, and what fits one CPU thread.

A `cpu` recipe is its `paper` recipe with the changes listed in `CPU`, so `differences` can always say what was cut. A
`tune` recipe is for a model that is trained already, pruned or not. An `easy` recipe comes before `cpu` where that
alone may learn nothing: an easier question about the same data. `lru` is a model of another paper.
"""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

from ssmprune.training import Recipe, tune

S5_COLUMNS = (
    *("depth", "width", "states", "blocks", "dropout", "lr", "ssm_lr"),
    *("batch", "epochs", "weight_decay", "step_min"),
)
S5_ROWS: dict[str, tuple[Any, ...]] = {
    "smnist": (4, 96, 128, 1, 0.1, 0.008, 0.002, 50, 150, 0.01, 0.001),
    "psmnist": (4, 128, 128, 2, 0.15, 0.004, 0.001, 50, 150, 0.01, 0.001),
    "scifar": (6, 512, 384, 3, 0.1, 0.0045, 0.001, 50, 250, 0.07, 0.001),
    "listops": (8, 128, 16, 8, 0.0, 0.003, 0.001, 50, 40, 0.07, 0.001),
    "text": (6, 256, 192, 12, 0.1, 0.004, 0.001, 50, 35, 0.07, 0.001),
    "retrieval": (6, 128, 256, 16, 0.0, 0.002, 0.001, 32, 20, 0.05, 0.001),
    "image": (6, 512, 384, 3, 0.1, 0.005, 0.001, 50, 250, 0.07, 0.001),
    "pathfinder": (6, 192, 256, 8, 0.05, 0.005, 0.0009, 64, 200, 0.07, 0.001),
    "pathx": (6, 128, 256, 16, 0.0, 0.002, 0.0006, 32, 75, 0.05, 0.001),
    "speech": (6, 96, 128, 16, 0.1, 0.008, 0.002, 16, 40, 0.04, 0.001),
}
S5_COMMON: dict[str, Any] = {
    "family": "s5",
    "norm": "batch",
    "prenorm": True,
    "step_max": 0.1,
    "activation": "half_glu1",
}

S4D_COLUMNS = (
    *("depth", "width", "states", "norm", "prenorm", "dropout", "lr"),
    *("batch", "epochs", "weight_decay", "step_min", "step_max"),
)
S4D_ROWS: dict[str, tuple[Any, ...]] = {
    "scifar": (6, 512, 64, "layer", False, 0.1, 0.01, 50, 200, 0.05, 0.001, 0.1),
    "listops": (8, 128, 64, "batch", False, 0.0, 0.01, 50, 40, 0.05, 0.001, 0.1),
    "text": (6, 256, 64, "batch", True, 0.0, 0.01, 16, 32, 0.05, 0.001, 0.1),
    "retrieval": (6, 256, 64, "batch", True, 0.0, 0.01, 64, 20, 0.05, 0.001, 0.1),
    "image": (6, 512, 64, "layer", False, 0.1, 0.01, 50, 200, 0.05, 0.001, 0.1),
    "pathfinder": (6, 256, 64, "batch", True, 0.0, 0.004, 64, 200, 0.03, 0.001, 0.1),
    "pathx": (6, 256, 64, "batch", True, 0.0, 0.001, 32, 50, 0.05, 0.001, 0.01),
    "speech": (6, 128, 64, "batch", True, 0.0, 0.01, 16, 40, 0.05, 0.001, 0.1),
}
# The table prints no SSM rate; S4D's authors train poles and steps at 0.001.
S4D_COMMON: dict[str, Any] = {"family": "s4d", "blocks": 1, "ssm_lr": 0.001, "activation": "full_glu"}

FORWARD_ONLY = {"smnist", "psmnist"}

# One thread needs about 3.5 microseconds per step and layer of these sizes, in both directions.
SMALL_S5: dict[str, Any] = {"depth": 4, "width": 64, "states": 64, "blocks": 4}
SMALL_S4D: dict[str, Any] = {
    **{"depth": 4, "width": 64, "states": 32, "activation": "half_glu1"},
    **{"norm": "batch", "prenorm": True, "ssm_lr": 0.002},
}
# A few epochs are short of updates, not of regularisation: small batches without dropout learn more in the same time.
SMALL_BATCH: dict[str, Any] = {"batch": 16, "dropout": 0.0, "lr": 0.003, "ssm_lr": 0.002, "warmup": 0.3}
# For a model that has learned to read (`pretrain_retrieval`): pairs are too few to learn much from.
AFTER_READING: dict[str, Any] = {"lr": 0.0005, "ssm_lr": 0.0005, "warmup": 0.1, "epochs": 1, "task": {"length": 1024}}
SHORT_LISTOPS = {"length": 400, "shortest": 20, "examples": 20_000}
CPU: dict[tuple[str, str], dict[str, Any]] = {
    ("smnist", "s5"): {**SMALL_BATCH, "batch": 32, "lr": 0.006, "epochs": 3},
    ("smnist", "s4d"): {**SMALL_S4D, "epochs": 1, "warmup": 0.2},
    ("psmnist", "s5"): {**SMALL_BATCH, "batch": 32, "lr": 0.004, "epochs": 3},
    ("psmnist", "s4d"): {**SMALL_S4D, "epochs": 3, "warmup": 0.4},
    ("scifar", "s5"): {**SMALL_S5, **SMALL_BATCH, "epochs": 6},
    ("scifar", "s4d"): {**SMALL_S4D, **SMALL_BATCH, "epochs": 4},
    ("listops", "s5"): {**SMALL_S5, **SMALL_BATCH, "epochs": 12, "task": SHORT_LISTOPS},
    ("listops", "s4d"): {**SMALL_S4D, **SMALL_BATCH, "epochs": 10, "task": SHORT_LISTOPS},
    ("text", "s5"): {**SMALL_S5, **SMALL_BATCH, "lr": 0.002, "epochs": 5, "task": {"length": 1024}},
    ("text", "s4d"): {**SMALL_S4D, **SMALL_BATCH, "lr": 0.002, "epochs": 4, "task": {"length": 1024}},
    ("retrieval", "s5"): {**SMALL_S5, **SMALL_BATCH, **AFTER_READING},
    ("retrieval", "s4d"): {**SMALL_S4D, **SMALL_BATCH, **AFTER_READING},
    ("image", "s5"): {**SMALL_S5, **SMALL_BATCH, "epochs": 6, "examples": 18_000},
    ("image", "s4d"): {**SMALL_S4D, **SMALL_BATCH, "epochs": 4, "examples": 18_000},
    ("pathfinder", "s5"): {**SMALL_S5, **SMALL_BATCH, "epochs": 4, "task": {"examples": 50_000}},
    ("pathfinder", "s4d"): {**SMALL_S4D, **SMALL_BATCH, "epochs": 4, "task": {"examples": 50_000}},
    ("pathx", "s5"): {**SMALL_S5, "batch": 16, "epochs": 8, "task": {"examples": 4_000}},
    ("pathx", "s4d"): {**SMALL_S4D, "batch": 16, "epochs": 5, "task": {"examples": 4_000}},
    ("speech", "s5"): {**SMALL_S5, **SMALL_BATCH, "batch": 8, "states": 32, "epochs": 8, "examples": 6_000},
    ("speech", "s4d"): {**SMALL_S4D, **SMALL_BATCH, "batch": 8, "epochs": 6, "examples": 6_000},
}
EASY: dict[str, dict[str, Any]] = {
    "pathfinder": {"epochs": 3, "task": {"examples": 50_000, "dashes": 6, "distractors": 1}},
}

# CompreSSM's LRU [Chahine2026]: one block of 256 complex states and width 8, poles on the ring from 0.9 to
# 0.999. Its 200,000 steps at a constant rate of 0.0004 become 10,000 at larger ones.
LRU: dict[str, Any] = {
    **{"family": "s5", "depth": 1, "width": 8, "states": 256, "blocks": 1, "conj_sym": False},
    **{"initial_poles": "ring", "step_min": -math.log(0.999), "step_max": -math.log(0.9), "bidirectional": False},
    **{"norm": "batch", "prenorm": True, "activation": "full_glu", "dropout": 0.0, "weight_decay": 0.0},
    **{"lr": 0.006, "ssm_lr": 0.002, "batch": 32, "epochs": 6, "warmup": 0.3},
}


def _paper() -> dict[tuple[str, str], Recipe]:
    tables = (("s5", S5_COLUMNS, S5_ROWS, S5_COMMON), ("s4d", S4D_COLUMNS, S4D_ROWS, S4D_COMMON))
    return {
        (task, family): Recipe(**common, **dict(zip(columns, row, strict=True)), bidirectional=task not in FORWARD_ONLY)
        for family, columns, rows, common in tables
        for task, row in rows.items()
    }


PAPER = _paper()


def _cpu(task: str, family: str) -> Recipe:
    return replace(_base(task, family), **CPU[task, family])


def _base(task: str, family: str) -> Recipe:
    """Return the paper's recipe; for S4D on the MNIST tasks, which it leaves out, its Image recipe, forwards only."""
    if (task, family) in PAPER:
        return PAPER[task, family]
    return replace(PAPER["image", family], bidirectional=task not in FORWARD_ONLY)


def differences(task: str, family: str, name: str) -> dict[str, tuple[Any, Any]]:
    """Return the fields in which a recipe departs from the paper's: {field: (paper's value, its value)}.

    >>> differences("smnist", "s5", "cpu")["epochs"][0]
    150
    """
    ours, paper = RECIPES[f"{task} {family} {name}"], _base(task, family)
    pairs = {f.name: (getattr(paper, f.name), getattr(ours, f.name)) for f in fields(Recipe)}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def _all() -> dict[tuple[str, str, str], Recipe]:
    paper = {(*key, "paper"): recipe for key, recipe in PAPER.items()}
    cpu, lru = {(*key, "cpu"): _cpu(*key) for key in CPU}, {("smnist", "s5", "lru"): Recipe(**LRU)}
    easy = {(*key, "easy"): replace(_cpu(*key), **EASY[key[0]]) for key in CPU if key[0] in EASY}
    return paper | cpu | easy | lru | {(*key[:2], "tune"): tune(recipe) for key, recipe in cpu.items()}


RECIPES = {" ".join(key): recipe for key, recipe in _all().items()}
