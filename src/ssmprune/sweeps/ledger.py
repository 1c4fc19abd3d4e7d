"""The book-keeping of a sweep: which cells are done, which are missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .approaches import Subject
from .cells import Done, Job
from .engines import Engine
from .store import Cell, Key, Results, Writer


class Book:
    """What is done and what is not: hands missing cells to the engine and writes down what comes back."""

    subject: Subject

    def __init__(
        self, writer: Writer, before: Results, engine: Engine, watch: Callable[[str, int, int], object], expected: int
    ) -> None:
        """Start from what an earlier sweep has left; `expected` cells are known to come."""
        self._writer, self._engine, self._watch = writer, engine, watch
        self._results = before
        self._cells: dict[Key, Cell] = dict(before.by_key)
        self._refused = dict(before.refused)
        self._done, self._expected = 0, expected

    def do(self, keys: Iterable[Key], speed: bool = False, known: bool = True) -> list[Cell | None]:
        """Return the cells with these keys, None where an approach refuses; those missing are done now.

        known: they are among the expected ones.
        """
        wanted = [self.resolved(key) for key in keys]
        if not known:
            self._expected += len(wanted)
        missing = [key for key in dict.fromkeys(wanted) if not self._has(key, speed)]
        self._advance(len(wanted) - len(missing), "")
        for done in self._engine.run(self.subject, [self._job(key, speed) for key in missing]):
            self._write(done)
            self._advance(1, f"{done.key.checkpoint} {done.key.method} {done.key.ratio:.0%}")
        return [self._cells.get(key) for key in wanted]

    def resolved(self, key: Key) -> Key:
        """The key with the number of examples there really are."""
        split = self.subject.splits[key.split, round(1 / key.rate)]
        return key._replace(examples=min(key.examples, len(split)))

    def _has(self, key: Key, speed: bool) -> bool:
        return key in self._refused or (key in self._cells and not (speed and self._cells[key].speed is None))

    def _job(self, key: Key, speed: bool) -> Job:
        """A job that knows its plan where a kill or another split has left it on the disk."""
        path = self._results.plan_path(key)
        return Job(key, speed, self._results.plan(key) if path.is_file() else None)

    def _write(self, done: Done) -> None:
        if done.cell is None:
            self._writer.refuse(done.key, done.refusal)
            self._refused[done.key] = done.refusal
        else:
            self._writer.add(done.cell, done.plan)
            self._cells[done.key] = done.cell

    def _advance(self, count: int, text: str) -> None:
        self._done += count
        self._watch(text, self._done, self._expected)
