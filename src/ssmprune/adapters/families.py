"""Families whose layers are named arrays, in torch modules, state dicts and nested dicts alike.

`ArrayPlace` reads and writes the arrays, `LayerParameters` says what they mean, families cut them along their states.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..arrays import Complex, Index, Mask, Real, check_dense, join_parts, to_parts
from ..core.discretization import DISCRETIZATIONS
from ..core.system import DiagonalSystem
from ..errors import InputError
from ..models.config import CLIP, LayerOptions
from .base import WITHOUT_NEW_STATES, Adapter

if TYPE_CHECKING:
    from ..models.layers import S4DLayer, S5Layer

PRUNED = "pruned_by_ssmprune"  # an attribute that copies and pickles of a module keep


@dataclass
class ArrayPlace:
    """A place in a model that has arrays: reading an array gives numpy, writing it keeps the holder's kind.

    >>> tree = {"params": {"seq": {"D": np.ones(2, np.float32)}}}
    >>> place = places_of(tree)["params.seq"]
    >>> place["D"] = place["D"] / 4
    >>> tree["params"]["seq"]["D"]
    array([0.25, 0.25], dtype=float32)
    """

    holder: Any  # a torch module, or the dict that has the arrays
    keys: dict[str, str]  # the name that the holder has for each array
    root: Any  # the whole model
    around: list[ArrayPlace] = field(default_factory=list)  # the places that hold this one, from the inside outwards
    children: set[str] = field(default_factory=set)  # names of the places inside this place

    @property
    def module(self) -> Any:
        """The torch module, whose attributes record options, or None in a tree of arrays."""
        return None if isinstance(self.holder, Mapping) else self.holder

    def __contains__(self, name: str) -> bool:
        """Tell whether there is an array of this name."""
        return name in self.keys

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return a copy of an array in double precision."""
        value = self._stored(name)
        if hasattr(value, "detach"):
            check_dense(name, value)
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
        new = self._of_kind(old, numbers)
        if not hasattr(old, "detach"):
            self._store(name, new)
        elif tuple(old.shape) == numbers.shape:
            old.detach().copy_(new)  # the same parameter: optimisers keep hold of it
        else:
            if self.module is not None and self.keys[name] in self.module._parameters:
                new = type(old)(new, old.requires_grad)
                new.__dict__.update(old.__dict__)  # attributes that a code has set, such as a special learning rate
            self._store(name, new)

    @staticmethod
    def _of_kind(old: Any, numbers: NDArray[Any]) -> Any:
        """Return numbers as an array or tensor of the type of an old one; refuse those that are infinite there."""
        new: Any
        if hasattr(old, "detach"):
            new = old.detach().new_tensor(numbers)
            finite = bool(new.isfinite().all())
        else:
            with np.errstate(over="ignore"):
                new = np.asarray(numbers, np.asarray(old).dtype)
            finite = bool(np.isfinite(new).all())
        if not finite and np.isfinite(numbers).all():
            raise InputError(
                f"Numbers of up to {np.abs(numbers).max():.1e} do not fit into {old.dtype}, the layer's type. Prune "
                "the model in double precision, or take a plan without refit."
            )
        return new

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


def places_of(model: Any) -> dict[str, ArrayPlace]:
    """Return all places of a model that have arrays, and all torch modules, by dotted path.

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
        while path:
            path, _, child = path.rpartition(".")
            if path in places:
                place.around.append(places[path])
                places[path].children.add(child)
    return places


def is_torch_module(model: Any) -> bool:
    """Tell a torch module from anything else without importing torch: where it was not, there is none."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def mark_pruned(model: Any) -> None:
    """Leave a trace in a torch module that it was pruned, which `save_pruned` asks for."""
    if is_torch_module(model):
        setattr(model, PRUNED, True)


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


