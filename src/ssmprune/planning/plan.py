"""Plans: which states of which layer stay, with the provenance to replay the decision."""

from __future__ import annotations

import json
import os
from collections import UserDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Complex, Mask, Real, from_parts, is_count, is_share, to_parts
from ..core.system import DiagonalSystem
from ..errors import InputError
from ..files import check_format, load_tensors, save_tensors
from ..methods import Masks, Reduced, Scores

FORMAT, VERSION = "ssmprune-plan", 1
WITH_FEATURES = 2  # the version of plans that also prune features, which older readers must not take for others
WITH_NEW_STATES = 3  # the same, of plans that make new states
FIELDS = ("channels", "gain", "backward_delay", "has_D")  # of a system, beside its arrays


class Fingerprints(UserDict[str, Any]):
    """The identities of the systems that a plan is made for, each computed when it is asked for: hashing takes time."""

    def __getitem__(self, layer: str) -> str:
        """Return the fingerprint of a layer; `data` has its system."""
        return str(self.data[layer].fingerprint)


@dataclass(frozen=True, eq=False)
class Features:
    """The features of a classifier that stay, and the arrays that deleting the others does not give (see `narrowing`).

    `units` are those of the hidden layer of a model that compares two documents; it is as wide as the model.
    """

    keep: Mask  # (width,)
    units: Mask | None = None  # (width,)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)  # of the narrower model, by name

    @property
    def kept(self) -> int:
        """How many features stay."""
        return int(self.keep.sum())

    def __str__(self) -> str:
        """Say how many stay."""
        return f"{self.kept} of {len(self.keep)} features"


