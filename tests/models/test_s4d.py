"""The S4D layer against the reference implementations' numbers and against its own equations."""

import copy
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from reference import close
from ssmprune.errors import InputError
from ssmprune.models import S4DLayer, layers, s5_kernel
from ssmprune.models.config import LayerOptions
from ssmprune.models.s4d_kernel import convolve, fast_length

GOLDEN = Path(__file__).parents[1] / "golden"


def filled(layer, **arrays):
    """The layer with these parameters, buffers included."""
    layer.load_state_dict(layer.state_dict() | {name: torch.as_tensor(array) for name, array in arrays.items()})
    return layer


# The reference implementations


@pytest.fixture(scope="module")
def annotated():
    return np.load(GOLDEN / "annotated_s4d.io.npz")


def annotated_layer(golden, i):
    """A layer of annotated-s4, which lays its parameters out as (N, H) and never reads its B."""
    p = {name: golden[f"params/layers_{i}/seq/{name}"] for name in ("A_re", "A_im", "C", "D", "log_step")}
    n, width = p["A_re"].shape
    return filled(
        S4DLayer(width, n * width, LayerOptions(conj_sym=False, pole_form="clip")),
        pole_re=p["A_re"].T.ravel(),
        pole_im=p["A_im"].T.ravel(),
        C=p["C"].transpose(1, 0, 2).reshape(1, -1, 2),
        D=p["D"][0],
        log_step=p["log_step"][0],
    )


@pytest.mark.parametrize("i", range(3))
def test_annotated_s4(annotated, i):
    layer = annotated_layer(annotated, i)
    log_poles, B_bar = layer.discretized()
    by_channel = lambda flat: flat.unflatten(-1, (8, 16)).mT  # noqa: E731
    close(by_channel(log_poles.exp()), annotated[f"layer{i}/Lambda_bar"])
    close(by_channel(B_bar), annotated[f"layer{i}/B_bar"])
    close(layer.kernel(64)[0], annotated[f"layer{i}/kernel"])
    u = torch.tensor(annotated["layer_u"])[None]
    close(layer(u)[0], annotated[f"layer{i}/conv_out"])
    y, state = layer.stream(u, layer.initial_state(1))
    close(y[0], annotated[f"layer{i}/rnn_out"])
    close(by_channel(state[0]), annotated[f"layer{i}/rnn_final_state"])


@pytest.fixture(scope="module")
def state_spaces():
    return np.load(GOLDEN / "s4d_state_spaces.npz")


def state_spaces_layer(golden, i):
    """A layer of state-spaces' S4D, (H, N/2) conjugate pairs and B = 1."""
    p = {name: golden[f"state/s4_layers.{i}.{name}"] for name in ("kernel.C", "D", "kernel.log_dt")}
    log_re, im = (golden[f"state/s4_layers.{i}.kernel.{name}"] for name in ("log_A_real", "A_imag"))
    layer = S4DLayer(log_re.shape[0], log_re.size)
    C = p["kernel.C"].reshape(1, -1, 2)
    return filled(layer, pole_re=log_re.ravel(), pole_im=im.ravel(), C=C, D=p["D"], log_step=p["kernel.log_dt"])


def glu_block(y, weight, bias):
    """What follows the SSM in state-spaces' layers: GELU, then a gated linear map of the channels."""
    return F.glu(F.linear(F.gelu(y), weight, bias), dim=-1)


def test_state_spaces_s4d_kernels(state_spaces):
    for i in range(4):
        layer = state_spaces_layer(state_spaces, i)
        for length in (64, 256):
            close(layer.kernel(length)[0], state_spaces[f"layer{i}/kernel_L{length}"])


