"""Sweeps: every checkpoint pruned by every approach at every ratio, and evaluated.

`sweeping` runs one, killed and resumed at will; `search` finds the largest ratio within a loss; `cells` runs a cell;
`runners` says where, here or on a Ray cluster; `store` is the folder of results. `approaches` are the ways of pruning
that are compared, `balanced` the one that makes new states.
"""

from typing import TYPE_CHECKING

from ..errors import names_that_need_torch
from .approaches import Approach, PruneStates, Rebuild, Subject
from .approaches import default as default_approaches
from .balanced import balanced_truncation, rewrite
from .search import points_lost, resolution
from .store import FULL, Cell, Key, Results

if TYPE_CHECKING:
    from .cells import CALIBRATION, CALIBRATION_STEPS
    from .sweeping import Entry, Session, Sweep, entries, sweep

__all__ = [  # noqa: RUF022 (grouped)
    # a sweep
    "Entry",
    "Session",
    "Sweep",
    "entries",
    "sweep",
    "CALIBRATION",
    "CALIBRATION_STEPS",
    # approaches that it compares
    "Approach",
    "PruneStates",
    "Rebuild",
    "Subject",
    "default_approaches",
    "balanced_truncation",
    "rewrite",
    # its results
    "FULL",
    "Cell",
    "Key",
    "Results",
    "points_lost",
    "resolution",
]
__getattr__ = names_that_need_torch(
    __name__,
    {
        **dict.fromkeys(("Entry", "Session", "Sweep", "entries", "sweep"), "sweeping"),
        **dict.fromkeys(("CALIBRATION", "CALIBRATION_STEPS"), "cells"),
    },
)
