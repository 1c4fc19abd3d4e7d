"""Other people's layers on the same shapes, where they are installed."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from importlib import metadata
from typing import Any

import torch
from torch import Tensor

from speed import STREAMED
from ssmprune.models import S5Layer
from ssmprune.models.config import LayerOptions
from timing import Samples, time_in_turns

Call = Callable[[], object]


def s5_pytorch() -> str | None:
    """Return the version of s5-pytorch that is installed, or None."""
    try:
        return metadata.version("s5-pytorch")
    except metadata.PackageNotFoundError:
        return None


def compare(
    width: int, pairs: int, *, layers: int, batch: int, length: int, rounds: int, bidirectional: bool = False
) -> dict[str, Any] | None:
    """Return the times of S5 layers, ours with `pairs` conjugate pairs and s5-pytorch's with as many complex states.

    The layers follow each other directly, without norms and gates. `theirs` is the call its documentation shows;
    `theirs_at_best` maps its inner module over the batch, which spares it one set of matrices per sequence. A
    training pass is forward and backward, to the input as well. None when s5-pytorch is not installed.
    """
    version = s5_pytorch()
    if version is None:
        return None
    ours = [S5Layer(width, pairs, LayerOptions(bidirectional=bidirectional)) for _ in range(layers)]
    theirs = [_their_layer(width, 2 * pairs, bidirectional) for _ in range(layers)]
    x = torch.randn(batch, length, width)
    chains: dict[str, list[Callable[[Tensor], Tensor]]] = {
        "ours": [*ours],
        "theirs": [*theirs],
        "theirs_at_best": [torch.vmap(layer.seq) for layer in theirs],
    }
    times = {
        "evaluation": time_in_turns({name: _evaluation(chain, x) for name, chain in chains.items()}, rounds),
        "training": time_in_turns({name: _training(chain, x) for name, chain in chains.items()}, rounds),
    }
    if not bidirectional:
        steps = torch.randn(STREAMED, 1, width)
        calls = {"ours": _our_stream(ours, steps), "theirs": _their_stream(theirs, steps)}
        times["streaming"] = {name: time.scaled(1 / STREAMED) for name, time in time_in_turns(calls, rounds).items()}
    return {"name": "s5-pytorch", "version": version, "layers": layers, **{k: _compared(t) for k, t in times.items()}}


def _compared(times: dict[str, Samples]) -> dict[str, Any]:
    """Return the seconds of all, and how many times as fast as the others ours are."""
    seconds = {name: time.to_dict() for name, time in times.items()}
    faster = {name: (time / times["ours"]).to_dict() for name, time in times.items() if name != "ours"}
    return {"seconds": seconds, "ours_is_faster": faster}


def _their_layer(width: int, states: int, bidirectional: bool) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it uses torch.jit
        module: Any = importlib.import_module("s5")
    return module.S5(width, states, bidir=bidirectional)


def _evaluation(chain: list[Callable[[Tensor], Tensor]], x: Tensor) -> Call:
    @torch.no_grad()
    def run() -> None:
        y = x
        for layer in chain:
            y = layer(y)

    return run


def _training(chain: list[Callable[[Tensor], Tensor]], x: Tensor) -> Call:
    def run() -> None:
        y = x.clone().requires_grad_()
        for layer in chain:
            y = layer(y)
        loss: Any = y.mean()
        loss.backward()

    return run


def _our_stream(layers: list[S5Layer], steps: Tensor) -> Call:
    @torch.no_grad()
    def run() -> None:
        states = [layer.initial_state(1) for layer in layers]
        for y in steps:
            for i, layer in enumerate(layers):
                y, states[i] = layer.step(y, states[i])

    return run


def _their_stream(layers: list[Any], steps: Tensor) -> Call:
    @torch.no_grad()
    def run() -> None:
        states = [torch.zeros_like(layer.seq.Lambda) for layer in layers]
        for y in steps[:, 0]:
            for i, layer in enumerate(layers):
                y, states[i] = layer.seq.forward_rnn(y, states[i])

    return run
