"""Random scores: the baseline every criterion has to beat."""

from __future__ import annotations

import numpy as np

from ..arrays import Real
from ..core.system import DiagonalSystem
from .method import Evidence


def random(system: DiagonalSystem, evidence: Evidence) -> Real:
    """Return independent uniform draws as log-scores, so that every order of the states is equally likely."""
    return np.log1p(-evidence.rng.random(system.n))  # in (-inf, 0]; 1 - u is never 0, so no state is worth nothing
