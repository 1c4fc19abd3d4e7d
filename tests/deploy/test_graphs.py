"""Graphs for other runtimes compute what the model does."""

import numpy as np
import onnxruntime
import pytest
import torch
from onnxruntime.quantization import quantize_dynamic

import ssmprune as sp
from ssmprune.deploy.onnx import blank_state, export_onnx, export_torch, with_real_layers
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config

pytestmark = pytest.mark.slow

S4D_STATES = (12, 24)


def model(family, ratio=0.0, **options):
    torch.manual_seed(0)
    states = (10, 10) if family == "s5" else S4D_STATES
    full = Classifier(Config(family, inputs=3, outputs=4, width=6, **{"states": states, **options})).eval()
    for name, buffer in full.named_buffers():
        if "running" in name:
            buffer.uniform_(0.5, 2.0)  # norms that do something
    return sp.prune(full, ratio) if ratio else full


def logits(candidate, x):
    with torch.no_grad():
        return candidate(x).numpy()


@pytest.mark.parametrize("family", ["s5", "s4d"])
@pytest.mark.parametrize(
    "options", [{}, {"bidirectional": True}, {"norm": "layer", "prenorm": False}, {"conj_sym": False}]
)
def test_real_arithmetic_gives_the_same(family, options):
    pruned, x = model(family, 0.7, **options), torch.randn(3, 11, 3)
    with torch.no_grad():
        x = pruned.encoder(x)
        for twin, block in zip(with_real_layers(pruned).blocks, pruned.blocks, strict=True):
            y = logits(block.ssm, block.norm(x) if block.prenorm else x)
            np.testing.assert_allclose(_stepped(twin.ssm, twin.norm(x) if twin.prenorm else x), y, atol=2e-5)
            x = block(x)


def _stepped(layer, u):
    """What the real layer's recurrence gives, without the compiler that its scan calls for."""
    with torch.no_grad():
        drive, ways = layer.drive(u), []
        for direction in range(len(layer.C)):
            order = list(range(u.shape[1]))[:: -1 if direction else 1]
            state, outputs = torch.zeros_like(drive[:, 0]), [None] * u.shape[1]
            for k in order:
                state = layer.advance(state, drive[:, k])
                outputs[k] = layer.observe(state, direction)
            ways.append(torch.stack(outputs, 1))
        return (sum(ways) + layer.D * u).numpy()


@pytest.mark.parametrize(
    ("family", "ratio", "options"),
    [
        ("s5", 0.0, {}),
        ("s5", 0.7, {"bidirectional": True}),
        ("s4d", 0.7, {}),
        ("s4d", 0.0, {"states": (12, 0), "bidirectional": True, "backward_delay": 1}),
        ("s5", 0.0, {"retrieval": True}),
        ("s4d", 0.0, {"retrieval": True}),
    ],
)
def test_sequence_graphs_run_in_onnxruntime_at_any_length(family, ratio, options, tmp_path):
    pruned = model(family, ratio, **options)
    export_onnx(pruned, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    for batch, length in ((2, 5), (6, 40)) if pruned.config.retrieval else ((1, 5), (3, 40)):
        x = torch.randn(batch, length, 3)
        (ours,) = session.run(None, {"x": x.numpy()})
        np.testing.assert_allclose(ours, logits(pruned, x), atol=1e-4)


@pytest.mark.parametrize(
    ("family", "ratio", "options"),
    [("s5", 0.0, {}), ("s5", 0.7, {"pooling": "last"}), ("s4d", 0.0, {}), ("s4d", 0.7, {}), ("s5", 0.7, {})],
)
def test_stream_graphs_run_in_onnxruntime_step_by_step(family, ratio, options, tmp_path):
    pruned, x = model(family, ratio, **options), torch.randn(2, 20, 3)
    export_onnx(pruned, tmp_path / "step.onnx", mode="stream")
    session = onnxruntime.InferenceSession(tmp_path / "step.onnx")
    steps, total, states = blank_state(pruned, batch=2)
    names = [entry.name for entry in session.get_inputs()][1:]
    carried = [tensor.numpy() for tensor in (steps, total, *states)]
    for now in x.unbind(1):
        outputs = session.run(None, {"x": now.numpy(), **dict(zip(names, carried, strict=True))})
        carried = outputs[1:]
    np.testing.assert_allclose(outputs[0], logits(pruned, x), atol=1e-4)


@pytest.mark.parametrize("mode", ["sequence", "stream"])
@pytest.mark.parametrize(("family", "options"), [("s5", {}), ("s4d", {}), ("s5", {"tokens": True, "retrieval": True})])
def test_graphs_name_their_axes_and_can_be_quantised_by_onnxruntime(family, options, mode, tmp_path):
    export_onnx(model(family, **options), tmp_path / "model.onnx", mode=mode)
    quantize_dynamic(tmp_path / "model.onnx", tmp_path / "small.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "small.onnx")
    x, *carried = session.get_inputs()
    features = [] if options else [3]
    assert x.shape == ["batch", *(["length"] if mode == "sequence" else []), *features]
    assert {entry.shape[0] for entry in carried if entry.shape} <= {"batch"}
    answer, *carried = session.get_outputs()
    assert answer.shape == ["pairs" if options else "batch", 4]
    assert {entry.shape[0] for entry in carried if entry.shape} <= {"batch"}


def test_torch_export_reloads(tmp_path):
    pruned, x = model("s5", 0.7), torch.randn(3, 20, 3)
    export_torch(pruned, tmp_path / "model.pt2")
    again = torch.export.load(tmp_path / "model.pt2").module()
    np.testing.assert_allclose(logits(again, x), logits(pruned, x), atol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "chunks"}, "no mode 'chunks'; there are sequence, stream"),
        ({"mode": "stream"}, "bidirectional model needs the whole sequence"),
    ],
)
def test_what_cannot_be_exported_is_refused(options, message, tmp_path):
    with pytest.raises(sp.InputError, match=message):
        export_onnx(model("s5", bidirectional=True), tmp_path / "out", **options)
    assert not any(tmp_path.iterdir())


def test_pairs_are_refused_where_their_number_would_be_fixed(tmp_path):
    with pytest.raises(sp.InputError, match="write ONNX"):
        export_torch(model("s5", 0.0, retrieval=True), tmp_path / "model.pt2")


@pytest.mark.parametrize("family", ["s5", "s4d"])
def test_graphs_are_hardly_larger_than_checkpoints(family, tmp_path):
    torch.manual_seed(0)
    states = (64,) * 2 if family == "s5" else (64 * 16,) * 2
    full = Classifier(Config(family, inputs=1, outputs=10, width=64, states=states)).eval()
    pruned = sp.prune(full, 0.7)
    sp.save(pruned, tmp_path / "model.safetensors")
    for mode in ("sequence", "stream"):
        export_onnx(pruned, tmp_path / "model.onnx", mode=mode)
        assert (tmp_path / "model.onnx").stat().st_size < 1.2 * (tmp_path / "model.safetensors").stat().st_size
