"""Inputs without labels, for calibration: from a task or from a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib.format import MAGIC_PREFIX
from numpy.typing import NDArray

from .. import tasks
from ..calibration.data import Sequences
from ..errors import InputError, suggestion
from ..tasks.task import Split, fewer, some_of
from .evaluation import tensors

BATCH = 50
HOW_TO_SAVE = (
    "Save an array of numbers (sequences, length, inputs), or of tokens (sequences, length), with "
    "numpy.save('inputs.npy', x)."
)


def load_unlabelled(
    source: str, sequences: int, root: Path | None = None, parameters: Mapping[str, Any] | None = None
) -> list[Sequences]:
    """Return batches of some of a task's training inputs, or of a .npy file without padding, always the same ones.

    parameters: those of the task that differ from its own.
    A file holds (sequences, length, inputs) numbers, or (sequences, length) whole numbers for a model of tokens.
    """
    if source in tasks.found():
        return unlabelled_batches(tasks.get(source).replace(**parameters or {}).load("train", root), sequences)
    return [Sequences(x) for x in torch.split(torch.from_numpy(_from_file(source, sequences)), BATCH)]


def unlabelled_batches(split: Split, sequences: int) -> list[Sequences]:
    """Return batches of some inputs of a split, at random: many splits come sorted by their labels."""
    few = fewer(split, sequences)
    rows = (np.arange(start, min(start + BATCH, len(few))) for start in range(0, len(few), BATCH))
    return [tensors(few.batch(some), torch.device("cpu"))[0] for some in rows]


def _from_file(source: str, sequences: int) -> NDArray[Any]:
    if not Path(source).is_file():
        names = sorted(tasks.found())
        raise InputError(
            f"{source!r} is neither a task ({', '.join(names)}) nor a file of inputs.{suggestion(source, names)}"
        )
    with Path(source).open("rb") as file:
        if file.read(len(MAGIC_PREFIX)) != MAGIC_PREFIX:
            raise InputError(f"{source} is not a .npy file, and no task is called that. {HOW_TO_SAVE}")
    try:
        x = np.load(source, mmap_mode="r", allow_pickle=False)  # mapped: a false claim of size is noticed
    except Exception as error:  # numpy meets a broken header with whatever its parser happens to raise
        raise InputError(
            f"{source} begins like a .npy file but is damaged or holds Python objects. {HOW_TO_SAVE}"
        ) from error
    if not isinstance(x, np.ndarray) or x.ndim not in (2, 3) or not x.size or x.dtype.kind not in "iuf":
        shape = getattr(x, "shape", type(x).__name__)
        raise InputError(
            f"{source} must hold an array (sequences, length, inputs) or of tokens (sequences, length); got {shape}."
        )
    if not np.isfinite(x).all():
        raise InputError(f"{source} holds NaN or infinite numbers; calibration needs the inputs a model will meet.")
    if x.ndim == 2 and x.dtype.kind == "f" and (x != np.rint(x)).any():
        raise InputError(
            f"{source} holds numbers (sequences, length) = {x.shape}, which are no tokens; a model of numbers takes "
            "(sequences, length, inputs): save x[..., None]."
        )
    chosen = x[some_of(len(x), sequences)]  # not the first: files come sorted as often as splits do
    return chosen.astype(np.int64 if x.ndim == 2 else np.float32)
