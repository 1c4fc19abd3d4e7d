"""Training and evaluating our own models.

`loop` trains, resumable to the bit; `recipes` says how each model is trained;
`gradual_pruning` removes states meanwhile; `distributed` lets several processes train together. `evaluation` counts
right answers; `calibration_inputs` gives inputs without labels.
All of it needs torch and is imported when a name is asked for.
"""

from typing import TYPE_CHECKING

from ..errors import names_that_need_torch

if TYPE_CHECKING:
    from .evaluation import Score, evaluate
    from .gradual_pruning import Schedule
    from .loop import Diverged, Result, Run, train
    from .recipes import Recipe, parameter_groups, tune, warmup_cosine

__all__ = [
    "Diverged",
    "Recipe",
    "Result",
    "Run",
    "Schedule",
    "Score",
    "evaluate",
    "parameter_groups",
    "train",
    "tune",
    "warmup_cosine",
]
__getattr__ = names_that_need_torch(
    __name__,
    {
        **dict.fromkeys(("Diverged", "Result", "Run", "train"), "loop"),
        **dict.fromkeys(("Score", "evaluate"), "evaluation"),
        **dict.fromkeys(("Recipe", "parameter_groups", "tune", "warmup_cosine"), "recipes"),
        "Schedule": "gradual_pruning",
    },
)
