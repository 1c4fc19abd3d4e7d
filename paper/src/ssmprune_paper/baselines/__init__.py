"""Baselines that are not ways to prune states: what a sweep compares the methods with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssmprune.sweeps import PruneStates, Rebuild

from . import as_released
from .h2_optimal import h2_optimal_model

if TYPE_CHECKING:
    from ssmprune.models import Classifier


def _prune_elements(model: Classifier, ratio: float, seed: int) -> Classifier:
    from .unstructured import unstructured_random  # needs torch, which listing the approaches should not load

    return unstructured_random(model, ratio, seed)


LAST_AS_RELEASED = PruneStates(
    as_released.LAST_AS_RELEASED.name,
    as_released.LAST_AS_RELEASED,
    description="LAST by the formula of its released code, which is not always that of the paper.",
)
AIRE_AS_RELEASED = PruneStates(
    as_released.AIRE_AS_RELEASED.name,
    as_released.AIRE_AS_RELEASED,
    description="AIRE by the formula of its released code.",
)
UNSTRUCTURED_RANDOM = Rebuild(
    "unstructured-random",
    _prune_elements,
    random=True,
    description="Single numbers at random instead of whole states.",
)
H2_OPTIMAL = Rebuild(
    "h2-optimal",
    lambda model, ratio, seed: h2_optimal_model(model, ratio),
    description="New states, fitted for the smallest average error, instead of a choice among the old ones.",
)
APPROACHES = [LAST_AS_RELEASED, AIRE_AS_RELEASED, UNSTRUCTURED_RANDOM, H2_OPTIMAL]
