"""Export: a classifier as an ONNX or torch.export graph in real arithmetic, for whole sequences or step by step.

ONNX has no complex numbers, so a state is two real ones, (batch, 2, ...): real parts, then imaginary parts.
"""

from __future__ import annotations

import copy
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan  # becomes ONNX's Scan, whose length is free

from ..errors import InputError, need
from ..files import write_atomically
from ..layout import ChannelLayout
from ..models.classifier import Classifier
from ..models.s4d import S4DLayer
from ..models.s5 import S5Layer

MODES = ("sequence", "stream")


def export(model: Classifier, path: Path, *, format: str = "onnx", mode: str = "sequence") -> None:
    """Write a model as a graph whose batch, and in sequence mode whose length, is free.

    mode "sequence": x (batch, length, inputs), or tokens (batch, length), to logits.
    mode "stream": one step x (batch, inputs), or tokens (batch,), with `steps` (the number of steps so far), `total`
    (batch, width) and a state per layer as further inputs; returns the logits of the prefix and the same, renewed.
    `blank_state` gives what to start from.
    """
    if format not in FORMATS:
        raise InputError(f"The format must be one of {', '.join(FORMATS)}; got {format!r}.")
    if mode not in MODES:
        raise InputError(f"The mode must be one of {', '.join(MODES)}; got {mode!r}.")
    if mode == "stream" and model.config.bidirectional:
        raise InputError("A bidirectional model needs the whole sequence; export it with mode 'sequence'.")
    graph = Sequence if mode == "sequence" else Stream
    write_atomically(path, FORMATS[format](graph(real(model), model.config.pooling), *_example(model, mode)))


def real(model: Classifier) -> Classifier:
    """Return a copy whose layers compute the same in real arithmetic alone."""
    twin = copy.deepcopy(model).eval().requires_grad_(False)
    blocks: list[Any] = list(twin.blocks)
    for block in blocks:
        block.ssm = RealS5(block.ssm) if isinstance(block.ssm, S5Layer) else RealS4D(block.ssm)
    return twin


