"""Models of 8 or 4 bits: `grid` holds weights as whole numbers with scales, `quantise` rounds weights to them.

`quantize` is imported when it is asked for, since it needs torch and `grid` does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import names_that_need_torch

if TYPE_CHECKING:
    from .quantise import quantize as quantize

__all__ = ["quantize"]
__getattr__ = names_that_need_torch(__name__, {"quantize": "quantise"})
