"""How much faster is the same model in C, and what does pruning bring there?

The shipped sMNIST S5, whole, shrunk with LAST, and with a twentieth of its operations left, in floats, with weights of
8 bits and in whole numbers, and the shipped sMNIST S4D. One thread, CPU time: a step at batch 1 in torch, in
onnxruntime and in C, and `run` over 784 steps against torch's forward at batch 50 and 1. Then `sp.compile` on two
threads, batch 50, against torch's bare matrix products on two threads, in wall-clock time.

A step at batch 1 uses every weight once, so it cannot take less time than reading the weights does, which is measured
beside it; where these do not fit into a core's own cache (0.5 MB here), that is nearly all of a step in floats.
"""

import ctypes
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import thread_time

import numpy as np
import torch

import ssmprune as sp
from products import bare_products
from ssmprune.deploy.build import load
from ssmprune.deploy.c import sources
from ssmprune.deploy.compiled import compile
from ssmprune.deploy.onnx import blank_state, export_onnx
from ssmprune.models.checkpoint import parameters
from ssmprune.models.classifier import Classifier
from table import Figure, milliseconds, of, show
from timing import time_in_turns

CHECKPOINTS = Path(__file__).parents[1] / "paper" / "checkpoints"
RATIOS, LENGTH, BATCH, ROUNDS = (0, 0.5, 0.8), 784, 50, 15
NARROW = "5% of the operations"  # states and features pruned
STEPS = {"torch": 20, "onnxruntime": 200}  # timed at once
REPEATS = 10  # of what takes a millisecond or two: else a turn measures how cold its predecessor left the caches
LOOP = """
#include "model.h"
void steps(const model_input *in, size_t length, void *out);
void steps(const model_input *in, size_t length, void *out) {
    model_state state;
    model_init(&state);
    for (size_t t = 0; t < length; t++) model_step(&state, in + t * MODEL_INPUTS, out);
}
void run(const model_input *in, size_t length, void *out);
void run(const model_input *in, size_t length, void *out) {
    model_state state;
    model_init(&state);
    model_run(&state, in, length, out);
}
"""
READ = """
#include <stddef.h>
void read_weights(const float *weights, size_t count, size_t times, float *sums);
void read_weights(const float *weights, size_t count, size_t times, float *sums) {
    float sum[64] = {0};
    for (size_t t = 0; t < times; t++)
        for (size_t i = 0; i + 64 <= count; i += 64)
            for (int j = 0; j < 64; j++) sum[j] += weights[i + j];
    for (int j = 0; j < 64; j++) sums[j] = sum[j];
}
"""

Call = Callable[[], object]


def measure() -> list[Figure]:
    s5, s4d = (sp.load(CHECKPOINTS / f"smnist-{family}.safetensors") for family in ("s5", "s4d"))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        alone = [*one_thread(s5), *one_thread(s4d, "S4D, ", bounded=False)]
    finally:
        torch.set_num_threads(threads)
    return [*alone, *two_threads(s5)]


def one_thread(model: Classifier, name: str = "", bounded: bool = True) -> list[Figure]:
    """Seconds a step of everything, and the ratios."""
    x = torch.rand(BATCH, LENGTH, 1)
    calls: dict[str, Call] = {"torch's step": stepped(model, x), "torch, batch 50": evaluated(model, x)}
    calls["torch, batch 1"] = evaluated(model, x[:1])
    count = {"torch's step": STEPS["torch"], "torch, batch 50": BATCH * LENGTH, "torch, batch 1": LENGTH}
    if (graph := in_onnxruntime(model, x)) is not None:
        calls["onnxruntime's step"], count["onnxruntime's step"] = graph, STEPS["onnxruntime"]
    calls["reading the weights alone"] = repeated(reading(parameters(model)))
    smalls = {f"{ratio:.0%} pruned": sp.prune(model, ratio) if ratio else model for ratio in RATIOS}
    if model.config.family == "s5":
        smalls[NARROW] = sp.prune(model, operations=0.05, data=[x])
    for which, small in smalls.items():
        whole = sp.quantize(small, data=[x], arithmetic="integer")
        for bits, kind in (("", small), (", 8 bits", sp.quantize(small, 8)), (", whole numbers", whole)):
            step, run = without_python(kind, x[0].numpy())
            calls[f"C step, {which}{bits}"], calls[f"C run, {which}{bits}"] = step, run
            fast, one = compile(kind, threads=1), x[:1].numpy()
            calls[f"C run from Python, {which}{bits}"] = repeated(partial(fast, one))
            calls[f"C step from Python, {which}{bits}"] = repeated(partial(streamed, fast, one))
    times = time_in_turns(calls, ROUNDS, thread_time)  # CPU time, which neighbours on the machine disturb less
    each = {what: time.scaled(1 / count.get(what, REPEATS * LENGTH)) for what, time in times.items()}
    ratios = {
        "torch's step / C step": (each["torch's step"] / each["C step, 0% pruned"], 100),
        "C step / C step at 80 %": (each["C step, 0% pruned"] / each["C step, 80% pruned"], 2.3),
        "torch's forward at batch 50 / C run": (each["torch, batch 50"] / each["C run, 0% pruned"], 1.3),
        "torch's forward at batch 1 / C run": (each["torch, batch 1"] / each["C run, 0% pruned"], 2),
        "C run / C run at 80 %": (each["C run, 0% pruned"] / each["C run, 80% pruned"], 2),
        "C step / reading its weights": (each["C step, 0% pruned"] / each["reading the weights alone"], None),
        "C step / C step on 8 bits, 80 %": (each["C step, 80% pruned"] / each["C step, 80% pruned, 8 bits"], None),
        "C run / C run on 8 bits, 80 %": (each["C run, 80% pruned"] / each["C run, 80% pruned, 8 bits"], None),
        "C step / C step in whole numbers": (
            each["C step, 0% pruned"] / each["C step, 0% pruned, whole numbers"],
            None,
        ),
    }
    if NARROW in smalls:
        for bits, bound in (("", 11), (", 8 bits", None)):
            narrow = f"C step, {NARROW}{bits}"
            ratios[f"C step / {narrow}"] = (each["C step, 0% pruned"] / each[narrow], bound)
    if graph is not None:
        ratios["onnxruntime's step / C step"] = (each["onnxruntime's step"] / each["C step, 0% pruned"], 15)
        least = each["onnxruntime's step"] / each["reading the weights alone"]
        ratios["onnxruntime's step / reading the weights"] = (least, None)
    return [
        *(of(f"{name}{what}", time, "us/step", 1e6) for what, time in each.items()),
        *(of(f"{name}{what}", ratio, at_least=bound if bounded else None) for what, (ratio, bound) in ratios.items()),
    ]


