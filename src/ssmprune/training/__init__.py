"""Training and evaluating our own models.

`train` has the loop, resumable to the bit; `recipes` the paper's hyperparameters and what fits a CPU; `gradual_pruning`
removes states while training; `recovery` lets a pruned model learn the whole model's answers again, from the `_lessons`
that unlabelled inputs are, `rounds` does so between several cuts. `state` is either of them on disk, `_finite` finds
where numbers ran away, `_start` takes over a model that is trained already, `distributed` makes several processes one.
`evaluate` counts right answers; `calibration_inputs` gives inputs without labels.

`recover` stands here, so that `import ssmprune` does not import torch.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ..errors import need_torch

if TYPE_CHECKING:
    from ..adapters import Adapter

Model = TypeVar("Model")


def recover(
    small: Model,
    model: Any,
    data: Iterable[Any],
    *,
    minutes: float = 5.0,
    what: Literal["all", "states"] = "all",
    seed: int = 0,
    adapter: Adapter | None = None,
) -> Model:
    """Return a pruned model that has learnt the whole model's answers on unlabelled batches.

    On those that are held out it never gets worse; if there is nothing to repair or to gain, it stays as it is, and a
    warning says so.

    small: a pruned torch model: one of ours, or any other whose output for x is a tensor.
    model: the whole model it was made of, which teaches it.
    data: batches or a DataLoader, as for `collect`, but many: up to 8,000 sequences are used, some of them held out.
    minutes: the longest it may take; the number of steps follows from it and the data, so a seed gives the same model
        on every machine that is as fast as two CPU cores.
    what: "all" lets everything learn, "states" the SSM layers alone.

    `training.recovery.Recovery` also tells what happened, and resumes after a kill.

    >>> import torch
    >>> import ssmprune as sp
    >>> from ssmprune.models.s5 import S5Layer
    >>> layer, data = S5Layer(2, 10), [torch.randn(8, 50, 2) for _ in range(4)]
    >>> small = sp.prune(layer, 0.6, data=data)
    >>> recover(small, layer, data, minutes=0.01).B.shape
    torch.Size([4, 2, 2])
    """
    need_torch()
    from .recovery import Recovery

    recovery: Recovery[Any] = Recovery(small, model, data, what=what, seed=seed, adapter=adapter)
    outcome = recovery.run(minutes)
    if outcome.after.damage >= outcome.before.damage:
        warnings.warn(f"Recovery: {outcome.gain}.", stacklevel=2)
    recovered: Model = outcome.model
    return recovered
