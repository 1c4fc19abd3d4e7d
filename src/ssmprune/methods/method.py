"""What a method is: a criterion that scores states, an allocation that compares layers, perhaps a re-fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TypeAlias

import numpy as np

from ..arrays import Real
from ..core.moments import Moments, white_noise
from ..core.system import DiagonalSystem
from .allocation import Allocation


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a criterion may know of a layer besides its system: moments, and a generator of random numbers."""

    measure: Callable[[], Moments]  # called once, when a criterion asks for the moments
    rng: np.random.Generator

    @classmethod
    def without_data(cls, system: DiagonalSystem, seed: int = 0) -> Evidence:
        """Return what is known of a layer without data: its inputs count as white noise.

        >>> system = DiagonalSystem.from_discrete(poles=[0.6], B=[[1]], C=[[1]])
        >>> Evidence.without_data(system).moments.gram.ravel()
        array([1.5625, 0.    , 0.    , 0.    ])
        """
        return cls(partial(white_noise, system), np.random.default_rng(seed))

    @cached_property
    def moments(self) -> Moments:
        """Second moments of the layer's states and inputs, on data or under white noise."""
        return self.measure()

    @property
    def sequences(self) -> int:
        """How many sequences of data were looked at: none before a criterion asks for the moments."""
        return self.moments.sequences if "moments" in vars(self) else 0


Criterion: TypeAlias = Callable[[DiagonalSystem, Evidence], Real]


@dataclass(frozen=True)
class Method:
    """How states are scored within a layer and compared between layers, and whether those that stay are re-fitted.

    A re-fit takes over what the pruned states carried. It works on data, or without any on white noise. `prune` with
    data re-fits whatever the method.

    >>> from ssmprune import pooled
    >>> slowest = Method("slowest", lambda system, evidence: system.log_poles.real, pooled)
    >>> slowest.name, slowest.refits
    ('slowest', False)
    """

    name: str
    criterion: Criterion
    allocation: Allocation
    refits: bool = False
    description: str = field(default="", repr=False, compare=False)  # a sentence for lists and pages