def two_threads(model: Classifier) -> list[Figure]:
    """Evaluation of a batch beside the matrix products that torch could not do without."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    x = torch.rand(BATCH, LENGTH, 1)
    fast, small = compile(model, threads=2), compile(sp.prune(model, 0.8), threads=2)
    calls = {
        "bare products": bare_products(model.config, BATCH, LENGTH),
        "torch": evaluated(model, x),
        "compiled": lambda: fast(x),
        "compiled, 80% pruned": lambda: small(x),
    }
    try:
        times = time_in_turns(calls, ROUNDS)
    finally:
        torch.set_num_threads(threads)
    return [
        *(milliseconds(f"two threads, {name}", time) for name, time in times.items()),
        of("compiled / bare products", times["compiled"] / times["bare products"], at_most=1.2),
        of("compiled / compiled at 80 %", times["compiled"] / times["compiled, 80% pruned"], at_least=2),
    ]


def repeated(call: Call) -> Call:
    return lambda: [call() for _ in range(REPEATS)]


def evaluated(model: Classifier, x: torch.Tensor) -> Call:
    return torch.no_grad()(lambda: model(x))


def stepped(model: Classifier, x: torch.Tensor) -> Call:
    @torch.no_grad()
    def run() -> None:
        state = model.initial_state(1)
        for k in range(STEPS["torch"]):
            _, state = model.step(x[:1, k], state)

    return run


def streamed(fast: object, x: np.ndarray) -> None:
    stream = fast.stream()
    for now in x.swapaxes(0, 1):
        stream(now)


def without_python(model: Classifier, x: np.ndarray) -> tuple[Call, Call]:
    """All steps one by one, and all at once, with nothing of Python between them."""
    text = sources(model)
    library = load({"model.c": text.c, "model.h": text.header, "loop.c": LOOP})
    out = np.empty(model.config.outputs, np.float32)  # or words of the same size
    if text.units is not None:
        x = np.ascontiguousarray(32767 * x, np.int16)
    where, answer = (array.ctypes.data_as(ctypes.c_void_p) for array in (x, out))  # which hold the arrays
    step, run = (partial(call, where, ctypes.c_size_t(len(x)), answer) for call in (library.steps, library.run))
    return repeated(step), repeated(run)


def reading(count: int) -> Call:
    """What any step must do: read all weights from where they lie, as often as there are steps."""
    library = load({"read.c": READ})
    weights, sums = np.ones(count, np.float32), np.empty(64, np.float32)
    where, out = (array.ctypes.data_as(ctypes.c_void_p) for array in (weights, sums))  # which hold the arrays
    return lambda: library.read_weights(where, ctypes.c_size_t(count), ctypes.c_size_t(LENGTH), out)


def in_onnxruntime(model: Classifier, x: torch.Tensor) -> Call | None:
    try:
        import onnxruntime
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        export_onnx(model, path, mode="stream")
        session = onnxruntime.InferenceSession(path, options)
    names = [entry.name for entry in session.get_inputs()][1:]
    steps, total, states = blank_state(model, batch=1)
    start, samples = [tensor.numpy() for tensor in (steps, total, *states)], x[0].numpy()

    def run() -> None:
        carried = start
        for k in range(STEPS["onnxruntime"]):
            carried = session.run(None, {"x": samples[k : k + 1], **dict(zip(names, carried, strict=True))})[1:]

    return run


if __name__ == "__main__":
    show(__doc__, measure)
