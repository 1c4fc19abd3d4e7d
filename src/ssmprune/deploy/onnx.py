"""A classifier as an ONNX file, written by torch's exporter."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import need
from .torch_graph import Graph, quiet


def to_bytes(graph: Graph) -> bytes:
    """Return an ONNX file; a graph of one step has `steps`, `total` and a state per layer beside `x` and `logits`."""
    need("onnxscript", "export", "ONNX export needs onnx and onnxscript, which torch's exporter calls")
    carried = ["steps", "total", *(f"state_{i}" for i in range(len(graph.example[3])))] if graph.example[1:] else []
    with quiet():
        program = torch.onnx.export(
            graph.module,
            graph.example,
            dynamo=True,
            dynamic_shapes=graph.free,
            input_names=["x", *carried],
            output_names=["logits", *(f"next_{name}" for name in carried)],
            verbose=False,
        )
    assert program is not None  # with dynamo there always is one
    model = program.model_proto
    _forget_origins(model.graph)
    return bytes(model.SerializeToString())


def _forget_origins(graph: Any) -> None:
    """Drop what the exporter notes of every node, a stack trace among it: a third of a small file."""
    for entry in (*graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        entry.ClearField("metadata_props")
        entry.ClearField("doc_string")
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):  # the body of a Scan
                _forget_origins(attribute.g)
