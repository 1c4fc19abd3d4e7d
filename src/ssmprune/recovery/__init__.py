"""A pruned model learns the whole model's answers again, on inputs without labels.

`distillation` has the learning, `resume` what a killed run continues from, which trainings share. All of it needs torch
and is imported when a name is asked for.
"""

from typing import TYPE_CHECKING

from ..errors import names_that_need_torch

if TYPE_CHECKING:
    from .distillation import HeldOutScore, Recovered, Recovery, recover

__all__ = ["HeldOutScore", "Recovered", "Recovery", "recover"]
__getattr__ = names_that_need_torch(__name__, dict.fromkeys(__all__, "distillation"))
