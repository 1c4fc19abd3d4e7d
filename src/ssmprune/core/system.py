"""One SSM layer as a frozen value, which all rooms of ssmprune exchange."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arrays import Complex, Index, Mask, Real, join_parts
from ..errors import InputError
from .discretization import Discretization, zoh


class Fields(TypedDict, total=False):
    """What `from_continuous` and `from_discrete` hand on to `DiagonalSystem`, where each is explained."""

    channel: Any  # (n,), as an array or a list
    channels: int
    gain: float
    backward_delay: int
    real_C: bool
    has_D: bool


@dataclass(frozen=True, eq=False)
class ChannelLayout:
    """Where the states of a layer stand when they are laid out by channel.

    Channels may own any number of states. Computations want a rectangle: channels side by side, filled up with silent
    states to the most that any of them owns. A MIMO layer counts as a single channel with many inputs and outputs.
    """

    channel: Index  # (n,) the channel of each state
    slot: Index  # (n,) its slot there
    channels: int
    slots: int  # the most states that a channel owns, and at least one

    def spread(self, values: NDArray[Any], fill: float = 0) -> NDArray[Any]:
        """Put the entry of each state, (n, ...), into its place, (channels, slots, ...)."""
        places: NDArray[Any] = np.full((self.channels, self.slots, *values.shape[1:]), fill, values.dtype)
        places[self.channel, self.slot] = values
        return places

    def gather(self, places: NDArray[Any]) -> NDArray[Any]:
        """Take every state's entry, (n, ...), from its place, (channels, slots, ...)."""
        values: NDArray[Any] = places[self.channel, self.slot]
        return values


