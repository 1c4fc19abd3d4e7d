"""Which engine computes the logits that an evaluation counts: torch, or C that is compiled for the purpose."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Protocol

import torch
from torch import Tensor, nn

from ..errors import InputError, one_of
from . import build, compiled
from .c.reading import check_kind

ENGINES = ("torch", "compiled", "auto")


class Forward(Protocol):
    """Computes the logits of a batch, as a model does."""

    def __call__(self, x: Tensor, lengths: Tensor | None = None, /) -> Tensor:
        """Return the logits."""
        ...


def choose(engine: str) -> str:
    """Return "torch" or "compiled"; "auto" compiles where there is a C compiler and a safe folder for what it makes.

    "compiled" is an error where one of them is missing.
    """
    one_of("engine", engine, dict.fromkeys(ENGINES))
    if engine == "torch":
        return engine
    try:
        build.compiler()
        build.scratch_folder()
    except InputError:
        if engine == "compiled":
            raise
        return "torch"
    return "compiled"


@contextmanager
def forward(model: nn.Module, engine: str = "torch") -> Iterator[Forward]:
    """Yield what computes a model's logits, in evaluation mode, on as many threads as torch may use.

    A compiled model is not kept: most models, such as those of a sweep, are evaluated once and never again.
    """
    if choose(engine) == "torch":
        was_training = model.training
        try:
            yield model.eval()
        finally:
            model.train(was_training)
        return
    with TemporaryDirectory(prefix="ssmprune-", dir=build.scratch_folder(), ignore_cleanup_errors=True) as folder:
        fast = compiled.compile(check_kind(model), threads=torch.get_num_threads(), cache=folder)
        try:
            yield fast
        finally:
            fast.close()
