"""Our own S5 and S4D classifiers in torch; they know nothing of pruning.

A `Classifier` is built from a `Config`, which states the number of states of every layer, so that a smaller model
is an ordinary model. `s5` and `s4d` are the layers (`_layer`: what they share), `parametrisation` brings their poles
into discrete time, `s5_kernel`, `s4d_kernel`, `scan` and, for many states of few channels, `_convolution` compute whole
sequences, `_blocking` cuts batches to the cache;
`block` puts a layer between a norm and a gate, `classifier` stacks the blocks, `initialisation` says how weights start.
`checkpoint` saves and loads, `cards` holds what is known of a checkpoint, `config` what a model is made of; `_grid`
puts weights on 8 or 4 bits, `_size` counts parameters and bytes, `_history` keeps what was done to a
model.

`load` and `save` stand here, so that `import ssmprune` does not import torch.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..errors import need_torch

if TYPE_CHECKING:
    from .classifier import Classifier


def load(path: str | os.PathLike[str]) -> Classifier:
    """Load one of our models, full or shrunk, in evaluation mode."""
    need_torch()
    from . import checkpoint

    return checkpoint.load(path)


def save(model: Classifier, path: str | os.PathLike[str]) -> None:
    """Save one of our models as a single safetensors file that `load` reads anywhere."""
    need_torch()
    from . import checkpoint

    checkpoint.save(model, path)
