"""The layers of state-spaces/s4, as modules or state dicts: its minimal S4D, its diagonal and its low-rank kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from ..arrays import Complex, Mask, Real, from_parts, join_parts
from ..core.discretization import bilinear
from ..errors import InputError, one_of
from ..models.config import LayerOptions
from . import importing
from .families import ArrayPlace, GridFamily, LayerParameters

TRANSFORMS: dict[str, Callable[[Real], Real]] = {
    "none": lambda x: x,
    "exp": np.exp,
    "relu": lambda x: np.maximum(x, 0) + 1e-4,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "softplus": lambda x: np.logaddexp(x, 0),
}
WORST_CONDITION = 1e4  # of eigenvectors: by so much single precision loses digits
COUPLED = (
    "The states of a diagonal-plus-low-rank (DPLR) S4 layer are coupled, so none can be silenced or cut out in its own "
    "layout. Use sp.convert(model, plan): our S4D layers hold its modes."
)


class StateSpacesS4D(GridFamily):
    """Reads and masks `S4DKernel`, whose D lies in the `S4D` around it; B = 1 is not stored."""

    name = "state_spaces_s4d"
    marks = frozenset({"log_dt", "log_A_real", "A_imag", "C"})
    grid_axes: ClassVar = {"log_A_real": (0, 1), "A_imag": (0, 1), "C": (0, 1)}

    def _parameters(self, layer: ArrayPlace) -> LayerParameters:
        """Read the only form that this code has: zero-order hold, one half of conjugate pairs."""
        channels, states = layer["A_imag"].shape
        return LayerParameters(
            pole_re=layer["log_A_real"].ravel(),
            pole_im=layer["A_imag"].ravel(),
            B=np.ones(channels * states, np.complex128),
            C=from_parts(layer["C"]).reshape(1, -1),
            D=self.feed_through(layer, channels),
            log_step=layer["log_dt"],
            channel=np.repeat(np.arange(channels), states),
            options=LayerOptions(),
        )

    def classifier(self, tree: Mapping[str, Any], *, prenorm: bool, dropout: float = 0.0) -> importing.Classifier:
        """Return our classifier with the outputs of the `S4Model` of the repository's `example.py`."""
        state = importing.below(tree, "s4_layers.0.kernel.C")
        arrays = importing.Arrays(state)
        layers = importing.take_numbered(self, state, "s4_layers.{}.kernel", arrays)
        weights: importing.Weights = {}
        for name in ("weight", "bias"):
            weights |= {f"{end}.{name}": arrays.take(f"{end}.{name}") for end in ("encoder", "decoder")}
            for i in range(len(layers)):
                weights[f"layers.{i}.norm.{name}"] = arrays.take(f"norms.{i}.{name}")
                both = arrays.take(f"s4_layers.{i}.output_linear.0.{name}")  # of a convolution over single steps
                value, gate = both[: len(both) // 2], both[len(both) // 2 :]
                weights[f"layers.{i}.value.{name}"] = value.reshape(value.shape[:2])
                weights[f"layers.{i}.gate.{name}"] = gate.reshape(gate.shape[:2])
        for i in range(len(layers)):
            arrays.take(f"s4_layers.{i}.D")  # read with the kernel
        arrays.finish()
        return importing.build(
            layers,
            weights,
            activation="full_glu",
            prenorm=prenorm,
            pooling="mean",
            norm="layer",
            exact_gelu=True,
            dropout=dropout,
        )


@dataclass(frozen=True, kw_only=True)
class StateSpacesKernel(GridFamily):
    """What the kernels of state-spaces/s4 share; a module knows its options, a state dict does not."""

    real_transform: str | None = None  # how -Re A is stored, usually "exp"
    bidirectional: bool | None = None  # of the convolution around the kernel
    imag_transform: str = "none"
    dt_transform: str = "exp"
    dt_fast: bool = False
    bandlimit: float | None = None
    is_real: bool = False

    def options(self, layer: ArrayPlace) -> Self:
        """Return the options that a module records, or those given for a state dict.

        Refuse those under which states have no gains of their own, or no pairs.
        """
        options, module = self, layer.module
        if module is None:
            self.ask()
        else:
            recorded: dict[str, Any] = {"real_transform": getattr(module, "real_type", "exp")}  # its older name
            names = (field.name for field in fields(self))
            recorded |= {name: getattr(module, name) for name in names if hasattr(module, name)}
            outside = (place.module.bidirectional for place in layer.around if hasattr(place.module, "bidirectional"))
            options = replace(self, **recorded | {"bidirectional": bool(next(outside, False))})
        if options.bandlimit is not None:
            raise InputError(
                f"bandlimit={options.bandlimit} switches states off by their frequency at the current rate. Set it to "
                "None, with C of the states above the limit set to zero, to prune at this rate."
            )
        if options.is_real or ("A_imag" not in layer and "w_imag" not in layer):
            raise InputError("A real-valued kernel (is_real=True) is not supported; train with is_real=False to prune.")
        for name in ("real_transform", "imag_transform", "dt_transform"):
            one_of(name, getattr(options, name), TRANSFORMS)
        return options

    def readout(self, layer: ArrayPlace) -> Complex:
        """Return C (directions, H, N), once it has as many directions as the options say."""
        C = from_parts(layer["C"])
        expected = 1 + bool(self.bidirectional)
        if len(C) != expected:
            raise InputError(
                f"bidirectional={self.bidirectional} needs C with {expected} channels; it has {len(C)}. Kernels with "
                "several output channels cannot be pruned state by state."
            )
        return C

    def transformed(self, layer: ArrayPlace, real: str, imag: str, step: str) -> tuple[Real, Real, Real]:
        """Return -Re A and -Im A (systems, N), and the steps (H, 1), or (H, N) where states have their own."""
        inv_dt = np.sinh(layer[step]) if self.dt_fast else layer[step]
        names = (self.real_transform, self.imag_transform, self.dt_transform)
        to_real, to_imag, to_step = (TRANSFORMS[str(name)] for name in names)
        return to_real(layer[real]), to_imag(layer[imag]), to_step(inv_dt)


@dataclass(frozen=True, kw_only=True)
class StateSpacesDiag(StateSpacesKernel):
    """Reads and masks `SSMKernelDiag`; A and B may be shared by channels (n_ssm < H), then C still tells them apart."""

    disc: Literal["zoh", "bilinear", "dss"] | None = None  # "dss" is known and refused
    step_rescale: float = 1.0  # the `rate` handed to the kernel

    name = "state_spaces_diag"
    marks = frozenset({"inv_dt", "A_real", "C", "B"})
    asked = ("disc", "real_transform", "bidirectional")
    grid_axes: ClassVar = {"A_real": (0, 1), "A_imag": (0, 1), "B": (1, 2), "C": (1, 2)}
    sizes = ("N",)

    def layers_among(self, places: dict[str, ArrayPlace]) -> dict[str, ArrayPlace]:
        """Return the diagonal kernels; those with a low-rank part, P, belong to `StateSpacesDPLR`."""
        return {path: place for path, place in super().layers_among(places).items() if "P" not in place}

    def _parameters(self, layer: ArrayPlace) -> LayerParameters:
        """Give every channel poles and B of its own, all with one step."""
        options = self.options(layer)
        if options.disc == "dss":
            raise InputError(
                "disc='dss' normalises the kernel by the sequence length, so a state has no gain of its own. "
                "Train with disc='zoh' to prune."
            )
        C = options.readout(layer)
        directions, channels, states = C.shape
        decay, frequency, steps = options.transformed(layer, "A_real", "A_imag", "inv_dt")
        copies = (channels // len(decay), 1)
        decay, frequency = np.tile(decay, copies), np.tile(frequency, copies)
        steps = np.broadcast_to(steps, (channels, states))
        # A state with its own step is a state with the channel's step whose time runs faster by the ratio.
        ratio = steps / steps[:, :1]
        log = options.real_transform == "exp"
        return LayerParameters(
            pole_re=(np.log(decay * ratio) if log else -decay * ratio).ravel(),
            pole_im=-(frequency * ratio).ravel(),
            B=(ratio * np.tile(from_parts(layer["B"])[0], copies)).ravel(),
            C=C.reshape(directions, -1),
            D=self.feed_through(layer, channels),
            log_step=np.log(steps[:, 0]),
            channel=np.repeat(np.arange(channels), states),
            options=LayerOptions(
                pole_form="exp" if log else "free",
                discretization=str(options.disc),
                backward_delay=int(bool(options.bidirectional)),
                step_rescale=float(self.step_rescale),
                train_B=True,
            ),
        )


class StateSpacesDPLR(StateSpacesKernel):
    """Reads DPLR kernels (`SSMKernelDPLR`, before `SSKernelNPLR`) as the modes of A - P P*, and converts them.

    The states are coupled, x' = (A - P P*) x + B u, so none can go alone. The modes of that matrix can, where its
    eigenvectors are well conditioned; at the LegS initialisation they are not.
    """

    name = "state_spaces_dplr"
    marks = frozenset({"P", "B", "C"})
    asked = ("real_transform", "bidirectional")

    def layers_among(self, places: dict[str, ArrayPlace]) -> dict[str, ArrayPlace]:
        """Return the kernels of either set of names; what else has a P is of another code."""
        newer, older = {"A_real", "A_imag", "inv_dt"}, {"inv_w_real", "log_dt"}
        kernels = super().layers_among(places)
        return {path: place for path, place in kernels.items() if newer <= {*place.keys} or older <= {*place.keys}}

    def mask(self, layer: ArrayPlace, keep: Mask) -> None:
        """Refuse: a state of the layout is no mode."""
        raise InputError(COUPLED)

    def shrink(self, layer: ArrayPlace, keep: Mask) -> None:
        """Refuse: a state of the layout is no mode."""
        raise InputError(COUPLED)

    def _parameters(self, layer: ArrayPlace) -> LayerParameters:
        """Diagonalise; C is stored for kernels of a length L, as C (I - Ā^L)."""
        options = self.options(layer)
        A, step = options._dynamics(layer)
        length = next((int(layer[name]) for name in ("L", "l_kernel") if name in layer), 0)
        C = options.readout(layer)
        channels = C.shape[1]
        P, B = np.moveaxis(from_parts(layer["P"]), 0, -1), from_parts(layer["B"])[0]
        modes = [_diagonalise(*system) for system in zip(A, P, B, strict=True)]
        modes = [modes[channel % len(modes)] for channel in range(channels)]
        readouts = []  # of the modes, from the stored C, made for kernels of a length
        for h, m in enumerate(modes):
            modal: Complex = 2 * np.concatenate([C[:, h].real, -C[:, h].imag], axis=1) @ m.vectors
            log_poles, _ = bilinear(m.poles, np.full(len(m.poles), step[h]))
            readouts.append(modal / -np.expm1(length * log_poles) if length else modal)
        poles = np.concatenate([m.poles for m in modes])
        stable = bool((poles.real < 0).all())
        return LayerParameters(
            pole_re=np.log(-poles.real) if stable else poles.real,
            pole_im=poles.imag,
            B=np.concatenate([m.B for m in modes]),
            C=np.concatenate(readouts, axis=1),
            D=self.feed_through(layer, channels),
            log_step=np.log(step),
            channel=np.repeat(np.arange(channels), [len(m.poles) for m in modes]),
            options=LayerOptions(
                pole_form="exp" if stable else "free",
                discretization="bilinear",
                backward_delay=int(bool(options.bidirectional)),
                train_B=True,
            ),
        )

    def _dynamics(self, layer: ArrayPlace) -> tuple[Complex, Real]:
        """Return A (systems, N) and steps (H,), under either set of names."""
        if "inv_w_real" in layer:
            decay, frequency, step = self.transformed(layer, "inv_w_real", "w_imag", "log_dt")
            return join_parts(-decay, frequency), step
        decay, frequency, step = self.transformed(layer, "A_real", "A_imag", "inv_dt")
        if step.ndim != 2 or step.shape[1] != 1:
            raise InputError(f"A DPLR layer has one step per channel; inv_dt has the shape {step.shape}.")
        return join_parts(-decay, -frequency), step[:, 0]


class Modes(NamedTuple):
    """A real system x' = A x + b u in diagonal form, with an entry for each conjugate pair and each real pole."""

    poles: Complex  # (n,)
    B: Complex  # (n,)
    vectors: Complex  # (2 N, n); eigenvectors, half of them where the pole is real, for a gain of 2


def _diagonalise(A: Complex, P: Complex, B: Complex) -> Modes:
    """Diagonalise A - P P* (N,), (N, rank), (N,), whose other half is conjugate, in real and imaginary parts."""
    p = np.concatenate([P.real, P.imag])
    turn = np.block([[np.diag(A.real), -np.diag(A.imag)], [np.diag(A.imag), np.diag(A.real)]])
    if not np.isfinite(turn).all() or not np.isfinite(p).all():
        raise InputError("A or P of a DPLR layer is not finite; the file is damaged or the training diverged.")
    poles, vectors = np.linalg.eig(turn - 2 * p @ p.T)
    condition = float(np.linalg.cond(vectors))
    if not condition <= WORST_CONDITION:
        raise InputError(
            "This is a diagonal-plus-low-rank (DPLR) S4 layer, whose states are coupled. It can be brought to "
            f"modes where the eigenvectors of A - P P* are well conditioned; their condition number is "
            f"{condition:.1g}, and at more than {WORST_CONDITION:.0g} rounding would drown the modes. "
            "Train the diagonal variant (S4D)."
        )
    stored = poles.imag >= 0
    drive = np.linalg.solve(vectors.astype(np.complex128), np.concatenate([B.real, B.imag]))
    return Modes(poles[stored], drive[stored], vectors[:, stored] * np.where(poles.imag > 0, 1, 0.5)[stored])