@dataclass(frozen=True, eq=False)
class DiagonalSystem:
    """A discrete-time diagonal state space system, x_k = λ̄ x_{k-1} + B̄ u_k, y_k = gain · Re(C x_k).

    A layer with two directions adds gain · Re(C_b x'_{k + backward_delay}), where the same states run backwards:
    x'_k = λ̄ x'_{k+1} + B̄ u_k. The feed-through D u is not part of the system: pruning never touches it.

    A multi-SISO layer is flat: each state has an owner in `channel`, reads that input and feeds that output alone.

    >>> system = DiagonalSystem.from_discrete(poles=[0.5, 0.9], B=[[1], [2]], C=[[1, 1]])
    >>> system
    DiagonalSystem(2 states, 1 -> 1, 1 direction)
    >>> system.simulate(np.array([[1.0], [0.0]])).ravel()
    array([3. , 2.3])
    """

    log_poles: Complex  # (n,); logarithms, because 1 - |pole| = -expm1(Re log pole) stays exact for slow poles
    B: Complex  # (n, inputs); (n, 1) for multi-SISO
    C: Complex  # (directions, outputs, n); (directions, 1, n) for multi-SISO
    channel: Index | None = None  # (n,) owner of each state; None for MIMO
    channels: int = 0  # number of channels of a multi-SISO layer; some may own no state
    gain: float = 1.0  # 2 where a stored state stands for a conjugate pair
    backward_delay: int = 0  # 0 as in S5; 1 where the backward kernel starts at the next sample
    real_C: bool = False  # the layer holds a real C alone, so a refit gives no other
    has_D: bool = True  # False where the layer holds no feed-through D u, so a refit adds none

    def __post_init__(self) -> None:
        """Freeze the arrays and check the mathematics: shapes and finiteness. Unstable poles are legal."""
        for name in ("log_poles", "B", "C"):
            object.__setattr__(self, name, _freeze(getattr(self, name), np.complex128))
        if self.channel is not None:
            object.__setattr__(self, "channel", _freeze(self.channel, np.int64))
        self._check_shapes()
        self._check_values()

    @classmethod
    def from_continuous(
        cls,
        lam: ArrayLike,  # (n,)
        B: ArrayLike,  # (n, inputs)
        C: ArrayLike,  # (directions, outputs, n) or (outputs, n)
        step: ArrayLike,  # scalar or (n,)
        discretization: Discretization = zoh,
        **fields: Unpack[Fields],
    ) -> DiagonalSystem:
        """Discretise x' = λ x + B u with one step per state.

        >>> DiagonalSystem.from_continuous([-1 + 2j], [[1]], [[1]], 0.1, gain=2.0).poles.round(3)
        array([0.887+0.18j])
        """
        lam, B = np.asarray(lam, np.complex128), np.asarray(B, np.complex128)
        step = np.asarray(step, np.float64)
        if step.ndim > 1 or (step.ndim == 1 and step.shape != lam.shape):
            raise InputError(f"step must be a number or have shape {lam.shape}; it has shape {step.shape}.")
        if not (np.isfinite(step) & (step > 0)).all():
            raise InputError(f"Every step must be positive and finite; the smallest is {step.min()}.")
        if lam.ndim != 1 or B.ndim != 2 or len(B) != len(lam):
            raise InputError(f"Expected lam (n,) and B (n, inputs); got {lam.shape} and {B.shape}.")
        log_poles, factor = discretization(lam, step)
        discrete: Complex = factor[:, None] * B
        discrete.flags.writeable = False  # so that it is not copied once more
        return cls(log_poles, discrete, _with_directions(C), **fields)

    @classmethod
    def from_discrete(cls, poles: ArrayLike, B: ArrayLike, C: ArrayLike, **fields: Unpack[Fields]) -> DiagonalSystem:
        """Build a system from discrete poles (n,), B (n, inputs) and C (directions, outputs, n) or (outputs, n)."""
        poles = np.asarray(poles, np.complex128)
        with np.errstate(divide="ignore"):  # a pole at 0 is legal: the state forgets at once
            log_poles = join_parts(np.log(np.abs(poles)), np.angle(poles))
        return cls(log_poles, np.asarray(B), _with_directions(C), **fields)

    @property
    def n(self) -> int:
        """Number of stored states (conjugate pairs where gain is 2)."""
        return len(self.log_poles)

    @property
    def states(self) -> int:
        """Number of states as the literature counts them: a stored conjugate pair is two."""
        return self.n * self.states_per_entry

    @property
    def states_per_entry(self) -> int:
        """2 where a stored state stands for a conjugate pair, else 1."""
        return 2 if self.gain == 2 else 1

    @property
    def inputs(self) -> int:
        """Width of the input signal."""
        return self.B.shape[1] if self.channel is None else self.channels

    @property
    def outputs(self) -> int:
        """Width of the output signal."""
        return self.C.shape[1] if self.channel is None else self.channels

    @property
    def directions(self) -> int:
        """1, or 2 for a bidirectional layer."""
        return int(self.C.shape[0])

    @property
    def poles(self) -> Complex:
        """Discrete poles exp(log_poles), shape (n,)."""
        poles: Complex = np.exp(self.log_poles)
        return poles

    @property
    def unstable_states(self) -> Mask:
        """Which states have a pole on or outside the unit circle, shape (n,)."""
        return self.log_poles.real >= 0

    @cached_property
    def fingerprint(self) -> str:
        """Identity of the system, for plans that must not be applied to another model.

        Taken from single precision, so that the last digit of an exponential on another platform does not matter.
        """
        digest = sha256(repr((self.gain, self.backward_delay, self.channels, self.B.shape, self.C.shape)).encode())
        with np.errstate(over="ignore"):  # numbers that no model has in single precision
            for values in (self.log_poles, self.B, self.C):
                digest.update(np.ascontiguousarray(values, np.complex64).data)
        if self.channel is not None:
            digest.update(self.channel.tobytes())
        return digest.hexdigest()[:16]

    @cached_property
    def layout(self) -> ChannelLayout:
        """The states in their order, laid out by channel.

        >>> flat = DiagonalSystem.from_discrete([0.5] * 3, [[1]] * 3, [[1] * 3], channel=[0, 2, 2], channels=4)
        >>> flat.layout.slot, flat.layout.slots
        (array([0, 0, 1]), 2)
        """
        if self.channel is None:
            return ChannelLayout(np.zeros(self.n, np.int64), np.arange(self.n), 1, max(1, self.n))
        order = np.argsort(self.channel, kind="stable")
        counts = np.bincount(self.channel, minlength=self.channels)
        slot = np.empty(self.n, np.int64)
        slot[order] = np.arange(self.n) - np.repeat(np.cumsum(counts) - counts, counts)
        return ChannelLayout(self.channel, slot, self.channels, max(1, int(counts.max(initial=0))))

    def select(self, keep: Mask) -> DiagonalSystem:
        """Return the sub-system of the states where `keep` (n,) is true."""
        keep = np.asarray(keep)
        if keep.dtype != bool or keep.shape != (self.n,):
            raise InputError(f"keep must be a bool array of shape ({self.n},); it is {keep.dtype} {keep.shape}.")
        channel = None if self.channel is None else self.channel[keep]
        return replace(self, log_poles=self.log_poles[keep], B=self.B[keep], C=self.C[:, :, keep], channel=channel)

    def simulate(self, u: ArrayLike) -> Real:
        """Run the recurrence step by step: the slow reference for everything fast.

        Takes u of shape (length, inputs), returns y of shape (length, outputs), without D u.
        """
        u = np.asarray(u, np.float64)
        if u.ndim != 2 or u.shape[1] != self.inputs:
            raise InputError(f"u must have shape (length, {self.inputs}); it has shape {u.shape}.")
        drive = u @ self.B.T if self.channel is None else u[:, self.channel] * self.B[:, 0]  # (length, n)
        y = self._observe(self._run(drive), self.C[0])
        if self.directions == 2:
            states = self._run(drive[::-1])[::-1]
            ahead = np.zeros((self.backward_delay, self.n), np.complex128)
            y += self._observe(np.concatenate([states, ahead])[self.backward_delay :], self.C[1])
        return y

    def response(self, theta: ArrayLike) -> Complex:
        """Return the frequency response of the real system at z = exp(jθ) for θ of shape (t,).

        G(θ) = gain/2 · (F(θ) + conj F(-θ)) with F(θ) = Σ_i C_i B_i / (1 - pole_i e^{-jθ}); a backward direction
        adds the same at -θ, delayed. Shape (t, outputs, inputs); for multi-SISO the diagonal alone, (t, channels).
        """
        theta = np.atleast_1d(np.asarray(theta, np.float64))
        total = self._half(theta, self.C[0]) + self._half(-theta, self.C[0]).conj()
        if self.directions == 2:
            backward = self._half(-theta, self.C[1]) + self._half(theta, self.C[1]).conj()
            delay = np.exp(1j * theta * self.backward_delay)
            total = total + delay.reshape(-1, *[1] * (total.ndim - 1)) * backward
        return self.gain / 2 * total

    def _half(self, theta: Real, C: Complex) -> Complex:
        """Return Σ_i C_i B_i / (1 - pole_i e^{-jθ}), the response of the stored states alone."""
        resolvent = -1 / np.expm1(self.log_poles - 1j * theta[:, None])  # (t, n)
        if self.channel is None:
            full: Complex = (resolvent[:, None, :] * C) @ self.B
            return full
        diagonal = np.zeros((self.channels, len(theta)), np.complex128)
        np.add.at(diagonal, self.channel, (resolvent * (C[0] * self.B[:, 0])).T)
        return diagonal.T

    def _run(self, drive: Complex) -> Complex:
        states, x = np.empty_like(drive), np.zeros(self.n, np.complex128)
        poles = self.poles
        for k, term in enumerate(drive):
            states[k] = x = poles * x + term
        return states

    def _observe(self, states: Complex, C: Complex) -> Real:
        if self.channel is None:
            return self.gain * (states @ C.T).real
        y = np.zeros((self.channels, len(states)))
        np.add.at(y, self.channel, (self.gain * (states * C[0]).real).T)
        return y.T

    def _check_shapes(self) -> None:
        n = self.log_poles.shape[0] if self.log_poles.ndim == 1 else -1
        if n < 0 or self.B.ndim != 2 or self.B.shape[0] != n:
            raise InputError(
                f"Expected log_poles (n,) and B (n, inputs); got log_poles {self.log_poles.shape} and B {self.B.shape}."
            )
        if self.C.ndim != 3 or self.C.shape[0] not in (1, 2) or self.C.shape[2] != n:
            raise InputError(
                f"Expected C (directions, outputs, n) with 1 or 2 directions and n = {n}; got C {self.C.shape}."
            )
        if self.channel is None:
            return
        if self.channel.shape != (n,) or self.B.shape[1] != 1 or self.C.shape[1] != 1:
            raise InputError(
                f"A multi-SISO system of {n} states needs channel ({n},), B ({n}, 1) and C (directions, 1, {n}); "
                f"got channel {self.channel.shape}, B {self.B.shape}, C {self.C.shape}."
            )
        if n and not 0 <= self.channel.min() <= self.channel.max() < self.channels:
            raise InputError(
                f"Every owner in channel must lie in 0..{self.channels - 1} (channels = {self.channels}); "
                f"got {self.channel.min()}..{self.channel.max()}."
            )

    def _check_values(self) -> None:
        if self.gain not in (1, 2):
            raise InputError(f"gain is 1, or 2 where a state stands for a conjugate pair; got {self.gain}.")
        if self.backward_delay not in (0, 1):
            raise InputError(f"backward_delay is 0 or 1; got {self.backward_delay}.")
        decay = self.log_poles.real
        broken = np.isnan(decay) | (decay == np.inf) | ~np.isfinite(self.log_poles.imag)
        broken |= ~np.isfinite(self.B).all(axis=1) | ~np.isfinite(self.C).all(axis=(0, 1))
        if broken.any():
            raise InputError(
                f"{states_have(broken)} NaN or infinite in poles, B or C; the model is damaged or diverged in training."
            )

    def __repr__(self) -> str:
        """Show the sizes at a glance."""
        kind = "" if self.channel is None else " multi-SISO"
        pairs = "pairs" if self.gain == 2 else "states"
        directions = "1 direction" if self.directions == 1 else "2 directions"
        return f"DiagonalSystem({self.n} {pairs}, {self.inputs} -> {self.outputs}{kind}, {directions})"


