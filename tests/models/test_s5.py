"""The S5 layer: the JAX codes' numbers, its own equations, streaming, masking."""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flax_oracle import LAST, build, golden
from reference import close
from ssmprune.errors import InputError
from ssmprune.models import S5Layer
from ssmprune.models.config import LayerOptions
from ssmprune.models.layers import discretize, hippo_n
from ssmprune.models.s5_kernel import convolution_pays


def naive_forward(layer, u):
    """The layer's equations, complex and a step at a time, in double precision."""
    log_poles, B_bar = (value.to(torch.complex128) for value in layer.discretized())
    poles, C = log_poles.exp(), torch.view_as_complex(layer.C).to(torch.complex128)
    drive = u.to(torch.complex128) @ B_bar.T
    y = (layer.D * u).double()
    for direction, order in enumerate([range(u.shape[1]), reversed(range(u.shape[1]))][: len(C)]):
        x = torch.zeros_like(drive[:, 0])
        for k in order:
            x = poles * x + drive[:, k]
            y[:, k] += (2 if layer.conj_sym else 1) * (x @ C[direction].T).real
    return y


# The reference implementations


@pytest.mark.parametrize("i", range(3))
def test_s5_code(i):
    arrays = golden("s5_flax_checkpoint.io.npz")
    layer = build(arrays).layers[i].ssm
    close(layer(torch.from_numpy(arrays[f"layer{i}/norm_out"])), arrays[f"layer{i}/ssm_out"])


@pytest.mark.parametrize("name", LAST)
def test_last_code(name):
    arrays = golden(name)
    model = build(arrays)
    x = model.encoder(torch.from_numpy(arrays["io/x"]))
    for i, block in enumerate(model.layers):
        log_poles, B_bar = block.ssm.discretized()
        close(log_poles.exp(), arrays[f"layer{i}/Lambda_bar"])
        close(B_bar, arrays[f"layer{i}/B_bar_f64"])
        close(block.ssm(block.norm(x) if block.prenorm else x), arrays[f"layer{i}/ssm_out"])
        x = torch.from_numpy(arrays[f"layer{i}/block_out"])


# The equations


@given(
    width=st.integers(1, 5),
    n=st.integers(1, 7),
    blocks=st.integers(1, 3),
    bidirectional=st.booleans(),
    conj_sym=st.booleans(),
    discretization=st.sampled_from(["zoh", "bilinear"]),
    pole_form=st.sampled_from(["exp", "clip", "free"]),
    step_rescale=st.sampled_from([0.5, 1.0, 2.0]),
    length=st.integers(1, 100),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=40)
def test_forward_is_the_recurrence(width, n, length, seed, **options):
    torch.manual_seed(seed)
    layer, u = S5Layer(width, n, LayerOptions(**options)), torch.randn(2, length, width)
    layer.mask[torch.rand(n) < 0.3] = False
    close(layer(u), naive_forward(layer, u).detach())


@pytest.mark.parametrize("conj_sym", [False, True])
@pytest.mark.parametrize("length", [1, 7, 50])
def test_many_states_of_a_narrow_layer_are_convolved(conj_sym, length):
    """Against the recurrence, and the gradients against those of the scan."""
    torch.manual_seed(0)
    assert convolution_pays(130, 3)
    layer = S5Layer(3, 130, LayerOptions(conj_sym=conj_sym, initial_poles="ring")).double()
    layer.mask[::7] = False
    u = torch.randn(2, length, 3, dtype=torch.float64, requires_grad=True)
    weight, tensors = torch.randn(2, length, 3, dtype=torch.float64), [u, *layer.parameters()]
    convolved, scanned = layer(u), layer.stream(u, layer.initial_state(2))[0]
    close(convolved, naive_forward(layer, u), 1e-12)
    for ours, expected in zip(
        torch.autograd.grad((convolved * weight).sum(), tensors),
        torch.autograd.grad((scanned * weight).sum(), tensors),
        strict=True,
    ):
        close(ours, expected, 1e-9)


