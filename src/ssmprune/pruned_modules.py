"""Pruned torch modules on disk: their tensors, and how many states each layer has left, in one safetensors file.

A module is built by its owner's code, whole; the file then says how far to cut its layers before the tensors fit.
"""

from __future__ import annotations

import copy
import json
import os
from typing import Any, TypeVar

import numpy as np

from .adapters.base import Adapter
from .adapters.families import PRUNED, is_torch_module, mark_pruned
from .adapters.layers import Layer, layers_of
from .arrays import check_dense, is_count, to_numpy
from .core import DiagonalSystem
from .errors import InputError, need_torch
from .files import check_format, load_tensors, save_tensors

FORMAT, VERSION = "ssmprune-pruned-module", 1
Model = TypeVar("Model")


def save_pruned(model: Any, path: str | os.PathLike[str], *, adapter: Adapter | None = None) -> None:
    """Write a pruned torch module as one safetensors file for `load_pruned`.

    For our own classifiers there is `save`, whose files know how to build the model as well.

    >>> import tempfile
    >>> import ssmprune as sp
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_pruned(sp.prune(sp.S5Layer(4, 10), 0.5), f"{folder}/small.safetensors")
    ...     len(load_pruned(sp.S5Layer(4, 10), f"{folder}/small.safetensors").pole_re)
    5
    """
    _check_module(model, "save_pruned")
    layers = layers_of(model, adapter)
    if not any(hasattr(module, PRUNED) for module in model.modules()):
        raise InputError(
            f"This {type(model).__name__} was not pruned: `prune` leaves its model as it is and returns a smaller "
            "copy, as in small = sp.prune(model, 0.5); save that. A whole model is saved by "
            "torch.save(model.state_dict(), ..)."
        )
    arrays, kinds = {}, {}
    for name, tensor in model.state_dict().items():
        if not hasattr(tensor, "detach"):
            raise InputError(f"{name!r} of the state dict is of type {type(tensor).__name__}, not a tensor.")
        arrays[name], kinds[name] = _to_array(name, tensor.detach())
    about = {
        "states": json.dumps({path: _states(layer.read()) for path, layer in layers.items()}),
        "kinds": json.dumps({name: kind for name, kind in kinds.items() if kind}),
    }
    save_tensors(path, arrays, {"format": FORMAT, "version": str(VERSION), **about})


def load_pruned(model: Model, path: str | os.PathLike[str], *, adapter: Adapter | None = None) -> Model:
    """Return a copy of a freshly built module, cut and filled so that it is the one that `save_pruned` wrote.

    model: built as before the pruning, with all its states; it is left as it is.
    adapter: of a family that is not recognised by itself, as when it was pruned.

    >>> import tempfile, torch
    >>> import ssmprune as sp
    >>> from ssmprune.models import S5Layer
    >>> net = torch.nn.Sequential(S5Layer(4, 10), torch.nn.GELU(), S5Layer(4, 10))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_pruned(sp.prune(net, 0.5), f"{folder}/small.safetensors")
    ...     again = load_pruned(net, f"{folder}/small.safetensors")
    >>> sum(len(layer.pole_re) for layer in (again[0], again[2]))
    10
    """
    _check_module(model, "load_pruned")
    arrays, about = load_tensors(path)
    check_format(path, about, FORMAT, VERSION)
    states, kinds = _entries(path, about)
    small = copy.deepcopy(model)
    layers = layers_of(small, adapter)
    if different := sorted(states.keys() ^ layers.keys()):
        owner = "file" if different[0] in states else "model"
        raise InputError(f"{path}: the SSM layer {different[0]!r} exists only in the {owner}; build the same model.")
    for name, layer in layers.items():
        _cut(layer, states[name], path)
    _fill(small, {name: _to_tensor(path, name, array, kinds.get(name)) for name, array in arrays.items()}, path)
    mark_pruned(small)
    return small


