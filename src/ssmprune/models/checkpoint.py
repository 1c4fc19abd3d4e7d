"""Classifiers on disk: one safetensors file with the config in its metadata."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import InputError
from ..files import check_format, load_tensors, save_tensors
from . import _grid
from ._grid import Grid
from .classifier import Classifier
from .config import Config

FORMAT, VERSION = "ssmprune-classifier", 1
FOREIGN = (".pt", ".pth", ".ckpt", ".bin", ".msgpack")  # what other codes save

Arrays: TypeAlias = dict[str, NDArray[Any]]
Location: TypeAlias = str | os.PathLike[str]


def save(model: Classifier, path: str | os.PathLike[str]) -> None:
    """Write the model's config and tensors to one `.safetensors` file."""
    if not isinstance(model, Classifier):
        raise InputError(
            f"`save` writes ssmprune's own classifiers; this is {type(model).__name__}. Other pruned torch modules "
            "are written by `save_pruned`, Flax trees by `save_tree`."
        )
    tensors = {name: tensor.detach().cpu().numpy() for name, tensor in model.state_dict().items()}
    about = {"format": FORMAT, "version": str(VERSION), "config": json.dumps(model.config.to_dict())}
    tensors, bits = _grid.to_file(model, tensors)
    if bits is not None:
        about["bits"] = bits
    if model.history:
        about["history"] = json.dumps(model.history)
    save_tensors(path, tensors, about)


def load(path: str | os.PathLike[str]) -> Classifier:
    """Return the model that `save` wrote, in evaluation mode on the CPU, in the precision it was saved in."""
    _refuse_foreign(path)
    arrays, about = load_tensors(path, needs_digest=False)  # paper/checkpoints/smnist-s4d is older than digests are
    check_format(path, about, FORMAT, VERSION)
    config = _config(path, about)
    arrays, grid = _from_grid(path, config, arrays, about.get("bits"))
    model = _empty_model(path, config, {name: array.shape for name, array in arrays.items()})
    _check_types(path, model, arrays)
    _check_values(path, arrays, config.width)
    # Copies lie at addresses that torch chose: what a product gives can depend on how its operands are aligned.
    copies = {
        name: torch.from_numpy(array).clone(memory_format=torch.contiguous_format) for name, array in arrays.items()
    }
    model.load_state_dict(copies, assign=True)
    model.grid, model.history = grid, _history(path, about.get("history", "[]"))
    return model.eval()


def _refuse_foreign(path: Location) -> None:
    """Point from files of other codes, known by their names, to the command that reads them."""
    if Path(path).suffix in FOREIGN and Path(path).is_file():
        raise InputError(
            f"{path} is not one of ssmprune's own models. If it is a classifier from another codebase, "
            f"`ssmprune import {path} --family FAMILY --out model.safetensors` converts it; `ssmprune list` names the "
            "families."
        )


def _from_grid(path: Location, config: Config, arrays: Arrays, bits: str | None) -> tuple[Arrays, Grid | None]:
    """Return the weights of a file, whose large ones may be whole numbers with scales."""
    if bits is None:
        return arrays, None
    _check_complete(path, config, {name: array.shape for name, array in arrays.items()})
    try:
        with torch.device("meta"):
            model = Classifier(config)
        return _grid.from_file(model, arrays, bits)
    except InputError as error:
        raise InputError(f"{path}: {error}; the file is damaged or of another kind.") from error


def _history(path: Location, text: str) -> tuple[str, ...]:
    try:
        lines = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: the history is not JSON ({error}).") from error
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise InputError(f"{path}: the history must be a list of sentences.")
    return tuple(lines)


def _config(path: Location, about: dict[str, str]) -> Config:
    try:
        values = json.loads(about.get("config", ""))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: the config is not JSON ({error}).") from error
    if not isinstance(values, dict):
        raise InputError(f"{path}: the config must be a JSON object, not {values!r}.")
    try:
        return Config.from_dict(values)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _empty_model(path: Location, config: Config, shapes: dict[str, tuple[int, ...]]) -> Classifier:
    """Return a model without memory whose names and shapes agree with the file's."""
    _check_complete(path, config, shapes)
    with torch.device("meta"):
        model = Classifier(config)
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if missing := sorted(expected.keys() - shapes.keys()):
        raise InputError(f"{path} lacks the tensors {', '.join(missing)}.")
    if unexpected := sorted(shapes.keys() - expected.keys()):
        raise InputError(f"{path} holds tensors its config has no place for: {', '.join(unexpected)}.")
    for name, shape in expected.items():
        if shapes[name] != shape:
            raise InputError(f"{path}: {name} has shape {shapes[name]}, but its config asks for {shape}.")
    return model


def _check_complete(path: Location, config: Config, shapes: dict[str, tuple[int, ...]]) -> None:
    """Refuse a config that would claim far more memory than the file fills."""
    sizes = (config.inputs, config.outputs, config.width, *config.states)
    if max(sizes) > 2 * sum(map(math.prod, shapes.values())) or config.depth > len(shapes):  # two numbers a byte
        raise InputError(f"{path} holds fewer numbers than its config asks for; the file is not complete.")


def _check_types(path: Location, model: Classifier, arrays: Arrays) -> None:
    """Refuse arrays of another kind than the model's; real numbers may be float32 or float64, all the same."""
    real = arrays["decoder.weight"].dtype
    if real not in (np.float32, np.float64):
        raise InputError(f"{path}: expected float32 or float64 numbers, got {real}.")
    for name, tensor in model.state_dict().items():
        expected = real if tensor.is_floating_point() else np.dtype(str(tensor.dtype).removeprefix("torch."))
        if arrays[name].dtype != expected:
            raise InputError(f"{path}: {name} holds {arrays[name].dtype}, expected {expected}.")


def _check_values(path: Location, arrays: Arrays, width: int) -> None:
    """Refuse NaN and infinite numbers, and states whose owners are out of range or out of order."""
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            count = int((~np.isfinite(array)).sum())
            raise InputError(
                f"{path}: {name} holds NaN or infinite numbers ({count} of {array.size}); the file is damaged or "
                "the training diverged."
            )
        if name.endswith(".channel") and len(array):
            low, high = int(array.min()), int(array.max())
            if low < 0 or high >= width or (np.diff(array) < 0).any():
                raise InputError(
                    f"{path}: {name} must hold ascending channels from 0 to {width - 1}; it goes from {low} to {high}"
                    f"{', not ascending' if low >= 0 and high < width else ''}."
                )
