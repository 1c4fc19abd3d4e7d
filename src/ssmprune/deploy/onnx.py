"""A classifier as a graph of real arithmetic for other runtimes: an ONNX file, or one that `torch.export.load` reads.

ONNX has no complex numbers, so layers have twins in which a state is two real ones, (batch, 2, n): real parts, then
imaginary parts. A batch norm in front of an S5 layer is a scale and a shift of its input, which go into B and D: fewer
operations for the runtime to call.
"""

from __future__ import annotations

import copy
import io
import logging
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan  # becomes ONNX's Scan, whose length is free
from torch.nn import functional as F

from ..errors import InputError, need, one_of
from ..files import write_atomically
from ..models.classifier import BatchNorm, Block, Classifier, StreamState
from ..models.layers import S4DLayer, S5Layer


def export_onnx(model: Classifier, path: str | os.PathLike[str], *, mode: str = "sequence") -> None:
    """Write a model as an ONNX graph whose batch size, and in sequence mode whose length, is free.

    mode "sequence": x (batch, length, inputs), or tokens (batch, length), to logits.
    mode "stream": one step x (batch, inputs), or tokens (batch,), with `steps` (the number of steps so far), `total`
    (batch, 2, width) and a state per layer as further inputs; returns the logits of the prefix and the same, renewed.
    `blank_state` gives what to start from.

    >>> from ssmprune.models.config import Config
    >>> export_onnx(Classifier(Config("s5", inputs=1, outputs=2, width=4, states=(3,))), "model.onnx", mode="steps")
    Traceback (most recent call last):
    ssmprune.errors.InputError: There is no mode 'steps'; there are sequence, stream.
    """
    module, example, free = _graph(model, mode)
    need("onnxscript", "export", "ONNX export needs onnx and onnxscript, which torch's exporter calls")
    carried = ["steps", "total", *(f"state_{i}" for i in range(len(example[3])))] if mode == "stream" else []
    with _quiet():
        program = torch.onnx.export(
            module,
            example,
            dynamo=True,
            dynamic_shapes=free,
            input_names=["x", *carried],
            output_names=["logits", *(f"next_{name}" for name in carried)],
            verbose=False,
        )
    assert program is not None  # with dynamo there always is one
    proto = program.model_proto
    _forget_origins(proto.graph)
    _name_axes(proto.graph, mode)
    write_atomically(path, proto.SerializeToString())


def export_torch(model: Classifier, path: str | os.PathLike[str], *, mode: str = "sequence") -> None:
    """Write the graph of `export_onnx` as a file that `torch.export.load` reads."""
    if model.config.retrieval:
        raise InputError("torch.export cannot leave open how many pairs a model compares; write ONNX, which can.")
    (module, example, free), content = _graph(model, mode), io.BytesIO()
    with _quiet():
        torch.export.save(torch.export.export(module, example, dynamic_shapes=free), content)
    write_atomically(path, content.getvalue())


def _graph(model: Classifier, mode: str) -> tuple[nn.Module, tuple[Any, ...], tuple[Any, ...]]:
    """Return a module that can be traced, arguments to trace it with, and which of their axes are free."""
    one_of("mode", mode, dict.fromkeys(("sequence", "stream")))
    free, shape = torch.export.Dim.DYNAMIC, (2, 3) if mode == "sequence" else (2,)
    x = torch.zeros(shape, dtype=torch.int64)
    if not model.config.tokens:
        x = model.decoder.weight.new_zeros(*shape, model.config.inputs)
    if mode == "sequence":
        return OverSequence(with_real_layers(model)), (x,), ({0: free, 1: free},)
    if model.config.bidirectional:
        raise InputError("A bidirectional model needs the whole sequence; export it with mode 'sequence'.")
    steps, total, states = blank_state(model, 2)
    example = x, steps, total, states
    return OverStep(with_real_layers(model)), example, ({0: free}, {}, {0: free}, [{0: free}] * len(states))


def _forget_origins(graph: Any) -> None:
    """Drop what the exporter notes of every node, a stack trace among it: a third of a small file.

    Shapes inside the graph go too: some are of weights before they were transposed, at which other tools stop.
    """
    graph.ClearField("value_info")
    for entry in (*graph.node, *graph.input, *graph.output, *graph.initializer):
        entry.ClearField("metadata_props")
        entry.ClearField("doc_string")
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):  # the body of a Scan
                _forget_origins(attribute.g)


