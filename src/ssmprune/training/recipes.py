"""How each model is trained: the paper's two hyperparameter tables as data, and what fits one CPU thread.

A recipe is looked up as `get(task, family, name)`. A `cpu` recipe is its `paper` recipe with the changes
listed in `CPU`, so `differences` can always say what was cut. `lru` is a model of another paper. A `tune` recipe runs
half as long as `cpu` at half the rates and without dropout, for a model that is trained already, pruned or not. An
`easy` recipe comes before `cpu` where that alone may learn nothing: an easier question about the same data.
`GENERAL` is for tasks that have no recipe. Below the tables stands how a recipe sets learning rates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any

from torch import Tensor, nn

from ..errors import InputError, one_of
from ..models.config import Config
from ..registry import Registry
from ..tasks.task import Task


@dataclass(frozen=True)
class Recipe:
    """Everything a training is told apart from its seed and where the data is."""

    family: str  # "s5" or "s4d"
    depth: int  # layers
    width: int  # channels between the layers
    states: int  # the paper's n: of a layer (S5) or a channel (S4D); with conj_sym half as many are stored
    blocks: int  # HiPPO blocks the poles of an S5 layer start from
    norm: str
    prenorm: bool
    dropout: float
    lr: float
    ssm_lr: float  # of poles, steps and B
    batch: int
    epochs: int
    weight_decay: float
    step_min: float
    step_max: float
    bidirectional: bool
    activation: str
    conj_sym: bool = True
    initial_poles: str = "hippo"
    warmup: float = 1.0  # epochs of linear warm-up before the cosine
    examples: int | None = None  # use only so many training examples
    task: dict[str, Any] = field(default_factory=dict)  # parameters of the task that differ from its own

    def config(self, task: Task, inputs: int, outputs: int) -> Config:
        """Return the model for `task`; `inputs` and `outputs` are the split's, whose files may have fewer classes."""
        stored = self.states // 2 if self.conj_sym else self.states
        return Config(
            family=self.family,
            inputs=inputs,
            outputs=outputs,
            width=self.width,
            states=(stored if self.family == "s5" else stored * self.width,) * self.depth,
            bidirectional=self.bidirectional,
            conj_sym=self.conj_sym,
            initial_poles=self.initial_poles,
            tokens=task.tokens,
            blocks=self.blocks,
            step_min=self.step_min,
            step_max=self.step_max,
            norm=self.norm,
            prenorm=self.prenorm,
            activation=self.activation,
            dropout=self.dropout,
            retrieval=task.retrieval,
        )


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
SSM_PARAMETERS = {"pole_re", "pole_im", "log_step", "B"}  # those that `ssm_lr` is for

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

# CompreSSM's LRU (Chahine et al., 2026): one block of 256 complex states and width 8, poles on the ring from 0.9 to
# 0.999. Its 200,000 steps at a constant rate of 0.0004 become 10,000 at larger ones.
LRU: dict[str, Any] = {
    **{"family": "s5", "depth": 1, "width": 8, "states": 256, "blocks": 1, "conj_sym": False},
    **{"initial_poles": "ring", "step_min": -math.log(0.999), "step_max": -math.log(0.9), "bidirectional": False},
    **{"norm": "batch", "prenorm": True, "activation": "full_glu", "dropout": 0.0, "weight_decay": 0.0},
    **{"lr": 0.006, "ssm_lr": 0.002, "batch": 32, "epochs": 6, "warmup": 0.3},
}


# For tasks of the user's own: small enough for one thread, forwards only, so that the model can stream.
GENERAL = {
    "s5": Recipe(
        **S5_COMMON, **SMALL_S5, **SMALL_BATCH,
        weight_decay=0.05, step_min=0.001, epochs=10, bidirectional=False,
    ),
    "s4d": Recipe(
        **{**S4D_COMMON, **SMALL_S4D, **SMALL_BATCH},
        weight_decay=0.05, step_min=0.001, step_max=0.1, epochs=10, bidirectional=False,
    ),
}  # fmt: skip


def _paper() -> dict[tuple[str, str], Recipe]:
    tables = (("s5", S5_COLUMNS, S5_ROWS, S5_COMMON), ("s4d", S4D_COLUMNS, S4D_ROWS, S4D_COMMON))
    return {
        (task, family): Recipe(**common, **dict(zip(columns, row, strict=True)), bidirectional=task not in FORWARD_ONLY)
        for family, columns, rows, common in tables
        for task, row in rows.items()
    }


PAPER = _paper()


def get(task: str, family: str, name: str) -> Recipe:
    """Return the recipe called `name` ("paper", "cpu", "easy", "lru", "tune" or "general") for a task and a family.

    A task without recipes of its own has the general one, and that to tune by.

    >>> get("smnist", "s5", "paper").width, get("a task of mine", "s5", "general").width
    (96, 64)
    """
    of_task = {" ".join(key): recipe for key, recipe in found().items() if key[0] == task}
    for kind, general in GENERAL.items():
        of_task[f"{task} {kind} general"] = general
        of_task.setdefault(f"{task} {kind} tune", _tune(general))
    return one_of("recipe", f"{task} {family} {name}", of_task)


