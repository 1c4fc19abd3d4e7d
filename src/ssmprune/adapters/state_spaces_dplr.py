"""S4's diagonal-plus-low-rank kernels of state-spaces/s4 (`SSMKernelDPLR`, before `SSKernelNPLR`), brought to modes.

The states are coupled, x' = (A - P P*) x + B u, so none can go alone. The modes of that matrix can, where its
eigenvectors are well conditioned; at the LegS initialisation they are not.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from ..arrays import Complex, Mask, Real, from_parts, join_parts
from ..core.discretization import bilinear
from ..errors import InputError
from ..models.config import LayerOptions
from .arrays import ArrayPlace, Places
from .parameters import LayerParameters
from .state_spaces_diag import StateSpacesKernel

WORST_CONDITION = 1e4  # of eigenvectors: by so much single precision loses digits
COUPLED = (
    "The states of a diagonal-plus-low-rank (DPLR) S4 layer are coupled, so none can be silenced or cut out in its own "
    "layout. Use sp.convert(model, plan): our S4D layers hold its modes."
)


class StateSpacesDPLR(StateSpacesKernel):
    """Reads DPLR kernels as the modes of A - P P*, and converts them."""

    name = "state_spaces_dplr"
    marks = frozenset({"P", "B", "C"})
    asked = ("real_transform", "bidirectional")
    grid_axes: ClassVar = {}

    def layers_among(self, places: Places) -> dict[str, ArrayPlace]:
        """Return the places that hold a kernel of either name."""
        return {path: place for path, place in places.by_path.items() if is_dplr(place)}

    def mask(self, layer: ArrayPlace, keep: Mask) -> None:
        """Refuse: a state of the layout is no mode."""
        raise InputError(COUPLED)

    def shrink(self, layer: ArrayPlace, keep: Mask) -> None:
        """Refuse: a state of the layout is no mode."""
        raise InputError(COUPLED)

    def _parameters(self, layer: ArrayPlace) -> LayerParameters:
        """Diagonalise; C is stored for kernels of a length L, as C (I - Ā^L)."""
        options = self.options(layer)
        A, step, length = options._dynamics(layer)
        C = options.readout(layer)
        channels = C.shape[1]
        P, B = np.moveaxis(from_parts(layer["P"]), 0, -1), from_parts(layer["B"])[0]
        modes = [Modes.of(*system) for system in zip(A, P, B, strict=True)]
        modes = [modes[channel % len(modes)] for channel in range(channels)]
        readouts = [m.readout(C[:, h], step[h], length) for h, m in enumerate(modes)]
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

    def _dynamics(self, layer: ArrayPlace) -> tuple[Complex, Real, int]:
        """Return A (systems, N), steps (H,) and the length that C is stored for, under either set of names."""
        if "inv_w_real" in layer:
            decay, frequency, step = self.transformed(layer, "inv_w_real", "w_imag", "log_dt")
            return join_parts(-decay, frequency), step, _length(layer, "L")
        decay, frequency, step = self.transformed(layer, "A_real", "A_imag", "inv_dt")
        if step.ndim != 2 or step.shape[1] != 1:
            raise InputError(f"A DPLR layer has one step per channel; inv_dt has the shape {step.shape}.")
        return join_parts(-decay, -frequency), step[:, 0], _length(layer, "l_kernel")


class Modes(NamedTuple):
    """A real system x' = A x + b u in diagonal form, with an entry for each conjugate pair and each real pole."""

    poles: Complex  # (n,)
    B: Complex  # (n,)
    vectors: Complex  # (2 N, n); eigenvectors, half of them where the pole is real, for a gain of 2

    @classmethod
    def of(cls, A: Complex, P: Complex, B: Complex) -> Modes:
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
        return cls(poles[stored], drive[stored], vectors[:, stored] * np.where(poles.imag > 0, 1, 0.5)[stored])

    def readout(self, C: Complex, step: float, length: int) -> Complex:
        """Return C (directions, n) of the modes from the stored C (directions, N), made for kernels of a length."""
        modal: Complex = 2 * np.concatenate([C.real, -C.imag], axis=1) @ self.vectors
        if not length:
            return modal
        log_poles, _ = bilinear(self.poles, np.full(len(self.poles), step))
        return modal / -np.expm1(length * log_poles)


def is_dplr(place: ArrayPlace) -> bool:
    """Tell a DPLR kernel from a diagonal kernel, which has no P."""
    names = place.keys.keys()
    return {"P", "B", "C"} <= names and ({"A_real", "A_imag", "inv_dt"} <= names or {"inv_w_real", "log_dt"} <= names)


def _length(layer: ArrayPlace, name: str) -> int:
    return int(layer[name]) if name in layer else 0


ADAPTER = StateSpacesDPLR()