@dataclass(frozen=True)
class LayerParameters:
    """The parameters of one layer, named and meant as in `S5Layer` (MIMO) or, with `channel`, `S4DLayer`."""

    pole_re: Real  # (n,)
    pole_im: Real  # (n,)
    B: Complex  # (n, H); (n,) with channel
    C: Complex  # (directions, H, n); (directions, n) with channel
    D: Real  # (H,)
    log_step: Real  # (n,); (H,) with channel
    options: LayerOptions  # how the layer is parametrised; its directions are those of C
    channel: Index | None = None  # (n,) owner of each state, ascending

    def __post_init__(self) -> None:
        n, H, directions = self.n, len(self.D), len(self.C)
        flat = self.channel is not None
        expected = {
            "pole_im": (n,),
            "B": (n,) if flat else (n, H),
            "C": (directions, n) if flat else (directions, H, n),
            "log_step": (H,) if flat else (n,),
        }
        for name, shape in expected.items():
            if getattr(self, name).shape != shape:
                raise InputError(
                    f"A layer of {n} states and width {H} needs {name} {shape}; its {name} is "
                    f"{getattr(self, name).shape}. Check the options given for this family."
                )
        if directions not in (1, 2):
            raise InputError(f"A layer has one C, or two when bidirectional; this one has {directions}.")
        object.__setattr__(self, "options", replace(self.options, bidirectional=directions == 2))

    @property
    def n(self) -> int:
        """Number of stored states."""
        return len(self.pole_re)

    def system(self) -> DiagonalSystem:
        """Return what the layer computes, without D u."""
        flat, real = self.channel is not None, self.pole_re  # `models.layers.continuous_poles` has the forms in torch
        if self.options.pole_form != "free":
            real = -np.exp(real) if self.options.pole_form == "exp" else np.minimum(real, CLIP)
        return DiagonalSystem.from_continuous(
            join_parts(real, self.pole_im),
            self.B[:, None] if flat else self.B,
            self.C[:, None, :] if flat else self.C,
            self._steps(self.log_step, self.channel),
            DISCRETIZATIONS[self.options.discretization],
            channel=self.channel,
            channels=len(self.D) if flat else 0,
            gain=2.0 if self.options.conj_sym else 1.0,
            backward_delay=self.options.backward_delay,
        )

    def of_system(self, system: DiagonalSystem) -> LayerParameters:
        """Return parameters of another system of this width; D, the pole form and the discretisation stay.

        A MIMO layer gets the mean of its log-steps. With `channel` the steps stay, and the size of B goes into C. Where
        poles are clipped, steps are as short as slow poles need.
        """
        order, channel = np.arange(system.n), None
        log_step, B, C = np.full(system.n, self.log_step.mean()), system.B, system.C
        if system.channel is not None:
            order = np.argsort(system.channel, kind="stable")
            channel, log_step = system.channel[order], self.log_step
            B, C = np.ones(system.n, np.complex128), (system.C * system.B[:, 0])[:, 0, order]
        log_poles = system.log_poles[order]
        if self.options.discretization == "bilinear":
            log_poles = np.tanh(log_poles / 2) * 2
        if self.options.pole_form == "clip":
            log_step = self._short_enough(log_step, channel, log_poles.real)
        step = self._steps(log_step, channel)
        poles: Complex = log_poles / step
        factor = DISCRETIZATIONS[self.options.discretization](poles, step)[1]
        return replace(
            self,
            pole_re=np.log(-poles.real) if self.options.pole_form == "exp" else poles.real,
            pole_im=poles.imag,
            B=B / factor[:, None] if channel is None else B,
            C=C if channel is None else C / factor,
            log_step=log_step,
            channel=channel,
        )

    def tensors(self, keep: Mask | None = None) -> dict[str, np.ndarray[Any, Any]]:
        """Return the arrays of our layer by name, of all states or of those in `keep`."""
        keep = np.ones(self.n, bool) if keep is None else keep
        arrays = {
            "pole_re": self.pole_re[keep],
            "pole_im": self.pole_im[keep],
            "B": to_parts(self.B[keep]),
            "C": to_parts(self.C[..., keep]),
            "D": self.D,
            "mask": np.ones(int(keep.sum()), bool),
        }
        if self.channel is None:
            return arrays | {"log_step": self.log_step[keep]}
        return arrays | {"log_step": self.log_step, "channel": self.channel[keep]}

    def layer(self, keep: Mask | None = None) -> S5Layer | S4DLayer:
        """Return our torch layer with these parameters, of all states or of those in `keep`."""
        import torch

        from ..models.layers import S4DLayer, S5Layer

        tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in self.tensors(keep).items()}
        kind = S5Layer if self.channel is None else S4DLayer
        with torch.random.fork_rng(devices=[]):  # the start values are overwritten
            layer: S5Layer | S4DLayer = kind(len(self.D), len(tensors["pole_re"]), self.options)
        layer.load_state_dict(tensors)
        return layer

    def _short_enough(self, log_step: Real, channel: Index | None, decay: Real) -> Real:
        """Return log-steps in which every state decays at least as fast as clipped poles do."""
        if (decay >= 0).any():
            raise InputError("This layer holds stable poles alone; a pole to be written is on or outside the circle.")
        shorter, longest = log_step.copy(), np.log(decay / CLIP / self.options.step_rescale)
        np.minimum.at(shorter, np.arange(len(decay)) if channel is None else channel, longest)
        return shorter

    def _steps(self, log_step: Real, channel: Index | None) -> Real:
        steps: Real = np.exp(log_step) * self.options.step_rescale
        return steps if channel is None else steps[channel]


