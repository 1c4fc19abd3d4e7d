"""Is there a faster scan than ours?

x_k = a x_{k-1} + v_k at sMNIST size, for as many sequences as a pass takes at once (26 of 784 steps, 64 pairs), in
place or not, as each likes best: our scan, blocked in time; a loop over the steps; torch's associative scan, plain and
compiled where there is a C++ compiler; and a loop compiled by numba, where numba is installed. Errors are against the
loop in complex128, relative to its largest state.

torch's own scans do not serve. numba's loop saves more than half of the scan, which is about a tenth of an evaluation:
not worth a second implementation and a compiler among the dependencies.
"""

from collections.abc import Callable
from itertools import pairwise
from shutil import which

import torch
from torch import Tensor

from table import Figure, milliseconds, of, show

try:
    from torch._higher_order_ops.associative_scan import associative_scan
except ImportError:  # it may move: torch has not made it public yet
    associative_scan = None

from ssmprune.models.s5_kernel import scan_
from timing import time_in_turns

BATCH, LENGTH, STATES, ROUNDS = 26, 784, 64, 7


def measure() -> list[Figure]:
    generator = torch.Generator().manual_seed(0)
    v = torch.randn(BATCH, LENGTH, STATES, dtype=torch.complex64, generator=generator)
    poles = torch.polar(torch.rand(STATES, generator=generator) * 0.1 + 0.9, torch.rand(STATES, generator=generator))
    scans: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "ours": scan_,
        "a loop over the steps": loop_,
    }
    if associative_scan is not None:
        scans["associative_scan"] = associative
    if associative_scan is not None and which("c++") is not None:
        scans["associative_scan, compiled"] = torch.compile(associative)
    if (compiled := numba_loop()) is not None:
        scans["numba"] = compiled
    exact = loop_(v.to(torch.complex128), poles.to(torch.complex128))
    errors = {
        name: ((scan(v.clone(), poles) - exact).abs().max() / exact.abs().max()).item() for name, scan in scans.items()
    }
    room = {name: v.clone() for name in scans}  # filled anew for every run, since some scans work in place

    def run(name: str) -> Callable[[], object]:
        return lambda: scans[name](room[name].copy_(v), poles)

    times = time_in_turns({name: run(name) for name in scans}, ROUNDS)
    return [
        *(milliseconds(name, time) for name, time in times.items()),
        *(of(f"{name} / ours", times[name] / times["ours"]) for name in scans if name != "ours"),
        *(Figure(f"{name}, error", error, "relative", at_most=1e-5) for name, error in errors.items()),
    ]


def loop_(v: Tensor, poles: Tensor) -> Tensor:
    for before, now in pairwise(v.unbind(1)):
        now.addcmul_(poles, before)
    return v


def associative(v: Tensor, poles: Tensor) -> Tensor:
    def after(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return first[0] * second[0], first[1] * second[0] + second[1]

    states: Tensor = associative_scan(after, (poles.expand_as(v), v), dim=1, combine_mode="generic")[1]
    return states


def numba_loop() -> Callable[[Tensor, Tensor], Tensor] | None:
    try:
        import numba
    except ImportError:
        return None

    @numba.njit(parallel=True, fastmath=True)
    def kernel(v, poles):  # type: ignore[no-untyped-def]
        for row in numba.prange(v.shape[0]):
            for k in range(1, v.shape[1]):
                for i in range(v.shape[2]):
                    v[row, k, i] += poles[i] * v[row, k - 1, i]

    def run(v: Tensor, poles: Tensor) -> Tensor:
        kernel(v.numpy(), poles.numpy())
        return v

    return run


if __name__ == "__main__":
    show(__doc__, measure)
