"""Models for where they run: `quantize` rounds their weights, `export` writes a graph for another runtime.

`torch_graph` has the graphs, for whole sequences or step by step, and torch.export's file of them; `onnx` makes an ONNX
file. `_real_layers` are twins of the layers in real arithmetic, since ONNX has no complex numbers. `c` writes a model
as one C99 file with its header, `build` compiles C for this machine and keeps the libraries, `compiled` calls them;
`compute` chooses between that and torch. `bundle` writes all of these forms into one folder and says what they take.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError, one_of
from ..files import write_atomically

if TYPE_CHECKING:
    from ..models.classifier import Classifier


def export(model: Classifier, path: Path, *, format: str = "onnx", mode: str = "sequence") -> None:
    """Write a model as a graph whose batch, and in sequence mode whose length, is free.

    format: "onnx", or "torch-export" for a file that `torch.export.load` reads.
    mode "sequence": x (batch, length, inputs), or tokens (batch, length), to logits.
    mode "stream": one step x (batch, inputs), or tokens (batch,), with `steps` (the number of steps so far), `total`
    (batch, 2, width) and a state per layer as further inputs; returns the logits of the prefix and the same, renewed.
    `torch_graph.blank_state` gives what to start from.
    """
    from . import onnx, torch_graph

    write = one_of("format", format, {"onnx": onnx.to_bytes, "torch-export": torch_graph.to_bytes})
    build = one_of("mode", mode, {"sequence": torch_graph.sequence_graph, "stream": torch_graph.stream_graph})
    if mode == "stream" and model.config.bidirectional:
        raise InputError("A bidirectional model needs the whole sequence; export it with mode 'sequence'.")
    write_atomically(path, write(build(model)))
