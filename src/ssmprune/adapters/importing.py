"""Whole models of other codes as our classifier: what their importers share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, need_torch
from .families import ArrayFamily, LayerParameters, leaves

if TYPE_CHECKING:
    from ..models.classifier import Classifier as Classifier
else:
    Classifier = Any  # torch is imported when a model is built; importers' types are read before that

Weights: TypeAlias = dict[str, NDArray[Any]]


class Arrays:
    """The arrays of a tree by dotted path, each taken once: what is left over was not understood.

    >>> arrays = Arrays({"head": {"kernel": np.ones((3, 2)), "bias": np.ones(2)}, "extra": np.ones(1)})
    >>> arrays.dense("decoder", "head")["decoder.weight"].shape
    (2, 3)
    >>> arrays.finish()
    Traceback (most recent call last):
    ssmprune.errors.InputError: The model has arrays this importer has no place for: extra.
    """

    def __init__(self, tree: Mapping[str, Any]) -> None:
        self._left = leaves(tree)

    def __contains__(self, path: str) -> bool:
        """Tell whether an array is still to be taken."""
        return path in self._left

    def take(self, path: str) -> NDArray[Any]:
        """Return an array as numpy and cross it off."""
        if path not in self._left:
            raise InputError(f"The model has no array {path}; it is of another family or laid out in another way.")
        value = self._left.pop(path)
        array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
        if array.dtype.kind != "f":
            raise InputError(f"{path} holds {array.dtype}; expected floating-point numbers.")
        return array

    def dense(self, ours: str, theirs: str) -> Weights:
        """Return a Flax Dense, whose kernel is (in, out), in torch's names."""
        return {f"{ours}.weight": self.take(f"{theirs}.kernel").T, f"{ours}.bias": self.take(f"{theirs}.bias")}

    def embedding(self, theirs: str) -> Weights:
        """Return a Flax Dense that reads one-hot tokens as our encoder, a table with a row per token."""
        kernel, bias = self.take(f"{theirs}.kernel"), self.take(f"{theirs}.bias")
        if kernel.shape[1:] != bias.shape:
            raise InputError(f"The kernel {kernel.shape} and the bias {bias.shape} of {theirs} do not fit together.")
        return {"encoder.weight": kernel + bias}

    def norm(self, ours: str, theirs: str) -> Weights:
        """Return the scale and shift of a Flax norm in torch's names."""
        return {f"{ours}.weight": self.take(f"{theirs}.scale"), f"{ours}.bias": self.take(f"{theirs}.bias")}

    def finish(self) -> None:
        """Refuse a model of which something was overlooked."""
        if self._left:
            raise InputError(f"The model has arrays this importer has no place for: {', '.join(sorted(self._left))}.")


def take_numbered(
    family: ArrayFamily, params: Mapping[str, Any], pattern: str, arrays: Arrays
) -> list[LayerParameters]:
    """Return the layers at the pattern's paths, filled with 0, 1, ...; cross off their arrays."""
    places = family.layers(params)
    layers: list[LayerParameters] = []
    while place := places.get(path := pattern.format(len(layers))):
        for name in place.keys:
            arrays.take(f"{path}.{name}")
        layers.append(family.parameters(place))
    if not layers:
        raise InputError(f"The model has no {family.name} layer at {path}; it is of another family or layout.")
    return layers


def below(tree: Mapping[str, Any], path_inside: str) -> dict[str, Any]:
    """Return the arrays of a model inside a checkpoint by their path in the model, found by one path it has.

    >>> list(below({"model": {"module.encoder.weight": np.ones(1)}, "epoch": 3}, "encoder.weight"))
    ['encoder.weight']
    """
    arrays = leaves(tree)
    for path in arrays:
        if f".{path}".endswith(f".{path_inside}"):
            start = path.removesuffix(path_inside)
            return {path.removeprefix(start): value for path, value in arrays.items() if path.startswith(start)}
    raise InputError(f"The model has no array {path_inside}; it is of another family or laid out in another way.")


def build(layers: list[LayerParameters], weights: Weights, **architecture: Any) -> Classifier:
    """Return our classifier in evaluation mode with these layers and weights.

    Sizes come from the arrays; `architecture` holds the other entries of `Config`.
    """
    need_torch()
    import torch

    from ..models.classifier import Classifier
    from ..models.config import Config

    encoder, decoder = weights["encoder.weight"], weights["decoder.weight"]
    if encoder.ndim != 2 or decoder.ndim != 2:
        raise InputError(f"Encoder and decoder must be matrices; their shapes are {encoder.shape}, {decoder.shape}.")
    inputs, width = encoder.shape if architecture.get("tokens") else encoder.shape[::-1]
    config = Config(
        "s5" if layers[0].channel is None else "s4d",
        inputs=inputs,
        outputs=len(decoder),
        width=width,
        states=tuple(layer.n for layer in layers),
        padding="seen",  # as all original codes have it
        **asdict(layers[0].options),
        **architecture,
    )
    for i, layer in enumerate(layers):
        weights |= {f"layers.{i}.ssm.{name}": array for name, array in layer.tensors().items()}
    with torch.random.fork_rng(devices=[]):  # the start values are overwritten
        model = Classifier(config).to(torch.float64 if encoder.dtype == np.float64 else torch.float32)
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in weights.items()}
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise InputError(f"The arrays of the model do not fit together: {error}") from error
    return model.eval()
