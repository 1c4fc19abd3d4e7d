"""Other people's checkpoints on disk: Flax trees without JAX, and torch state dicts without pickled code.

A Flax file is msgpack: nested maps whose arrays are extensions, each a packed (shape, name of the type, bytes).
"""

from __future__ import annotations

import io
import math
import os
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .arrays import to_numpy
from .errors import InputError, naming, need, need_torch
from .files import load_tensors, read_whole, write_atomically

ARRAY, COMPLEX, SCALAR = 1, 2, 3  # Flax's extension types
TYPES = {f"{kind}{bits}" for kind, sizes in {"float": (16, 32, 64), "complex": (64, 128)}.items() for bits in sizes}
TYPES |= {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)} | {"bool"}
DEPTH = 64  # maps within maps; real models stay below 12
AXES = 32  # numpy's limit; nothing else in these files is a list


def load_tree(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a `.msgpack` file of Flax, a `.safetensors` file, or a torch checkpoint (its tensors alone, no code).

    >>> from importlib.resources import files
    >>> load_tree(files("ssmprune") / "demo" / "smnist-s5.safetensors")["decoder.bias"].shape
    (10,)
    """
    path = Path(path)
    if path.suffix == ".safetensors":
        return load_tensors(path, needs_digest=False)[0]
    content = read_whole(path)
    with naming(path):
        return from_msgpack(content) if path.suffix == ".msgpack" else _from_torch(content)


def save_tree(tree: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a tree of arrays as the `.msgpack` file that `flax.serialization.from_bytes` reads.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_tree({"params": {"D": np.ones(2)}}, f"{folder}/tree.msgpack")
    ...     load_tree(f"{folder}/tree.msgpack")
    {'params': {'D': array([1., 1.])}}
    """
    write_atomically(path, to_msgpack(tree))


def from_msgpack(content: bytes) -> dict[str, Any]:
    """Return the nested dicts and numpy arrays that Flax's `to_bytes` packed."""
    tree = _unpack(content, _extension)
    if not isinstance(tree, dict):
        raise InputError(f"Expected a tree of parameters, found {type(tree).__name__}; the file is of another kind.")
    _check_depth(tree)
    return tree


def to_msgpack(tree: Mapping[str, Any]) -> bytes:
    """Return the bytes that Flax's `to_bytes` would write."""
    packed: bytes = _msgpack().packb(tree, default=_pack_extension, strict_types=True)
    return packed


def _extension(code: int, content: bytes) -> Any:
    if code == COMPLEX:
        parts = _unpack(content)
        if not (isinstance(parts, list) and len(parts) == 2 and all(isinstance(part, float) for part in parts)):
            raise InputError("A complex number is not two numbers; the file is damaged.")
        return complex(*parts)
    if code not in (ARRAY, SCALAR):
        raise InputError(f"Unknown extension type {code}; Flax writes {ARRAY}, {COMPLEX} and {SCALAR}.")
    array = _build_array(_unpack(content))
    return array[()] if code == SCALAR else array


def _build_array(parts: Any) -> np.ndarray[Any, Any]:
    """Build an array, once its claimed size agrees with the bytes that are there."""
    if not (isinstance(parts, list) and len(parts) == 3):
        raise InputError("An array is not (shape, type, bytes); the file is damaged.")
    shape, name, buffer = parts
    if not isinstance(name, str) or name not in TYPES:
        raise InputError(f"Arrays of type {name!r} cannot be read; save the model in float32.")
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise InputError(f"An array has the shape {shape!r}; the file is damaged.")
    expected = math.prod(shape) * np.dtype(name).itemsize
    if not isinstance(buffer, bytes) or len(buffer) != expected:
        raise InputError(f"An array {tuple(shape)} of {name} needs {expected} bytes; the file is damaged.")
    return np.ndarray(shape, name, buffer).copy()


def _pack_extension(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, complex) and not isinstance(value, np.generic):
        return _msgpack().ExtType(COMPLEX, _msgpack().packb((value.real, value.imag)))
    if not (hasattr(value, "shape") and hasattr(value, "dtype")):
        raise InputError(f"A tree on disk holds dicts, arrays and numbers; found a {type(value).__name__}.")
    array = to_numpy("A tensor", value) if hasattr(value, "detach") else np.asarray(value)
    content = _msgpack().packb((array.shape, array.dtype.name, array.tobytes()))
    return _msgpack().ExtType(SCALAR if isinstance(value, np.generic) else ARRAY, content)


def _unpack(content: bytes, extension: Any = None) -> Any:
    """Unpack msgpack; lengths are compared with the bytes that are there before anything is allocated."""
    msgpack = _msgpack()
    try:
        return msgpack.unpackb(content, ext_hook=extension or _no_extension, max_array_len=AXES)
    except InputError:
        raise
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise InputError(f"Not a whole msgpack file ({error or type(error).__name__}).") from error


def _no_extension(code: int, _: bytes) -> None:
    raise InputError(f"Extension type {code} inside an array; the file is damaged.")


def _check_depth(tree: Any) -> None:
    level, depth = [tree], 0
    while level := [value for node in level if isinstance(node, dict) for value in node.values()]:
        depth += 1
        if depth > DEPTH:
            raise InputError(f"Maps within maps deeper than {DEPTH}; this is not a tree of parameters.")


def _msgpack() -> Any:
    return need("msgpack", "flax", "Flax files need msgpack")


def _check_zip(content: bytes) -> None:
    """Refuse archives whose members claim more than is there; torch stores them uncompressed."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            claimed = sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OverflowError, struct.error) as error:
        raise InputError(
            f"Not a torch checkpoint of plain tensors ({error}); give a .msgpack, .safetensors or .pt file, the last "
            "one saved by torch 1.6 or later."
        ) from error
    if claimed > len(content):
        raise InputError(f"The archive claims {claimed:,} bytes and has {len(content):,}; save the state dict again.")


def _from_torch(content: bytes) -> dict[str, Any]:
    need_torch()
    import torch

    _check_zip(content)
    try:
        checkpoint = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # torch's message about Python objects advises to load the file unsafely
        raise InputError(
            "Not a torch checkpoint of plain tensors: it is damaged, or holds Python objects, which may run any code "
            "when they are loaded. Where the model was trained, torch.save(model.state_dict(), ..) gives a file "
            "without them."
        ) from error
    if not isinstance(checkpoint, Mapping):
        raise InputError(f"Expected a state dict, found {type(checkpoint).__name__}; save model.state_dict().")
    return dict(checkpoint)
