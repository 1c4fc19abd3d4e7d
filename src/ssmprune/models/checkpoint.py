"""Classifiers on disk: one safetensors file with the config in its metadata."""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from ..errors import InputError
from ..files import digest, existing, write_atomically
from .classifier import Classifier
from .config import Config

FORMAT, VERSION = "ssmprune-classifier", 1


def save(model: Classifier, path: str | os.PathLike[str]) -> None:
    """Write the model's config and tensors to one `.safetensors` file."""
    if not isinstance(model, Classifier):
        raise InputError(
            f"`save` writes ssmprune's own classifiers; this is {type(model).__name__}. Save it as its library does, "
            "for example by torch.save(model.state_dict(), path)."
        )
    config = json.dumps(model.config.to_dict())
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    metadata = {"format": FORMAT, "version": str(VERSION), "config": config, "digest": _digest(tensors, config)}
    write_atomically(path, to_bytes(tensors, metadata))


def load(path: str | os.PathLike[str]) -> Classifier:
    """The model that `save` wrote, in evaluation mode on the CPU, in the precision it was saved in."""
    path = existing(path)
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            config = _config(path, metadata)
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
            model = _empty_model(path, config, shapes)
            tensors = {name: file.get_tensor(name).clone() for name in shapes}  # aligned, apart from the file
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror or error}.") from error
    except SafetensorError as error:
        raise InputError(f"{path} is damaged or no safetensors file ({error}).") from error
    _check_types(path, model, tensors)
    _check_values(path, tensors, config.width)
    if metadata.get("digest") not in (None, _digest(tensors, metadata["config"])):  # None: an earlier version's file
        raise InputError(f"{path} is damaged: its digest is wrong. Fetch or save it again.")
    model.load_state_dict(tensors, assign=True)
    return model.eval()


def _config(path: Path, metadata: dict[str, str]) -> Config:
    if "ssmprune" in metadata:
        raise InputError(f"{path} is a plan; give the model that it was made for.")
    if metadata.get("format") != FORMAT:
        raise InputError(f"{path} was not saved by ssmprune (its format is {metadata.get('format')!r}).")
    if metadata.get("version") != str(VERSION):
        raise InputError(f"{path} has version {metadata.get('version')}; this ssmprune reads version {VERSION}.")
    try:
        values = json.loads(metadata.get("config", ""))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: the config is not JSON ({error}).") from error
    if not isinstance(values, dict):
        raise InputError(f"{path}: the config must be a JSON object, not {values!r}.")
    try:
        return Config.from_dict(values)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _empty_model(path: Path, config: Config, shapes: dict[str, tuple[int, ...]]) -> Classifier:
    """A model without memory whose names and shapes agree with the file's."""
    sizes = (config.inputs, config.outputs, config.width, *config.states)
    if max(sizes) > sum(map(_numel, shapes.values())) or config.depth > len(shapes):
        raise InputError(f"{path} holds fewer numbers than its config asks for; the file is not complete.")
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


def _check_types(path: Path, model: Classifier, tensors: dict[str, Tensor]) -> None:
    """Refuse tensors of another kind than the model's; real numbers may be float32 or float64, all the same."""
    real = tensors["decoder.weight"].dtype
    if real not in (torch.float32, torch.float64):
        raise InputError(f"{path}: expected float32 or float64 numbers, got {real}.")
    for name, tensor in model.state_dict().items():
        expected = real if tensor.is_floating_point() else tensor.dtype
        if tensors[name].dtype != expected:
            raise InputError(f"{path}: {name} holds {tensors[name].dtype}, expected {expected}.")


def _check_values(path: Path, tensors: dict[str, Tensor], width: int) -> None:
    """Refuse numbers that are none, and states whose owners are out of range or out of order."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            count = int((~tensor.isfinite()).sum())
            raise InputError(
                f"{path}: {name} holds NaN or infinite numbers ({count} of {tensor.numel()}); the file is damaged or "
                "the training diverged."
            )
        if name.endswith(".channel") and len(tensor):
            low, high = int(tensor.min()), int(tensor.max())
            if low < 0 or high >= width or (tensor.diff() < 0).any():
                raise InputError(
                    f"{path}: {name} must hold ascending channels from 0 to {width - 1}; it goes from {low} to {high}"
                    f"{', not ascending' if low >= 0 and high < width else ''}."
                )


def _digest(tensors: dict[str, Tensor], config: str) -> str:
    return digest({name: tensor.numpy() for name, tensor in tensors.items()}, config)


def _numel(shape: tuple[int, ...]) -> int:
    return torch.Size(shape).numel()
