"""Models seen as named arrays, in torch modules, state dicts and nested dicts alike; what cannot be pruned, and why."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError

SELECTIVE = (
    "{path} is a selective (Mamba/S6) layer: its poles and B change with the input, so a state has no fixed gain. "
    "ssmprune handles linear time-invariant diagonal layers such as S5, S4D and LRU."
)
LOW_RANK = (
    "{path} is a diagonal-plus-low-rank (DPLR) S4 layer: its states are coupled by the low-rank term, so none can be "
    "removed alone. Train the diagonal variant (S4D). Whole DPLR kernels of state-spaces/s4 can be read and converted "
    "where their modes are well conditioned."
)
LIQUID = (
    "{path} is a liquid layer: its state update is multiplied by the input, so it is not time-invariant. "
    "Train it with liquid=False to prune it."
)


@dataclass
class ArrayPlace:
    """A place in a model that has arrays: reading an array gives numpy, writing it keeps the holder's kind.

    >>> tree = {"params": {"seq": {"D": np.ones(2, np.float32)}}}
    >>> place = places_of(tree).by_path["params.seq"]
    >>> place["D"] = place["D"] / 4
    >>> tree["params"]["seq"]["D"]
    array([0.25, 0.25], dtype=float32)
    """

    holder: Any  # a torch module, or the dict that has the arrays
    keys: dict[str, str]  # the name that the holder has for each array
    root: Any  # the whole model
    parent: ArrayPlace | None = None
    children: set[str] = field(default_factory=set)  # names of the places inside this place

    @property
    def module(self) -> Any:
        """The torch module, whose attributes record options, or None in a tree of arrays."""
        return None if isinstance(self.holder, Mapping) else self.holder

    def around(self) -> Iterator[ArrayPlace]:
        """Yield the places that hold this one, from the inside outwards."""
        place = self.parent
        while place is not None:
            yield place
            place = place.parent

    def __contains__(self, name: str) -> bool:
        """Tell whether there is an array of this name."""
        return name in self.keys

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return a copy of an array in double precision."""
        value = self._stored(name)
        if hasattr(value, "detach"):
            torch = sys.modules["torch"]
            kind = torch.complex128 if value.is_complex() else torch.float64
            copied: NDArray[Any] = value.detach().to("cpu", kind, copy=True).numpy()
            return copied
        value = np.asarray(value)
        with np.errstate(invalid="ignore"):  # the NaN of a damaged file may signal; the system refuses it
            return value.astype(np.complex128 if np.iscomplexobj(value) else np.float64)

    def __setitem__(self, name: str, numbers: NDArray[Any]) -> None:
        """Replace an array, in the precision and on the device of the old one."""
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
                new.__dict__.update(old.__dict__)  # attributes that a code has set, such as a special learning rate
            self._store(name, new)

    def _stored(self, name: str) -> Any:
        key = self.keys[name]
        return self.holder[key] if self.module is None else getattr(self.holder, key)

    def _store(self, name: str, value: Any) -> None:
        if self.module is not None:
            setattr(self.holder, self.keys[name], value)
        elif isinstance(self.holder, MutableMapping):
            self.holder[self.keys[name]] = value
        else:
            raise InputError(f"The tree is a frozen {type(self.holder).__name__}; `unfreeze` it to a dict first.")


@dataclass(frozen=True)
class Places:
    """All places of a model that have arrays, and all torch modules; a model of another kind has none."""

    model: Any
    by_path: dict[str, ArrayPlace]  # by dotted path


def places_of(model: Any) -> Places:
    """Walk through a model once.

    Of a tree with "params" only those are searched: optimisers keep copies that look like layers.
    """
    places: dict[str, ArrayPlace] = {}
    if is_torch_module(model):
        for path, module in model.named_modules():
            places[path] = ArrayPlace(module, {name: name for name in (*module._parameters, *module._buffers)}, model)
    elif isinstance(model, Mapping):
        for path, owner, key in _arrays({"params": model["params"]} if "params" in model else model):
            inside, _, name = path.rpartition(".")
            places.setdefault(inside, ArrayPlace(owner, {}, model)).keys[name] = key
    for path, place in places.items():
        place.parent = places.get(path.rpartition(".")[0]) if path else None
        while path:
            path, _, child = path.rpartition(".")
            if path in places:
                places[path].children.add(child)
    return Places(model, places)


def is_torch_module(model: Any) -> bool:
    """Tell a torch module from anything else without importing torch: where it was not, there is none."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def refuse_coupled(places: Places) -> None:
    """Refuse a model whose states cannot go one by one, recognised by the names of its arrays, with the reason."""
    for path, place in places.by_path.items():
        where, names = repr(path) if path else "The model", {*place.keys, *place.children}
        if {"A_log", "x_proj", "dt_proj"} <= names or {"A_log", "dt_bias", "in_proj"} <= names:
            raise InputError(SELECTIVE.format(path=where))
        whole = {"A_real", "A_imag", "P", "B", "C", "inv_dt"} <= names  # `StateSpacesDPLR` sees to these
        if "P" in names and not whole and ({"A_real", "A_imag"} <= names or {"Lambda_re", "Lambda_im"} <= names):
            raise InputError(LOW_RANK.format(path=where))
        if getattr(place.module, "liquid", False) is True:
            raise InputError(LIQUID.format(path=where))


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