class ArrayFamily(Adapter):
    """A family whose layers are recognised by the names of their arrays, in modules, state dicts and trees alike."""

    marks: ClassVar[frozenset[str]]  # arrays that every layer of the family has
    sizes: ClassVar[tuple[str, ...]] = ()  # attributes in which a module keeps the number of its states

    def layers(self, model: Any) -> dict[str, ArrayPlace]:
        """Return the layers of this family by their path in the model."""
        return self.layers_among(places_of(model))

    def layers_among(self, places: dict[str, ArrayPlace]) -> dict[str, ArrayPlace]:
        """Return the places that hold all arrays of a layer."""
        return {path: place for path, place in places.items() if self.marks <= place.keys.keys()}

    def read(self, layer: ArrayPlace) -> DiagonalSystem:
        """Discretise in double precision, whatever precision the layer has."""
        return self.parameters(layer).system()

    def convert(self, layer: ArrayPlace, keep: Mask | None = None) -> Any:
        """Build one of our torch layers from the parameters."""
        return self.parameters(layer).layer(keep)

    def parameters(self, layer: ArrayPlace) -> LayerParameters:
        """Return the layer's parameters in the words of our own layers."""
        try:
            return self._parameters(layer)
        except InputError:
            raise
        except (ValueError, IndexError, KeyError) as error:
            shapes = ", ".join(f"{name} {layer[name].shape}" for name in layer.keys)
            raise InputError(f"The arrays of a {self.name} layer do not belong together: {shapes}.") from error

    @abstractmethod
    def _parameters(self, layer: ArrayPlace) -> LayerParameters:
        """Say what the arrays mean; errors of numpy become an InputError about shapes that do not belong together."""

    def note_size(self, layer: ArrayPlace, n: int) -> None:
        """Tell a module how many states it has now."""
        for name in self.sizes:
            if hasattr(layer.module, name):
                setattr(layer.module, name, n)

    def ask(self) -> None:
        """Raise an error that names every option still to be given."""
        if missing := [name for name in self.asked if getattr(self, name) is None]:
            call = f"{type(self).__name__}({', '.join(f'{name}=...' for name in self.asked)})"
            raise InputError(
                f"A tree of {self.name} does not record {', '.join(missing)}. Say what the model was trained with: "
                f"adapter={call}, from {type(self).__module__}."
            )