def test_state_spaces_s4d_model_and_its_gradients(state_spaces):
    weights = {name[6:]: torch.tensor(state_spaces[name]) for name in state_spaces.files if name.startswith("state/")}
    layers = [state_spaces_layer(state_spaces, i) for i in range(4)]
    x = F.linear(torch.tensor(state_spaces["x"]), weights["encoder.weight"], weights["encoder.bias"])
    for i, layer in enumerate(layers):
        weight, bias = (weights[f"s4_layers.{i}.output_linear.0.{name}"] for name in ("weight", "bias"))
        given_in = torch.tensor(state_spaces[f"layer{i}/in"]).mT
        for y in (layer(given_in), by_chunks(layer, given_in, 50)):
            close(glu_block(y, weight[..., 0], bias).mT, state_spaces[f"layer{i}/out"])
        x = x + glu_block(layer(x), weight[..., 0], bias)
        x = F.layer_norm(x, x.shape[-1:], weights[f"norms.{i}.weight"], weights[f"norms.{i}.bias"])
    logits = F.linear(x.mean(1), weights["decoder.weight"], weights["decoder.bias"])
    close(logits, state_spaces["logits"])
    F.cross_entropy(logits, torch.tensor(state_spaces["labels"])).backward()
    names = {"pole_re": "kernel.log_A_real", "pole_im": "kernel.A_imag", "log_step": "kernel.log_dt", "C": "kernel.C"}
    for i, layer in enumerate(layers):
        for ours, theirs in (names | {"D": "D"}).items():
            reference = state_spaces[f"grad/s4_layers.{i}.{theirs}"]
            # a gradient sums thousands of rounded single precision terms, in the reference as well
            close(layer.get_parameter(ours).grad.reshape(reference.shape), reference, tolerance=1e-4)


def test_state_spaces_s4_block_in_diagonal_mode():
    golden = np.load(GOLDEN / "s4block_diag_uni.npz")
    p = {name: golden[f"state/layer.{name}"] for name in ("kernel.A_real", "kernel.A_imag", "kernel.B", "kernel.C")}
    layer = filled(
        S4DLayer(8, 64, LayerOptions(train_B=True)),
        pole_re=p["kernel.A_real"].ravel(),
        pole_im=-p["kernel.A_imag"].ravel(),
        B=p["kernel.B"].reshape(-1, 2),
        C=p["kernel.C"].reshape(1, -1, 2),
        D=golden["state/layer.D"][0],
        log_step=golden["state/layer.kernel.inv_dt"][:, 0],
    )
    assert json.loads(str(golden["config_json"]))["disc"] == "zoh"
    close(layer.kernel(64), golden["K"])
    weight, bias = (torch.tensor(golden[f"state/output_linear.0.{name}"]) for name in ("weight", "bias"))
    close(glu_block(layer(torch.tensor(golden["u"]).mT), weight, bias).mT, golden["y"])


@pytest.mark.parametrize("length", [1, 4, 10])
def test_backward_delay_of_one_is_the_convolution_of_state_spaces_bidirectional_block(length):
    u, K = torch.randn(3, length, 4), torch.randn(2, 4, length)
    both = F.pad(K[0], (0, length)) + F.pad(K[1].flip(-1), (length, 0))
    spectrum = torch.fft.rfft(u.mT, 2 * length) * torch.fft.rfft(both, 2 * length)
    expected = torch.fft.irfft(spectrum, 2 * length)[..., :length].mT
    close(convolve(u, K, backward_delay=1), expected)


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("delay", [0, 1])
@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_the_convolution_and_its_gradients_are_sums_over_time(monkeypatch, directions, delay, at_once):
    length, width = 6, 3
    monkeypatch.setattr(s5_kernel, "NUMBERS_AT_ONCE", at_once * fast_length(2 * length) * width)
    u = torch.randn(5, length, width, dtype=torch.float64, requires_grad=True)
    K = torch.randn(directions, width, length, dtype=torch.float64, requires_grad=True)
    y = convolve(u, K, delay)
    sums = [
        sum(K[0, :, j] * u[:, k - j] for j in range(k + 1))
        + sum(K[1, :, j] * u[:, k + j + delay] for j in range(length - k - delay) if directions == 2)
        for k in range(length)
    ]
    naive, weight = torch.stack(sums, 1), torch.randn_like(y)
    close(y, naive, 1e-12)
    gradients = [torch.autograd.grad((result * weight).sum(), (u, K)) for result in (y, naive)]
    for ours, expected in zip(*gradients, strict=True):
        close(ours, expected, 1e-12)