def blank_state(model: Classifier, batch: int) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Return steps, total and the states of all layers before the first step of a stream graph."""
    layers = [cast(RealS5, block.ssm) for block in real(model).blocks]
    total = model.decoder.weight.new_zeros(batch, model.config.width)
    return torch.zeros((), dtype=torch.int64), total, [layer.blank(batch) for layer in layers]


class RealS5(nn.Module):
    """An S5 layer with the real and imaginary parts of everything apart."""

    poles: Tensor
    B: Tensor
    C: Tensor
    D: Tensor

    def __init__(self, layer: S5Layer) -> None:
        """Discretise once, in double precision."""
        super().__init__()
        log_poles, B = copy.deepcopy(layer).double().discretized()
        C = torch.view_as_complex(layer.C.double()) * layer.gain  # (directions, H, n)
        self._keep(layer, poles=_parts(log_poles.exp()), B=_parts(B.T), C=_parts(C.transpose(1, 2), 1))

    def _keep(self, layer: S5Layer | S4DLayer, **tensors: Tensor) -> None:
        self.delay = getattr(layer, "backward_delay", 0)
        for name, tensor in {**tensors, "D": layer.D}.items():
            self.register_buffer(name, tensor.to(layer.D.dtype))

    def blank(self, batch: int) -> Tensor:
        """The silent state (batch, 2, n)."""
        return self.poles.new_zeros(batch, *self.poles.shape)

    def forward(self, u: Tensor) -> Tensor:  # (batch, length, H) -> the same
        """The layer's output for whole sequences."""
        drive = self.drive(u).movedim(1, 0)  # (length, batch, 2, ...)
        y = self.observe(self._run(drive), 0)
        if len(self.C) == 2:
            later = self._run(drive.flip(0)).flip(0)
            if self.delay:
                later = torch.cat([later[1:], torch.zeros_like(later[:1])])
            y = y + self.observe(later, 1)
        return y.movedim(0, 1) + self.D * u

    def step(self, u: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:  # u (batch, H)
        """The output for the next step and the state after it."""
        state = self.advance(state, self.drive(u))
        return self.observe(state, 0) + self.D * u, state

    def advance(self, state: Tensor, drive: Tensor) -> Tensor:
        """One step of the recurrence: pole times state plus drive, all (batch, 2, ...)."""
        (a, b), (re, im) = self.poles.unbind(0), state.unbind(1)
        return torch.stack([a * re - b * im, a * im + b * re], 1) + drive

    def drive(self, u: Tensor) -> Tensor:  # (..., H) -> (..., 2, n)
        """What the input feeds into the states."""
        return torch.stack([u @ self.B[0], u @ self.B[1]], -2)

    def observe(self, x: Tensor, direction: int) -> Tensor:  # (..., 2, n) -> (..., H)
        """gain Re(C x)."""
        re, im = x.unbind(-2)
        return re @ self.C[direction, 0] - im @ self.C[direction, 1]

    def _run(self, drive: Tensor) -> Tensor:
        def step(state: Tensor, drive: Tensor) -> tuple[Tensor, Tensor]:
            state = self.advance(state, drive)
            return state, state.clone()  # a scan may not return the same memory twice

        states: Tensor = scan(step, drive.new_zeros(drive.shape[1:]), drive)[1]
        return states


class RealS4D(RealS5):
    """An S4D layer as a grid: every channel filled up with silent states to the most that any has."""

    def __init__(self, layer: S4DLayer) -> None:
        """Discretise once, in double precision."""
        nn.Module.__init__(self)
        log_poles, B = copy.deepcopy(layer).double().discretized()
        C = torch.view_as_complex(layer.C.double()) * layer.gain  # (directions, n)
        layout = ChannelLayout.of_channels(layer.channel.numpy(), len(layer.D))

        def grid(values: Tensor) -> Tensor:  # (..., n) -> (..., H, most)
            filled = values.new_zeros(*values.shape[:-1], layout.channels, max(1, layout.slots))
            filled[..., layer.channel, torch.from_numpy(layout.slot)] = values
            return _parts(filled)

        self._keep(layer, poles=grid(log_poles.exp()), B=grid(B), C=torch.stack([grid(c) for c in C]))

    def drive(self, u: Tensor) -> Tensor:  # (..., H) -> (..., 2, H, most)
        """What the input feeds into the states."""
        return u[..., None, :, None] * self.B

    def observe(self, x: Tensor, direction: int) -> Tensor:  # (..., 2, H, most) -> (..., H)
        """gain Re(C x), summed over the states of each channel."""
        re, im = x.unbind(-3)
        return (re * self.C[direction, 0] - im * self.C[direction, 1]).sum(-1)


class Sequence(nn.Module):
    """Whole sequences to logits."""

    def __init__(self, model: Classifier, pooling: str) -> None:
        """Take over a model whose layers are real."""
        super().__init__()
        self.model, self.pooling = model, pooling

    def forward(self, x: Tensor) -> Tensor:
        """Logits (batch, outputs), or (batch, length, outputs) without pooling."""
        x = self.model.encoder(x)
        for block in self.model.blocks:
            x = block._after(block._gated(x, block.ssm(block._before(x))))  # its forward cuts the batch by its length
        return self.model._head(x.mean(1) if self.pooling == "mean" else x[:, -1] if self.pooling == "last" else x)


class Stream(nn.Module):
    """One step to the logits of the prefix, with the state as input and output."""

    def __init__(self, model: Classifier, pooling: str) -> None:
        """Take over a model whose layers are real."""
        super().__init__()
        self.model, self.pooling = model, pooling

    def forward(
        self, x: Tensor, steps: Tensor, total: Tensor, states: list[Tensor]
    ) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
        """Logits, steps, total, states."""
        renewed, steps = [], steps + 1
        x = self.model.encoder(x)
        for block, before in zip(self.model.blocks, states, strict=True):
            x, after = block.step(x, before)
            renewed.append(after)
        total = total + x
        if self.pooling == "mean":
            x = total / steps
        return self.model._head(x), steps, total, renewed


def _example(model: Classifier, mode: str) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Example arguments, and which of their axes are free."""
    config, batch = model.config, {0: torch.export.Dim.DYNAMIC}
    shape = (2, 3) if mode == "sequence" else (2,)
    x = (
        torch.zeros(shape, dtype=torch.int64)
        if config.tokens
        else model.decoder.weight.new_zeros(*shape, config.inputs)
    )
    if mode == "sequence":
        return (x,), ({**batch, 1: torch.export.Dim.DYNAMIC},)
    steps, total, states = blank_state(model, 2)
    return (x, steps, total, states), (batch, {}, batch, [batch] * len(states))


def _to_onnx(module: nn.Module, example: tuple[Any, ...], free: tuple[Any, ...]) -> bytes:
    need("onnxscript", "export", "ONNX export needs onnx and onnxscript, which torch's exporter calls")
    count = len(example[3]) if len(example) > 1 else 0
    states = [f"state_{i}" for i in range(count)]
    inputs = ["x", "steps", "total", *states] if count else ["x"]
    outputs = ["logits", "next_steps", "next_total", *(f"next_{name}" for name in states)] if count else ["logits"]
    with _quiet():
        program = torch.onnx.export(
            module, example, dynamo=True, dynamic_shapes=free, input_names=inputs, output_names=outputs, verbose=False
        )
    assert program is not None  # with dynamo there always is one
    return bytes(program.model_proto.SerializeToString())


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep torch's exporter from telling of its own deprecations and of packages it does without."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _to_torch_export(module: nn.Module, example: tuple[Any, ...], free: tuple[Any, ...]) -> bytes:
    content = io.BytesIO()
    with _quiet():
        torch.export.save(torch.export.export(module, example, dynamic_shapes=free), content)
    return content.getvalue()


FORMATS: dict[str, Callable[..., bytes]] = {"onnx": _to_onnx, "torch-export": _to_torch_export}


def _parts(values: Tensor, axis: int = 0) -> Tensor:
    """Real and imaginary part along a new axis."""
    return torch.view_as_real(values.resolve_conj()).movedim(-1, axis).contiguous()
