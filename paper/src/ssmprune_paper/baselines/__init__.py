"""Baselines that are not ways to prune states: what a sweep compares the methods with."""

from ssmprune.sweeps.approaches import PruneStates, Rebuild

from . import as_released
from .h2_optimal import h2_optimal_model
from .unstructured import unstructured_random

LAST_AS_RELEASED = PruneStates(as_released.LAST_AS_RELEASED.name, as_released.LAST_AS_RELEASED)
AIRE_AS_RELEASED = PruneStates(as_released.AIRE_AS_RELEASED.name, as_released.AIRE_AS_RELEASED)
UNSTRUCTURED_RANDOM = Rebuild("unstructured-random", unstructured_random, random=True)
H2_OPTIMAL = Rebuild("h2-optimal", lambda model, ratio, seed: h2_optimal_model(model, ratio))