def _name_axes(graph: Any, mode: str) -> None:
    """Call free axes batch and length; what is computed from the batch is how many pairs of documents there are."""
    length = graph.input[0].type.tensor_type.shape.dim[1].dim_param if mode == "sequence" else ""
    for entry in (*graph.input, *graph.output):
        for axis in entry.type.tensor_type.shape.dim:
            if axis.dim_param:  # not of a fixed axis, which setting a name would free
                other = "batch" if axis.dim_param.isidentifier() else "pairs"
                axis.dim_param = "length" if axis.dim_param == length else other


def blank_state(model: Classifier, batch: int) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Return steps, total and the states of all layers before the first step of a stream graph."""
    total = model.initial_state(batch).total
    states = [total.new_zeros(batch, 2, max(1, len(block.ssm.pole_re))) for block in model.blocks]
    return torch.zeros((), dtype=torch.int64), total, states


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's warnings about its own deprecations and about optional packages."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


class OverSequence(nn.Module):
    """Whole sequences to logits (batch, outputs), or (batch, length, outputs) without pooling."""

    def __init__(self, model: Classifier) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        return self.model.head(self.model.pool(self.model.encode(x)))


class OverStep(OverSequence):
    """One step to the logits of the prefix, with the state as input and output."""

    def forward(  # type: ignore[override]
        self, x: Tensor, steps: Tensor, total: Tensor, states: list[Tensor]
    ) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
        """Return logits, steps, total, states."""
        before = StreamState(tuple(states), cast("int", steps), total)  # a number that is free in the graph
        logits, after = self.model.step(x, before)
        return logits, cast("Tensor", after.steps), after.total, list(after.layers)


def with_real_layers(model: Classifier) -> Classifier:
    """Return a copy in evaluation mode whose layers compute the same in real arithmetic alone."""
    twin = copy.deepcopy(model).eval().requires_grad_(False)
    blocks: list[Any] = list(twin.blocks)
    for block in blocks:
        block.ssm = RealS5(block.ssm, *_take_norm_out(block)) if isinstance(block.ssm, S5Layer) else RealS4D(block.ssm)
    return twin


def _take_norm_out(block: Block) -> tuple[Tensor, Tensor]:
    """Remove a batch norm in front of the layer from a block and return its scale and shift of the layer's input."""
    norm, D = block.norm, block.ssm.D.double()
    if not (block.prenorm and isinstance(norm, BatchNorm)):
        return torch.ones_like(D), torch.zeros_like(D)
    block.norm = nn.Identity()  # type: ignore[assignment]
    return norm.scale_and_shift()