# The equations


def naive_output(layer, u):
    """The recurrence literally, from the continuous parameters, a state and a step at a time."""
    p = {name: tensor.detach().double().numpy() for name, tensor in layer.state_dict().items()}
    B, C = p["B"] @ [1, 1j], p["C"] @ [1, 1j]
    real = {"exp": -np.exp(p["pole_re"]), "clip": np.minimum(p["pole_re"], -1e-4), "free": p["pole_re"]}
    lam = real[layer.pole_form] + 1j * p["pole_im"]
    y = p["D"] * u.double().numpy()
    length = u.shape[1]
    for i in np.flatnonzero(p["mask"]):
        h = int(p["channel"][i])
        step = np.exp(p["log_step"][h]) * layer.step_rescale
        if layer.discretization == "zoh":
            pole, drive = np.exp(lam[i] * step), np.expm1(lam[i] * step) / lam[i] * B[i]
        else:
            pole, drive = (1 + lam[i] * step / 2) / (1 - lam[i] * step / 2), step / (1 - lam[i] * step / 2) * B[i]
        v = drive * u[..., h].double().numpy()
        x = np.zeros((len(u), length + 1), complex)  # one step more, at rest: before the beginning and after the end
        for k in range(length):
            x[:, k] = pole * x[:, k - 1] + v[:, k]
        y[..., h] += layer.gain * (C[0, i] * x[:, :length]).real
        if layer.bidirectional:
            x = np.zeros((len(u), length + 1), complex)
            for k in reversed(range(length)):
                x[:, k] = pole * x[:, k + 1] + v[:, k]
            y[..., h] += layer.gain * (C[1, i] * x[:, layer.backward_delay :][:, :length]).real
    return y


def ragged_layer(seed, n, width, **options):
    """A layer of double precision with random parameters whose channels own any number of states, also none."""
    torch.manual_seed(seed)
    layer = S4DLayer(width, n, LayerOptions(**options)).double()
    owners = torch.randint(width, (n,)).sort().values
    B, mask = torch.randn(n, 2), torch.rand(n) < 0.8
    pole_re = torch.randn(n) if layer.pole_form == "exp" else -torch.rand(n)
    return filled(layer, channel=owners, B=B, mask=mask, pole_re=pole_re, pole_im=30 * torch.randn(n))


def by_steps(layer, u):
    """The outputs token by token."""
    state, outputs = layer.initial_state(len(u)), []
    for token in u.unbind(1):
        y, state = layer.step(token, state)
        outputs.append(y)
    return torch.stack(outputs, dim=1)


def by_chunks(layer, u, size):
    """The outputs in chunks of `size` tokens."""
    state, outputs = layer.initial_state(len(u)), []
    for chunk in u.split(size, dim=1):
        y, state = layer.stream(chunk, state)
        outputs.append(y)
    return torch.cat(outputs, dim=1)


@settings(max_examples=80)
@given(
    seed=st.integers(0, 2**31),
    n=st.integers(0, 12),
    width=st.integers(1, 5),
    length=st.integers(1, 60),
    chunk=st.integers(1, 60),
    options=st.fixed_dictionaries(
        {
            "bidirectional": st.booleans(),
            "backward_delay": st.sampled_from([0, 1]),
            "conj_sym": st.booleans(),
            "discretization": st.sampled_from(["zoh", "bilinear"]),
            "pole_form": st.sampled_from(["exp", "clip", "free"]),
            "step_rescale": st.sampled_from([0.5, 1.0, 2.0]),
            "train_B": st.booleans(),
        }
    ),
)
def test_convolution_chunks_and_steps_are_the_recurrence(seed, n, width, length, chunk, options):
    layer = ragged_layer(seed, n, width, **options)
    u = torch.randn(2, length, width, dtype=torch.float64)
    outputs = [layer(u)]
    if not layer.bidirectional:
        outputs += [by_steps(layer, u), by_chunks(layer, u, chunk)]
    for y in outputs:
        close(y, naive_output(layer, u), tolerance=1e-10)


