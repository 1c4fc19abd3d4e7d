"""The factored kernel against the Vandermonde product written out."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from ssmprune.models import s4d_kernel
from ssmprune.models.s4d_kernel import kernel


def naive_kernel(log_poles, weights, channel, channels, length):
    """K[d, h, l] = Re sum_{i in h} w_{d,i} exp(l log λ_i), every term of it."""
    terms = (weights[..., None] * torch.exp(log_poles[:, None] * torch.arange(length))).real
    return torch.stack([terms[:, channel == h].sum(1) for h in range(channels)], dim=1)


def random_systems(seed, n, channels, directions=1):
    generator = torch.Generator().manual_seed(seed)
    uniform = torch.rand(2, n, generator=generator, dtype=torch.float64)
    log_poles = torch.complex(-(10 ** (-4 + 5 * uniform[0])), 20 * math.pi * (uniform[1] - 0.5))
    weights = torch.randn(directions, n, generator=generator, dtype=torch.complex128)
    return log_poles, weights, torch.randint(channels, (n,), generator=generator).sort().values


sizes = {
    "seed": st.integers(0, 2**31),
    "n": st.integers(0, 40),
    "channels": st.integers(1, 9),
    "directions": st.sampled_from([1, 2]),
}


@settings(max_examples=100)
@given(**sizes, length=st.integers(1, 300), table=st.sampled_from([1, 64, 1 << 16]))
def test_equals_the_naive_twin_however_the_states_are_shared_out_and_cut(seed, n, channels, directions, length, table):
    system = random_systems(seed, n, channels, directions)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(s4d_kernel, "TABLE", table)
        fast = kernel(*system, channels, length)
    assert fast.shape == (directions, channels, length)
    torch.testing.assert_close(fast, naive_kernel(*system, channels, length), rtol=0, atol=1e-11)


@settings(max_examples=8)
@given(
    **sizes | {"n": st.integers(1, 6), "channels": st.integers(1, 3)},
    length=st.integers(1, 9),
    table=st.sampled_from([1, 1 << 16]),
)
def test_gradients_by_finite_differences(seed, n, channels, directions, length, table):
    log_poles, weights, channel = random_systems(seed, n, channels, directions)
    inputs = log_poles.requires_grad_(), weights.requires_grad_()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(s4d_kernel, "TABLE", table)
        assert torch.autograd.gradcheck(lambda p, w: kernel(p, w, channel, channels, length), inputs, rtol=1e-5)


@settings(max_examples=40)
@given(**sizes, length=st.integers(1, 300))
def test_gradients_equal_the_naive_twins(seed, n, channels, directions, length):
    log_poles, weights, channel = random_systems(seed, n, channels, directions)
    inputs = log_poles.requires_grad_(), weights.requires_grad_()
    upstream = torch.randn(directions, channels, length, dtype=torch.float64)
    fast, slow = (
        torch.autograd.grad((f(*inputs, channel, channels, length) * upstream).sum(), inputs)
        for f in (kernel, naive_kernel)
    )
    for ours, theirs in zip(fast, slow, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-9)


def test_single_precision_is_exact_over_long_sequences():
    length, channels = 4096, 8
    log_poles, weights, channel = random_systems(0, 32 * channels, channels)
    log_poles = log_poles.to(torch.complex64)  # phases up to 30 a step, 120,000 at the end
    exact = naive_kernel(log_poles.to(torch.complex128), weights, channel, channels, length)
    fast = kernel(log_poles, weights.to(torch.complex64), channel, channels, length)
    assert fast.dtype == torch.float32
    assert (fast - exact).abs().max() < 1e-6 * exact.abs().max()


def test_states_may_change_their_owner_in_place():
    log_poles, weights, channel = random_systems(0, 12, 3)
    for owners in ([0] * 12, [0] * 4 + [1] * 8, [2] * 12):
        channel.copy_(torch.tensor(owners))
        system = log_poles, weights, channel, 3, 20
        torch.testing.assert_close(kernel(*system), naive_kernel(*system), rtol=0, atol=1e-11)


class LargestTensor(TorchDispatchMode):
    """Records how many numbers the largest tensor has that is made inside."""

    size = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.size = max(self.size, result.untyped_storage().nbytes() // 4)
        return result


def test_nothing_is_larger_than_the_kernel_or_a_table(monkeypatch):
    channels, n, length = 16, 16 * 32, 8192
    log_poles, weights, channel = random_systems(0, n, channels)
    inputs = log_poles.requires_grad_(), weights.to(torch.complex64).requires_grad_()
    monkeypatch.setattr(s4d_kernel, "TABLE", 1 << 13)
    with LargestTensor() as largest:
        kernel(*inputs, channel, channels, length).sum().backward()
    assert largest.size == channels * length


def test_a_pole_at_zero_passes_the_input_once():
    log_poles = torch.tensor([complex(-math.inf, 0.0)])
    K = kernel(log_poles, torch.ones(1, 1, dtype=torch.complex64), torch.tensor([0]), 1, 70)
    assert K[0, 0].tolist() == [1.0] + [0.0] * 69


@pytest.mark.parametrize("decay", [0.05, 0.3, 2.0, 9.0, 60.0])
def test_vanishing_powers_leave_no_denormal_numbers(decay):
    K = kernel(torch.tensor([complex(-decay, 0)]), torch.ones(1, 1, dtype=torch.complex64), torch.tensor([0]), 1, 4096)
    K = K[0, 0]
    torch.testing.assert_close(K, torch.exp(-decay * torch.arange(4096)), rtol=0, atol=1e-7)
    assert (K[K != 0] >= torch.finfo(K.dtype).tiny).all()
