"""The progress of a long computation on standard error: a bar on a terminal, a few plain lines in a file or pipe."""

from __future__ import annotations

import math
from time import monotonic
from typing import Any

from .errors import visible

FEWEST_STEPS, SHORTEST_TIME = 3, 5  # steps and seconds before the time left is told: first steps are slow
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
        in_bytes: bool = False,
        shown: bool = True,
        brief: bool = False,
        longest: float = math.inf,
    ) -> None:
        """Prepare a bar, which is silent unless `shown`; a `brief` bar disappears when it is done.

        longest: seconds after which the computation ends, whatever is done by then.
        """
        from rich import progress
        from rich.console import Console

        console = Console(stderr=True)
        self.total, self._shown, self._in_bytes = total, shown, in_bytes
        self._began = self._last = monotonic()
        self._longest, self._steps, self._base = longest, 0, (0.0, 0.0)
        self._parts = -1  # of LINES, that were done at the last line; the first line comes as soon as it may
        self._bar = progress.Progress(
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.DownloadColumn() if self._in_bytes else progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[figures]}", markup=False),
            progress.TextColumn("{task.fields[left]}"),
            console=console,
            transient=brief,
            disable=not shown or not console.is_terminal,
        )
        self._bar.add_task(visible(text), total=total, figures="", left="")

    def __enter__(self) -> Bar:
        """Show the bar."""
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the bar as it stands."""
        self.close()

    def show(self, done: int, text: str, total: int | None = None, figures: str = "") -> None:
        """Move the bar to `done` of its total, with another text, other figures and perhaps another total."""
        self.total = total or self.total
        self._move(completed=done, description=visible(text), figures=figures)

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        if self._shown:
            self._bar.console.print(visible(line), highlight=False, markup=False, soft_wrap=True)

    def update(self, count: int = 1) -> None:
        """Count more as done."""
        self._bar.start()
        self._move(advance=count)

    def reset(self) -> None:
        """Wind the bar back to its beginning."""
        self._bar.reset(self._bar.task_ids[0])
        self._steps = 0

    def close(self) -> None:
        """Stop drawing."""
        self._bar.stop()

    def _move(self, **changes: Any) -> None:
        """Draw the bar; without a terminal print a line instead, if the last line is old enough."""
        self._bar.update(self._bar.task_ids[0], total=self.total, **changes)
        task, total, now = self._bar.tasks[0], self.total or 0, monotonic()
        left = self._time_left(task.completed, total, now)
        self._bar.update(self._bar.task_ids[0], left=left)
        if not self._bar.disable or not 0 < task.completed < total:
            return
        parts = int(LINES * task.completed // total)
        if now - self._last < (SHORTEST_PAUSE if parts > self._parts else LONGEST_PAUSE):
            return
        self._last, self._parts = now, parts
        counts = [f"{n / 1e6:,.1f} MB" if self._in_bytes else f"{n:,.0f}" for n in (task.completed, total)]
        self.say(f"{task.description}: {', '.join(filter(None, (' of '.join(counts), task.fields['figures'], left)))}")

    def _time_left(self, done: float, total: float, now: float) -> str:
        """Say how long it still takes; nothing before a few steps have shown it, the first of which does not count."""
        self._steps += 1
        if self._steps <= 2:
            self._base = (now, done)
        began, before = self._base
        if self._steps <= FEWEST_STEPS or now - self._began < SHORTEST_TIME or not before < done < total:
            return ""
        left = (now - began) * (total - done) / (done - before)
        return f"{duration(max(0.0, min(left, self._longest - (now - self._began))))} left"


def duration(seconds: float) -> str:
    """Say roughly how long something takes.

    >>> duration(3), duration(50), duration(100), duration(7000)
    ('about 5 seconds', 'about 50 seconds', 'about 2 minutes', 'about 2 hours')
    """
    if seconds < 57.5:
        return f"about {max(1, round(seconds / 5)) * 5} seconds"
    number, unit = (round(seconds / 60), "minute") if seconds < 90 * 60 else (round(seconds / 3600), "hour")
    return f"about {number} {unit}{'s' if number > 1 else ''}"