def test_modes_agree_in_single_precision():
    torch.manual_seed(0)
    layer = S4DLayer(8, 8 * 32)  # phases up to 130 a step
    u = torch.randn(2, 500, 8)
    exact = naive_output(layer, u)
    for y in (layer(u), by_steps(layer, u), by_chunks(layer, u, 77)):
        assert y.dtype == torch.float32
        close(y, exact)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("discretization", ["zoh", "bilinear"])
def test_gradients_of_both_modes(bidirectional, discretization):
    options = {"bidirectional": bidirectional, "discretization": discretization, "backward_delay": 1, "train_B": True}
    layer = ragged_layer(3, 5, 2, **options)
    u = torch.randn(1, 6, 2, dtype=torch.float64, requires_grad=True)
    for mode in [layer.forward] if bidirectional else [layer.forward, lambda u: by_chunks(layer, u, 4)]:
        # gradcheck changes the parameters in place, so the layer sees them
        assert torch.autograd.gradcheck(lambda u, *_, mode=mode: mode(u), (u, *layer.parameters()), rtol=1e-5)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_streaming_refuses_layers_that_look_ahead(bidirectional):
    layer = S4DLayer(2, 4, LayerOptions(bidirectional=bidirectional))
    calls = [lambda: layer.step(torch.ones(1, 2), layer.initial_state(1))]
    calls.append(lambda: layer.stream(torch.ones(1, 3, 2), layer.initial_state(1)))
    for call in calls:
        if bidirectional:
            with pytest.raises(InputError, match="bidirectional"):
                call()
        else:
            assert call()[1].shape == (1, 4)


def test_steps_notice_every_change():
    layer, u = ragged_layer(0, 7, 3), torch.randn(1, 3)
    with torch.no_grad():
        state = torch.randn(1, 7, dtype=layer.initial_state(1).dtype)
        for change in (
            lambda: layer.pole_re.add_(0.1),
            lambda: layer.mask[0].fill_(False),
            lambda: layer.log_step.sub_(1),
        ):
            layer.step(u, state)
            change()
            expected, after = layer.stream(u[:, None], state)
            y, new = layer.step(u, state)
            torch.testing.assert_close(y, expected[:, 0])
            torch.testing.assert_close(new, after)
        layer.step_rescale = 2.0
        torch.testing.assert_close(layer.step(u, state)[0], layer.stream(u[:, None], state)[0][:, 0])
        layer.B.data.mul_(2)  # leaves no mark
        state = layer.initial_state(1)
        torch.testing.assert_close(layer.step(u, state)[0], layer.stream(u[:, None], state)[0][:, 0])


def test_long_chunks_are_streamed_in_parts(monkeypatch):
    layer, u = ragged_layer(0, 7, 3), torch.randn(2, 50, 3)
    with torch.no_grad():
        whole, last = layer.stream(u, layer.initial_state(2))
        asked = []
        monkeypatch.setattr(layers, "steps_at_once", lambda numbers: asked.append(numbers) or 8)
        parts, state = layer.stream(u, layer.initial_state(2))
    assert asked == [2 * 7]
    torch.testing.assert_close(parts, whole)
    torch.testing.assert_close(state, last)


# Masks


