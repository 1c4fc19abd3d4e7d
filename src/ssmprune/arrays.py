"""The kinds of arrays and numbers the core computes with."""

from __future__ import annotations

import numbers
from typing import Any, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from .errors import InputError

Real: TypeAlias = NDArray[np.float64]
Complex: TypeAlias = NDArray[np.complex128]
Mask: TypeAlias = NDArray[np.bool_]
Index: TypeAlias = NDArray[np.int64]


def join_parts(real: Real, imag: Real) -> Complex:
    """Join real and imaginary parts without `real + 1j * imag`, which turns an infinite part into NaN."""
    whole = np.empty(np.shape(real), np.complex128)
    whole.real, whole.imag = real, imag
    return whole


def to_parts(numbers: Complex) -> Real:
    """Return real and imaginary parts along a new last axis, as files and our layers hold them."""
    return np.stack([numbers.real, numbers.imag], axis=-1)


def from_parts(parts: Real) -> Complex:
    """Join real and imaginary parts that lie along the last axis, without a copy where they lie side by side.

    >>> from_parts(to_parts(np.array([1 + 2j])))
    array([1.+2.j])
    """
    if parts.dtype == np.float64 and parts.shape[-1] == 2:
        return np.asarray(np.ascontiguousarray(parts).view(np.complex128)[..., 0])
    return join_parts(parts[..., 0], parts[..., 1])


def is_number(value: object) -> TypeGuard[float]:
    """Tell whether a value is a real number; a truth value is not."""
    return not isinstance(value, bool) and isinstance(value, numbers.Real)


def is_share(value: object) -> bool:
    """Tell whether a value is a number from 0 to 1.

    >>> [is_share(value) for value in (0.5, 1, 1.5, float("nan"), "0.5", None, True, [0.5])]
    [True, True, False, False, False, False, False, False]
    """
    return is_number(value) and 0 <= float(value) <= 1


def is_count(value: object, least: int = 0) -> bool:
    """Tell whether a value is a whole number, and at least `least`."""
    return not isinstance(value, bool) and isinstance(value, numbers.Integral) and int(value) >= least


def check_dense(name: str, tensor: Any) -> None:
    """Refuse a torch tensor whose numbers are not in memory one after the other: of the device meta, or sparse."""
    if tensor.is_meta:
        raise InputError(
            f"{name} is on the device meta and has no numbers; give the model its weights first, as by "
            'model.to_empty(device="cpu") and model.load_state_dict(..).'
        )
    if str(tensor.layout) != "torch.strided":
        raise InputError(f"{name} is a sparse tensor ({tensor.layout}); make it dense first, by tensor.to_dense().")


def to_numpy(name: str, tensor: Any) -> NDArray[Any]:
    """Return a torch tensor as an array; one that numpy has no type for is refused."""
    check_dense(name, tensor)
    try:
        array: NDArray[Any] = tensor.detach().cpu().resolve_conj().resolve_neg().numpy()
    except TypeError as error:
        raise InputError(
            f"{name} holds {tensor.dtype}, which files cannot; convert it, as by tensor.float()."
        ) from error
    return array
