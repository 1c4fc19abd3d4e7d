"""The largest ratio within a budget of accuracy: found on validation data by a sweep, found again from its results."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence

from ..targets import Largest, search
from .ledger import Book
from .store import Cell, Key

LAST = "last"  # the paper compares all methods at the largest ratio of this one
Search = Generator[float, float, Largest]


def largest_ratios(
    book: Book, full: Key, cells: Iterable[Key], budget: float, ratios: Sequence[float]
) -> dict[Key, Largest]:
    """Find the largest ratio of every method and seed in `cells`, all searches going a step at a time.

    full: the unpruned model on the validation examples. budget: in points of accuracy.
    """
    (whole,) = book.do([full], known=False)
    assert whole is not None
    stored = sum(system.n for system in book.subject.systems.values())
    searches = {key: search(budget, stored, ratios) for key in cells}
    found: dict[Key, Largest] = {}
    asked = {key: next(steps) for key, steps in searches.items()}
    while asked:
        tried = [key._replace(ratio=ratio, split=full.split) for key, ratio in asked.items()]
        answers = {
            key: _answer(searches[key], points_lost(whole, cell))
            for key, cell in zip(asked, book.do(tried, known=False), strict=True)
        }
        found |= {key: answer for key, answer in answers.items() if isinstance(answer, Largest)}
        asked = {key: answer for key, answer in answers.items() if not isinstance(answer, Largest)}
    return found


def reported(found: dict[Key, Largest]) -> list[Key]:
    """The cells that tables report: every method at its own largest ratios and at LAST's of the grid."""
    last = max((largest.on_grid for key, largest in found.items() if key.method == LAST), default=0.0)
    return [
        key._replace(ratio=ratio)
        for key, largest in found.items()
        for ratio in sorted({largest.on_grid, largest.exact, last} - {0.0})
    ]


def points_lost(full: Cell, cell: Cell | None) -> float:
    """Points of accuracy that pruning cost; infinitely many where there is no pruned model."""
    return float("inf") if cell is None else 100 * (full.accuracy - cell.accuracy)


def _answer(steps: Search, loss: float) -> float | Largest:
    """The next ratio to try, or the end of the search."""
    try:
        return steps.send(loss)
    except StopIteration as end:
        found: Largest = end.value
        return found
