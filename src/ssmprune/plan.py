"""Plans: which states of which layer stay, with the provenance to replay the decision."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .allocation import Allocation, Masks, Scores
from .arrays import Complex, Real, is_count, is_share, join_parts
from .criteria import Evidence
from .errors import InputError
from .files import check_format, load_tensors, save_tensors
from .limits import Limits
from .methods import LAST, Method
from .regression.least_squares import RIDGE, refit_layer
from .regression.moments import Moments, moments_of, white_noise
from .system import DiagonalSystem

FORMAT, VERSION = "ssmprune-plan", 1


@dataclass(frozen=True, eq=False)
class Plan:
    """Keep-masks for every layer of one model, one entry per stored state (a conjugate pair is one entry).

    `scores` are the criterion's log-scores; `fingerprints` tell the model the plan was made for. A plan whose kept
    states take over what the others carried also has, for those layers, their new `C` and what to add to `D`.
    `ratio` is the share that was asked for; the table of a plan says what was reached.
    """

    keep: Masks  # {layer: (n,) bool}
    scores: Scores  # {layer: (n,) float64}
    method: str
    ratio: float
    fingerprints: dict[str, str]
    states_per_entry: dict[str, int]  # 2 where an entry is a conjugate pair
    C: dict[str, Complex] = field(default_factory=dict)  # {layer: (directions, outputs, kept)}; (directions, 1, kept)
    D_change: dict[str, Real] = field(default_factory=dict)  # {layer: (outputs,)}
    sequences: int = 0  # of data on which the states were chosen or re-fitted

    def __post_init__(self) -> None:
        """Check that every layer has a mask, scores and an identity of matching sizes."""
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
        """Return the sub-systems that stay, with their new C where the plan has one (`D_change` is beside them)."""
        self.check(systems)
        kept = {layer: system.select(self.keep[layer]) for layer, system in systems.items()}
        return {layer: replace(system, C=self.C.get(layer, system.C)) for layer, system in kept.items()}

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

    @property
    def title(self) -> str:
        """Name the method, the share that is pruned, the share asked for where that differs, and what data were seen.

        With excluded layers, caps, floors or rounding, what is pruned may be far less than what was asked for.
        """
        reached = 1 - self.kept / max(self.total, 1)
        title = f"{self.method} at {self.ratio:.0%}"
        if abs(reached - self.ratio) > 0.01:
            title = f"{self.method} at {reached:.0%} (asked for {self.ratio:.0%})"
        title += ", C and D re-fitted" if self.C else ""
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
        about = {
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
        if self.sequences:
            about["sequences"] = self.sequences
        tensors: dict[str, Any] = {f"keep/{layer}": keep for layer, keep in self.keep.items()}
        tensors |= {f"scores/{layer}": scores for layer, scores in self.scores.items()}
        tensors |= {f"C/{layer}": np.stack([C.real, C.imag], axis=-1) for layer, C in self.C.items()}
        tensors |= {f"D_change/{layer}": change for layer, change in self.D_change.items()}
        save_tensors(path, tensors, {"format": FORMAT, "version": str(VERSION), "plan": json.dumps(about)})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Read a plan written by `save`."""
        if not Path(path).exists():
            raise InputError(f"There is no plan at {path}; make one with `ssmprune plan CKPT --ratio R --out {path}`.")
        tensors, texts = load_tensors(path)
        check_format(path, texts, FORMAT, VERSION)
        try:
            about = json.loads(texts["plan"])
            layers = {layer["name"]: layer for layer in about["layers"]}
            refitted = [layer for layer in layers if f"C/{layer}" in tensors]
            return cls(
                keep={layer: tensors[f"keep/{layer}"] for layer in layers},
                scores={layer: np.asarray(tensors[f"scores/{layer}"], np.float64) for layer in layers},
                method=str(about["method"]),
                ratio=_share(about["ratio"]),
                fingerprints={layer: str(entry["fingerprint"]) for layer, entry in layers.items()},
                states_per_entry={layer: _one_or_two(entry["states_per_entry"]) for layer, entry in layers.items()},
                C={layer: _from_parts(tensors[f"C/{layer}"]) for layer in refitted},
                D_change={layer: tensors[f"D_change/{layer}"] for layer in refitted},
                sequences=_count(about.get("sequences", 0)),  # absent where a plan has seen no data
            )
        except InputError:
            raise
        except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
            raise InputError(f"{path} is not a whole plan ({error}); it is damaged or another kind of file.") from error


