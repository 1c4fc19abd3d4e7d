"""What a method is, and the methods and criteria there are: those that ship, and those that `registry` finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ..arrays import Mask
from ..core.system import DiagonalSystem
from ..registry import Registry
from .allocation import Allocation, layer_adaptive, layer_share, pooled, uniform
from .balanced import Reduced, hankel, truncate
from .criterion import Criterion, elimination, energy, h2, hinf, hinf_unit_B, magnitude, pair_hinf, random

DESCRIPTIONS = {
    "last": "The paper's: the largest gain of each state, as a share of its layer's, compared over all layers.",
    "uniform-hinf": "The largest gain of each state; every layer loses the same share.",
    "global-hinf": "The largest gain of each state, compared over all layers as it is.",
    "uniform-magnitude": "The size of each state's parameters; every layer loses the same share.",
    "global-magnitude": "The size of each state's parameters, compared over all layers.",
    "lamp": "The size of each state's parameters, as a share of its layer's, compared over all layers.",
    "aire": "The average energy of each state's response instead of its largest gain, otherwise as LAST.",
    "random": "States at random, the same share of every layer.",
    "last+refit": "LAST's choice, and the states that stay are re-fitted on sample inputs.",
    "balanced": "Balanced truncation: new states instead of a choice among the old ones.",
    "surgeon": "Removes, one by one, the state whose work others can best take over on sample inputs; re-fits them.",
}


@dataclass(frozen=True)
class Method:
    """How states are scored within a layer and compared between layers, and whether those that stay are re-fitted.

    A re-fit takes over what the pruned states carried. It works on data, or without any on white noise. `prune` with
    data re-fits whatever the method. A method that does not choose states but makes new ones has a `reduce`: the scores
    then only say how many states each layer, or channel, is left with.

    >>> from ssmprune import pooled
    >>> slowest = Method("slowest", lambda system, evidence: system.log_poles.real, pooled)
    >>> slowest.name, slowest.refits
    ('slowest', False)
    """

    name: str
    criterion: Criterion
    allocation: Allocation
    refits: bool = False
    reduce: Callable[[DiagonalSystem, Mask], Reduced] | None = None  # (layer, as many states as may stay)
    description: str = field(default="", repr=False, compare=False)  # a sentence for lists and pages


def _method(name: str, criterion: Criterion, allocation: Allocation, refits: bool = False) -> Method:
    return Method(name, criterion, allocation, refits, description=DESCRIPTIONS[name])


LAST = _method("last", hinf, layer_adaptive)
UNIFORM_HINF = _method("uniform-hinf", hinf, uniform)
GLOBAL_HINF = _method("global-hinf", hinf, pooled)
UNIFORM_MAGNITUDE = _method("uniform-magnitude", magnitude, uniform)
GLOBAL_MAGNITUDE = _method("global-magnitude", magnitude, pooled)
LAMP = _method("lamp", magnitude, layer_adaptive)
AIRE = _method("aire", h2, layer_adaptive)
RANDOM = _method("random", random, uniform)
LAST_REFITTED = _method("last+refit", hinf, layer_adaptive, refits=True)
BALANCED = replace(_method("balanced", hankel, layer_adaptive), reduce=truncate)
SURGEON = _method("surgeon", elimination, pooled, refits=True)
_WITH_NAMES = tuple(value for value in list(vars().values()) if isinstance(value, Method))
_CRITERIA: Registry[Criterion] = Registry(
    "criterion",
    Callable,
    "a function (system, evidence) that returns log-scores",
    shipped=(elimination, energy, h2, hinf, hinf_unit_B, magnitude, pair_hinf, random),
)
_METHODS: Registry[Method] = Registry("method", Method, "an object of ssmprune.Method", shipped=_WITH_NAMES)


def criteria() -> dict[str, Criterion]:
    """Return every criterion by name.

    >>> sorted(criteria())
    ['elimination', 'energy', 'h2', 'hinf', 'hinf_unit_B', 'magnitude', 'pair_hinf', 'random']
    """
    return _CRITERIA.found()


def named() -> dict[str, Method]:
    """Return every method by the name the command line knows it by.

    Some methods have names of their own; every other pair is called `criterion/allocation`. What `elimination` says of
    a state holds only when the others are re-fitted, so all its pairs do that.

    >>> named()["last"] is LAST, named()["surgeon"] is SURGEON, named()["energy/layer_adaptive"].refits
    (True, True, False)
    """
    methods = _METHODS.found()
    with_names = {(method.criterion, method.allocation) for method in _WITH_NAMES}
    for name, criterion in criteria().items():
        for allocation in (uniform, pooled, layer_adaptive, layer_share):
            if (criterion, allocation) not in with_names:
                pair = f"{name}/{allocation.__name__}"
                methods[pair] = Method(pair, criterion, allocation, refits=criterion is elimination)
    return methods
