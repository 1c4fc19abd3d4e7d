"""Methods: which states go.

A method is a row of one grid. A *criterion* scores the states of a layer: a function `(system, evidence) -> log-scores
(n,)` in float64; higher is kept, -inf is worth nothing. Logarithms, because the scores of one model can span more than
a float holds. `hinf` (the paper's, with a variant for unit B and one for real responses), `h2` and `magnitude` judge a
state by its own parameters, with `log_scores` as their arithmetic, `random` by nothing; `energy` and `elimination` also
look at the second moments of the layer's states. An *allocation* compares layers: `allocation` has four. A method may
*re-fit* what stays. `method` says all this as classes, `catalogue` has the methods with names.
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
from .catalogue import (
    AIRE,
    GLOBAL_HINF,
    GLOBAL_MAGNITUDE,
    LAMP,
    LAST,
    LAST_REFITTED,
    RANDOM,
    SURGEON,
    UNIFORM_HINF,
    UNIFORM_MAGNITUDE,
    criteria,
    named,
)
from .method import Criterion, Evidence, Method

__all__ = [  # noqa: RUF022 (grouped)
    # what a method is
    "Method",
    "Criterion",
    "Evidence",
    # methods with names
    "LAST",
    "UNIFORM_HINF",
    "GLOBAL_HINF",
    "UNIFORM_MAGNITUDE",
    "GLOBAL_MAGNITUDE",
    "LAMP",
    "AIRE",
    "RANDOM",
    "LAST_REFITTED",
    "SURGEON",
    "named",
    "criteria",
    # allocations
    "Allocation",
    "Scores",
    "Masks",
    "uniform",
    "pooled",
    "layer_adaptive",
    "layer_share",
    "kept_count",
    "descending",
    "energy_normalised",
]
