"""Exact norms of diagonal systems: H-infinity, the largest gain over all frequencies, and H2, the impulse response's.

Each comes for three things: the complex state alone (closed form, what the paper scores), the real response of one
stored state (its conjugate included: what it does in the layer) and the whole real system. For a part of a system take
`system.select(keep)` first. The feed-through D u is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import Complex, Index, Mask, Real
from .errors import InputError
from .system import DiagonalSystem

RTOL = 1e-6  # a searched H-infinity norm N promises N <= true norm <= (1 + RTOL) N ...
FLOOR = 1e-12  # ... unless it is below this part of the sum of the states' norms, where rounding takes over
ORDER = 8  # of the local Taylor series; cancellation between states is seen below this order, not above
BLOCK = 2**21  # numbers in one temporary array


def state_hinf(system: DiagonalSystem) -> Real:
    """Return |C_i||B̄_i| / (1 - |λ̄_i|), the H-infinity norm of every complex state alone (n,).

    Two directions enter as the root mean square of their |C_i|, the paper's rule. That is a score: the norm of what
    a state adds to a layer, forward and backward together, is `pair_hinf`.

    >>> state_hinf(DiagonalSystem.from_discrete(poles=[0.5, 0.9j], B=[[1], [1]], C=[[1, 2]]))
    array([ 2., 20.])
    """
    _require_stable(system)
    return _rank_one(system) / -np.expm1(system.log_poles.real)


def state_h2(system: DiagonalSystem) -> Real:
    """Return |C_i||B̄_i| / sqrt(1 - |λ̄_i|²), the H2 norm of every complex state alone (n,); directions as above."""
    _require_stable(system)
    return _rank_one(system) / np.sqrt(-np.expm1(2 * system.log_poles.real))


def pair_hinf(system: DiagonalSystem) -> Real:
    """Return the H-infinity norm of every stored state's real response (n,), to `RTOL`.

    G_i(θ) = gain/2 (C_i B̄_i / (1 - λ̄_i e^{-jθ}) + conjugate pole), a backward direction added at -θ. Their sum bounds
    the norm of the whole system; the sum of the complex norms does not.

    >>> pair_hinf(DiagonalSystem.from_discrete(poles=[0.5, 0.5], B=[[1], [1]], C=[[1, 1j]], gain=2))
    array([4., 0.])
    """
    _require_stable(system)
    return _largest_gains(_each(system), shared=False)[0]


def pair_h2(system: DiagonalSystem) -> Real:
    """Return the H2 norm of every stored state's real response (n,).

    >>> pair_h2(DiagonalSystem.from_discrete(poles=[0.0, 0.6], B=[[1], [1]], C=[[1, 1]], gain=2))
    array([2. , 2.5])
    """
    _require_stable(system)
    return np.sqrt(_energies(_each(system)))


def hinf(system: DiagonalSystem) -> tuple[float, float]:
    """Return the H-infinity norm of the real system and a frequency θ in [0, π] that attains it, to `RTOL`.

    The largest singular value of the response, certified over all frequencies; of a multi-SISO system the largest
    over its channels.

    >>> hinf(DiagonalSystem.from_discrete(poles=[-0.5, 0.25], B=[[1], [1]], C=[[1, 0.625]]))
    (2.5, 3.141592653589793)
    """
    _require_stable(system)
    if system.n == 0:
        return 0.0, 0.0
    norms, thetas = _largest_gains(_whole(system), shared=True)
    return float(norms.max()), float(thetas[norms.argmax()])


def h2(system: DiagonalSystem) -> float:
    """Return the H2 norm of the real system, sqrt(Σ_k |h_k|²) over its impulse response h (Frobenius norms).

    >>> h2(DiagonalSystem.from_discrete(poles=[0.6], B=[[1]], C=[[2]]))
    2.5
    """
    _require_stable(system)
    return float(np.sqrt(_energies(_whole(system)).sum())) if system.n else 0.0


def _require_stable(system: DiagonalSystem) -> None:
    if system.unstable_states.any():
        raise InputError(
            f"A norm is finite only if every pole lies inside the unit circle; {system.unstable_states.sum()} of "
            f"{system.n} do not, the first is state {system.unstable_states.argmax()}. Take the stable part: "
            f"system.select(~system.unstable_states)."
        )


def _rank_one(system: DiagonalSystem) -> Real:
    """|C_i||B̄_i|, with the root mean square over directions for |C_i|, (n,)."""
    return _norm(system.C, axis=(0, 1)) / np.sqrt(system.directions) * _norm(system.B, axis=1)


@dataclass(frozen=True, eq=False)
class _Bank:
    """Independent real systems side by side, g of them, each with m states in one or two directions.

    With ρ_i = 1/(1 - λ_i e^{-jθ}) and ρ'_i of the conjugate pole, a state with the residue R_i = C_i B_i answers
    ρ_i R_i + ρ'_i R_i* = α_i Re R_i + β_i Im R_i, where α_i = ρ_i + ρ'_i and β_i = j(ρ_i - ρ'_i).
    """

    log_poles: Complex  # (g, poles): the states' m and their m conjugates
    B: Complex  # (g, directions m, inputs)
    C: Complex  # (g, outputs, directions m), gain/2 included
    directions: int
    backward_delay: int

    @cached_property
    def sizes(self) -> Real:
        """|R_i|, (g, directions m)."""
        return _norm(self.C, axis=1) * _norm(self.B, axis=2)

    @cached_property
    def weights(self) -> Real:
        """|R_i| of both directions together, for every pole, (g, poles)."""
        return np.tile(self.sizes.reshape(len(self.sizes), self.directions, -1).sum(axis=1), 2)

    @cached_property
    def grams(self) -> tuple[Complex, Complex]:
        """tr(R_i^H R_j) and tr(R_i^T R_j), each (g, directions m, directions m)."""
        Ct, Bt = _transposed(self.C), _transposed(self.B)
        return (Ct.conj() @ self.C) * (self.B.conj() @ Bt), (Ct @ self.C) * (self.B @ Bt)

    @cached_property
    def frobenius(self) -> Real:
        """A matrix F with |G|_F = |F (α, β)|, or slightly more if it is the root of a Gram matrix, (g, rank, terms)."""
        g, outputs, count = self.C.shape
        if outputs * self.B.shape[2] <= 4 * count:
            residues = (self.C[:, :, None] * _transposed(self.B)[:, None]).reshape(g, -1, count)
            return np.concatenate([residues.real, residues.imag], axis=2)
        size = np.tile(np.where(self.sizes > 0, self.sizes, 1), 2)
        (same, mixed), eps = self.grams, np.finfo(float).eps
        both, difference = same + mixed, same - mixed
        gram = np.block([[both.real, both.imag], [-difference.imag, difference.real]]) / 2
        gram /= size[:, :, None] * size[:, None, :]
        gram += 128 * count * eps * np.eye(2 * count)  # above rounding: the root exists and is never too small
        return _transposed(np.linalg.cholesky(gram)) * size[:, None]

    def denominators(self, owner: Index, theta: Real) -> Complex:
        """γ_i = 1 - λ_i e^{-jθ}, exact next to the pole, (t, poles)."""
        gamma: Complex = -np.expm1(_of(self.log_poles, owner) - 1j * theta[:, None])
        return gamma

    def terms(self, theta: Real, gamma: Complex, x: Real, order: int) -> Complex:
        """Return the Taylor coefficients of all α, then all β, in s, where tan((θ' - θ)/2) = x s, (t, terms, order).

        In s, ρ is a Möbius function, 1/γ - (2j x λ e^{-jθ}/γ²) s/(1 - u s), so its series is geometric. The backward
        response of a pole is the conjugate of its conjugate's; a delay e^{jθ'} takes λ e^{-jθ} = 1 - γ out of it.
        """
        series = np.repeat(_ratio(gamma, x)[..., None], order - 1, axis=2)
        series[..., :1] = (-2j * x[:, None] / gamma**2)[..., None]
        series.cumprod(axis=2, out=series)
        rho = np.concatenate([1 / gamma[..., None], (1 - gamma)[..., None] * series], axis=2)
        rho, conjugate = np.split(rho, 2, axis=1)
        if self.directions == 2:
            back = np.concatenate([1 / gamma[..., None], series], axis=2) * np.exp(-1j * theta)[:, None, None]
            mirror = np.split(back.conj(), 2, axis=1) if self.backward_delay else (rho.conj(), conjugate.conj())
            rho, conjugate = np.concatenate([rho, mirror[1]], axis=1), np.concatenate([conjugate, mirror[0]], axis=1)
        return np.concatenate([rho + conjugate, 1j * (rho - conjugate)], axis=1)

    def gains(self, owner: Index, theta: Real) -> Real:
        """Largest singular value of G_owner(θ), (t,)."""
        terms = self.terms(theta, self.denominators(owner, theta), np.zeros(len(theta)), order=1)
        (alpha, beta), B, C = np.split(terms, 2, axis=1), _of(self.B, owner), _of(self.C, owner)
        rows = np.concatenate([alpha * B.real + beta * B.imag, beta * B.real - alpha * B.imag], axis=1)
        # a real matrix times a complex one, done in real numbers: half the work
        G = (np.concatenate([C.real, C.imag], axis=2) @ rows.view(np.float64)).view(np.complex128)
        if 1 in G.shape[1:]:
            return _norm(G, axis=(1, 2))
        G = G if G.shape[1] > G.shape[2] else _transposed(G)
        squares: Real = np.linalg.eigvalsh(_transposed(G).conj() @ G)[:, -1]
        return np.sqrt(np.maximum(squares, 0))


def _bank(system: DiagonalSystem, log_poles: Complex, B: Complex, C: Complex) -> _Bank:
    """Build g systems of m states from log_poles (g, m), B (g, m, inputs) and C (g, directions, outputs, m)."""
    poles = np.concatenate([log_poles, log_poles.conj()], axis=1)
    B = np.tile(_transposed(_rotated(_transposed(B))), (1, system.directions, 1))
    C = _rotated(np.concatenate(list(C.swapaxes(0, 1)), axis=2)) * (system.gain / 2)
    return _Bank(poles, B, C, system.directions, system.backward_delay)


def _rotated(columns: Complex) -> Complex:
    """Turn columns (g, width, count) into (g, 2 count, count) if that is narrower: no product of two changes."""
    g, width, count = columns.shape
    if width <= 2 * count:
        return columns
    parts = np.linalg.qr(np.concatenate([columns.real, columns.imag], axis=2)).R
    return parts[..., :count] + 1j * parts[..., count:]


def _each(system: DiagonalSystem) -> _Bank:
    """Every stored state as a system of its own."""
    return _bank(system, system.log_poles[:, None], system.B[:, None], system.C.transpose(2, 0, 1)[..., None])


def _whole(system: DiagonalSystem) -> _Bank:
    """The system itself; of a multi-SISO system every channel that owns states, filled up with silent ones."""
    if system.channel is None:
        return _bank(system, system.log_poles[None], system.B[None], system.C[None])
    order = np.argsort(system.channel, kind="stable")
    _, first, row, counts = np.unique(system.channel[order], True, True, True)
    place = row, np.arange(system.n) - first[row]
    log_poles = np.full((len(counts), counts.max()), -1, np.complex128)
    B = np.zeros((*log_poles.shape, 1), np.complex128)
    C = np.zeros((*log_poles.shape, system.directions, 1), np.complex128)
    log_poles[place], B[place], C[place] = system.log_poles[order], system.B[order], system.C.transpose(2, 0, 1)[order]
    return _bank(system, log_poles, B, C.transpose(0, 2, 3, 1))


def _energies(bank: _Bank) -> Real:
    """Squared H2 norm of every system, (g,).

    The impulse response is 2 Re z_k with z_k = Σ_i R_i λ_i^k, its square 2 (|z_k|² + Re z_k²): geometric series in k.
    Forward and backward responses meet at lag 0 alone, and with a backward delay nowhere.
    """
    m, d = bank.log_poles.shape[1] // 2, bank.directions
    kernels = -1 / np.expm1(bank.log_poles[:, :, None] + bank.log_poles[:, None, :m])  # conjugates in the second half
    same, mixed = (gram.reshape(-1, d, m, d, m) for gram in bank.grams)
    total = np.einsum("gdidj,gij->g", same, kernels[:, m:]) + np.einsum("gdidj,gij->g", mixed, kernels[:, :m])
    if d == 2 and bank.backward_delay == 0:
        total += 2 * (same + mixed)[:, 0, :, 1].sum(axis=(1, 2))
    return np.maximum(2 * total.real, 0)


def _largest_gains(bank: _Bank, shared: bool) -> tuple[Real, Real]:
    """Return the H-infinity norm of every system and where it is attained, each (g,), by branch and bound over θ.

    An interval is settled once an upper bound of its gains does not exceed the best gain seen; others are cut in two.
    If `shared`, only the largest norm of all matters, and systems far below it are settled early.
    """
    measure = partial(_in_blocks, bank.gains, bank.B[0].size)
    owner = np.arange(len(bank.log_poles))
    edges = np.tile([0.0, np.pi], (len(owner), 1))
    gains = np.stack([measure(owner, edge) for edge in edges.T], axis=1)
    best, thetas = gains.max(axis=1), np.where(gains[:, 1] > gains[:, 0], np.pi, 0.0)
    rounding = FLOOR * (bank.weights / -np.expm1(bank.log_poles.real)).sum(axis=1)
    while len(owner):
        target = ((best.max() if shared else best) * (1 + RTOL) + rounding)[owner]
        cut = _in_blocks(partial(_cuts, bank), 4 * ORDER * bank.C.shape[2], owner, edges, gains, target)
        alive = ~np.isnan(cut)
        owner, edges, gains, cut = owner[alive], edges[alive], gains[alive], cut[alive]
        gain = measure(owner, cut)
        better = np.argsort(gain)  # ascending, so that of several the largest is written last
        better = better[gain[better] > best[owner[better]]]
        best[owner[better]], thetas[owner[better]] = gain[better], cut[better]
        owner, edges, gains = np.tile(owner, 2), _halves(edges, cut), _halves(gains, gain)
    return best, thetas


def _cuts(bank: _Bank, owner: Index, edges: Real, gains: Real, target: Real) -> Real:
    """Return where to cut each interval (t, 2), NaN where no gain in it exceeds `target`.

    In s of `_Bank.terms` the interval is [-1, 1] and G = Σ_j G_j s^j. Three upper bounds, from cheap to tight: the
    sum of the largest |ρ_i|; Σ_j |G_j| and a tail; and, since the largest singular value is convex in G, the larger
    of both ends plus what G deviates from a straight line between them, Σ_{j>=2} |G_j| and twice the tail.
    """
    middle, x = edges.mean(axis=1), np.tan((edges[:, 1] - edges[:, 0]) / 4)
    gamma = bank.denominators(owner, middle)
    u, size = _ratio(gamma, x), np.abs(gamma)
    nearest = np.clip(u.real / np.maximum(np.abs(u) ** 2, 1e-300), -1, 1)  # where |1 - u s| is smallest
    peaks = _of(bank.weights, owner) / (size * np.abs(1 - u * nearest))
    tails = peaks * (2 * x[:, None] / size) * np.abs(u) ** (ORDER - 1)
    tail = tails.sum(axis=1)
    cut = middle + 2 * np.arctan(x * _halved_view(u[np.arange(len(u)), tails.argmax(axis=1)]))
    cut = np.where((edges[:, 0] < cut) & (cut < edges[:, 1]), cut, middle)
    settled: Mask = (np.hypot(1, x) * peaks.sum(axis=1) <= target) | (cut <= edges[:, 0]) | (cut >= edges[:, 1])
    near = np.flatnonzero(~settled & (2 * tail <= target))  # with a longer tail the other bounds cannot settle it
    terms = bank.terms(middle[near], gamma[near], x[near], ORDER)
    orders = _norm((_of(bank.frobenius, owner[near]) @ terms.view(np.float64)).view(np.complex128), axis=1)  # |G_j|
    around = orders.sum(axis=1) + tail[near]
    between = gains[near].max(axis=1) + orders[:, 2:].sum(axis=1) + 2 * tail[near]
    settled[near] = np.minimum(around, between) <= target[near]
    return np.where(settled, np.nan, cut)


def _ratio(gamma: Complex, x: Real) -> Complex:
    """u of the series in `_Bank.terms`, (t, poles): the pole lies at s = 1/u."""
    return -1j * x[:, None] * (2 - gamma) / gamma


def _halved_view(u: Complex) -> Real:
    """Return s halving the angle under which the pole 1/u sees [-1, 1]: its peak if within, the middle if far, (t,)."""
    pole = 1 / np.where(np.abs(u) > 1e-6, u, 1e-6)
    along, away = pole.real, np.abs(pole.imag)
    angle: Real = (np.arctan2(1 - along, away) - np.arctan2(1 + along, away)) / 2
    return np.clip(along + away * np.tan(angle), -1, 1)


def _halves(ends: Real, middle: Real) -> Real:
    """Cut (t, 2) ends at their middle (t,): first all left halves, then all right ones."""
    return np.concatenate([np.column_stack([ends[:, 0], middle]), np.column_stack([middle, ends[:, 1]])])


def _in_blocks(function: Callable[..., Real], size: int, *arrays: NDArray[Any]) -> Real:
    """Apply a function that needs `size` numbers per row to all rows of the arrays, about `BLOCK` numbers at a time."""
    step = max(1, BLOCK // size)
    starts = range(0, len(arrays[0]), step)
    return np.concatenate([np.zeros(0), *(function(*(a[i : i + step] for a in arrays)) for i in starts)])


def _of(array: NDArray[Any], owner: Index) -> NDArray[Any]:
    """Return each owner's entry; a bank of one broadcasts instead of being copied."""
    return array if len(array) == 1 else array[owner]


def _norm(array: NDArray[Any], axis: int | tuple[int, int]) -> Real:
    norm: Real = np.linalg.norm(array, axis=axis)
    return norm


def _transposed(array: Complex) -> Complex:
    return array.swapaxes(-1, -2)