def append_states(
    system: DiagonalSystem, log_poles: NDArray[Any], B: NDArray[Any], C: NDArray[Any], channel: Index | None
) -> DiagonalSystem:
    """Return a system with further states, whose outputs are added to those of its own."""
    return replace(
        system,
        log_poles=np.append(system.log_poles, log_poles),
        B=np.concatenate([system.B, B]),
        C=np.concatenate([system.C, C], axis=2),
        channel=None if system.channel is None or channel is None else np.append(system.channel, channel),
    )


def _freeze(array: ArrayLike, dtype: type) -> NDArray[Any]:
    if isinstance(array, np.ndarray) and array.dtype == dtype and array.base is None and not array.flags.writeable:
        return array  # frozen already, as the arrays of another system are
    copy: NDArray[Any] = np.array(np.asarray(array), dtype)
    copy.flags.writeable = False
    return copy


def _with_directions(C: ArrayLike) -> Complex:
    C = np.asarray(C, np.complex128)
    return C[None] if C.ndim == 2 else C


def states_have(which: Mask) -> str:
    """Name states for an error message.

    >>> states_have(np.array([False, True, False])), states_have(np.array([True, True]))
    ('State 1 has', 'States 0, 1 have')
    """
    indices = np.flatnonzero(which)
    shown = ", ".join(map(str, indices[:8])) + (f" and {len(indices) - 8} more" if len(indices) > 8 else "")
    return f"State {shown} has" if len(indices) == 1 else f"States {shown} have"