class RealLayer(nn.Module, ABC):
    """A diagonal layer with the real and imaginary parts of everything apart."""

    decay: Tensor  # (n,): the real parts of the poles
    turn: Tensor  # (2, n): minus their imaginary parts, and plus
    D: Tensor  # (H,)

    def __init__(self, poles: Tensor, C: Iterable[Tensor], D: Tensor, dtype: torch.dtype, delay: int = 0) -> None:
        """Keep poles (n,), a C for each direction and D, rounded to `dtype`."""
        super().__init__()
        self.dtype, self.delay = dtype, delay
        self._keep(decay=poles.real, turn=torch.stack([-poles.imag, poles.imag]), D=D)
        self.C = nn.ParameterList([nn.Parameter(C_d.to(dtype).contiguous(), requires_grad=False) for C_d in C])

    def _keep(self, **tensors: Tensor) -> None:
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor.to(self.dtype).contiguous())

    def forward(self, u: Tensor) -> Tensor:  # (batch, length, H) -> the same
        """Return the layer's output for whole sequences."""
        drive = self.drive(u).movedim(1, 0)  # (length, batch, 2, n)
        y = self.observe(self._run(drive), 0)
        if len(self.C) == 2:
            later = self._run(drive.flip(0)).flip(0)
            if self.delay:
                later = torch.cat([later[1:], torch.zeros_like(later[:1])])
            y = y + self.observe(later, 1)
        return y.movedim(0, 1) + self.D * u

    def step(self, u: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:  # u (batch, H)
        """Return the output for the next step and the state after it."""
        state = self.advance(state, self.drive(u))
        return self.observe(state, 0) + self.D * u, state

    def advance(self, state: Tensor, drive: Tensor) -> Tensor:
        """Return pole times state plus drive, all (batch, 2, n): one step of the recurrence."""
        return self.decay * state + self.turn * state.flip(1) + drive

    @abstractmethod
    def drive(self, u: Tensor) -> Tensor:  # (..., H) -> (..., 2, n)
        """Return what the input feeds into the states."""

    @abstractmethod
    def observe(self, x: Tensor, direction: int) -> Tensor:  # (..., 2, n) -> (..., H)
        """Return gain Re(C x)."""

    def _run(self, drive: Tensor) -> Tensor:
        def step(state: Tensor, drive: Tensor) -> tuple[Tensor, Tensor]:
            state = self.advance(state, drive)
            return state, state.clone()  # a scan may not return the same memory twice

        states: Tensor = scan(step, drive.new_zeros(drive.shape[1:]), drive)[1]
        return states


class RealS5(RealLayer):
    """An S5 layer: one real product from the input to both parts of all states, one back."""

    B: Tensor  # (2n, H)
    B_shift: Tensor  # (2n,): what B makes of the shift of the input
    D_shift: Tensor  # (H,): what D makes of it

    def __init__(self, layer: S5Layer, scale: Tensor, shift: Tensor) -> None:
        """Discretise once, in double precision; the layer's input is scale * u + shift."""
        log_poles, B = copy.deepcopy(layer).double().discretized()
        C = torch.view_as_complex(layer.C.double()) * layer.gain  # (directions, H, n)
        B, D = torch.cat([B.real, B.imag]), layer.D.double()
        super().__init__(log_poles.exp(), torch.cat([C.real, -C.imag], -1), D * scale, layer.D.dtype)
        self._keep(B=B * scale, B_shift=B @ shift, D_shift=D * shift)

    def drive(self, u: Tensor) -> Tensor:  # (..., H) -> (..., 2, n)
        """Return what the input feeds into the states."""
        return torch.unflatten(F.linear(u, self.B, self.B_shift), -1, (2, len(self.decay)))

    def observe(self, x: Tensor, direction: int) -> Tensor:  # (..., 2, n) -> (..., H)
        """Return gain Re(C x), for the first direction with what D makes of the shift."""
        return F.linear(x.flatten(-2), self.C[direction], None if direction else self.D_shift)


class RealS4D(RealLayer):
    """An S4D layer, its states flat as in the model; B is part of C, so that every state gets its channel's input."""

    channel: Tensor  # (n,)
    real_part: Tensor  # (2, 1): the input is real

    def __init__(self, layer: S4DLayer) -> None:
        """Discretise once, in double precision."""
        log_poles, B = copy.deepcopy(layer).double().discretized()
        C = torch.view_as_complex(layer.C.double()) * layer.gain * B  # (directions, n)
        silent = 0 if len(B) else 1  # runtimes stumble over a layer without any state
        poles, parts = F.pad(log_poles.exp(), (0, silent)), torch.stack([C.real, -C.imag], 1)  # (directions, 2, n)
        super().__init__(poles, F.pad(parts, (0, silent)), layer.D, layer.D.dtype, layer.backward_delay)
        self._keep(real_part=torch.tensor([[1.0], [0.0]]))
        self.register_buffer("channel", F.pad(layer.channel, (0, silent)))
        counts = torch.bincount(layer.channel, minlength=len(layer.D))
        self.shared_out_evenly = bool(0 < counts[0] == counts.min() == counts.max())

    def drive(self, u: Tensor) -> Tensor:  # (..., H) -> (..., 2, n)
        """Return what the input feeds into the states."""
        return u.index_select(-1, self.channel)[..., None, :] * self.real_part

    def observe(self, x: Tensor, direction: int) -> Tensor:  # (..., 2, n) -> (..., H)
        """Return gain Re(C x), summed over the states of each channel."""
        parts: Tensor = x * self.C[direction]
        if self.shared_out_evenly:  # as before pruning: a sum is faster than a scatter
            return torch.unflatten(parts, -1, (len(self.D), -1)).sum((-3, -1))
        parts = parts.sum(-2)
        return parts.new_zeros(*parts.shape[:-1], len(self.D)).scatter_add(-1, self.channel.expand_as(parts), parts)
