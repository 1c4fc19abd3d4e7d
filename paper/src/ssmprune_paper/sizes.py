"""Models of a task that differ in their number of states: those that have the paper's, and the others."""

from __future__ import annotations

from dataclasses import dataclass

from .query import Group, Query
from .recipes import PAPER

FAMILY = "s5"  # S4D has states for each channel, so a narrower model has fewer of them anyway


@dataclass(frozen=True)
class Sized:
    """Models of one task and training, and how many states a layer has."""

    group: Group
    states: int

    @property
    def text(self) -> str:
        """Return task and states for people."""
        return f"{self.group.task} {self.states}"


@dataclass(frozen=True)
class Sizes:
    """A task with a model that has the paper's number of states, and perhaps another."""

    paper: Sized
    other: Sized | None

    @property
    def by_size(self) -> tuple[Sized, Sized] | None:
        """Return the model with fewer states and the one with more, None where there is but one."""
        if self.other is None:
            return None
        return (self.other, self.paper) if self.other.states < self.paper.states else (self.paper, self.other)


def sizes(query: Query) -> list[Sizes]:
    """Return the paper's tasks that have a model with its number of states.

    Of several models the one named after the task counts, else the one that was trained longest.
    """
    found = []
    for task in dict.fromkeys(group.task for group in query.paper_groups(FAMILY)):
        groups = [group for group in query.groups if (group.task, group.family) == (task, FAMILY)]
        groups.sort(key=lambda group: (not group.is_main, -group.epochs))
        sized = [Sized(group.main, query.states_of(group.main.name)) for group in groups]
        wanted = PAPER[task, FAMILY].states
        of_paper = [model for model in sized if model.states == wanted]
        others = [model for model in sized if model.states != wanted]
        if of_paper:
            found.append(Sizes(of_paper[0], next(iter(others), None)))
    return found
