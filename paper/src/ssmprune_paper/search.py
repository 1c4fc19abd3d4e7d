"""A sweep that also finds the largest ratio within a loss, on validation data; found again from its results.

A model that can no longer stay within the loss is not evaluated to the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from ssmprune.budgets import ROUNDING
from ssmprune.methods import LAST
from ssmprune.sweeps import (
    FULL,
    Cell,
    Entry,
    Key,
    Session,
    Subject,
    Sweep,
    Writer,
    describe,
    fill,
    load_subject,
    open_results,
)

from .bisection import Largest, bisect
from .models_of_cells import restore_plans

BUDGET = 1.0  # points of accuracy, the paper's


@dataclass(frozen=True)
class Search:
    """Which methods' largest ratios are found within what loss, and how many test examples are evaluated there."""

    methods: Sequence[str]
    final_examples: int
    budget: float = BUDGET


def sweep_and_search(checkpoints: Sequence[Entry], plan: Sweep, search: Search, work: Path, session: Session) -> None:
    """Fill the grid of a sweep, find largest ratios, and make plans again that are not there."""
    about = describe(checkpoints, plan, session.command) | {"max_loss": search.budget}
    with open_results(work, about) as writer:
        for entry in checkpoints:
            subject = load_subject(entry, plan.calibration, session.root, ("test", "val"))
            shown = fill(writer, [subject], plan.keys(entry.name), session)
            _fill_largest(writer, subject, plan, search, session)
            restore_plans(writer, subject, shown)


def _fill_largest(writer: Writer, subject: Subject, plan: Sweep, search: Search, session: Session) -> None:
    """Find largest ratios on validation data, and fill the cells that tables report there, on the test set."""

    def filled(keys: Sequence[Key], least: int = 0) -> list[Cell | None]:
        return list(fill(writer, [subject], keys, session, least))

    full = Key(subject.name, FULL, 0.0, 0, "test", plan.examples, rate=1.0)
    keys = [full._replace(method=method, seed=seed) for method in plan.methods for seed in plan.seeds_of(method)]
    states = sum(subject.model.config.states)
    searches = {
        key: bisect(search.budget, states, plan.ratios, resolution(states))
        for key in keys
        if key.method in search.methods
    }
    if not searches:
        return
    (unpruned,) = filled([full._replace(split="val")])
    assert unpruned is not None
    least = ceil(unpruned.examples * (unpruned.accuracy - (search.budget + ROUNDING) / 100))
    largest: dict[Key, Largest] = {}
    asked = {key: next(trials) for key, trials in searches.items()}
    while asked:  # a step of all searches at a time, for the runner
        cells = filled([key._replace(ratio=ratio, split="val") for key, ratio in asked.items()], least)
        answered, asked = dict(zip(asked, cells, strict=True)), {}
        for key, cell in answered.items():
            try:
                asked[key] = searches[key].send(points_lost(unpruned, cell))
            except StopIteration as end:
                largest[key] = end.value
    filled([key._replace(examples=search.final_examples) for key in [full, *_keys_to_report(keys, largest)]])


def _keys_to_report(keys: Iterable[Key], ratios: dict[Key, Largest]) -> list[Key]:
    """Return the cells that tables report: each method at LAST's largest ratio of the grid and at its own, if found."""
    last = max((largest.on_grid for key, largest in ratios.items() if key.method == LAST.name), default=0.0)
    own = {key: largest.exact for key, largest in ratios.items()}
    return [key._replace(ratio=ratio) for key in keys for ratio in sorted({own.get(key, 0.0), last} - {0.0})]


def resolution(states: int) -> int:
    """Return to how many states a largest ratio is found: a hundredth of them, since no table shows more digits."""
    return max(1, states // 100)


def points_lost(full: Cell, cell: Cell | None) -> float:
    """Return the points of accuracy that pruning cost, infinitely many where there is no pruned model."""
    return float("inf") if cell is None else 100 * (full.accuracy - cell.accuracy)
