"""Is the factored S4D kernel faster than the plain Vandermonde product, and does shrinking pay?

Image size: 512 channels of 32 pairs, 1,024 steps, one direction. The plain product writes all powers out in
complex64, as S4D's own code does, but as magnitudes and phases, which torch computes two to three times as fast as
complex exponentials. The error is against the plain product in complex128, relative to its largest
value. Shrunk by 80 % with LAST, so that channels own unequal numbers of states.
"""

import copy

import torch
from torch import Tensor

import ssmprune as sp
from ssmprune.models import S4DLayer
from ssmprune.models.s4d_kernel import kernel
from ssmprune.models.s5_kernel import keep_freed_memory
from table import Figure, milliseconds, of, show
from timing import time_in_turns

CHANNELS, PAIRS, LENGTH, ROUNDS = 512, 32, 1024, 21


def plain(log_poles: Tensor, weights: Tensor) -> Tensor:  # (n,), (n,) -> (channels, length)
    log_poles, weights = log_poles.view(CHANNELS, PAIRS), weights.view(CHANNELS, PAIRS)
    exponents = log_poles[..., None] * torch.arange(LENGTH)
    vandermonde = torch.polar(exponents.real.exp(), exponents.imag)
    return torch.einsum("hn,hnl->hl", weights, vandermonde).real


@torch.no_grad()
def measure() -> list[Figure]:
    torch.manual_seed(0)
    keep_freed_memory()  # as every model does
    full = S4DLayer(CHANNELS, CHANNELS * PAIRS)
    shrunk = sp.prune(full, 0.8)
    inputs, fewer = system(full), system(shrunk)
    times = time_in_turns(
        {
            "plain": lambda: plain(inputs[0], inputs[1][0]),
            "factored": lambda: kernel(*inputs, CHANNELS, LENGTH),
            "factored, shrunk by 80 %": lambda: kernel(*fewer, CHANNELS, LENGTH),
        },
        ROUNDS,
    )
    double = system(copy.deepcopy(full).double())
    exact = plain(double[0], double[1][0])
    error = (kernel(*inputs, CHANNELS, LENGTH)[0] - exact).abs().max() / exact.abs().max()
    return [
        *(milliseconds(name, time) for name, time in times.items()),
        of("plain / factored", times["plain"] / times["factored"], at_least=5),
        Figure("error of the factored", float(error), "of the largest value", at_most=1e-5),
        of("full / shrunk", times["factored"] / times["factored, shrunk by 80 %"], at_least=3),
    ]


def system(layer: S4DLayer) -> tuple[Tensor, Tensor, Tensor]:
    """Logarithms of the poles (n,), weights (1, n) and owners (n,) of a layer's kernel."""
    log_poles, B_bar = layer.discretized()
    return log_poles, layer.gain * B_bar * torch.view_as_complex(layer.C), layer.channel


if __name__ == "__main__":
    show(__doc__, measure)