@pytest.mark.parametrize("method", ["zoh", "bilinear"])
def test_discretization_keeps_the_digits_of_slow_poles(method):
    """Against the textbook formulas in double precision."""
    poles = torch.tensor([-1e-3 + 0j, -0.5 + 300j, -1e-4 - 1e-4j, -20 + 1j])
    step = torch.tensor([1e-4, 1e-2, 1e-3, 0.1])
    lam, dt = poles.to(torch.complex128), step.double()
    if method == "zoh":
        expected = (lam * dt).exp(), ((lam * dt).exp() - 1) / lam
    else:
        expected = (1 + lam * dt / 2) / (1 - lam * dt / 2), dt / (1 - lam * dt / 2)
    log_poles, factor = discretize(poles, step, method)
    decay = -torch.expm1(log_poles.real.double())
    assert torch.allclose(decay, 1 - expected[0].abs(), rtol=2e-6)
    assert torch.allclose(log_poles.exp().to(torch.complex128), expected[0], rtol=0, atol=1e-6)
    assert torch.allclose(factor.to(torch.complex128), expected[1], rtol=2e-6)


def test_an_integrator_has_a_finite_zero_order_hold():
    poles = torch.tensor([0j, -1 + 0j], requires_grad=True)
    log_poles, factor = discretize(poles, torch.tensor([0.1, 0.1]), "zoh")
    assert log_poles[0] == 0
    assert factor[0] == 0.1
    torch.view_as_real(factor).sum().backward()
    assert torch.isfinite(torch.view_as_real(poles.grad)).all()


# The start


@given(n=st.integers(1, 40))
def test_hippo_n_diagonalises_the_normal_part_of_legs(n):
    poles, V = hippo_n(n)
    k = np.arange(n)
    legs = -np.where(k[:, None] > k, np.sqrt(np.outer(2 * k + 1, 2 * k + 1)), np.diag(k + 1.0))
    normal = legs + np.sqrt(np.outer(k + 0.5, k + 0.5))
    close(V @ torch.diag(poles) @ V.mH, normal, 1e-12)
    close(V.mH @ V, np.eye(n), 1e-12)
    assert (poles.imag.diff() < 0).all()


def test_initial_states():
    torch.manual_seed(0)
    layer = S5Layer(16, 12, LayerOptions(blocks=3, step_min=0.01, step_max=0.02))
    poles, _ = hippo_n(8)
    torch.testing.assert_close(-layer.pole_re.exp(), torch.full((12,), -0.5))
    torch.testing.assert_close(layer.pole_im.detach(), poles[:4].imag.float().repeat(3))
    assert (layer.log_step >= math.log(0.01)).all()
    assert (layer.log_step <= math.log(0.02)).all()


@pytest.mark.parametrize("conj_sym", [False, True])
def test_a_ring_is_where_the_states_of_lru_start(conj_sym):
    """Even over the area of the ring, and |B_bar|^2 = (1 - |pole|^2) times normal numbers of variance 1/width."""
    torch.manual_seed(0)
    decays = {"step_min": -math.log(0.999), "step_max": -math.log(0.9)}
    layer = S5Layer(8, 4000, LayerOptions(conj_sym=conj_sym, initial_poles="ring", **decays))
    log_poles, B_bar = layer.discretized()
    poles = log_poles.exp().detach()
    squared, angle = poles.abs().square(), poles.angle()
    assert not layer.log_step.any()
    assert 0.9**2 <= squared.min() < 0.9**2 + 1e-3
    assert 0.999**2 - 1e-3 < squared.max() <= 0.999**2
    assert squared.median().item() == pytest.approx((0.9**2 + 0.999**2) / 2, abs=0.01)
    assert angle.median().item() == pytest.approx(math.pi / 2 if conj_sym else 0, abs=0.15)
    assert (angle.max() - angle.min()).item() == pytest.approx(math.pi * (1 if conj_sym else 2), abs=0.02)
    drive = B_bar.abs().square().sum(1) / (1 - squared)
    assert drive.mean().item() == pytest.approx(1, rel=0.05)
    assert layer.C.square().sum(-1).mean().item() == pytest.approx(2 / 4000, rel=0.05)


def test_initial_scale():
    """V^-1 B of a real B with variance 1/48 has E|B|^2 = 1/48; C V of a complex C twice that."""
    torch.manual_seed(0)
    layer = S5Layer(2000, 24, LayerOptions(blocks=3, bidirectional=True))
    assert layer.B.square().sum(-1).mean().item() == pytest.approx(1 / 48, rel=0.05)
    assert layer.C.square().sum(-1).mean().item() == pytest.approx(2 / 48, rel=0.05)


def test_same_seed_same_layer():
    layers = []
    for _ in range(2):
        torch.manual_seed(7)
        layers.append(S5Layer(3, 5).state_dict())
    assert all(torch.equal(a, b) for a, b in zip(*(layer.values() for layer in layers), strict=True))


