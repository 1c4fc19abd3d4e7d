"""What our two torch families share: states as rows of tensors."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Complex, Mask, Real, joined
from ..discretization import Discretization, bilinear, zoh

if TYPE_CHECKING:
    from torch import Tensor, nn

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


def complex_numbers(tensor: Tensor) -> Complex:
    """Return complex128 values of a tensor whose last axis holds the real and the imaginary part."""
    values = numbers(tensor.double())
    return joined(values[..., 0], values[..., 1])


def poles(layer: Any) -> Complex:
    """Return the continuous poles in float64; the layer's form says how their real part is stored."""
    from ..models.poles import continuous_poles

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
        cut = tensor.detach().index_select(axis, index.to(tensor.device))
        setattr(layer, name, torch.nn.Parameter(cut, tensor.requires_grad) if name in layer._parameters else cut)


def refit(layer: Any, keep: Mask, C: Complex, D_change: Real, state_axis: int) -> None:
    """Write C for the kept states into a layer's C, whose last axis holds real and imaginary parts, and add to D."""
    import torch

    index = torch.from_numpy(np.flatnonzero(keep)).to(layer.C.device)
    layer.C.detach().index_copy_(state_axis, index, torch.view_as_real(torch.tensor(C)).to(layer.C))
    layer.D.detach().add_(torch.tensor(D_change).to(layer.D))
