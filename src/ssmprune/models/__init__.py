"""Our own S5 and S4D classifiers in torch.

A `Classifier` is built from a `Config`, which states the number of states of every layer, so that a smaller model
is an ordinary model. `layers` has S5 and S4D; `s5_kernel` and `s4d_kernel` compute whole sequences. `classifier` puts
layers into blocks, between a norm and a gate, and stacks these. `config` says what a model is made of, `costs`
what a step of it takes, `checkpoint` saves and loads it and tells its size.

Classes are imported when they are asked for, so that `import ssmprune` does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import names_that_need_torch
from .checkpoint import load, save

if TYPE_CHECKING:
    from .classifier import Classifier, measure_statistics
    from .layers import S4DLayer, S5Layer, continuous_poles, discretize, stored_real_part

__all__ = [
    "Classifier",
    "S4DLayer",
    "S5Layer",
    "continuous_poles",
    "discretize",
    "load",
    "measure_statistics",
    "save",
    "stored_real_part",
]
__getattr__ = names_that_need_torch(
    __name__,
    {
        **dict.fromkeys(("Classifier", "measure_statistics"), "classifier"),
        **dict.fromkeys(("S4DLayer", "S5Layer", "continuous_poles", "discretize", "stored_real_part"), "layers"),
    },
)
