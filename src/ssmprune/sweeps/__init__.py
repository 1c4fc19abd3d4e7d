"""Sweeps: all checkpoints pruned by all approaches at all ratios, and evaluated.

`sweeping` runs a sweep, killed and resumed at will; `runners` runs its cells, here or on a Ray cluster; `store` is the
folder of results. `approaches` are the ways of pruning that are compared. `timing` measures calls that take turns.
"""

from typing import TYPE_CHECKING

from ..errors import names_that_need_torch
from .approaches import Approach, PruneStates, Rebuild, Subject
from .approaches import default as default_approaches
from .approaches import get as get_approach
from .store import FULL, Cell, Key, Results, Writer, open_results

if TYPE_CHECKING:
    from .sweeping import (
        CALIBRATION,
        CALIBRATION_STEPS,
        Entry,
        Session,
        Sweep,
        describe,
        entries,
        fill,
        load_subject,
        sweep,
    )

__all__ = [  # noqa: RUF022 (grouped)
    # a sweep
    "Entry",
    "Session",
    "Sweep",
    "entries",
    "sweep",
    # step by step
    "load_subject",
    "describe",
    "open_results",
    "Writer",
    "fill",
    "CALIBRATION",
    "CALIBRATION_STEPS",
    # approaches that it compares
    "Approach",
    "PruneStates",
    "Rebuild",
    "Subject",
    "default_approaches",
    "get_approach",
    # its results
    "FULL",
    "Cell",
    "Key",
    "Results",
]
__getattr__ = names_that_need_torch(__name__, dict.fromkeys(__all__, "sweeping"))
