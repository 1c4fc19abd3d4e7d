"""Exact H-infinity norms of diagonal systems: the largest gain over all frequencies.

Of a complex state alone (closed form, what the paper scores), of the real response of a stored state (its conjugate
included) and of the whole real system, or a part of it: `system.select(keep)`. D u is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Complex, Index, Mask, Real, join_parts
from ..errors import InputError
from .system import DiagonalSystem

RTOL = 1e-6  # a searched H-infinity norm N promises N <= true norm <= (1 + RTOL) N ...
FLOOR = 1e-12  # ... unless it is below this part of the sum of the states' norms, where rounding takes over
ORDER = 8  # of the local Taylor series; what states cancel of each other is seen below this order, not above
EXTREME = 200  # powers of two within which no square or product of B and C leaves the range of floats
NONE = -(10**6)  # the exponent of zero
BLOCK = 2**21  # numbers in one temporary array


def state_hinf(system: DiagonalSystem) -> Real:
    """Return |C_i||B̄_i| / (1 - |λ̄_i|), the H-infinity norm of every complex state alone (n,).

    Two directions enter as the root mean square of their |C_i|, the paper's rule: a score. What a state really adds to
    a layer, forward and backward together, has the norm `pair_hinf`.

    >>> state_hinf(DiagonalSystem.from_discrete(poles=[0.5, 0.9j], B=[[1], [1]], C=[[1, 2]]))
    array([ 2., 20.])
    """
    _require_stable(system)
    system, exponents = of_unit_size(system)
    gains = _norm(system.C, (0, 1)) * _norm(system.B, 1) / np.sqrt(system.directions)
    return np.asarray(np.ldexp(gains / -np.expm1(system.log_poles.real), exponents), np.float64)


def pair_hinf(system: DiagonalSystem) -> Real:
    """Return the H-infinity norm of every stored state's real response (n,), to `RTOL`.

    G_i(θ) = gain/2 (C_i B̄_i / (1 - λ̄_i e^{-jθ}) + conjugate pole), a backward direction added at -θ. Their sum bounds
    the norm of the whole system; the sum of the complex norms does not.

    >>> pair_hinf(DiagonalSystem.from_discrete(poles=[0.5, 0.5], B=[[1], [1]], C=[[1, 1j]], gain=2))
    array([4., 0.])
    """
    system, exponents = of_unit_size(system)
    return np.ldexp(_largest_gains(_bank_of_states(system), shared=False)[0], exponents)


def hinf(system: DiagonalSystem) -> tuple[float, float]:
    """Return the H-infinity norm of the real system and a frequency θ in [0, π] that attains it, to `RTOL`.

    The largest singular value of the response, certified over all frequencies; for multi-SISO over all channels.

    >>> hinf(DiagonalSystem.from_discrete(poles=[-0.5, 0.25], B=[[1], [1]], C=[[1, 0.625]]))
    (2.5, 3.141592653589793)
    """
    if system.n == 0:
        return 0.0, 0.0
    system, exponents = of_unit_size(system, together=True)
    norms, thetas = _largest_gains(_bank_of_system(system), shared=True)
    return float(np.ldexp(norms.max(), exponents[0])), float(thetas[norms.argmax()])


def of_unit_size(system: DiagonalSystem, together: bool = False) -> tuple[DiagonalSystem, Index]:
    """Divide extreme B and C by powers of two; return that system, and the exponents (n,) by which its gains changed.

    Products of squares of numbers like 1e-90 or 1e80 leave the range of floats. The gain of state i is 2^exponents[i]
    times its gain in the system returned; with `together` all states are divided alike.

    >>> system, exponents = of_unit_size(DiagonalSystem.from_discrete([0.5], B=[[2.0**-300]], C=[[3]]))
    >>> system.B.real, exponents
    (array([[1.]]), array([-300]))
    """
    B, C = _exponents(system.B.T), _exponents(np.concatenate(list(system.C)))
    if together:
        B, C = (np.full_like(exponents, exponents.max(initial=NONE)) for exponents in (B, C))
    B, C = (np.where((np.abs(exponents) > EXTREME) & (exponents > NONE), exponents, 0) for exponents in (B, C))
    if not (B.any() or C.any()):
        return system, B
    return replace(system, B=_divide(system.B, B[:, None]), C=_divide(system.C, C)), B + C


def _exponents(columns: Complex) -> Index:
    """Return k with 2^k <= the largest part of each column (rows, n) < 2^(k + 1); NONE for columns of zeros."""
    largest = np.maximum(np.abs(columns.real), np.abs(columns.imag)).max(axis=0, initial=0)
    return np.where(largest > 0, np.frexp(largest)[1] - 1, NONE).astype(np.int64)


def _divide(values: Complex, exponents: Index) -> Complex:
    return join_parts(np.ldexp(values.real, -exponents), np.ldexp(values.imag, -exponents))


def _require_stable(system: DiagonalSystem) -> None:
    if (outside := system.unstable_states).any():
        raise InputError(
            f"A norm is finite only if every pole lies inside the unit circle; {outside.sum()} of {system.n} do not, "
            f"first state {outside.argmax()}. Take the stable part: system.select(~system.unstable_states)."
        )


@dataclass(frozen=True, eq=False)
class _Bank:
    """Independent real systems side by side, g of them, each with m states in one or two directions.

    With ρ_i = 1/(1 - λ_i e^{-jθ}) and ρ'_i of the conjugate pole, a state with the residue R_i = C_i B_i answers
    ρ_i R_i + ρ'_i R_i* = α_i Re R_i + β_i Im R_i, where α_i = ρ_i + ρ'_i and β_i = j(ρ_i - ρ'_i).
    """

    log_poles: Complex  # (g, poles): the states' m and their m conjugates
    B: Complex  # (g, directions m, inputs)
    C: Complex  # (g, outputs, directions m), gain/2 included
    weights: Real  # (g, poles): |R_i| of both directions together
    directions: int
    backward_delay: int

    @cached_property
    def frobenius(self) -> Real:
        """A matrix F with |G|_F = |F (α, β)|, or slightly more if it is the root of a Gram matrix, (g, rank, terms)."""
        g, outputs, count = self.C.shape
        if outputs * self.B.shape[2] <= 4 * count:
            residues = (self.C[:, :, None] * self.B.swapaxes(1, 2)[:, None]).reshape(g, -1, count)
            return np.concatenate([residues.real, residues.imag], axis=2)
        Ct, Bt = self.C.swapaxes(1, 2), self.B.swapaxes(1, 2)
        same, mixed = (Ct.conj() @ self.C) * (self.B.conj() @ Bt), (Ct @ self.C) * (self.B @ Bt)  # tr RᴴR', tr RᵀR'
        gram = np.block([[(same + mixed).real, (same + mixed).imag], [(mixed - same).imag, (same - mixed).real]])
        size = np.tile(np.sqrt(np.einsum("gii->gi", same).real), 2)
        size[size == 0] = 1
        gram /= 2 * size[:, :, None] * size[:, None]
        gram += 128 * count * np.finfo(float).eps * np.eye(2 * count)  # above rounding: never singular or too small
        return np.asarray(np.linalg.cholesky(gram).swapaxes(1, 2) * size[:, None], np.float64)

    def moebius(self, owner: Index, theta: Real, x: Real) -> tuple[Complex, Complex]:
        """Return γ and u, each (t, poles), of ρ = 1/γ - (2j x λ e^{-jθ}/γ²) s/(1 - u s), where tan((θ' - θ)/2) = x s.

        γ = 1 - λ e^{-jθ} and u = -j x (2 - γ)/γ, both without cancellation next to the pole, which lies at s = 1/u.
        """
        exponent = _entries(self.log_poles, owner) - 1j * theta[:, None]
        gamma: Complex = -np.expm1(exponent)
        return gamma, join_parts(-2 * gamma.imag, np.expm1(2 * exponent.real)) * (x[:, None] / np.abs(gamma) ** 2)

    def terms(self, theta: Real, x: Real, gamma: Complex, u: Complex, order: int) -> Complex:
        """Return the Taylor coefficients in s of all α, then all β, (t, terms, order): geometric series.

        Backward in time α and β are the conjugates; a delay e^{jθ'} takes the factor λ e^{-jθ} = 1 - γ out of them.
        """
        series = np.repeat(u[..., None], order - 1, axis=2)
        series[..., :1] = (-2j * x[:, None] / gamma**2)[..., None]
        series.cumprod(axis=2, out=series)
        ways = [np.concatenate([1 / gamma[..., None], (1 - gamma)[..., None] * series], axis=2)] * self.directions
        if self.directions == 2 and self.backward_delay:
            ways[1] = np.concatenate([1 / gamma[..., None], series], axis=2) * np.exp(-1j * theta)[:, None, None]
        pairs = (np.split(rho, 2, axis=1) for rho in ways)
        parts = [np.stack([rho + conjugate, 1j * (rho - conjugate)], axis=1) for rho, conjugate in pairs]
        parts[1:] = [part.conj() for part in parts[1:]]
        return np.concatenate(parts, axis=2).reshape(len(theta), 2 * self.C.shape[2], order)

    def gains(self, owner: Index, theta: Real) -> Real:
        """Return the largest singular value of G_owner(θ), (t,)."""
        x, B, C = np.zeros_like(theta), _entries(self.B, owner), _entries(self.C, owner)
        alpha, beta = np.split(self.terms(theta, x, *self.moebius(owner, theta, x), order=1), 2, axis=1)
        rows = np.concatenate([alpha * B.real + beta * B.imag, beta * B.real - alpha * B.imag], axis=1)
        # a real matrix times a complex matrix, here and below in real numbers: half the work
        G = (np.concatenate([C.real, C.imag], axis=2) @ rows.view(np.float64)).view(np.complex128)
        return np.abs(G[:, 0, 0]) if G.shape[1:] == (1, 1) else np.asarray(np.linalg.norm(G, ord=2, axis=(1, 2)))


def _bank(system: DiagonalSystem, log_poles: Complex, B: Complex, C: Complex) -> _Bank:
    """Build g systems of m states from log_poles (g, m), B (g, m, inputs) and C (g, directions, outputs, m)."""
    _require_stable(system)
    poles = np.concatenate([log_poles, log_poles.conj()], axis=1)
    B = np.ascontiguousarray(np.tile(_rotate(B.swapaxes(1, 2)).swapaxes(1, 2), (1, system.directions, 1)))
    C = _rotate(np.concatenate(list(C.swapaxes(0, 1)), axis=2)) * (system.gain / 2)
    weights = np.tile(sum(np.split(_norm(C, 1) * _norm(B, 2), system.directions, axis=1)), 2)
    return _Bank(poles, B, C, weights, system.directions, system.backward_delay)


def _rotate(columns: Complex) -> Complex:
    """Turn columns (g, width, count) into (g, 2 count, count) if that is narrower: no product of two changes."""
    count = columns.shape[2]
    if columns.shape[1] <= 2 * count:
        return columns
    parts = np.linalg.qr(np.concatenate([columns.real, columns.imag], axis=2)).R
    return join_parts(parts[..., :count], parts[..., count:])


def _bank_of_states(system: DiagonalSystem) -> _Bank:
    """Return every stored state as a system of its own."""
    return _bank(system, system.log_poles[:, None], system.B[:, None], system.C.transpose(2, 0, 1)[..., None])


def _bank_of_system(system: DiagonalSystem) -> _Bank:
    """Return the system itself; of a multi-SISO system every channel with states, filled up with silent states."""
    if system.channel is None:
        return _bank(system, system.log_poles[None], system.B[None], system.C[None])
    layout, owners = system.layout, np.unique(system.channel)
    log_poles, B = layout.spread(system.log_poles, fill=-1)[owners], layout.spread(system.B)[owners]
    C = layout.spread(system.C.transpose(2, 0, 1))[owners]  # (channels, slots, directions, 1)
    return _bank(system, log_poles, B, C.transpose(0, 2, 3, 1))


def _largest_gains(bank: _Bank, shared: bool) -> tuple[Real, Real]:
    """Return the H-infinity norm of every system and where it is attained, each (g,), by branch and bound over θ.

    An interval is settled once an upper bound of its gains does not exceed the best gain seen; others are cut in two.
    If `shared`, only the largest norm of all matters, and systems far below it are settled early.
    """
    owner, measure = np.arange(len(bank.C)), partial(_in_blocks, bank.gains, bank.B[:1].size)
    edges = np.tile([[0.0], [np.pi]], len(owner))
    ends = np.stack([edges.T, np.stack([measure(owner, edge) for edge in edges], axis=1)], axis=2)
    best, thetas = ends[..., 1].max(axis=1), np.where(ends[:, 1, 1] > ends[:, 0, 1], np.pi, 0.0)
    rounding = FLOOR * (bank.weights / -np.expm1(bank.log_poles.real)).sum(axis=1)
    while len(owner):
        target = ((best.max() if shared else best) * (1 + RTOL) + rounding)[owner]
        cut = _in_blocks(partial(_cuts, bank), 4 * ORDER * bank.C.shape[2], owner, ends, target)
        alive = ~np.isnan(cut)
        owner, ends, cut = owner[alive], ends[alive], cut[alive]
        gain = measure(owner, cut)
        better = np.argsort(gain)  # ascending, so that of several the largest is written last
        better = better[gain[better] > best[owner[better]]]
        best[owner[better]], thetas[owner[better]] = gain[better], cut[better]
        owner, ends = np.tile(owner, 2), np.tile(ends, (2, 1, 1))
        ends[: len(cut), 1] = ends[len(cut) :, 0] = np.column_stack([cut, gain])
    return best, thetas


def _cuts(bank: _Bank, owner: Index, ends: Real, target: Real) -> Real:
    """Return where to cut each interval, NaN where no gain in it exceeds `target`; `ends` are θ and gain, (t, 2, 2).

    In s of `_Bank.moebius` the interval is [-1, 1] and G = Σ_j G_j s^j. Three upper bounds, from cheap to tight: the
    sum of the largest |ρ_i|; Σ_j |G_j| and a tail; and, since the largest singular value is convex in G, the larger
    of both ends plus what G deviates from a straight line between them, Σ_{j>=2} |G_j| and twice the tail.
    """
    start, stop = ends[..., 0].T
    middle, x = (start + stop) / 2, np.tan((stop - start) / 4)
    gamma, u = bank.moebius(owner, middle, x)
    along, away, length = np.abs(u.real), np.abs(u.imag), np.maximum(np.abs(u), 1e-150)
    nearest = np.where(along < length**2, away / length, np.hypot(1 - along, away))  # the least |1 - u s|
    peaks = _entries(bank.weights, owner) / (np.abs(gamma) * nearest)
    tails = peaks * (2 * x[:, None] / np.abs(gamma)) * np.abs(u) ** (ORDER - 1)
    tail = tails.sum(axis=1)
    cut = middle + 2 * np.arctan(x * _halved_view(u[np.arange(len(u)), tails.argmax(axis=1)]))
    cut = np.where((start < cut) & (cut < stop), cut, middle)
    settled: Mask = (np.hypot(1, x) * peaks.sum(axis=1) <= target) | (cut <= start) | (cut >= stop)
    near = np.flatnonzero(~settled & (2 * tail <= target))  # with a longer tail the other bounds cannot settle it
    terms = bank.terms(middle[near], x[near], gamma[near], u[near], ORDER)
    images = _entries(bank.frobenius, owner[near]) @ terms.view(np.float64)
    orders = _norm(images.view(np.complex128), 1)  # |G_j|, (t, order)
    around = orders.sum(axis=1) + tail[near]
    between = ends[near, :, 1].max(axis=1) + orders[:, 2:].sum(axis=1) + 2 * tail[near]
    settled[near] = np.minimum(around, between) <= target[near]
    return np.where(settled, np.nan, cut)


def _halved_view(u: Complex) -> Real:
    """Return s halving the angle under which the pole 1/u sees [-1, 1]: its peak if within, the middle if far, (t,)."""
    pole = 1 / np.where(np.abs(u) > 1e-6, u, 1e-6)
    along, away = pole.real, np.abs(pole.imag)
    angle: Real = (np.arctan2(1 - along, away) - np.arctan2(1 + along, away)) / 2
    return np.asarray(np.clip(along + away * np.tan(angle), -1, 1), np.float64)


def _in_blocks(function: Callable[..., Real], size: int, *arrays: NDArray[Any]) -> Real:
    """Apply a function that needs `size` numbers per row to all rows of the arrays, about `BLOCK` numbers at a time."""
    step = 1 + BLOCK // (1 + size)
    starts = range(0, len(arrays[0]), step)
    return np.concatenate([np.zeros(0), *(function(*(a[i : i + step] for a in arrays)) for i in starts)])


def _entries(array: NDArray[Any], owner: Index) -> NDArray[Any]:
    """Return each owner's entry; a bank of one broadcasts instead of being copied."""
    return array if len(array) == 1 else array[owner]


def _norm(array: NDArray[Any], axis: int | tuple[int, int]) -> Real:
    return np.asarray(np.linalg.norm(array, axis=axis), np.float64)
