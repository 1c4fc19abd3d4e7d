"""Which examples a model got right, as a short text: a bit each, compressed."""

from __future__ import annotations

import base64
import binascii
import zlib

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError

Right = NDArray[np.bool_]  # (examples,)


def pack(right: Right) -> str:
    """Return the text of right answers.

    >>> unpack(pack(np.array([True, False, True])), 3)
    array([ True, False,  True])
    """
    return base64.b64encode(zlib.compress(np.packbits(right).tobytes(), 9)).decode()


def unpack(text: str, examples: int) -> Right:
    """Return the right answers of a text; one that does not hold as many as there are examples is refused."""
    size = -(-examples // 8)
    try:
        content = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), size + 1)
    except (binascii.Error, ValueError, zlib.error) as error:
        raise InputError(f"These are not answers to {examples} examples ({error}): {text[:40]!r}.") from error
    if len(content) != size:
        raise InputError(f"Expected answers to {examples} examples, {size} bytes; got {len(content)} or more.")
    return np.unpackbits(np.frombuffer(content, np.uint8), count=examples).astype(bool)