@dataclass(frozen=True, eq=False)
class Plan:
    """Keep-masks for every layer of one model, one entry per stored state (a conjugate pair is one entry).

    `scores` are the criterion's log-scores; `fingerprints` tell the model the plan was made for. A plan whose kept
    states take over what the others carried also has, for those layers, their new `C` and what to add to `D`. A plan
    that makes `new` states instead has the layers' new systems; its masks then say no more than how many there are.
    `ratio` is the share that was asked for; the table of a plan says what was reached.

    >>> import ssmprune as sp
    >>> system = sp.DiagonalSystem.from_discrete(poles=[0.5, 0.9], B=[[1], [1]], C=[[1, 1]])
    >>> plan = sp.make_plan({"ssm": system}, ratio=0.5)
    >>> plan.keep["ssm"], plan.kept, plan.reached
    (array([False,  True]), 1, 0.5)
    """

    keep: Masks  # {layer: (n,) bool}
    scores: Scores  # {layer: (n,) float64}
    method: str
    ratio: float
    fingerprints: Mapping[str, str]  # `Fingerprints` of a plan made here, of one from a file those it was made with
    states_per_entry: dict[str, int]  # 2 where an entry is a conjugate pair
    C: dict[str, Complex] = field(default_factory=dict)  # {layer: (directions, outputs, kept)}; (directions, 1, kept)
    D_change: dict[str, Real] = field(default_factory=dict)  # {layer: (outputs,)}
    sequences: int = 0  # of data on which the states were chosen or re-fitted
    new: dict[str, Reduced] = field(default_factory=dict)  # {layer: its new system and the bound of what is lost}
    features: Features | None = None  # of the model without the states that go; None where all stay

    def __post_init__(self) -> None:
        for layer, keep in self.keep.items():
            if keep.ndim != 1 or keep.dtype != bool or self.scores[layer].shape != keep.shape:
                raise InputError(
                    f"Layer {layer!r} needs a bool mask (n,) and n scores; "
                    f"got {keep.dtype} {keep.shape} and {self.scores[layer].shape}."
                )
            keep.flags.writeable = self.scores[layer].flags.writeable = False
        for layer, C in self.C.items():
            kept, change = int(self.keep[layer].sum()), self.D_change[layer]
            typed = C.dtype == np.complex128 and change.dtype == np.float64
            fitting = C.ndim == 3 and C.shape[2] == kept and change.ndim == 1
            if not (typed and fitting and np.isfinite(C).all() and np.isfinite(change).all()):
                raise InputError(
                    f"Layer {layer!r} keeps {kept} states, so it needs finite complex128 C (directions, outputs, "
                    f"{kept}) and float64 D_change (outputs,); got {C.dtype} {C.shape} and {change.dtype} "
                    f"{change.shape}."
                )
            C.flags.writeable = change.flags.writeable = False
        for layer, (system, bound) in self.new.items():
            if system.n != (kept := int(self.keep[layer].sum())) or not 0 <= bound < np.inf:
                raise InputError(
                    f"Layer {layer!r} keeps {kept} states, so it needs a system of {kept} new states and a finite "
                    f"bound; got {system} and {bound}."
                )

    @property
    def total(self) -> int:
        """Number of states before pruning; a conjugate pair counts as two."""
        return sum(len(keep) * self.states_per_entry[layer] for layer, keep in self.keep.items())

    @property
    def kept(self) -> int:
        """Number of states that stay; a conjugate pair counts as two."""
        return sum(int(keep.sum()) * self.states_per_entry[layer] for layer, keep in self.keep.items())

    @property
    def reached(self) -> float:
        """The share of all states that is pruned; limits, floors and rounding can keep it below `ratio`."""
        return 1 - self.kept / max(self.total, 1)

    def check(self, systems: Mapping[str, DiagonalSystem]) -> None:
        """Raise an error that names the first layer in which `systems` differ from what the plan was made for."""
        for layer in sorted(self.keep.keys() ^ systems.keys()):
            owner = "plan" if layer in self.keep else "model"
            raise InputError(f"Layer {layer!r} exists only in the {owner}; this plan was made for another model.")
        for layer, system in systems.items():
            if system.n != len(self.keep[layer]):
                raise InputError(
                    f"Layer {layer!r} has {system.n} stored states, the plan was made for {len(self.keep[layer])}; "
                    "make a new plan for this model."
                )
            if layer in self.new and _signature(self.new[layer].system) != _signature(system):
                new = self.new[layer].system
                raise InputError(f"The new states of layer {layer!r} are those of {new}, and the layer is {system}.")
            same = isinstance(self.fingerprints, Fingerprints) and self.fingerprints.data[layer] is system
            if not same and system.fingerprint != self.fingerprints[layer]:
                raise InputError(
                    f"The parameters of layer {layer!r} are not those the plan was made for "
                    f"(fingerprint {system.fingerprint}, expected {self.fingerprints[layer]}); make a new plan."
                )

    def apply(self, systems: Mapping[str, DiagonalSystem]) -> dict[str, DiagonalSystem]:
        """Return what stays, with a new C or new states where the plan has any (`D_change` is beside them)."""
        self.check(systems)
        kept = {layer: system.select(self.keep[layer]) for layer, system in systems.items()}
        kept = {layer: replace(system, C=self.C.get(layer, system.C)) for layer, system in kept.items()}
        return kept | {layer: reduced.system for layer, reduced in self.new.items()}

    def need_old_states(self, otherwise: str) -> None:
        """Refuse a plan that makes new states; `otherwise` says what cannot be done with them."""
        if self.new:
            raise InputError(f"A plan by {self.method!r} makes new states in place of the old, {otherwise}.")

    def difference(self, other: Plan) -> dict[str, list[int]]:
        """Return, per layer, the indices of the states on which two plans for one model disagree."""
        if self.fingerprints != other.fingerprints:
            raise InputError("The two plans were made for different models, so their states cannot be compared.")
        for plan in (self, other):
            plan.need_old_states("so there are none on which it could agree with others")
        return {layer: np.flatnonzero(keep ^ other.keep[layer]).tolist() for layer, keep in self.keep.items()}

    def rows(self) -> list[dict[str, Any]]:
        """Return one record per layer and one for all: states before, states kept, the share pruned."""
        sizes = {layer: self.states_per_entry[layer] for layer in self.keep}
        counts = [
            (layer, len(keep) * sizes[layer], int(keep.sum()) * sizes[layer]) for layer, keep in self.keep.items()
        ]
        return [
            {"layer": layer, "states": states, "kept": kept, "pruned": 1 - kept / max(states, 1)}
            for layer, states, kept in [*counts, ("total", self.total, self.kept)]
        ]

    @property
    def title(self) -> str:
        """Name the method, the share that is pruned, the share asked for where that differs, and what data were seen.

        With excluded layers, caps, floors or rounding, what is pruned may be far less than what was asked for.
        """
        title = f"{self.method} at {self.ratio:.0%}"
        if abs(self.reached - self.ratio) > 0.01:
            title = f"{self.method} at {self.reached:.0%} (asked for {self.ratio:.0%})"
        title += ", C and D re-fitted" if self.C else ", new states" if self.new else ""
        title += f", {self.features}" if self.features else ""
        return title + (f", on {self.sequences} sequences" if self.sequences else "")

    def __repr__(self) -> str:
        """Show what was decided, without the arrays."""
        return f"Plan({self.title}: {self.kept} of {self.total} states stay)"

    def __str__(self) -> str:
        """Print a table: what stays of each layer."""
        width = max([5, *map(len, self.keep)])
        lines = [self.title, f"{'layer':<{width}}  states    kept  pruned"]
        lines += [
            f"{row['layer']:<{width}}  {row['states']:>6}  {row['kept']:>6}  {row['pruned']:>6.1%}"
            for row in self.rows()
        ]
        return "\n".join(lines)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan as one safetensors file, complete or not at all."""
        layers = [self._describe(layer) for layer in self.keep]
        about = {"method": self.method, "ratio": self.ratio, "layers": layers}
        if self.sequences:
            about["sequences"] = self.sequences
        tensors: dict[str, Any] = {f"keep/{layer}": keep for layer, keep in self.keep.items()}
        tensors |= {f"scores/{layer}": scores for layer, scores in self.scores.items()}
        tensors |= {f"C/{layer}": to_parts(C) for layer, C in self.C.items()}
        tensors |= {f"D_change/{layer}": change for layer, change in self.D_change.items()}
        tensors |= {
            name: array for layer, reduced in self.new.items() for name, array in _arrays(layer, reduced.system).items()
        }
        version = WITH_NEW_STATES if self.new else VERSION
        if self.features is not None:
            version, units = WITH_FEATURES, self.features.units
            tensors |= {"features": self.features.keep} | ({} if units is None else {"units": units})
            tensors |= {f"narrow/{name}": array for name, array in self.features.arrays.items()}
        save_tensors(path, tensors, {"format": FORMAT, "version": str(version), "plan": json.dumps(about)})

    def _describe(self, layer: str) -> dict[str, Any]:
        """Return what a file says of a layer beside its arrays."""
        about: dict[str, Any] = {"name": layer, "fingerprint": self.fingerprints[layer]}
        about["states_per_entry"] = self.states_per_entry[layer]
        if layer in self.new:
            system, bound = self.new[layer]
            about["new"] = {name: getattr(system, name) for name in FIELDS} | {"bound": bound}
        return about

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Read a plan written by `save`."""
        if not Path(path).exists():
            raise InputError(
                f"There is no plan at {path}; make one with `ssmprune prune CKPT --ratio R --plan {path}`."
            )
        tensors, texts = load_tensors(path)
        features = _features(tensors)
        expected = WITH_NEW_STATES if any(name.startswith("new_") for name in tensors) else VERSION
        check_format(path, texts, FORMAT, expected if features is None else WITH_FEATURES)
        try:
            about = json.loads(texts["plan"])
            ratio, sequences = about["ratio"], about.get("sequences", 0)  # absent where a plan has seen no data
            layers = {layer["name"]: layer for layer in about["layers"]}
            sizes = {layer: entry["states_per_entry"] for layer, entry in layers.items()}
            whole = all(is_count(size) and size in (1, 2) for size in sizes.values())
            refitted = [layer for layer in layers if f"C/{layer}" in tensors]
            return cls(
                keep={layer: tensors[f"keep/{layer}"] for layer in layers},
                scores={layer: np.asarray(tensors[f"scores/{layer}"], np.float64) for layer in layers},
                method=str(about["method"]),
                ratio=float(_checked("the ratio", ratio, is_share(ratio), "0 to 1")),
                fingerprints={layer: str(entry["fingerprint"]) for layer, entry in layers.items()},
                states_per_entry=_checked("states_per_entry", sizes, whole, "1 or 2 for each layer"),
                C={layer: _readout(tensors[f"C/{layer}"]) for layer in refitted},
                D_change={layer: tensors[f"D_change/{layer}"] for layer in refitted},
                sequences=_checked("the number of sequences", sequences, is_count(sequences), "a whole number"),
                new={
                    layer: _reduced(layer, entry["new"], tensors) for layer, entry in layers.items() if "new" in entry
                },
                features=features,
            )
        except InputError:
            raise
        except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
            raise InputError(f"{path} is not a whole plan ({error}); it is damaged or another kind of file.") from error