@pytest.mark.parametrize("bidirectional", [False, True])
def test_masked_states_stay_silent_through_training(bidirectional):
    layer = ragged_layer(0, 12, 3, bidirectional=bidirectional, train_B=True)
    layer.mask.copy_(torch.arange(12) % 3 > 0)
    u = torch.randn(2, 20, 3, dtype=torch.float64)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1, weight_decay=0.1)
    before = copy.deepcopy(layer.state_dict())
    for _ in range(3):
        optimizer.zero_grad()
        layer(u).square().sum().backward()
        for name, axis in {"pole_re": 0, "pole_im": 0, "B": 0, "C": 1}.items():
            gradient = layer.get_parameter(name).grad
            assert (gradient.index_select(axis, (~layer.mask).nonzero()[:, 0]) == 0).all()
            assert (gradient.index_select(axis, layer.mask.nonzero()[:, 0]) != 0).all()
        optimizer.step()
    assert not torch.equal(before["C"], layer.C)
    with torch.no_grad():
        y = layer(u)
        layer.C[:, ~layer.mask] = 1e3
        assert torch.equal(layer(u), y)
        close(y, naive_output(layer, u), tolerance=1e-10)


# Construction


def test_states_start_at_legs_poles_shared_out_evenly():
    layer = S4DLayer(3, 12, LayerOptions(step_min=0.01, step_max=0.02))
    assert layer.channel.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    log_poles, B_bar = S4DLayer(1, 4, LayerOptions(step_min=1, step_max=1)).discretized()
    skew = np.array([[np.sign(k - i) * math.sqrt((i + 0.5) * (k + 0.5)) for k in range(8)] for i in range(8)])
    above = sorted(value for value in np.linalg.eigvals(skew).imag if value > 0)
    np.testing.assert_allclose(log_poles.detach().imag, above, rtol=1e-5)
    np.testing.assert_allclose(log_poles.detach().real, -0.5, rtol=1e-5)
    close(B_bar, ((log_poles.exp() - 1) / log_poles).detach())
    step = layer.log_step.exp()
    assert ((step > 0.0099) & (step < 0.0201)).all()


def test_without_conjugate_symmetry_both_halves_are_stored():
    poles = S4DLayer(2, 12, LayerOptions(conj_sym=False)).pole_im.detach().unflatten(0, (2, 6))
    torch.testing.assert_close(poles, -poles.flip(1))


@pytest.mark.parametrize("n", [0, 1, 2, 5, 7])
def test_any_number_of_states_can_be_built_for_a_checkpoint_to_fill(n):
    layer = S4DLayer(3, n)
    assert layer.channel.tolist() == sorted(layer.channel.tolist())
    assert layer(torch.randn(2, 5, 3)).shape == (2, 5, 3)
    poles = [layer.pole_im[layer.channel == owner].tolist() for owner in range(3)]
    longest = max(poles, key=len)
    assert all(own == longest[: len(own)] for own in poles)
    assert len(longest) == -(-n // 3)
    with torch.device("meta"):
        assert S4DLayer(3, n).channel.shape == (n,)


def test_names_and_shapes_of_what_is_stored():
    def stored(layer):
        return {name: tuple(tensor.shape) for name, tensor in layer.state_dict().items()}

    fixed, trained = S4DLayer(3, 6, LayerOptions(bidirectional=True)), S4DLayer(3, 6, LayerOptions(train_B=True))
    per_state = {"pole_re": (6,), "pole_im": (6,), "B": (6, 2), "channel": (6,), "mask": (6,)}
    assert stored(fixed) == {**per_state, "C": (2, 6, 2), "D": (3,), "log_step": (3,)}
    assert stored(trained) == {**per_state, "C": (1, 6, 2), "D": (3,), "log_step": (3,)}
    parameters = {"pole_re", "pole_im", "C", "D", "log_step"}
    assert {name for name, _ in fixed.named_parameters()} == parameters
    assert {name for name, _ in trained.named_parameters()} == parameters | {"B"}


@given(st.integers(1, 10**6))
def test_fast_lengths_are_close_above_and_have_small_factors(least):
    size = fast_length(least)
    assert least <= size <= 1.21 * least
    for prime in (2, 3, 5):
        while size % prime == 0:
            size //= prime
    assert size == 1
