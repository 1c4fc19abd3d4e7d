"""Methods: which states go.

A method is a row of one grid. A *criterion* scores the states of a layer, an *allocation* compares layers, and a method
may *re-fit* what stays, or make new states in place of the old. `criterion` has eight criteria, `allocation` four
allocations, `balanced` the reduction that makes new states, `method` says what a method is and which have names. Scores
are logarithms, because those of one model can span more than a float holds.
"""

from .allocation import (
    Allocation,
    Masks,
    Scores,
    descending,
    energy_normalised,
    kept_count,
    layer_adaptive,
    layer_share,
    pooled,
    uniform,
)
from .balanced import Reduced
from .criterion import Evidence
from .method import (
    AIRE,
    BALANCED,
    GLOBAL_HINF,
    GLOBAL_MAGNITUDE,
    LAMP,
    LAST,
    RANDOM,
    SURGEON,
    UNIFORM_HINF,
    UNIFORM_MAGNITUDE,
    Method,
    criteria,
    named,
)

__all__ = [
    "AIRE",
    "BALANCED",
    "GLOBAL_HINF",
    "GLOBAL_MAGNITUDE",
    "LAMP",
    "LAST",
    "RANDOM",
    "SURGEON",
    "UNIFORM_HINF",
    "UNIFORM_MAGNITUDE",
    "Allocation",
    "Evidence",
    "Masks",
    "Method",
    "Reduced",
    "Scores",
    "criteria",
    "descending",
    "energy_normalised",
    "kept_count",
    "layer_adaptive",
    "layer_share",
    "named",
    "pooled",
    "uniform",
]
