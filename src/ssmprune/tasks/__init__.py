"""Tasks: data sets with their sizes, what models are trained and evaluated on.

`task` says what a task and its splits are, `catalogue` finds tasks by name. `smnist` is the one that ships, with a
`sample` of MNIST inside the package; docs/extending.md follows a task of your own from its data to a report. `data`
finds, fetches, unpacks and keeps files, `formats` reads them; `cards` say which task a checkpoint was trained on.
"""

from .catalogue import found, get
from .formats import read_idx
from .task import Batch, Split, Task, features, split_published

__all__ = ["Batch", "Split", "Task", "features", "found", "get", "read_idx", "split_published"]
