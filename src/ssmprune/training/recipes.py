"""How each model is trained: recipes, looked up as `get(task, family, name)`.

`GENERAL` is for any task; other packages bring recipes for theirs. Below stands how a recipe sets learning rates.
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
        shared = {entry.name for entry in fields(Config)} & {entry.name for entry in fields(self)} - {"states"}
        return Config(
            **{name: getattr(self, name) for name in shared},
            inputs=inputs,
            outputs=outputs,
            states=(stored if self.family == "s5" else stored * self.width,) * self.depth,
            tokens=task.tokens,
            retrieval=task.retrieval,
        )


SSM_PARAMETERS = {"pole_re", "pole_im", "log_step", "B"}  # those that `ssm_lr` is for

# For any task: small enough for one thread, forwards only, so that the model can stream. A few epochs are short of
# updates, not of regularisation: small batches without dropout learn more in the same time.
GENERAL = {
    "s5": Recipe(
        family="s5", depth=4, width=64, states=64, blocks=4, norm="batch", prenorm=True, dropout=0.0, lr=0.003,
        ssm_lr=0.002, batch=16, epochs=10, weight_decay=0.05, step_min=0.001, step_max=0.1, bidirectional=False,
        activation="half_glu1", warmup=0.3,
    ),
}  # fmt: skip
GENERAL["s4d"] = replace(GENERAL["s5"], family="s4d", states=32, blocks=1)


def get(task: str, family: str, name: str) -> Recipe:
    """Return the recipe called `name` for a task and a family.

    A task without recipes of its own has the general one, and that to tune by.

    >>> get("a task of mine", "s5", "general").width
    64
    """
    of_task = {" ".join(key): recipe for key, recipe in found().items() if key[0] == task}
    for kind, general in GENERAL.items():
        of_task[f"{task} {kind} general"] = general
        of_task.setdefault(f"{task} {kind} tune", tune(general))
    return one_of("recipe", f"{task} {family} {name}", of_task)


def default_name(task: str) -> str:
    """Return the recipe that a task is trained by unless told otherwise."""
    return "cpu" if any((key[0], key[2]) == (task, "cpu") for key in found()) else "general"


def tune(recipe: Recipe) -> Recipe:
    """Return a recipe for a model that is trained already: half as long at half the rates, without dropout."""
    epochs = max(1, recipe.epochs // 2)
    return replace(recipe, epochs=epochs, warmup=0.1, dropout=0.0, lr=recipe.lr / 2, ssm_lr=recipe.ssm_lr / 2)


def found() -> dict[tuple[str, str, str], Recipe]:
    """Return every recipe by task, family and name; others export theirs as RECIPES = {"task family name": ...}."""
    recipes = {}
    for name, recipe in _RECIPES.found().items():
        if name.count(" ") < 2:
            raise InputError(f"A recipe is named by its task, family and itself, as in 'text s5 cpu'; got {name!r}.")
        task, family, kind = name.rsplit(" ", 2)
        recipes[task, family, kind] = recipe
    return recipes


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


_RECIPES: Registry[Recipe] = Registry("recipe", Recipe, "an object of ssmprune.training.recipes.Recipe", shipped={})