def _features(tensors: Mapping[str, NDArray[Any]]) -> Features | None:
    keep, units = tensors.get("features"), tensors.get("units")
    if keep is None:
        return None
    for mask in (keep, units):
        if mask is not None and (mask.dtype != bool or mask.shape != keep.shape or mask.ndim != 1 or not mask.any()):
            raise InputError(
                f"A mask of features is {mask.dtype} {mask.shape}, expected bool (width,), some of them True."
            )
    arrays = {name.removeprefix("narrow/"): array for name, array in tensors.items() if name.startswith("narrow/")}
    return Features(keep, units, arrays)


def _signature(system: DiagonalSystem) -> tuple[float, ...]:
    """Return what a system has in common with those that can stand in its place."""
    multi_siso = system.channel is not None
    return system.inputs, system.outputs, system.directions, system.gain, system.backward_delay, multi_siso


def _arrays(layer: str, system: DiagonalSystem) -> dict[str, NDArray[Any]]:
    """Return the arrays of a layer's new states as a file holds them."""
    arrays = {f"new_{name}/{layer}": to_parts(getattr(system, name)) for name in ("log_poles", "B", "C")}
    return arrays if system.channel is None else arrays | {f"new_channel/{layer}": system.channel}


def _reduced(layer: str, about: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> Reduced:
    """Return a layer's new states from a file."""
    log_poles, B, C = (_readout(tensors[f"new_{name}/{layer}"]) for name in ("log_poles", "B", "C"))
    fields = {name: about[name] for name in FIELDS}
    return Reduced(
        DiagonalSystem(log_poles, B, C, tensors.get(f"new_channel/{layer}"), **fields), float(about["bound"])
    )


def _readout(parts: NDArray[Any]) -> Complex:
    if parts.dtype != np.float64 or parts.shape[-1:] != (2,):
        raise ValueError(f"a C is {parts.dtype} {parts.shape}, expected float64 (..., 2)")
    return from_parts(parts)


def _checked(what: str, value: Any, fits: bool, expected: str) -> Any:
    if not fits:
        raise ValueError(f"{what} is {value!r}, expected {expected}")
    return value
