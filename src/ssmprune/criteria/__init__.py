"""Criteria: what one state of one layer is worth.

A criterion is a function `(system, rng) -> log-scores (n,)` in float64; higher is kept, -inf is worth nothing.
Every public function of a file in this folder is one. Only the random criterion draws from the generator `rng`.
Logarithms, because the scores of one model can span more than a float holds.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

import numpy as np

from .._registry import members
from ..arrays import Complex, Real
from ..system import DiagonalSystem

Criterion = Callable[[DiagonalSystem, np.random.Generator], Real]


def found() -> dict[str, Criterion]:
    """Return every criterion in this folder by name.

    >>> sorted(found())
    ['h2', 'hinf', 'hinf_unit_B', 'magnitude', 'pair_hinf', 'random']
    """
    return {
        name: member
        for module in members(__name__, __path__)
        for name, member in vars(module).items()
        if inspect.isfunction(member) and member.__module__ == module.__name__ and not name.startswith("_")
    }


def squared_norms(system: DiagonalSystem) -> tuple[Real, Real]:
    """Return |B_i|² and |C_i|² of every state, each (n,); two directions count as the average of their |C_i|².

    The average is the paper's rule for bidirectional layers (section 3.1, below equation 6).
    """
    return _squares(system.B, "ip->i"), _squares(system.C, "dqi->i") / system.directions


def _squares(values: Complex, axes: str) -> Real:
    source, target = axes.split("->")
    subscripts = f"{source},{source}->{target}"
    total: Real = np.einsum(subscripts, values.real, values.real)
    total += np.einsum(subscripts, values.imag, values.imag)
    return total
