"""Other people's models seen as trees: named arrays in torch modules, state dicts or nested dicts, all alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError


@dataclass
class Node:
    """One place in a model that holds arrays: reading one gives numpy, writing one keeps the owner's kind.

    >>> tree = {"params": {"seq": {"D": np.ones(2, np.float32)}}}
    >>> node = nodes(tree)["params.seq"]
    >>> node["D"] = node["D"] / 4
    >>> tree["params"]["seq"]["D"]
    array([0.25, 0.25], dtype=float32)
    """

    owner: Any  # a torch module, or the dict that holds the arrays
    keys: dict[str, str]  # what the owner calls each array
    root: Any  # the whole model
    parent: Node | None = None

    @property
    def module(self) -> Any:
        """The torch module, whose attributes record options, or None in a tree of arrays."""
        return None if isinstance(self.owner, Mapping) else self.owner

    def __contains__(self, name: str) -> bool:
        """Tell whether there is an array of this name."""
        return name in self.keys

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return a copy of an array in double precision."""
        value = self._stored(name)
        if hasattr(value, "detach"):
            value = value.detach().cpu()
            value = (value.cdouble() if value.is_complex() else value.double()).numpy()
        value = np.asarray(value)
        return value.astype(np.complex128 if np.iscomplexobj(value) else np.float64)

    def __setitem__(self, name: str, numbers: NDArray[Any]) -> None:
        """Put an array in the place of the one stored, in its precision and on its device."""
        old = self._stored(name)
        if tuple(old.shape) != numbers.shape and isinstance(self.root, Mapping) and "opt_state" in self.root:
            raise InputError(
                "The tree holds an optimiser's state, whose arrays have the old shapes. Shrink the parameters alone, "
                'for example {key: tree[key] for key in ("params", "batch_stats")}.'
            )
        if not hasattr(old, "detach"):
            self._store(name, np.asarray(numbers, np.asarray(old).dtype))
        elif tuple(old.shape) == numbers.shape:
            old.detach().copy_(old.new_tensor(numbers))  # the same parameter: optimisers keep hold of it
        else:
            new = old.detach().new_tensor(numbers)
            if self.module is not None and self.keys[name] in self.module._parameters:
                new = type(old)(new, old.requires_grad)
                new.__dict__.update(old.__dict__)  # what a code noted on it, such as a learning rate of its own
            self._store(name, new)

    def _stored(self, name: str) -> Any:
        key = self.keys[name]
        return self.owner[key] if self.module is None else getattr(self.owner, key)

    def _store(self, name: str, value: Any) -> None:
        if self.module is not None:
            setattr(self.owner, self.keys[name], value)
        elif isinstance(self.owner, MutableMapping):
            self.owner[self.keys[name]] = value
        else:
            raise InputError(f"The tree is a frozen {type(self.owner).__name__}; `unfreeze` it to a dict first.")


def nodes(model: Any) -> dict[str, Node]:
    """Return every place of a model that holds arrays, by its dotted path.

    Of a tree with "params" only those are searched: optimisers keep copies that look like layers.
    """
    if hasattr(model, "named_modules"):
        found = {
            path: Node(part, {name: name for name in (*part._parameters, *part._buffers)}, model)
            for path, part in model.named_modules()
        }
    elif isinstance(model, Mapping):
        start = {"params": model["params"]} if "params" in model else model
        found = {}
        for path, owner, key in _arrays(start):
            place, _, name = path.rpartition(".")
            found.setdefault(place, Node(owner, {}, model)).keys[name] = key
    else:
        found = {}
    for path, node in found.items():
        node.parent = found.get(path.rpartition(".")[0]) if path else None
    return found


def leaves(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return every array of a tree or state dict by its dotted path.

    >>> list(leaves({"params": {"norm": {"scale": np.ones(2)}}, "head.bias": np.ones(3), "epoch": 7}))
    ['params.norm.scale', 'head.bias']
    """
    return {path: owner[key] for path, owner, key in _arrays(tree)}


def _arrays(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """Yield the dotted path of every array, the dict that holds it, and its key there."""
    for key, value in tree.items():
        here = f"{path}.{key}" if path else str(key)
        if isinstance(value, Mapping):
            yield from _arrays(value, here)
        elif hasattr(value, "shape") and hasattr(value, "dtype"):
            yield here, tree, key
