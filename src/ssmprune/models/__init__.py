"""Our own S5 and S4D classifiers in torch.

A `Classifier` is built from a `Config`, which states the number of states of every layer, so that a smaller model
is an ordinary model. `s5` and `s4d` are the layers, `layer` is what they share and how weights start; `s5_kernel` and
`s4d_kernel` compute whole sequences. `block` puts a layer between a norm and a gate, `classifier` stacks
the blocks. `config` says what a model is made of, `checkpoint` saves and loads it and tells its size.

Classes are imported when they are asked for, so that `import ssmprune` does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import names_that_need_torch
from .checkpoint import load, save

if TYPE_CHECKING:
    from .block import measure_statistics
    from .classifier import Classifier
    from .layer import continuous_poles, discretize, stored_real_part
    from .s4d import S4DLayer
    from .s5 import S5Layer

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
        "Classifier": "classifier",
        "S4DLayer": "s4d",
        "S5Layer": "s5",
        "measure_statistics": "block",
        **dict.fromkeys(("continuous_poles", "discretize", "stored_real_part"), "layer"),
    },
)
