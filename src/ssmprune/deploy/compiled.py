"""The C engine in Python: a model compiled for this machine, called with numpy arrays or tensors.

`forward` chooses between it and torch, for what evaluates models.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ..calibration.record import evaluating
from ..errors import InputError, one_of
from ..integers.numbers import Array
from ..models.classifier import Classifier
from ..models.config import Config, check_lengths
from . import build
from .c.source import Sources, sources

POINTER, SIZE = ctypes.c_void_p, ctypes.c_size_t
SHARES = 4  # slices of a batch per thread, so that no thread waits long for the others
ENGINES = ("torch", "compiled", "auto")
Forward: TypeAlias = Callable[..., Tensor]  # from a batch, and perhaps its lengths, to logits, as a model


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
    if not isinstance(model, Classifier):
        raise InputError(f"`compile` takes ssmprune's own classifiers; this is {type(model).__name__}.")
    folder = None if cache is None else Path(cache)
    return Compiled(model.config, sources(model, calls=True), threads or _cores(), folder)


class Compiled:
    """A classifier in C. It computes what the model's `forward` does, without gradients.

    Copies and pickles hold the C text; what loads them finds the library in the folder `cache`, or builds it again.
    """

    def __init__(self, config: Config, text: Sources, threads: int, cache: Path | None) -> None:
        self.config, self.threads = config, threads
        self._text, self._cache, self._units = text, cache, text.units
        self._kind = np.float32 if self._units is None else np.int32  # of what leaves the C
        library = build.load({"model.c": text.c, "model.h": text.header}, cache)
        self._library: ctypes.CDLL | None = library  # None once it is closed
        self._pools: dict[int, ThreadPoolExecutor] = {}  # by process: threads do not survive a fork
        self._room = _function(library, "room", SIZE)
        self._room.restype = SIZE
        self._sequences = _function(library, "sequences", POINTER, POINTER, SIZE, SIZE, POINTER, POINTER)
        if not self.config.bidirectional:
            self._steps = _function(library, "steps", POINTER, SIZE, POINTER, POINTER)
        if self.config.retrieval:
            self._compare = _function(library, "compare", POINTER, POINTER, POINTER)

    def __reduce__(self) -> tuple[Any, ...]:
        """Say how to make another: from the same C."""
        self._refuse_closed()
        return Compiled, (self.config, self._text, self.threads, self._cache)

    def __repr__(self) -> str:
        """Show the sizes at a glance."""
        return f"Compiled({_sizes(self.config)}, threads={self.threads}{', closed' if self._library is None else ''})"

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
        out = np.zeros((batch, *each, self.answer), self._kind)
        share = -(-batch // (SHARES * self.threads)) if self.threads > 1 else batch
        parts = [slice(at, at + share) for at in range(0, batch, share)]
        pool = self._pools.get(os.getpid()) or self._pools.setdefault(os.getpid(), ThreadPoolExecutor(self.threads))
        for _ in (map if self.threads == 1 else pool.map)(lambda p: self._run(values[p], valid[p], out[p]), parts):
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
        if pool := self._pools.pop(os.getpid(), None):
            pool.shutdown()
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
        """Return the logits of what left the C, as floats."""
        logits = out
        if self.config.retrieval:
            half = len(out) // 2
            logits = np.empty((half, self.config.outputs), self._kind)
            for a, b, row in zip(out[:half], out[half:], logits, strict=True):
                self._compare(_at(a), _at(b), _at(row))
        return logits if self._units is None else (logits * self._units.logit).astype(np.float32)

    def _read(self, x: Any, *, one_step: bool = False) -> Array:
        """Return inputs as the C reads them."""
        self._refuse_closed()
        values = _numpy(x)
        if values.dtype.kind not in "iufb":
            raise InputError(f"Expected numbers, got {values.dtype} of shape {values.shape}.")
        self.config.check_inputs(values, whole=values.dtype.kind in "iu", one_step=one_step)
        values = values if self._units is None else self._units.samples(values)
        whole = np.int32 if self.config.tokens else np.int16
        return np.ascontiguousarray(values, whole if self.config.tokens or self._units else np.float32)

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
    """Sequences that arrive step by step, at the same pace. A copy is a branch, which goes on by itself."""

    def __init__(self, compiled: Compiled, batch: int, states: Array | None = None) -> None:
        """Start `batch` sequences, or go on from their states."""
        self._compiled, self._batch = compiled, batch
        room = batch * (compiled.state_bytes or 0) // 4
        self._states = np.zeros(room, np.float32) if states is None else states  # zeros as `model_init` leaves them

    def __reduce__(self) -> tuple[Any, ...]:
        """Say how to make a branch."""
        return Stream, (self._compiled, self._batch, self._states.copy())

    def __repr__(self) -> str:
        """Show the sizes at a glance."""
        return f"Stream({self._batch} at once, {_sizes(self._compiled.config)})"

    def __call__(self, x: Any) -> Any:
        """Return the logits so far after one more step x (batch, inputs), or tokens (batch,).

        A single sequence may come without its batch, (inputs,) or one token, and gets (outputs,).
        """
        single = self._batch == 1 and np.ndim(x) == (0 if self._compiled.config.tokens else 1)
        values = self._compiled._read(_numpy(x)[None] if single else x, one_step=True)
        if len(values) != self._batch:
            raise InputError(f"Expected a step of {self._batch} sequences, got {len(values)}.")
        out = np.empty((self._batch, self._compiled.answer), self._compiled._kind)
        self._compiled._steps(_at(self._states), self._batch, _at(values), _at(out))
        logits = self._compiled._head(out)
        return _like(x, logits[0] if single else logits)


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
def forward(model: Any, engine: str | Forward = "torch") -> Iterator[Forward]:
    """Yield what computes a model's logits, in evaluation mode, on as many threads as torch may use.

    A compiled model is not kept: most models, such as those of a sweep, are evaluated once and never again.
    """
    if not isinstance(engine, str):  # what an outer call has yielded
        yield engine
        return
    if choose_engine(engine) == "torch":
        with evaluating(model):
            yield model
        return
    with TemporaryDirectory(prefix="ssmprune-", dir=build.scratch_folder(), ignore_cleanup_errors=True) as folder:
        fast = compile(model, threads=torch.get_num_threads(), cache=folder)
        try:
            yield fast
        finally:
            fast.close()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _sizes(config: Config) -> str:
    return f"{config.family}, {config.inputs} -> {config.outputs}, width {config.width}, states {config.states}"


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
    x = x.detach().cpu()
    return np.asarray((x.float() if x.dtype == torch.bfloat16 else x).numpy())  # numpy has no bfloat16


def _like(x: Any, logits: Array) -> Any:
    """Return the logits as an array, or as a tensor where the input was one."""
    if not hasattr(x, "detach"):
        return logits
    return torch.from_numpy(logits).to(x.device)
