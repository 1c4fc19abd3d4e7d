"""The progress of a long computation: one bar on standard error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, TypeVar

from .errors import visible

Item = TypeVar("Item")
SPEED_PERIOD = 3600  # seconds over which the speed is averaged: the cells of a sweep take minutes


class Bar:
    """A bar with a text, how much of how much is done, figures and the time left.

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
        """Prepare a bar, silent unless `shown`; a `brief` one shows on a terminal only, and goes when it is done."""
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeRemainingColumn as Remaining

        console = Console(stderr=True)
        count = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
        description, figures = (
            TextColumn(f"{{task.{name}}}", markup=False) for name in ("description", "fields[figures]")
        )
        columns = (description, BarColumn(), count, figures)
        silent = not shown or (brief and not console.is_terminal)
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

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        if not self._bar.disable:
            self._bar.console.print(visible(line), highlight=False, markup=False)

    def update(self, count: int = 1) -> None:
        """Count more as done."""
        self._bar.start()
        self._bar.update(self._task, advance=count, total=self.total)

    def reset(self) -> None:
        """Wind the bar back to its beginning."""
        self._bar.reset(self._task)

    def close(self) -> None:
        """Stop drawing."""
        self._bar.stop()


def track(items: Iterable[Item], total: int, text: str) -> Iterator[Item]:
    """Yield the items, showing on a terminal how many of `total` are done.

    >>> list(track("abc", total=3, text="Spelling"))
    ['a', 'b', 'c']
    """
    with Bar(text, total, brief=True) as bar:
        for item in items:
            yield item
            bar.update()
