"""Logarithms of gains, for criteria that judge a state by its own parameters: no size of B or C leaves their range."""

from __future__ import annotations

import numpy as np

from ..arrays import Complex, Real
from ..core.system import DiagonalSystem

SMALLEST, LARGEST = 1e-290, 1e300  # beyond them products of squares have lost digits


def log_gain(system: DiagonalSystem, loss: Real, power: int) -> Real:
    """Return log |B_i|²|C_i|² / loss_i^power of every state (n,); a state without B or C has -inf, whatever its loss.

    Two directions count as the average of their |C_i|², the paper's rule for bidirectional layers (section 3.1, below
    equation 6).
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # what over- or underflows is done again below
        product = _squares(system.B, "ip->i") * _squares(system.C, "dqi->i") / system.directions
        quotient = product / loss**power
        gain: Real = np.log(quotient)
        odd = ~((product > SMALLEST) & (product < LARGEST) & (quotient > SMALLEST) & (quotient < LARGEST))
        if odd.any():  # logarithms before products
            B, C = log_squares(system.B[odd], "ip->i"), log_squares(system.C[:, :, odd], "dqi->i")
            both = B + C - np.log(system.directions)
            gain[odd] = np.where(both > -np.inf, both - power * np.log(loss[odd]), -np.inf)
    return gain


def log_squares(values: Complex, axes: str) -> Real:
    """Return the logarithms of sums of |values|²; `axes` are einsum's, as in "ip->i". Numbers of any size are welcome.

    >>> log_squares(np.array([[3e-200, 4e-200j], [0, 0]]), "ip->i") / np.log(10)
    array([-398.60205999,          -inf])
    """
    others = tuple(place for place, axis in enumerate(axes.split("->")[0]) if axis != axes[-1])
    largest = np.maximum(np.abs(values.real), np.abs(values.imag)).max(axis=others, initial=0, keepdims=True)
    unit = np.where(largest > 0, largest, 1)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(_squares(values / unit, axes)) + 2 * np.log(unit.ravel()), np.float64)


def _squares(values: Complex, axes: str) -> Real:
    source, target = axes.split("->")
    subscripts = f"{source},{source}->{target}"
    with np.errstate(over="ignore"):
        total: Real = np.einsum(subscripts, values.real, values.real)
        total += np.einsum(subscripts, values.imag, values.imag)
    return total
