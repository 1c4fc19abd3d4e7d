"""What a person sees of a long computation: a bar on standard error."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from .evaluate import Score


class Meter:
    """A progress bar with loss, accuracy and time left; silent when not `shown`."""

    def __init__(self, steps: int, done: int = 0, *, shown: bool = True) -> None:
        """Prepare a bar of `steps` steps of which `done` are over."""
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[figures]}"), TimeRemainingColumn())
        text = TextColumn("{task.description}")
        self._bar = Progress(text, *columns, console=Console(stderr=True), disable=not shown)
        self._task = self._bar.add_task("", total=steps, completed=done, figures="")

    def __enter__(self) -> Meter:
        """Show the bar."""
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the bar as it stands."""
        self._bar.stop()

    def show(self, step: int, text: str, seen: Score) -> None:
        """Move the bar to `step`."""
        figures = f"loss {seen.loss:.3f}  accuracy {seen.accuracy:.1%}"
        self._bar.update(self._task, completed=step, description=text, figures=figures)

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        if not self._bar.disable:
            self._bar.console.print(line, highlight=False)
