"""The blocked scan and the system around it against the recurrence written as a loop."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck

from ssmprune.models import s5_kernel
from ssmprune.models.s5_kernel import CHUNK, respond, scan, scan_


def complex_normal(*shape, dtype=torch.complex128):
    return torch.randn(*shape, dtype=dtype)


def some_poles(n, slowest=0.999):
    return torch.polar(torch.rand(n, dtype=torch.float64) * slowest, torch.rand(n, dtype=torch.float64) * 6.3)


def naive_scan(v, poles, state=None, reverse=False):
    """x_k = a x_{k-1} + v_k, a step at a time; backwards in time if asked."""
    x = torch.zeros_like(v[:, 0]) if state is None else state
    states = []
    for term in reversed(v.unbind(1)) if reverse else v.unbind(1):
        x = poles * x + term
        states.append(x)
    return torch.stack(states[::-1] if reverse else states, dim=1)


def naive_respond(u, poles, B, C, D, state=None):
    """y = Re-and-Im parts of x times C, plus D u, with the states of the loop."""
    v = torch.view_as_complex((u @ B.T).unflatten(-1, (-1, 2)))
    x = [naive_scan(v, poles, state), naive_scan(v, poles, reverse=True)][: len(C)]
    y = sum(torch.view_as_real(x_d).flatten(-2) @ C_d.T for x_d, C_d in zip(x, C, strict=True)) + D * u
    return y, x[0][:, -1]


def arguments(batch, length, directions, with_state, width=3, n=4):
    """Random leaves for `respond` in double precision."""
    real = [torch.randn(batch, length, width), torch.randn(2 * n, width), torch.randn(directions, width, 2 * n)]
    u, B, C, D = (value.double() for value in (*real, torch.randn(width)))
    state = complex_normal(batch, n) if with_state else None
    leaves = (u, some_poles(n), B, C, D, state)
    return tuple(None if leaf is None else leaf.requires_grad_() for leaf in leaves)


@given(
    batch=st.integers(1, 3),
    length=st.integers(1, 5) | st.integers(1, 2000),
    n=st.integers(1, 4),
    reverse=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=60)
def test_scan_is_the_recurrence(batch, length, n, reverse, seed):
    torch.manual_seed(seed)
    v, poles = complex_normal(batch, length, n), some_poles(n)
    torch.testing.assert_close(scan_(v.clone(), poles, reverse), naive_scan(v, poles, reverse=reverse))
    state = complex_normal(batch, n)
    torch.testing.assert_close(scan(v, poles, state), naive_scan(v, poles, state))


@pytest.mark.parametrize("length", [1, 3, CHUNK[0] ** 2 * 2 + 3])
def test_scan_gradients(length):
    torch.manual_seed(0)
    leaves = [leaf.requires_grad_() for leaf in (complex_normal(2, length, 2), some_poles(2), complex_normal(2, 2))]
    assert gradcheck(scan, leaves, fast_mode=length > 3)


def test_scan_leaves_its_input_alone():
    v = complex_normal(2, 100, 3)
    before = v.clone()
    scan(v, some_poles(3), complex_normal(2, 3))
    assert torch.equal(v, before)


def test_slow_poles_stay_accurate_in_single_precision():
    torch.manual_seed(0)
    poles = torch.polar(torch.tensor([0.9999, 0.999, 0.5]), torch.tensor([0.01, 2.0, 1.0]))
    v = complex_normal(1, 20_000, 3, dtype=torch.complex64)
    exact = naive_scan(v.to(torch.complex128), poles.to(torch.complex128))
    error = (scan_(v.clone(), poles) - exact).abs().amax((0, 1)) / exact.abs().amax((0, 1))
    assert error.max() < 1e-5


def test_a_pole_at_zero_forgets_everything():
    v = complex_normal(1, 200, 2)
    assert torch.equal(scan(v, torch.zeros(2, dtype=torch.complex128), complex_normal(1, 2)), v)


@pytest.mark.slow
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("with_state", [False, True])
@pytest.mark.parametrize("length", [1, 2, 5])
def test_system_gradients(length, with_state, directions, monkeypatch):
    monkeypatch.setattr(s5_kernel, "NUMBERS_AT_ONCE", 2 * length * 3)  # two sequences, then one
    torch.manual_seed(0)
    assert gradcheck(respond, arguments(3, length, directions, with_state))


@given(
    batch=st.integers(1, 4),
    length=st.integers(1, 150),
    directions=st.integers(1, 2),
    with_state=st.booleans(),
    at_once=st.integers(1, 300),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=30)
def test_system_is_its_loop_forwards_and_backwards(batch, length, directions, with_state, at_once, seed):
    torch.manual_seed(seed)
    leaves = arguments(batch, length, directions, with_state)
    used = [leaf for leaf in leaves if leaf is not None]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(s5_kernel, "NUMBERS_AT_ONCE", 3 * at_once)
        fast = respond(*leaves)
        weights = [torch.randn_like(output) for output in fast]
        fast_gradients = torch.autograd.grad(fast, used, weights)
        with torch.no_grad():
            without_gradients = respond(*leaves)
    slow = naive_respond(*leaves)
    slow_gradients = torch.autograd.grad(slow, used, weights)
    torch.testing.assert_close(fast, slow)
    torch.testing.assert_close(without_gradients, fast, rtol=0, atol=0)
    torch.testing.assert_close(fast_gradients, slow_gradients, rtol=1e-7, atol=1e-7)


def test_inputs_in_another_memory_layout():
    torch.manual_seed(0)
    u, *rest = arguments(3, 40, 2, with_state=False)
    strided = u.detach().transpose(0, 1).contiguous().transpose(0, 1)
    torch.testing.assert_close(respond(strided, *rest), respond(u, *rest))