def make_plan(
    systems: Mapping[str, DiagonalSystem],
    ratio: float,
    method: Method = LAST,
    *,
    moments: Mapping[str, Moments] | None = None,
    limits: Limits = Limits(),  # noqa: B008 (frozen)
    seed: int = 0,
) -> Plan:
    """Decide which states stay when the share `ratio` of all states is pruned.

    Exactly floor(n (1 - ratio)) of the n stored states stay, but never fewer than one per layer. By a method that
    re-fits, as the surgeon does, the states that stay get the C and D with which each layer, for the inputs that the
    unpruned model gives it, comes nearest to its old output.

    moments: what `collect` measured on data; without them, inputs count as white noise.
    limits: layers to leave alone, caps, floors, rounding.
    seed: of the generator handed to the criterion; only the random one uses it.

    >>> twins = DiagonalSystem.from_discrete(poles=[0.5, 0.9, 0.9], B=[[1], [1], [2]], C=[[1, 1, 1]])
    >>> print(make_plan({"ssm": twins}, ratio=0.33))
    last at 33%
    layer  states    kept  pruned
    ssm         3       2   33.3%
    total       3       2   33.3%
    >>> from ssmprune import SURGEON
    >>> plan = make_plan({"ssm": twins}, 0.33, SURGEON)
    >>> plan
    Plan(surgeon without data at 33%, C and D re-fitted: 2 of 3 states stay)
    >>> plan.keep["ssm"], plan.C["ssm"].real.round(3)
    (array([ True, False,  True]), array([[[1. , 1.5]]]))
    """
    check_ratio(ratio)
    check_request(method, limits, seed)
    if not isinstance(systems, Mapping):
        raise InputError(f"Plans are made from ssmprune.read(model); got {type(systems).__name__}.")
    if moments is None:
        evidence = gather_evidence(systems, lambda layer: white_noise(systems[layer]), seed)
    else:
        evidence = gather_evidence(systems, moments_of(systems, moments).__getitem__, seed)
    scores = score_states(systems, method, evidence)
    name = method_name(method, with_data=moments is not None)
    plan = plan_from_scores(systems, scores, ratio, method.allocation, name, limits)
    if method.refits:
        return refit(plan, systems, {layer: layer_evidence.moments for layer, layer_evidence in evidence.items()})
    return replace(plan, sequences=max((layer_evidence.sequences for layer_evidence in evidence.values()), default=0))


def gather_evidence(
    systems: Mapping[str, DiagonalSystem], moments: Callable[[str], Moments], seed: int
) -> dict[str, Evidence]:
    """Return what criteria may know of every layer; `moments` is called for a layer when its criterion wants them."""
    rng = np.random.default_rng(seed)  # one for all layers, so that their draws differ
    return {layer: Evidence(partial(moments, layer), rng) for layer in systems}


def score_states(systems: Mapping[str, DiagonalSystem], method: Method, evidence: Mapping[str, Evidence]) -> Scores:
    """Return the log-scores (n,) that a method gives the states of every layer."""
    return {layer: _score(layer, system, method, evidence[layer]) for layer, system in systems.items()}


