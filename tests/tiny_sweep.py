"""A tiny sweep, which the tests run and a program of theirs runs to be killed."""

from __future__ import annotations

from pathlib import Path

from ssmprune.sweeps.store import Results
from ssmprune.sweeps.sweeping import Session, Sweep, entries, sweep

PLAN = Sweep(methods=["last", "random", "surgeon", "unstructured-random"], ratios=[0.5, 1.0], seeds=[0, 1], examples=20)


def swept(root: Path, out: Path, plan: Sweep = PLAN, names: tuple[str, ...] = ("one",), **session) -> Results:
    return sweep(entries([root / f"{name}.safetensors" for name in names]), plan, out, Session(root, **session))
