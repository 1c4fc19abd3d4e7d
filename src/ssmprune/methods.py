"""Methods: the paper's table of methods as pairs of a criterion and an allocation."""

from __future__ import annotations

from dataclasses import dataclass

from . import criteria
from .allocation import Allocation, layer_adaptive, layer_share, pooled, uniform
from .criteria import Criterion
from .criteria.h2 import h2
from .criteria.hinf import hinf
from .criteria.magnitude import magnitude
from .criteria.random import random


@dataclass(frozen=True)
class Method:
    """How states are scored within a layer and compared between layers."""

    name: str
    criterion: Criterion
    allocation: Allocation


LAST = Method("last", hinf, layer_adaptive)
UNIFORM_HINF = Method("uniform-hinf", hinf, uniform)
GLOBAL_HINF = Method("global-hinf", hinf, pooled)
UNIFORM_MAGNITUDE = Method("uniform-magnitude", magnitude, uniform)
GLOBAL_MAGNITUDE = Method("global-magnitude", magnitude, pooled)
LAMP = Method("lamp", magnitude, layer_adaptive)
AIRE = Method("aire", h2, layer_adaptive)
RANDOM = Method("random", random, uniform)


def named() -> dict[str, Method]:
    """Return every method by the name the command line knows it by.

    The paper's methods have names of their own; every other pair is called `criterion/allocation`.

    >>> named()["last"] is LAST, named()["hinf/layer_share"].criterion is hinf
    (True, True)
    """
    own = {value.name: value for value in globals().values() if isinstance(value, Method)}
    for score_name, score in criteria.found().items():
        for allocation in (uniform, pooled, layer_adaptive, layer_share):
            if (score, allocation) not in {(method.criterion, method.allocation) for method in own.values()}:
                pair = f"{score_name}/{allocation.__name__}"
                own[pair] = Method(pair, score, allocation)
    return own