def _check_module(model: Any, function: str) -> None:
    need_torch()
    if not is_torch_module(model):
        raise InputError(
            f"`{function}` takes a torch module; got {type(model).__name__}. Flax trees have `save_tree`, state dicts "
            "torch.save."
        )


def _states(system: DiagonalSystem) -> int | list[int]:
    """Return the number of stored states, or of those in each channel where channels have states of their own."""
    layout = system.layout
    counts: list[int] = np.bincount(layout.channel, minlength=layout.channels).tolist()
    return counts[0] if system.channel is None else counts


def _entries(path: Any, about: dict[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    try:
        states, kinds = json.loads(about["states"]), json.loads(about["kinds"])
        counts = [n for count in states.values() for n in (count if isinstance(count, list) else [count])]
        if not all(map(is_count, counts)) or not set(kinds.values()) <= {"complex", "bfloat16"}:
            raise ValueError("wrong numbers of states or kinds of tensors")
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is not a whole pruned module ({error!r}); it is damaged.") from error
    return states, kinds


def _cut(layer: Layer, states: int | list[int], path: Any) -> None:
    """Remove as many states as are missing in the file; which ones does not matter, their numbers are replaced."""
    system = layer.read()
    whole = _states(system)
    counts, there = np.atleast_1d(states), np.atleast_1d(whole)
    if counts.shape != there.shape or (counts > there).any():
        raise InputError(
            f"{path}: layer {layer.path!r} has {_describe(states)} there and {_describe(whole)} in the model given; "
            "build the model with the sizes it had before it was pruned."
        )
    if (counts < there).any():
        layout = system.layout
        layer.shrink(np.asarray(layout.slot < counts[layout.channel]))


def _describe(states: int | list[int]) -> str:
    return f"{states} states" if isinstance(states, int) else f"{sum(states)} states in {len(states)} channels"


def _fill(model: Any, tensors: dict[str, Any], path: Any) -> None:
    expected = dict(model.state_dict())
    if different := sorted(expected.keys() ^ tensors.keys()):
        owner = "model" if different[0] in expected else "file"
        raise InputError(f"{path}: the tensor {different[0]!r} exists only in the {owner}; build the same model.")
    for name, tensor in expected.items():
        stored = tensors[name]
        if stored.shape != tensor.shape:
            raise InputError(
                f"{path}: {name} has the shape {tuple(stored.shape)} there and {tuple(tensor.shape)} in the model "
                "given; build the model with the sizes it had before it was pruned."
            )
        if stored.dtype != tensor.dtype:
            raise InputError(
                f"{path}: {name} holds {stored.dtype} there and {tensor.dtype} in the model given; convert the model "
                f"first, as by model.to({stored.dtype}), so that no digit is lost or made up."
            )
    model.load_state_dict(tensors)


def _to_array(name: str, tensor: Any) -> tuple[Any, str | None]:
    """Return a tensor as an array that a file can hold, and the kind of a tensor that it cannot hold as it is."""
    import torch

    check_dense(name, tensor)
    if tensor.is_complex():
        return to_numpy(name, torch.view_as_real(tensor.resolve_conj())), "complex"
    if tensor.dtype == torch.bfloat16:
        return to_numpy(name, tensor.view(torch.int16)), "bfloat16"
    return to_numpy(name, tensor), None


def _to_tensor(path: Any, name: str, array: Any, kind: str | None) -> Any:
    import torch

    tensor = torch.from_numpy(array.copy())
    if kind is None:
        return tensor
    if kind == "complex" and tensor.is_floating_point() and tensor.ndim and tensor.shape[-1] == 2:
        return torch.complex(tensor[..., 0], tensor[..., 1]) if not tensor.numel() else torch.view_as_complex(tensor)
    if kind == "bfloat16" and tensor.dtype == torch.int16:
        return tensor.view(torch.bfloat16)
    raise InputError(f"{path}: {name} is not a {kind} tensor; the file is damaged.")