def plan_from_scores(
    systems: Mapping[str, DiagonalSystem],
    scores: Scores,
    ratio: float,
    allocation: Allocation,
    name: str,
    limits: Limits = Limits(),  # noqa: B008 (frozen)
) -> Plan:
    """Make a plan from log-scores (n,) of every layer, however they came about; `name` goes into the plan."""
    check_ratio(ratio)
    limits.check(systems)
    stay = {
        layer: limits.stay(layer, system, scores[layer])
        for layer, system in systems.items()
        if layer not in limits.exclude
    }
    keep = {layer: np.ones(system.n, bool) for layer, system in systems.items()}
    keep |= allocation({layer: scores[layer] for layer in stay}, float(ratio), stay)
    for layer in stay:
        keep[layer] = limits.round_up(keep[layer], systems[layer], scores[layer])
    return Plan(
        keep=keep,
        scores=scores,
        method=name,
        ratio=float(ratio),
        fingerprints={layer: system.fingerprint for layer, system in systems.items()},
        states_per_entry={layer: system.states_per_entry for layer, system in systems.items()},
    )


def refit(
    plan: Plan,
    systems: Mapping[str, DiagonalSystem],
    moments: Mapping[str, Moments] | None = None,
    *,
    ridge: float = RIDGE,
) -> Plan:
    """Return any method's plan with the C and D that bring each pruned layer's output nearest to what it was.

    Least squares on the moments, for the inputs that the unpruned model gives each layer; `refit_in_sequence` goes
    further and also mends what earlier layers lost.

    ridge: the share of each regressor's energy that counts as noise.
    """
    plan.check(systems)
    measured = moments_of(systems, moments)
    C, D_change = {}, {}
    for layer, system in systems.items():
        if not plan.keep[layer].all():
            C[layer], D_change[layer] = refit_layer(system, plan.keep[layer], measured[layer], ridge)
    sequences = max((layer_moments.sequences for layer_moments in measured.values()), default=0)
    return replace(plan, C=C, D_change=D_change, sequences=sequences)


def check_ratio(ratio: float) -> None:
    """Refuse what is not a share, before anything is computed for it."""
    if not is_share(ratio):
        raise InputError(f"ratio is the share of states to prune, from 0 to 1; got {ratio!r}.")


def check_request(method: Method, limits: Limits, seed: int) -> None:
    """Refuse other types in place of a method, limits or a seed, before anything is computed for them."""
    if not isinstance(method, Method):
        raise InputError(f"method is a Method, as ssmprune.LAST or ssmprune.methods.named()['lamp']; got {method!r}.")
    if not isinstance(limits, Limits):
        raise InputError(f"limits are ssmprune.Limits, as in Limits(caps=0.9); got {limits!r}.")
    if not is_count(seed):
        raise InputError(f"seed is a whole number, at least 0; got {seed!r}.")


def method_name(method: Method, with_data: bool) -> str:
    """Return the name of a method for a plan, which says so if the method re-fits without data."""
    return method.name if with_data or not method.refits else f"{method.name} without data"


def _score(layer: str, system: DiagonalSystem, method: Method, evidence: Evidence) -> Real:
    scores = np.asarray(method.criterion(system, evidence), np.float64)
    if scores.shape != (system.n,) or np.isnan(scores).any():
        raise InputError(
            f"The criterion of {method.name!r} must return {system.n} numbers for layer {layer!r}, none of them NaN; "
            f"it returned shape {scores.shape} with {int(np.isnan(scores).sum())} NaN."
        )
    return scores


def _from_parts(parts: NDArray[Any]) -> Complex:
    if parts.dtype != np.float64 or parts.shape[-1:] != (2,):
        raise ValueError(f"a C is {parts.dtype} {parts.shape}, expected float64 (..., 2)")
    return join_parts(parts[..., 0], parts[..., 1])


def _share(value: Any) -> float:
    if not 0 <= float(value) <= 1:
        raise ValueError(f"the ratio is {value!r}, expected 0 to 1")
    return float(value)


def _one_or_two(value: Any) -> int:
    if value not in (1, 2):
        raise ValueError(f"a layer has {value!r} states per entry, expected 1 or 2")
    return int(value)


def _count(value: Any) -> int:
    if not is_count(value):
        raise ValueError(f"the number of sequences is {value!r}, expected a whole number")
    return int(value)
