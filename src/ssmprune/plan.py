"""Plans: which states of which layer stay, with the provenance to replay the decision."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from .allocation import Masks, Scores, descending, exact, highest
from .arrays import Mask, Real
from .errors import InputError
from .files import write_atomically
from .methods import LAST, Method
from .system import DiagonalSystem

FORMAT, VERSION = "ssmprune-plan", 1


@dataclass(frozen=True, eq=False)
class Plan:
    """Keep-masks for every layer of one model, one entry per stored state (a conjugate pair is one entry).

    `scores` are the criterion's log-scores; `fingerprints` tell the model the plan was made for.
    """

    keep: Masks  # {layer: (n,) bool}
    scores: Scores  # {layer: (n,) float64}
    method: str
    ratio: float
    fingerprints: dict[str, str]
    states_per_entry: dict[str, int]  # 2 where an entry is a conjugate pair

    def __post_init__(self) -> None:
        """Check that every layer has a mask, scores and an identity of matching sizes."""
        for layer, keep in self.keep.items():
            if keep.ndim != 1 or keep.dtype != bool or self.scores[layer].shape != keep.shape:
                raise InputError(
                    f"Layer {layer!r} needs a bool mask (n,) and n scores; "
                    f"got {keep.dtype} {keep.shape} and {self.scores[layer].shape}."
                )
            keep.flags.writeable = self.scores[layer].flags.writeable = False

    @property
    def total(self) -> int:
        """Number of states before pruning; a conjugate pair counts as two."""
        return sum(len(keep) * self.states_per_entry[layer] for layer, keep in self.keep.items())

    @property
    def kept(self) -> int:
        """Number of states that stay; a conjugate pair counts as two."""
        return sum(int(keep.sum()) * self.states_per_entry[layer] for layer, keep in self.keep.items())

    def check(self, systems: Mapping[str, DiagonalSystem]) -> None:
        """Raise an error that names the first layer in which `systems` differ from what the plan was made for."""
        for layer in sorted(self.keep.keys() ^ systems.keys()):
            owner = "plan" if layer in self.keep else "model"
            raise InputError(f"Layer {layer!r} exists in the {owner} alone; this plan was made for another model.")
        for layer, system in systems.items():
            if system.n != len(self.keep[layer]):
                raise InputError(
                    f"Layer {layer!r} has {system.n} stored states, the plan was made for {len(self.keep[layer])}; "
                    "make a new plan for this model."
                )
            if system.fingerprint != self.fingerprints[layer]:
                raise InputError(
                    f"The parameters of layer {layer!r} are not those the plan was made for "
                    f"(fingerprint {system.fingerprint}, expected {self.fingerprints[layer]}); make a new plan."
                )

    def apply(self, systems: Mapping[str, DiagonalSystem]) -> dict[str, DiagonalSystem]:
        """Return the sub-systems that stay."""
        self.check(systems)
        return {layer: system.select(self.keep[layer]) for layer, system in systems.items()}

    def difference(self, other: Plan) -> dict[str, list[int]]:
        """Return, per layer, the indices of the states on which two plans for one model disagree."""
        if self.fingerprints != other.fingerprints:
            raise InputError("The two plans were made for different models, so their states cannot be compared.")
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

    def __str__(self) -> str:
        """Print a table: what stays of each layer."""
        width = max([5, *map(len, self.keep)])
        lines = [f"{self.method} at {self.ratio:.0%}", f"{'layer':<{width}}  states    kept  pruned"]
        lines += [
            f"{row['layer']:<{width}}  {row['states']:>6}  {row['kept']:>6}  {row['pruned']:>6.1%}"
            for row in self.rows()
        ]
        return "\n".join(lines)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan as one safetensors file, complete or not at all."""
        from safetensors.numpy import save

        about = {
            "format": FORMAT,
            "version": VERSION,
            "method": self.method,
            "ratio": self.ratio,
            "layers": [
                {
                    "name": layer,
                    "fingerprint": self.fingerprints[layer],
                    "states_per_entry": self.states_per_entry[layer],
                }
                for layer in self.keep
            ],
        }
        tensors: dict[str, Any] = {f"keep/{layer}": keep for layer, keep in self.keep.items()}
        tensors |= {f"scores/{layer}": scores for layer, scores in self.scores.items()}
        write_atomically(
            path, save(tensors, {"ssmprune": json.dumps(about)})
        )  # one entry: the same plan, the same bytes

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Read a plan written by `save`."""
        from safetensors import SafetensorError, safe_open

        if not Path(path).is_file():
            raise InputError(f"There is no plan at {path}; make one with `ssmprune plan CKPT --ratio R --out {path}`.")
        try:
            with safe_open(path, framework="numpy") as file:
                about = _about(path, file.metadata() or {})
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
            return cls(
                keep={layer["name"]: tensors[f"keep/{layer['name']}"] for layer in about["layers"]},
                scores={layer["name"]: tensors[f"scores/{layer['name']}"] for layer in about["layers"]},
                method=str(about["method"]),
                ratio=float(about["ratio"]),
                fingerprints={layer["name"]: str(layer["fingerprint"]) for layer in about["layers"]},
                states_per_entry={layer["name"]: int(layer["states_per_entry"]) for layer in about["layers"]},
            )
        except InputError:
            raise
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path} is not a whole plan ({error}); it is damaged or another kind of file.") from error


def make_plan(
    systems: Mapping[str, DiagonalSystem],
    ratio: float,
    method: Method = LAST,
    *,
    exclude: Collection[str] = (),
    caps: float | Mapping[str, float] | None = None,
    floor: Literal["layer", "channel"] = "layer",
    round_to: int = 1,
    seed: int = 0,
) -> Plan:
    """Decide which states stay when the share `ratio` of all states is pruned.

    Exactly floor(n (1 - ratio)) of the n stored states stay, but never fewer than one per layer.

    exclude: layers that stay whole and do not count towards the ratio.
    caps: the largest share that may go from a layer, one number for all or one per layer.
    floor: "channel" keeps at least one state in every channel that has one (multi-SISO), "layer" one per layer.
    round_to: round the kept states of each layer up to a multiple of this (a conjugate pair is two states).
    seed: of the generator handed to the criterion; only the random one uses it.

    >>> system = DiagonalSystem.from_discrete(poles=[0.5, 0.9], B=[[1], [1]], C=[[1, 1]], gain=2)
    >>> print(make_plan({"ssm": system}, ratio=0.5))
    last at 50%
    layer  states    kept  pruned
    ssm         4       2   50.0%
    total       4       2   50.0%
    """
    _check_request(systems, ratio, exclude, caps, round_to)
    rng = np.random.default_rng(seed)
    scores = {layer: _score(layer, system, method, rng) for layer, system in systems.items()}
    cap = caps if isinstance(caps, Mapping) else dict.fromkeys(systems, 1.0 if caps is None else caps)
    stay = {
        layer: _stay(system, scores[layer], cap.get(layer, 1.0), floor)
        for layer, system in systems.items()
        if layer not in exclude
    }
    keep = method.allocation({layer: scores[layer] for layer in stay}, ratio, stay)
    for layer in stay:
        entries = round_to // math.gcd(round_to, systems[layer].states_per_entry)
        keep[layer] = _rounded_up(keep[layer], scores[layer], entries)
    return Plan(
        keep={layer: keep[layer] if layer in keep else np.ones(system.n, bool) for layer, system in systems.items()},
        scores=scores,
        method=method.name,
        ratio=float(ratio),
        fingerprints={layer: system.fingerprint for layer, system in systems.items()},
        states_per_entry={layer: system.states_per_entry for layer, system in systems.items()},
    )


def _score(layer: str, system: DiagonalSystem, method: Method, rng: np.random.Generator) -> Real:
    scores = np.asarray(method.criterion(system, rng), np.float64)
    if scores.shape != (system.n,) or np.isnan(scores).any():
        raise InputError(
            f"The criterion of {method.name!r} must return {system.n} numbers for layer {layer!r}, none of them NaN; "
            f"it returned shape {scores.shape} with {int(np.isnan(scores).sum())} NaN."
        )
    return scores


def _stay(system: DiagonalSystem, scores: Real, cap: float, floor: str) -> Mask:
    """Mark the states that may not go: the floor, what the cap protects, and poles that have no true score."""
    protected = max(1, math.ceil(system.n * (1 - exact(cap))))
    stay = highest(scores, min(protected, system.n), system.unstable_states)
    if floor == "channel" and system.channel is not None:
        order = descending(scores)
        _, best = np.unique(system.channel[order], return_index=True)  # the first of each channel is its best
        stay[order[best]] = True
    return stay


def _rounded_up(keep: Mask, scores: Real, multiple: int) -> Mask:
    """Bring back the best pruned states until the number kept is a multiple, or all are kept."""
    missing = -int(keep.sum()) % multiple
    if missing == 0:
        return keep
    pruned = np.where(keep, -1, np.arange(len(keep)))[descending(scores)]
    keep = keep.copy()
    keep[pruned[pruned >= 0][:missing]] = True
    return keep


def _check_request(
    systems: Mapping[str, DiagonalSystem],
    ratio: float,
    exclude: Collection[str],
    caps: float | Mapping[str, float] | None,
    round_to: int,
) -> None:
    if not 0 <= ratio <= 1:  # also false for NaN
        raise InputError(f"ratio is the share of states to prune, from 0 to 1; got {ratio}.")
    if isinstance(exclude, str):
        raise InputError(f"exclude is a collection of layer names; got the single string {exclude!r}.")
    limits = caps if isinstance(caps, Mapping) else {} if caps is None else {"caps": caps}
    for layer, cap in limits.items():
        if not 0 <= cap <= 1:
            raise InputError(f"A cap is the largest share to prune from a layer, from 0 to 1; got {cap} for {layer!r}.")
    named = {*exclude, *(caps if isinstance(caps, Mapping) else ())}
    if unknown := sorted(named - systems.keys()):
        raise InputError(f"No layer is called {unknown[0]!r}; the layers are {', '.join(systems)}.")
    if not (isinstance(round_to, int) and round_to >= 1):
        raise InputError(f"round_to is a whole number of states, at least 1; got {round_to!r}.")


def _about(path: str | os.PathLike[str], metadata: Mapping[str, str]) -> dict[str, Any]:
    about = json.loads(metadata.get("ssmprune", "{}"))
    if about.get("format") != FORMAT:
        raise InputError(f"{path} is not a plan; make one with `ssmprune plan`.")
    if about["version"] != VERSION:
        raise InputError(
            f"{path} has plan format {about['version']}, this ssmprune reads {VERSION}; make the plan again."
        )
    return dict(about)
