"""Tasks: data sets with their sizes, on which models are trained and evaluated.

`task` says what a task and its splits are, `catalogue` finds tasks by name. `smnist` is the task that ships, with a
sample of its images inside the package; docs/extending.md follows a task of your own from its data to a report. `data`
finds, fetches and reads files; `cards` say which task a checkpoint was trained on.
"""

from .cards import card_path
from .catalogue import found, get
from .data import Source, data_folder, fetch, read_idx, refuse_new
from .smnist import SequentialMnist
from .task import Batch, Inputs, Lengths, Split, Task, features, fewer, split_published

__all__ = [  # noqa: RUF022 (grouped)
    # a task and its examples
    "Task",
    "Split",
    "Batch",
    "Inputs",
    "Lengths",
    "features",
    "split_published",
    "fewer",
    # tasks by name
    "found",
    "get",
    "SequentialMnist",
    "card_path",
    # files
    "Source",
    "data_folder",
    "fetch",
    "refuse_new",
    "read_idx",
]
