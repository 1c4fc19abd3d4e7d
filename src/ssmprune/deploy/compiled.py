"""The C engine in Python: a model compiled for this machine, called with numpy arrays or tensors.

`forward` chooses between it and torch, for what evaluates models.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, one_of
from ..models.config import check_lengths
from . import build
from .c import sources

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ..models.classifier import Classifier

Array = NDArray[Any]
POINTER, SIZE = ctypes.c_void_p, ctypes.c_size_t
SHARES = 4  # slices of a batch per thread, so that no thread waits long for the others
ENGINES = ("torch", "compiled", "auto")


def compile(model: Classifier, *, threads: int | None = None, cache: str | os.PathLike[str] | None = None) -> Compiled:
    """Return a model compiled for this machine; what is compiled once is kept in the folder `cache`.

    It takes sequences (batch, length, inputs), or tokens (batch, length), as arrays or tensors. A stream takes a step
    at a time and returns the logits of the sequence so far.

    >>> from ssmprune.models import Classifier
    >>> from ssmprune.models.config import Config
    >>> with TemporaryDirectory() as folder:
    ...     fast = compile(Classifier(Config("s5", inputs=1, outputs=2, width=4, states=(3,))), cache=folder)
    >>> fast(np.zeros((5, 16, 1))).shape
    (5, 2)
    >>> fast.stream(batch=1)(np.zeros((1, 1))).shape
    (1, 2)
    """
    if threads is not None and (not isinstance(threads, int) or threads < 1):
        raise InputError(f"A model needs at least one thread, a whole number, not {threads!r}.")
    return Compiled(model, threads or _cores(), None if cache is None else Path(cache))


class Compiled:
    """A classifier in C. It computes what the model's `forward` does, without gradients."""

    def __init__(self, model: Classifier, threads: int, cache: Path | None) -> None:
        """Write, build and load the C."""
        from ..models.classifier import Classifier

        if not isinstance(model, Classifier):
            raise InputError(f"`compile` takes ssmprune's own classifiers; this is {type(model).__name__}.")
        self.config, self.threads = model.config, threads
        text = sources(model, calls=True)
        library = build.load({"model.c": text.c, "model.h": text.header}, cache)
        self._library: ctypes.CDLL | None = library  # None once it is closed
        self._room = _function(library, "room", SIZE)
        self._room.restype = SIZE
        self._sequences = _function(library, "sequences", POINTER, POINTER, SIZE, SIZE, POINTER, POINTER)
        if not self.config.bidirectional:
            self._steps = _function(library, "steps", POINTER, SIZE, POINTER, POINTER)
        if self.config.retrieval:
            self._compare = _function(library, "compare", POINTER, POINTER, POINTER)
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    @property
    def answer(self) -> int:
        """How many numbers leave the C: the logits, or the features of a document of a retrieval model."""
        return self.config.width if self.config.retrieval else self.config.outputs

    @property
    def state_bytes(self) -> int | None:
        """How much a stream remembers from one step to the next; None for a model that needs whole sequences."""
        self._refuse_closed()
        return None if self.config.bidirectional else self._room(0)

    def __call__(self, x: Any, lengths: Any = None) -> Any:
        """Return the logits of a batch; `lengths` (batch,) keeps padding out of the pooling."""
        values = self._read(x)
        batch, length = values.shape[:2]
        valid = self._valid(lengths, batch, length)
        each = (length,) if self.config.pooling == "none" else ()
        out = np.zeros((batch, *each, self.answer), np.float32)
        share = -(-batch // (SHARES * self.threads)) if self.threads > 1 else batch
        parts = [slice(at, at + share) for at in range(0, batch, share)]
        for _ in (self._pool.map if self._pool else map)(lambda p: self._run(values[p], valid[p], out[p]), parts):
            pass  # what went wrong in a thread is raised here
        return _like(x, self._head(out))

    def stream(self, batch: int = 1) -> Stream:
        """Return a stream of `batch` sequences before their first step."""
        if self.config.bidirectional:
            raise InputError("A bidirectional model needs the whole sequence; only unidirectional models stream.")
        if not isinstance(batch, (int, np.integer)) or batch < 1 or (self.config.retrieval and batch % 2):
            raise InputError(f"Expected at least one sequence, and pairs of documents for retrieval, not {batch!r}.")
        return Stream(self, int(batch))

    def close(self) -> None:
        """Give back threads and memory; after that the model and its streams refuse to be called."""
        if self._library is None:
            return
        if self._pool:
            self._pool.shutdown()
        build.unload(self._library)
        self._library = None

    def _refuse_closed(self) -> None:
        if self._library is None:
            raise InputError("This compiled model is closed; compile it again with `sp.compile`.")

    def _run(self, x: Array, valid: Array, out: Array) -> None:
        length = x.shape[1]
        room = np.empty(self._room(length) if self.config.bidirectional else 0, np.float32)
        self._sequences(_at(x), _at(valid), len(x), length, _at(out), _at(room))

    def _head(self, out: Array) -> Array:
        """Return the logits of what left the C."""
        if not self.config.retrieval:
            return out
        half = len(out) // 2
        logits = np.empty((half, self.config.outputs), np.float32)
        for a, b, row in zip(out[:half], out[half:], logits, strict=True):
            self._compare(_at(a), _at(b), _at(row))
        return logits

    def _read(self, x: Any, *, one_step: bool = False) -> Array:
        """Return inputs as the C reads them."""
        self._refuse_closed()
        values = _numpy(x)
        if values.dtype.kind not in "iufb":
            raise InputError(f"Expected numbers, got {values.dtype} of shape {values.shape}.")
        self.config.check_inputs(values, whole=values.dtype.kind in "iu", one_step=one_step)
        return np.ascontiguousarray(values, np.int32 if self.config.tokens else np.float32)

    def _valid(self, lengths: Any, batch: int, length: int) -> Array:
        """Return how many steps of each sequence count."""
        if lengths is None:
            return np.full(batch, length, np.uintp)
        valid = _numpy(lengths)
        if valid.dtype.kind not in "iu":
            raise InputError(f"Expected whole lengths of shape ({batch},), got {valid.dtype} of shape {valid.shape}.")
        check_lengths(valid, batch, length)
        cut = self.config.bidirectional and self.config.padding == "cut"
        if self.config.pooling == "none" and not cut:  # every step has its logits, padding too
            return np.full(batch, length, np.uintp)
        return valid.astype(np.uintp)


class Stream:
    """Sequences that arrive step by step, at the same pace."""

    def __init__(self, compiled: Compiled, batch: int) -> None:
        """Start `batch` sequences."""
        self._compiled, self._batch = compiled, batch
        room = batch * (compiled.state_bytes or 0) // 4
        self._states = np.zeros(room, np.float32)  # as `model_init` leaves them
        self._at = _at(self._states)

    def __call__(self, x: Any) -> Any:
        """Return the logits so far after one more step x (batch, inputs), or tokens (batch,)."""
        values = self._compiled._read(x, one_step=True)
        if len(values) != self._batch:
            raise InputError(f"Expected a step of {self._batch} sequences, got {len(values)}.")
        out = np.empty((self._batch, self._compiled.answer), np.float32)
        self._compiled._steps(self._at, self._batch, _at(values), _at(out))
        return _like(x, self._compiled._head(out))


class Forward(Protocol):
    """Computes the logits of a batch, as a model does."""

    def __call__(self, x: Tensor, lengths: Tensor | None = None, /) -> Tensor:
        """Return the logits."""
        ...


def choose_engine(engine: str) -> str:
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
def forward(model: nn.Module, engine: str | Forward = "torch") -> Iterator[Forward]:
    """Yield what computes a model's logits, in evaluation mode, on as many threads as torch may use.

    A compiled model is not kept: most models, such as those of a sweep, are evaluated once and never again.
    """
    if not isinstance(engine, str):  # what an outer call has yielded
        yield engine
        return
    if choose_engine(engine) == "torch":
        was_training = model.training
        try:
            yield model.eval()
        finally:
            model.train(was_training)
        return
    with TemporaryDirectory(prefix="ssmprune-", dir=build.scratch_folder(), ignore_cleanup_errors=True) as folder:
        import torch

        fast = Compiled(cast("Classifier", model), torch.get_num_threads(), Path(folder))
        try:
            yield fast
        finally:
            fast.close()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _function(library: ctypes.CDLL, name: str, *kinds: type) -> Any:
    function = getattr(library, f"model_{name}")
    function.argtypes, function.restype = kinds, None
    return function


def _at(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _numpy(x: Any) -> Array:
    if not hasattr(x, "detach"):
        return np.asarray(x)
    import torch

    x = x.detach().cpu()
    return np.asarray((x.float() if x.dtype == torch.bfloat16 else x).numpy())  # numpy has no bfloat16


def _like(x: Any, logits: Array) -> Any:
    """Return the logits as an array, or as a tensor where the input was one."""
    if not hasattr(x, "detach"):
        return logits
    import torch

    return torch.from_numpy(logits).to(x.device)
