"""Sweeps: every checkpoint pruned by every approach at every ratio, and evaluated.

`sweeping` runs one, killed and resumed at will; `search` finds the largest ratio within a loss; `cells` runs a cell;
`runners` says where, here or on a Ray cluster; `store` is the folder of results. `approaches` are the ways of pruning
that are compared, `balanced` the one that makes new states.
"""

from typing import Any

from .approaches import Approach, PruneStates, Rebuild, Subject
from .store import FULL, Cell, Key, Results

__all__ = [
    "FULL",
    "Approach",
    "Cell",
    "Entry",
    "Key",
    "PruneStates",
    "Rebuild",
    "Results",
    "Session",
    "Subject",
    "Sweep",
    "entries",
    "sweep",
]


def __getattr__(name: str) -> Any:
    """Import what needs torch when it is asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import sweeping

    return getattr(sweeping, name)