def default_name(task: str) -> str:
    """Return the recipe that a task is trained by unless told otherwise."""
    return "cpu" if any(key[0] == task for key in CPU) else "general"


@dataclass(frozen=True)
class Sizes:
    """What a user may say in place of a recipe's own figures; None leaves them as they are."""

    layers: int | None = None
    width: int | None = None
    states: int | None = None
    epochs: int | None = None
    batch: int | None = None
    rate: float | None = None
    bidirectional: bool | None = None

    def apply(self, recipe: Recipe) -> Recipe:
        """Return the recipe with these figures; the rate of the SSM parameters changes by the factor of the other.

        >>> changed = Sizes(layers=2, rate=0.006).apply(GENERAL["s5"])
        >>> changed.depth, changed.lr, changed.ssm_lr / GENERAL["s5"].ssm_lr
        (2, 0.006, 2.0)
        """
        if self.states is not None and self.states % 2 and recipe.conj_sym:
            raise InputError(f"States come in conjugate pairs, so their number is even; got {self.states}.")
        if self.rate is not None and not 0 < self.rate < 1:
            raise InputError(f"A learning rate lies between 0 and 1; got {self.rate}.")
        ssm_lr = None if self.rate is None else recipe.ssm_lr * (self.rate / recipe.lr)
        figures: dict[str, Any] = {
            "depth": self.layers,
            "width": self.width,
            "states": self.states,
            "epochs": self.epochs,
            "batch": self.batch,
            "lr": self.rate,
            "ssm_lr": ssm_lr,
            "bidirectional": self.bidirectional,
        }
        return replace(recipe, **{name: value for name, value in figures.items() if value is not None})

    @property
    def of_the_model(self) -> list[str]:
        """The options given that a model to start from settles already."""
        names = ("layers", "width", "states", "bidirectional")
        return [f"--{name}" for name in names if getattr(self, name) is not None]


def found() -> dict[tuple[str, str, str], Recipe]:
    """Return every recipe by task, family and name; others export theirs as RECIPES = {"task family name": ...}."""
    return {_key(name): recipe for name, recipe in _RECIPES.found().items()}


def _key(name: str) -> tuple[str, str, str]:
    if name.count(" ") < 2:
        raise InputError(f"A recipe is named by its task, family and itself, as in 'text s5 cpu'; got {name!r}.")
    task, family, recipe = name.rsplit(" ", 2)
    return task, family, recipe


def _shipped() -> dict[tuple[str, str, str], Recipe]:
    paper = {(*key, "paper"): recipe for key, recipe in PAPER.items()}
    cpu, lru = {(*key, "cpu"): _cpu(*key) for key in CPU}, {("smnist", "s5", "lru"): Recipe(**LRU)}
    easy = {(*key, "easy"): replace(_cpu(*key), **EASY[key[0]]) for key in CPU if key[0] in EASY}
    return paper | cpu | easy | lru | {(*key[:2], "tune"): _tune(recipe) for key, recipe in cpu.items()}


def _cpu(task: str, family: str) -> Recipe:
    return replace(_base(task, family), **CPU[task, family])


def _tune(cpu: Recipe) -> Recipe:
    return replace(cpu, epochs=max(1, cpu.epochs // 2), warmup=0.1, dropout=0.0, lr=cpu.lr / 2, ssm_lr=cpu.ssm_lr / 2)


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
    ours, paper = get(task, family, name), _base(task, family)
    pairs = {f.name: (getattr(paper, f.name), getattr(ours, f.name)) for f in fields(Recipe)}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def parameter_groups(model: nn.Module, recipe: Recipe) -> list[dict[str, Any]]:
    """Return the paper's two groups: poles, steps and B at the SSM rate without decay, all else at the usual rate."""
    ssm: list[Tensor] = []
    rest: list[Tensor] = []
    for name, parameter in model.named_parameters():
        *owners, leaf = name.split(".")
        (ssm if "ssm" in owners and leaf in SSM_PARAMETERS else rest).append(parameter)
    return [
        {"params": ssm, "lr": recipe.ssm_lr, "peak": recipe.ssm_lr, "weight_decay": 0.0},
        {"params": rest, "lr": recipe.lr, "peak": recipe.lr, "weight_decay": recipe.weight_decay},
    ]


def warmup_cosine(step: int, steps: int, warmup: float) -> float:
    """Return the share of the peak learning rate: linear for the first `warmup` steps, then half a cosine to zero.

    >>> [round(warmup_cosine(step, 10, 2), 2) for step in (0, 1, 2, 6, 10)]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    if step < warmup:
        return min(1.0, (step + 1) / warmup)
    return 0.5 + 0.5 * math.cos(math.pi * (step - warmup) / max(1.0, steps - warmup))


_RECIPES: Registry[Recipe] = Registry(
    "recipe",
    Recipe,
    "an object of ssmprune.training.recipes.Recipe",
    shipped={" ".join(key): recipe for key, recipe in _shipped().items()},
)