# Streams


def test_streams_refuse_bidirectional_layers():
    layer = S5Layer(3, 4, LayerOptions(bidirectional=True))
    with pytest.raises(InputError, match="bidirectional"):
        layer.stream(torch.zeros(1, 2, 3), layer.initial_state(1))
    with pytest.raises(InputError, match="bidirectional"):
        layer.step(torch.zeros(1, 3), layer.initial_state(1))


def test_gradients_flow_through_a_stream():
    torch.manual_seed(0)
    layer, u = S5Layer(3, 4).double(), torch.randn(2, 50, 3, dtype=torch.float64)
    whole = torch.autograd.grad(layer(u).square().sum(), list(layer.parameters()))
    state, loss = layer.initial_state(2), 0.0
    for chunk in u[:, :40].split(7, dim=1):
        y, state = layer.stream(chunk, state)
        loss = loss + y.square().sum()
    for token in u[:, 40:].unbind(1):
        y, state = layer.step(token, state)
        loss = loss + y.square().sum()
    torch.testing.assert_close(torch.autograd.grad(loss, list(layer.parameters())), whole)


@torch.no_grad()
def change_step(layer):
    layer.log_step += 1


@torch.no_grad()
def change_mask(layer):
    layer.mask[1] = False


def change_rate(layer):
    layer.step_rescale = 3.0


def change_parameter(layer):
    layer.B = torch.nn.Parameter(layer.B.detach() * 2)


@pytest.mark.parametrize("change", [change_step, change_mask, change_rate, change_parameter])
def test_steps_notice_a_changed_layer(change):
    layer, u = S5Layer(3, 4), torch.randn(1, 3)
    with torch.no_grad():
        layer.step(u, layer.initial_state(1))
        state = torch.randn(1, 4, dtype=torch.complex64)
        change(layer)
        torch.testing.assert_close(layer.step(u, state)[0], layer.stream(u[:, None], state)[0][:, 0])


def test_a_new_stream_notices_changes_that_leave_no_mark():
    layer, u = S5Layer(3, 4), torch.randn(1, 3)
    with torch.no_grad():
        layer.step(u, layer.initial_state(1))
        layer.B.data.mul_(2)
        state = layer.initial_state(1)
        torch.testing.assert_close(layer.step(u, state)[0], layer.stream(u[:, None], state)[0][:, 0])


def test_a_copy_does_not_share_what_steps_remember():
    layer, u = S5Layer(3, 4), torch.randn(1, 3)
    with torch.no_grad():
        state = layer.initial_state(1)
        before = layer.step(u, state)[0]
        other = copy.deepcopy(layer)
        other.C.mul_(0)
        torch.testing.assert_close(other.step(u, state)[0], other.D * u)
        assert torch.equal(layer.step(u, state)[0], before)


def test_layers_made_in_inference_mode_step():
    with torch.inference_mode():
        layer = S5Layer(3, 4)
        y, state = layer.step(torch.ones(2, 3), layer.initial_state(2))
    assert y.shape == (2, 3)
    assert state.shape == (2, 4)


# Masks


@pytest.mark.parametrize("bidirectional", [False, True])
def test_masked_states_stay_silent_through_training(bidirectional):
    torch.manual_seed(0)
    layer, u = S5Layer(3, 6, LayerOptions(bidirectional=bidirectional)), torch.randn(2, 30, 3)
    layer.mask[[1, 4]] = False
    optimiser = torch.optim.AdamW(layer.parameters(), lr=0.1)
    for _ in range(3):
        optimiser.zero_grad()
        layer(u).square().sum().backward()
        assert not layer.B.grad[[1, 4]].any()
        assert layer.B.grad[[0, 2, 3, 5]].any()
        optimiser.step()
    alone = copy.deepcopy(layer)
    with torch.no_grad():
        alone.C[:, :, [1, 4]] = 0
    torch.testing.assert_close(layer(u), alone(u))


def test_a_layer_that_reads_backwards_refuses_states_made_by_hand():
    layer = S5Layer(2, 3, LayerOptions(bidirectional=True))
    state = torch.zeros(1, 3, dtype=torch.complex64)
    for call, u in ((layer.stream, torch.zeros(1, 4, 2)), (layer.step, torch.zeros(1, 2))):
        with pytest.raises(InputError, match="needs the whole sequence"):
            call(u, state)
