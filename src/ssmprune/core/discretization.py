"""Discretisations: from continuous poles and steps to discrete log-poles, without losing slow poles to rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from ..arrays import Complex, Real, join_parts

Discretization: TypeAlias = Callable[[Complex, Real], tuple[Complex, Complex]]


def zoh(lam: Complex, step: Real) -> tuple[Complex, Complex]:
    """Hold inputs over a step: return log-poles λΔ and the factors (exp(λΔ) - 1)/λ that make B discrete.

    >>> log_poles, factor = zoh(np.array([-1 + 0j, 0j]), np.array([0.1, 0.1]))
    >>> log_poles.real, factor.real.round(6)
    (array([-0.1,  0. ]), array([0.095163, 0.1     ]))
    """
    log_poles = lam * step
    still = lam == 0
    factor = np.where(still, step, np.expm1(log_poles) / np.where(still, 1, lam))
    return log_poles, factor


def bilinear(lam: Complex, step: Real) -> tuple[Complex, Complex]:
    """Apply Tustin's rule: return the logarithms of (1 + w)/(1 - w) with w = λΔ/2, and the factors Δ/(1 - w) of B.

    Re log((1+w)/(1-w)) = ½ log1p(4a/((1-a)² + b²)) with w = a + jb keeps every digit of a slow pole; for a fast
    pole, near w = -1, the logarithms of both distances do.

    >>> log_poles, factor = bilinear(np.array([-1e-9 + 0j]), np.array([1.0]))
    >>> print(f"{log_poles.real[0]:.12g}")
    -1e-09
    >>> log_poles, factor = bilinear(np.array([-2 + 2e-12]), np.array([1.0]))
    >>> print(f"{np.exp(log_poles.real[0]):.4g}")
    5e-13
    """
    w = lam * step / 2
    a, b = w.real, w.imag
    squared = 4 * a / ((1 - a) ** 2 + b**2)  # |pole|² - 1
    with np.errstate(divide="ignore"):  # w = -1 is a legal pole at 0, whose logarithm is -inf
        fast = np.log(np.hypot(1 + a, b)) - np.log(np.hypot(1 - a, b))
        decay = np.where(squared < -0.5, fast, 0.5 * np.log1p(np.maximum(squared, -0.5)))
    angle = np.arctan2(b, 1 + a) + np.arctan2(b, 1 - a)
    return join_parts(decay, angle), step / (1 - w)


DISCRETIZATIONS: dict[str, Discretization] = {"zoh": zoh, "bilinear": bilinear}
