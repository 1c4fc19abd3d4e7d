"""The progress of a long computation on standard error: a bar on a terminal, a few plain lines in a file or pipe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import monotonic
from typing import Literal, TypeVar

from .errors import visible

Item = TypeVar("Item")
SPEED_PERIOD = 3600  # seconds over which the speed is averaged: the cells of a sweep take minutes
LINES = 20  # roughly, of a computation whose progress goes to a file or pipe
SHORTEST_PAUSE, LONGEST_PAUSE = 10, 600  # seconds between two such lines; nobody waits longer for a sign of life


class Bar:
    """A bar with a text, how much of how much is done, figures and the time left.

    Where standard error is not a terminal there is a line of text now and then instead.
    `total`, `update`, `reset` and `close` are those of tqdm, so that pooch can drive it.
    """

    def __init__(
        self,
        text: str = "",
        total: int | None = None,
        *,
        unit: Literal["items", "bytes"] = "items",
        shown: bool = True,
        brief: bool = False,
    ) -> None:
        """Prepare a bar, silent unless `shown`; a `brief` one disappears when it is done."""
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeRemainingColumn as Remaining

        console = Console(stderr=True)
        count = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
        description, figures = (
            TextColumn(f"{{task.{name}}}", markup=False) for name in ("description", "fields[figures]")
        )
        columns = (description, BarColumn(), count, figures)
        self._lines = _Lines(text, unit) if shown and not console.is_terminal else None
        silent = not shown or not console.is_terminal
        self._bar = Progress(
            *columns, Remaining(), console=console, transient=brief, disable=silent, speed_estimate_period=SPEED_PERIOD
        )
        self._task = self._bar.add_task(text, total=total, figures="")
        self.total = total

    def __enter__(self) -> Bar:
        """Show the bar."""
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the bar as it stands."""
        self.close()

    def show(self, done: int, text: str, figures: str = "") -> None:
        """Move the bar to `done` of its total, with another text and other figures."""
        self._bar.update(self._task, completed=done, total=self.total, description=visible(text), figures=figures)
        self._note(text, figures)

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        if self._lines or not self._bar.disable:
            self._print(line)

    def update(self, count: int = 1) -> None:
        """Count more as done."""
        self._bar.start()
        self._bar.update(self._task, advance=count, total=self.total)
        self._note()

    def reset(self) -> None:
        """Wind the bar back to its beginning."""
        self._bar.reset(self._task)

    def close(self) -> None:
        """Stop drawing."""
        self._bar.stop()

    def _note(self, text: str | None = None, figures: str = "") -> None:
        """Print a line where there is no terminal and it is time for one."""
        if self._lines and (line := self._lines.due(self._bar.tasks[0].completed, self.total, text, figures)):
            self._print(line)

    def _print(self, line: str) -> None:
        self._bar.console.print(visible(line), highlight=False, markup=False, soft_wrap=True)


class _Lines:
    """Decides when a computation is due for a line of text, and what that says."""

    def __init__(self, text: str, unit: Literal["items", "bytes"]) -> None:
        self.text, self.unit = text, unit
        self.began = self.last = monotonic()
        self.parts = -1  # of LINES, that were done at the last line; the first line comes as soon as it may

    def due(self, done: float, total: int | None, text: str | None, figures: str) -> str | None:
        """Return a line, or None where the last one is recent."""
        if not total or not 0 < done < total:
            return None
        now, parts = monotonic(), int(LINES * done // total)
        if now - self.last < (SHORTEST_PAUSE if parts > self.parts else LONGEST_PAUSE):
            return None
        self.last, self.parts = now, parts
        left = (now - self.began) * (total - done) / done
        facts = (f"{self._count(done)} of {self._count(total)}", figures, f"{duration(left)} left")
        return f"{text or self.text}: {', '.join(fact for fact in facts if fact)}"

    def _count(self, number: float) -> str:
        return f"{number / 1e6:,.1f} MB" if self.unit == "bytes" else f"{number:,.0f}"


def duration(seconds: float) -> str:
    """Say roughly how long something takes.

    >>> duration(3), duration(50), duration(100), duration(7000)
    ('about 5 seconds', 'about 50 seconds', 'about 2 minutes', 'about 2 hours')
    """
    if seconds < 57.5:
        return f"about {max(1, round(seconds / 5)) * 5} seconds"
    number, unit = (round(seconds / 60), "minute") if seconds < 90 * 60 else (round(seconds / 3600), "hour")
    return f"about {number} {unit}{'s' if number > 1 else ''}"


def track(items: Iterable[Item], total: int, text: str) -> Iterator[Item]:
    """Yield the items, showing how many of `total` are done.

    >>> list(track("abc", total=3, text="Spelling"))
    ['a', 'b', 'c']
    """
    with Bar(text, total, brief=True) as bar:
        for item in items:
            yield item
            bar.update()
