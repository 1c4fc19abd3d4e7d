"""How many steps per second does an exported model take in onnxruntime at batch 1, and is it the same model?

The whole sMNIST-size classifier, full and shrunk with LAST, as a graph for whole sequences of 784 steps and as a graph
of one step whose state goes in and out. Equality: the logits against torch's, relative to the largest.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import ssmprune as sp
import subjects
from ssmprune.deploy.onnx import blank_state, export_onnx
from ssmprune.models.classifier import Classifier
from table import Figure, of, show
from timing import Samples, time_in_turns

RATIOS, LENGTH, ROUNDS = (0, 0.7), 784, 5

Run = Callable[[], np.ndarray]


def measure() -> list[Figure]:
    try:
        import onnxruntime  # noqa: F401
    except ImportError:
        return [Figure("steps per second in onnxruntime (pip install ssmprune[export])", None)]
    config = subjects.found()["smnist-s5"].config
    model, x = subjects.untrained(config), subjects.inputs(config, 1, LENGTH)
    calls: dict[str, Run] = {}
    figures = []
    for ratio in RATIOS:
        small = sp.prune(model, ratio)
        with torch.no_grad():
            expected = small(x).numpy()
        for mode, prepare in (("sequence", whole), ("stream", stepwise)):
            name = f"{mode}, {ratio:.0%} pruned"
            calls[name] = prepare(small, x.numpy())
            error = np.abs(calls[name]() - expected).max() / np.abs(expected).max()
            figures.append(Figure(f"{name}, against torch", float(error), "of the largest logit", at_most=1e-4))
    times = time_in_turns(calls, ROUNDS)
    speeds = {name: Samples((float(LENGTH),) * ROUNDS) / time for name, time in times.items()}
    return [*(of(name, speed, "steps/s") for name, speed in speeds.items()), *figures]


def session(model: Classifier, mode: str):
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        export_onnx(model, path, mode=mode)
        return onnxruntime.InferenceSession(path)


def whole(model: Classifier, x: np.ndarray) -> Run:
    graph = session(model, "sequence")
    return lambda: graph.run(None, {"x": x})[0]


def stepwise(model: Classifier, x: np.ndarray) -> Run:
    graph = session(model, "stream")
    steps, total, states = blank_state(model, 1)
    names = [entry.name for entry in graph.get_inputs()][1:]

    def run() -> np.ndarray:
        carried = [tensor.numpy() for tensor in (steps, total, *states)]
        for k in range(x.shape[1]):
            logits, *carried = graph.run(None, {"x": x[:, k], **dict(zip(names, carried, strict=True))})
        return logits

    return run


if __name__ == "__main__":
    show(__doc__, measure)