class FlatFamily(ArrayFamily):
    """States are entries along one axis of every array; a silent state has a zero row in B."""

    state_axis: ClassVar[dict[str, int]]  # the axis along which an array runs over the states
    input_arrays: ClassVar[tuple[str, ...]] = ("B",)  # whose rows are zero for a silent state

    def mask(self, layer: ArrayPlace, keep: Mask) -> None:
        """Set rows to zero; all shapes stay."""
        for name in self.input_arrays:
            rows = layer[name]
            rows[~keep] = 0
            layer[name] = rows

    def shrink(self, layer: ArrayPlace, keep: Mask) -> None:
        """Cut every array along its states; the two directions of one C lie behind each other."""
        for name, axis in self.state_axis.items():
            if name in layer:
                whole = layer[name]
                layer[name] = whole.compress(np.tile(keep, whole.shape[axis] // max(1, len(keep))), axis)
        self.note_size(layer, int(keep.sum()))

    def write(self, layer: ArrayPlace, system: DiagonalSystem) -> None:
        """Replace all arrays but D."""
        for name, values in self.arrays(layer, self.parameters(layer).of_system(system), system).items():
            layer[name] = values.reshape(*values.shape, *[1] * (layer[name].ndim - values.ndim))
        self.note_size(layer, system.n)

    def arrays(self, layer: ArrayPlace, new: LayerParameters, system: DiagonalSystem) -> dict[str, NDArray[Any]]:
        """Return the arrays, all but D, with which a layer computes a system, which has the parameters `new`."""
        raise InputError(f"New states cannot be written into a layer of {self.name}. {WITHOUT_NEW_STATES}")


class GridFamily(ArrayFamily):
    """All channels have equally many states; a silent state has zeros in C, since B is fixed or shared."""

    grid_axes: ClassVar[dict[str, tuple[int, int]]]  # the axes of an array that run over channels and states

    def calling_module(self, path: str) -> str:
        """Refuse, since these codes compute a kernel here and the module around it does more than convolve with it."""
        raise InputError(
            f"Calibration cannot watch a layer of {self.name} at work: it only computes a kernel. Bring the model into "
            "our own layers (`ssmprune import`, or sp.convert layer by layer), or prune without data."
        )

    def feed_through(self, layer: ArrayPlace, channels: int) -> Real:
        """Return D (H,) of the block around a kernel, else zeros."""
        return next((place["D"].ravel() for place in layer.around if "D" in place), np.zeros(channels))

    def mask(self, layer: ArrayPlace, keep: Mask) -> None:
        """Set entries of C to zero; all shapes stay."""
        C = layer["C"]
        grid = np.moveaxis(C, self.grid_axes["C"], (0, 1))  # a view
        grid[~keep.reshape(grid.shape[:2])] = 0
        layer["C"] = C

    def shrink(self, layer: ArrayPlace, keep: Mask) -> None:
        """Cut the grid, which is possible where all channels keep equally many states."""
        channels, _ = (layer["C"].shape[axis] for axis in self.grid_axes["C"])
        rows = keep.reshape(channels, -1)
        counts = rows.sum(1)
        if counts.min() != counts.max():
            raise InputError(
                f"{self.name} stores a grid with one number of states for all channels, and this plan keeps "
                f"{counts.min()} to {counts.max()}. Use sp.mask, or sp.convert to get our S4D layers, "
                "whose channels may differ."
            )
        for name, axes in self.grid_axes.items():
            grid = np.moveaxis(layer[name], axes, (0, 1))
            if len(grid) != channels:
                raise InputError(f"Channels share {name}, so none can lose states alone; use sp.mask or sp.convert.")
            layer[name] = np.moveaxis(grid[rows].reshape(channels, -1, *grid.shape[2:]), (0, 1), axes)
        self.note_size(layer, int(counts[0]))


def directions(C: Complex, n: int) -> Complex:
    """Give both directions of C (H, directions n) an axis of their own: (directions, H, n)."""
    count = C.shape[1] // n if n and C.shape[1] % n == 0 else 1
    return np.stack(np.split(C, count, axis=1))
