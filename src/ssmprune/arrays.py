"""The kinds of arrays the core computes with."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Real: TypeAlias = NDArray[np.float64]
Complex: TypeAlias = NDArray[np.complex128]
Mask: TypeAlias = NDArray[np.bool_]
Index: TypeAlias = NDArray[np.int64]


def joined(real: Real, imag: Real) -> Complex:
    """Join two parts without `real + 1j * imag`, which turns an infinite part into NaN."""
    whole = np.empty(np.shape(real), np.complex128)
    whole.real, whole.imag = real, imag
    return whole
