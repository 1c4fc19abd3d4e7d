"""Does the cost grow linearly with the length, and does the memory stay small?

Time per step of an evaluation at sMNIST size, batch 1, with all threads and with one: threads share the work of a long
sequence, but not the calls of operations, which are a third of the shortest one's time. Memory: an evaluation at
Path-X size (batch 4, length 16,384, S5 in both directions, H = 128, 128 pairs, 6 layers), above the process before
the call, in units of three activations (batch x length x H in float32).
"""

from collections.abc import Callable

import torch

import speed
import subjects
from table import Figure, of, show
from timing import peak_memory, time_in_turns

LENGTHS = [1024 << k for k in range(7)]
STEPS = LENGTHS[-1]  # that are timed at a time: one sequence of the longest, 64 of the shortest one after the other
ROUNDS = 7


def measure() -> list[Figure]:
    threads = torch.get_num_threads()
    shared = per_step("per step")
    torch.set_num_threads(1)
    alone = per_step("one thread, per step")
    torch.set_num_threads(threads)
    return [*shared, *alone, memory()]


def per_step(name: str) -> list[Figure]:
    config = subjects.found()["smnist-s5"].config
    model = subjects.untrained(config)
    passes = {str(length): speed.evaluation(model, subjects.inputs(config, 1, length)) for length in LENGTHS}
    times = time_in_turns({length: again(run, STEPS // int(length)) for length, run in passes.items()}, ROUNDS)
    figures = [
        of(f"{name} at length {length:,}", times[str(length)], "µs", 1e6 / STEPS, beside={"length": length})
        for length in LENGTHS
    ]
    values = [figure.value for figure in figures]
    return [*figures, Figure(f"{name}, slowest / fastest", max(values) / min(values), at_most=1.5)]


def again(run: Callable[[], object], times: int) -> Callable[[], object]:
    return lambda: [run() for _ in range(times)]


def memory() -> Figure:
    subject = subjects.subject("pathx-s5", batch=4)
    x = subject.inputs()
    run = speed.evaluation(subject.model, x)
    speed.evaluation(subject.model, x[:1, :64])()  # what torch sets up once is not the call's
    peak = peak_memory(run)
    activations = 3 * 4 * x.shape[0] * x.shape[1] * subject.model.config.width
    ratio = None if peak is None else peak / activations
    beside = {} if peak is None else {"MB": peak / 1e6}
    return Figure("Path-X, peak memory / 3 activations", ratio, at_most=2, beside=beside)


if __name__ == "__main__":
    show(__doc__, measure)
