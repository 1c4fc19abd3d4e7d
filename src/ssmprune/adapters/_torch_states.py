"""What our two torch families share: states as rows of tensors."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Complex, Mask, Real, joined
from ..discretization import Discretization, bilinear, zoh
from ..errors import InputError

if TYPE_CHECKING:
    from torch import Tensor, nn

CLIP = -1e-4  # the largest real part of a clipped pole
COMMON_AXES = {"pole_re": 0, "pole_im": 0, "B": 0, "mask": 0}


def modules(model: Any, module: str, class_name: str) -> dict[str, Any]:
    """Return the submodules of one class by path; a class whose module was never imported cannot be in the model."""
    if module not in sys.modules or not hasattr(model, "named_modules"):
        return {}
    kind = getattr(sys.modules[module], class_name)
    return {path: part for path, part in model.named_modules() if isinstance(part, kind)}


def numbers(tensor: Tensor) -> np.ndarray[Any, Any]:
    """Return a tensor's values as numpy."""
    return tensor.detach().cpu().numpy()


def parts(values: Complex) -> Real:
    """Return the real and the imaginary part along a new last axis."""
    return np.stack([values.real, values.imag], axis=-1)


def complex_numbers(tensor: Tensor) -> Complex:
    """Return complex128 values of a tensor whose last axis holds the real and the imaginary part."""
    values = numbers(tensor.double())
    return joined(values[..., 0], values[..., 1])


def poles(layer: Any) -> Complex:
    """Return the continuous poles in float64; the layer's form says how their real part is stored."""
    from ..models.parametrisation import continuous_poles

    return numbers(continuous_poles(layer.pole_re.double(), layer.pole_im.double(), layer.pole_form))


def discretization(layer: Any) -> Discretization:
    """Return the numpy twin of the layer's discretisation."""
    return {"zoh": zoh, "bilinear": bilinear}[layer.discretization]


def mask(layer: nn.Module, keep: Mask) -> None:
    """Silence all states but those in `keep`, on top of what is masked already."""
    import torch

    layer.get_buffer("mask").logical_and_(torch.from_numpy(keep.copy()).to(layer.get_buffer("mask").device))


def shrink(layer: nn.Module, keep: Mask, state_axis: dict[str, int]) -> None:
    """Cut every tensor that runs over the states down to those in `keep`."""
    import torch

    index = torch.from_numpy(np.flatnonzero(keep))
    for name, axis in state_axis.items():
        tensor = getattr(layer, name)
        _put(layer, name, tensor.detach().index_select(axis, index.to(tensor.device)))


def refit(layer: Any, keep: Mask, C: Complex, D_change: Real, state_axis: int) -> None:
    """Write C for the kept states into a layer's C, whose last axis holds real and imaginary parts, and add to D."""
    import torch

    index = torch.from_numpy(np.flatnonzero(keep)).to(layer.C.device)
    layer.C.detach().index_copy_(state_axis, index, torch.view_as_real(torch.tensor(C)).to(layer.C))
    layer.D.detach().add_(torch.tensor(D_change).to(layer.D))


def write(layer: Any, lam: Complex, tensors: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Give a layer other states: their continuous poles, and the tensors that run over them."""
    import torch

    if layer.pole_form == "clip" and (lam.real > CLIP).any():
        raise InputError(f"This layer clips poles at {CLIP}; one to be written has the real part {lam.real.max():.2g}.")
    decay = {"exp": np.log(-lam.real), "clip": lam.real, "free": lam.real}[layer.pole_form]
    every = {"pole_re": decay, "pole_im": lam.imag, "mask": np.ones(len(lam), bool), **tensors}
    for name, values in every.items():
        _put(layer, name, torch.from_numpy(np.ascontiguousarray(values)).to(getattr(layer, name)))


def continuous(layer: Any, log_poles: Complex, step: Real) -> Complex:
    """Return the poles λ (n,) that the layer's discretisation turns into these."""
    w = np.tanh(log_poles / 2) * 2 if layer.discretization == "bilinear" else log_poles
    return np.asarray(w / step, np.complex128)


def _put(layer: nn.Module, name: str, values: Tensor) -> None:
    """Replace a parameter or buffer by one of another shape."""
    import torch

    old = getattr(layer, name)
    setattr(layer, name, torch.nn.Parameter(values, old.requires_grad) if name in layer._parameters else values)
