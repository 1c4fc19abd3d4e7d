"""Classifiers on disk, one safetensors file with the config in its metadata, and how large models are.

Torch is imported when a model is loaded or saved: `ssmprune.load` must exist without it.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, naming, need_torch
from ..files import check_format, load_tensors, save_tensors
from ..quantisation.grid import parse_ranges, restore
from .config import Config
from .costs import part_of

if TYPE_CHECKING:
    from torch import nn

    from .classifier import Classifier

FORMAT, VERSION = "ssmprune-classifier", 1
FOREIGN = (".pt", ".pth", ".ckpt", ".bin", ".msgpack")  # what other codes save

Arrays: TypeAlias = dict[str, NDArray[Any]]


def save(model: Classifier, path: str | os.PathLike[str]) -> None:
    """Save one of our models as a single `.safetensors` file that `load` reads anywhere.

    >>> import tempfile
    >>> from ssmprune.models import Classifier
    >>> model = Classifier(Config("s5", inputs=1, outputs=2, width=4, states=(3,)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(model, Path(folder) / "model.safetensors")
    ...     load(Path(folder) / "model.safetensors").config == model.config
    True
    """
    need_torch()
    from .classifier import Classifier

    if not isinstance(model, Classifier):
        raise InputError(
            f"`save` writes ssmprune's own classifiers; this is {type(model).__name__}. Other pruned torch modules "
            "are written by `save_pruned`, Flax trees by `save_tree`."
        )
    tensors = model.arrays()
    about = {"format": FORMAT, "version": str(VERSION), "config": json.dumps(model.config.to_dict())}
    if model.grid is not None and (stored := model.grid.store(tensors)) is not None:
        tensors, about["bits"] = stored, str(model.grid.bits)
        if model.grid.ranges is not None:
            about["ranges"] = json.dumps(asdict(model.grid.ranges))
    if model.history:
        about["history"] = json.dumps(model.history)
    save_tensors(path, tensors, about)


def load(path: str | os.PathLike[str]) -> Classifier:
    """Return the model that `save` wrote, full or shrunk, in evaluation mode on the CPU, in its saved precision.

    >>> from importlib.resources import files
    >>> load(files("ssmprune") / "demo" / "smnist-s5.safetensors").config.states  # stored: half of 128
    (64, 64, 64, 64)
    """
    need_torch()
    if Path(path).suffix in FOREIGN and Path(path).is_file():
        raise InputError(
            f"{path} is not one of ssmprune's own models. If it is a classifier from another codebase, "
            f"`ssmprune import {path} --family FAMILY --out model.safetensors` converts it; `ssmprune list` names the "
            "families."
        )
    arrays, about = load_tensors(path, needs_digest=False)  # paper/checkpoints/smnist-s4d is older than digests are
    check_format(path, about, FORMAT, VERSION)
    with naming(path):
        return _model(arrays, about).eval()


def parameters(model: nn.Module) -> int:
    """Return how many numbers training changes, in one of our models or any other of torch."""
    return sum(parameter.numel() for parameter in model.parameters())


def stored_bytes(model: nn.Module) -> int:
    """Return the bytes of all tensors, the parameters and what else a checkpoint holds, as it holds them.

    Weights on a grid of 8 or 4 bits count as such, with their scales.
    """
    from .classifier import Classifier

    if isinstance(model, Classifier) and model.grid is not None:
        return sum(stored_parts(model).values())
    return sum(tensor.numel() * tensor.element_size() for tensor in (*model.parameters(), *model.buffers()))


def stored_parts(model: Classifier) -> Counter[str]:
    """Return the bytes of the parts of one of our models, those of `costs.parts`, as its file holds them."""
    arrays, found = model.arrays(), Counter[str]()
    for name, array in ((model.grid and model.grid.store(arrays)) or arrays).items():
        found[part_of(name)] += array.nbytes
    return found


def _model(arrays: Arrays, about: dict[str, str]) -> Classifier:
    """Return the model that the tensors and the metadata of a file describe; the caller adds the file to errors."""
    import torch

    from .classifier import Classifier

    values = _parse("config", about.get("config", ""))
    if not isinstance(values, dict):
        raise InputError(f"the config must be a JSON object, not {values!r}.")
    config = Config.from_dict(values)
    history = _parse("history", about.get("history", "[]"))
    if not isinstance(history, list) or not all(isinstance(line, str) for line in history):
        raise InputError("the history must be a list of sentences.")
    sizes = (config.inputs, config.outputs, config.width, *config.states)
    numbers = sum(array.size for array in arrays.values())
    if max(sizes) > 2 * numbers or config.depth > len(arrays):  # two numbers of 4 bits share a byte
        raise InputError("the file holds fewer numbers than its config asks for; it is not complete.")
    with torch.device("meta"):
        model = Classifier(config)
    if "bits" in about:
        shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        try:
            arrays, model.grid = restore(arrays, shapes, about["bits"])
            if "ranges" in about:
                ranges = parse_ranges(_parse("ranges", about["ranges"]), 0 if config.tokens else config.inputs)
                model.grid = replace(model.grid, ranges=ranges)
        except InputError as error:
            raise InputError(f"{error}; the file is damaged or of another kind.") from error
    _check(model, arrays, config.width)
    model.take_arrays(arrays)
    model.history = tuple(history)
    return model


def _parse(what: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the {what} is not JSON ({error}).") from error


def _check(model: Classifier, arrays: Arrays, width: int) -> None:
    """Refuse arrays whose names, shapes and types are not the model's; all real numbers are float32 or float64.

    Refuse NaN and infinite numbers, and states whose owners are out of range or out of order.
    """
    expected = model.state_dict()
    if missing := sorted(expected.keys() - arrays.keys()):
        raise InputError(f"the file lacks the tensors {', '.join(missing)}.")
    if unexpected := sorted(arrays.keys() - expected.keys()):
        raise InputError(f"the file holds tensors its config has no place for: {', '.join(unexpected)}.")
    real = arrays["decoder.weight"].dtype
    if real not in (np.float32, np.float64):
        raise InputError(f"expected float32 or float64 numbers, got {real}.")
    for name, tensor in expected.items():
        shape, array = tuple(tensor.shape), arrays[name]
        if array.shape != shape:
            raise InputError(f"{name} has shape {array.shape}, but its config asks for {shape}.")
        kind = real if tensor.is_floating_point() else np.dtype(str(tensor.dtype).removeprefix("torch."))
        if array.dtype != kind:
            raise InputError(f"{name} holds {array.dtype}, expected {kind}.")
        if count := int((~np.isfinite(array)).sum()):
            raise InputError(
                f"{name} holds NaN or infinite numbers ({count} of {array.size}); the file is damaged or "
                "the training diverged."
            )
        if name.endswith(".channel") and len(array):
            low, high = int(array.min()), int(array.max())
            if low < 0 or high >= width or (np.diff(array) < 0).any():
                raise InputError(
                    f"{name} must hold ascending channels from 0 to {width - 1}; it goes from {low} to {high}"
                    f"{', not ascending' if low >= 0 and high < width else ''}."
                )
