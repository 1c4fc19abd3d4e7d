"""Forward passes that stop at every layer: a model's layers one after the other, on all data, in one run of the model.

What a layer of a pruned model meets depends on how the layers before it were fitted, each of which takes all data. So
the passes over all slices of the data wait in the middle of the model's forward, whatever that looks like, while a
layer is fitted. Each pass is a thread, but only one thread runs at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from threading import Semaphore, Thread
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..adapters import Layer
from ..errors import InputError
from .batches import Padded, Unlabelled
from .recording import Sequences, run_at_once

WAITING_BYTES = 1 << 30  # what the passes that wait may hold, at most; others start again for every layer
MOST_WAITING = 512  # passes of a model, each of which is a thread
TENSORS = 2  # as large as a layer's input, which a waiting pass holds: the input and the residual stream


def waiting_bytes(batches: Iterable[Unlabelled], width: int) -> int:
    """Return what the passes of two models that are compared hold at most, in layers of so many inputs."""
    xs = [batch.x if isinstance(batch, Padded) else batch for batch in batches]
    largest = max((x.element_size() for x in xs if x.is_floating_point()), default=4)
    return 2 * min(WAITING_BYTES, TENSORS * largest * width * sum(x.shape[0] * x.shape[1] for x in xs))


class Call(NamedTuple):
    """A layer's module was called: with these arguments, which hold u (batch, length, width), and gave y."""

    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    u: Tensor
    y: Tensor
    lengths: Tensor | None


class Passes:
    """Passes of one model over slices of data; `reach` takes one of them to a layer.

    Layers are reached in the order of the forward, each by all slices before the next. With `again`, a layer that has
    been reached is called once more when its pass goes on: its parameters have changed.
    """

    def __init__(self, model: nn.Module, layers: Mapping[str, Layer], slices: list[Sequences], *, again: bool) -> None:
        """Prepare a pass over every slice."""
        self.model, self.layers, self.again = model, layers, again
        self.modules = {path: model.get_submodule(layer.calling_module) for path, layer in layers.items()}
        self.passes = [_Pass(self, sequences) for sequences in slices]
        self.running: _Pass | None = None
        self.waiting = self.held = 0

    def __enter__(self) -> Passes:
        """Notice the calls of all layers from now on."""
        self.hooks = [
            module.register_forward_hook(
                lambda _, arguments, keywords, result, path=path: self._called(path, arguments, keywords, result),
                with_kwargs=True,
            )
            for path, module in self.modules.items()
        ]
        return self

    def __exit__(self, *_: object) -> None:
        """End all passes where they wait."""
        for waiting in self.passes:
            waiting.end()
        for hook in self.hooks:
            hook.remove()

    def reach(self, number: int, path: str) -> list[Call]:
        """Take the pass over a slice to a layer; return the calls of it, several where a model splits its batches."""
        self.running = self.passes[number]
        try:
            return self.running.reach(path)
        finally:
            self.running = None

    def call(self, path: str, call: Call) -> Tensor:
        """Return what the layer, as it is now, gives for the arguments of a call of another model's."""
        family = self.layers[path].family
        output: Tensor = family.outputs_of(self.modules[path](*call.arguments, **call.keywords))
        return output

    def may_hold(self, u: Tensor) -> bool:
        """Say whether one more pass, whose layer met u, may wait."""
        self.waiting, self.held = self.waiting + 1, self.held + TENSORS * u.nbytes
        return self.waiting <= MOST_WAITING and self.held <= WAITING_BYTES

    def _called(self, path: str, arguments: tuple[Any, ...], keywords: dict[str, Any], result: Any) -> Any:
        """Stop the pass that runs if it was to reach this layer; return what the layer gives when it goes on."""
        one = self.running
        if one is None or path != one.goal:
            return None
        family, start = self.layers[path].family, len(one.sequences.x) - one.missing
        u, y = family.inputs_of(arguments), family.outputs_of(result)
        lengths = one.sequences.lengths
        ends = None if lengths is None else lengths[start : start + len(u)].to(u.device)
        if not one.stop(Call(arguments, keywords, u, y, ends)):
            return None
        del result, y
        one.wait()
        return self.modules[path](*arguments, **keywords) if self.again else None


class _Pass:
    """One forward pass, which waits in a thread of its own or starts again for every layer."""

    def __init__(self, owner: Passes, sequences: Sequences) -> None:
        self.owner, self.sequences = owner, sequences
        self.thread: Thread | None = None
        self.go, self.stopped = Semaphore(0), Semaphore(0)
        self.goal: str | None = None
        self.calls: list[Call] = []
        self.missing = 0  # sequences that have not reached the goal
        self.holds: bool | None = None  # whether it waits; decided when it first could
        self.error: BaseException | None = None

    def reach(self, path: str) -> list[Call]:
        self.goal, self.calls, self.missing = path, [], len(self.sequences.x)
        if self.thread is None:
            self.thread = Thread(target=self._work, daemon=True)
            self.thread.start()
        self._switch()
        if self.missing:
            raise InputError(f"Layer {path!r} did not see every sequence; is it used in the model's forward?")
        calls, self.calls = self.calls, []
        return calls

    def stop(self, call: Call) -> bool:
        """Note a call; return whether the pass is to wait here. One that starts again each time ends instead."""
        self.calls.append(call)
        self.missing -= len(call.u)
        if self.missing > 0:
            return False
        self.goal = None
        if self.holds is None:
            self.holds = len(self.calls) == 1 and self.owner.may_hold(call.u)
        if not self.holds:
            raise _Ended
        return True

    def wait(self) -> None:
        """Let the others go on until this pass is to go on."""
        self.stopped.release()
        self.go.acquire()
        if self.goal is None:
            raise _Ended

    def end(self) -> None:
        if self.thread is not None:
            self.goal = None
            self._switch()

    def _switch(self) -> None:
        """Let the pass run until it stops; raise what went wrong in it."""
        self.go.release()
        self.stopped.acquire()
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    @torch.no_grad()
    def _work(self) -> None:
        self.go.acquire()
        try:
            if self.goal is not None:
                run_at_once(self.owner.model, self.sequences)
        except _Ended:
            pass
        except BaseException as error:  # whatever a model raises belongs to who asked for it
            self.error = error
        self.thread = None
        self.stopped.release()


class _Ended(Exception):
    """Nothing more is to be learnt from this pass."""
