import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import nn

import ssmprune as sp
from calibrated import features, kinds, layer_inputs, model, moments
from ssmprune import sampling
from ssmprune.features import Layout, readout, weights
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config
from ssmprune.models.s5 import S5Layer
from strategies import systems


def assert_moments(found, expected):
    for name, value in zip(("gram", "cross", "power"), expected, strict=True):
        np.testing.assert_allclose(getattr(found, name), value, rtol=1e-10, atol=1e-13)


@kinds
@pytest.mark.parametrize("every", [1, 3, 40])
def test_moments_are_the_means_over_the_sampled_steps(family, bidirectional, delay, every, monkeypatch):
    monkeypatch.setattr(sampling, "stride", lambda *_: every)
    net, x = model(family, bidirectional, delay), torch.randn(3, 17, 2, dtype=torch.float64)
    inputs = layer_inputs(net, x)
    steps = [range(16, -1, -every)] * 3
    for path, found in sp.collect(net, [x]).items():
        assert_moments(found, moments(sp.read(net)[path], inputs[path], steps))


@kinds
def test_padding_does_not_count(family, bidirectional, delay, monkeypatch):
    monkeypatch.setattr(sampling, "stride", lambda *_: 3)
    net, x = model(family, bidirectional, delay), torch.randn(3, 17, 2, dtype=torch.float64)
    lengths = torch.tensor([17, 9, 2])
    inputs = layer_inputs(net, x)
    steps = [[k for k in range(16, -1, -3) if k < length] for length in lengths]
    for path, found in sp.collect(net, [(x, lengths)]).items():
        assert_moments(found, moments(sp.read(net)[path], inputs[path], steps))


@pytest.mark.parametrize("family", ["s5", "s4d"])
def test_it_does_not_matter_how_the_sequences_are_batched(family, monkeypatch):
    net, x = model(family), torch.randn(12, 40, 2, dtype=torch.float64)
    lengths = torch.arange(29, 41)
    whole = sp.collect(net, [(x, lengths)])
    monkeypatch.setattr(sampling, "STEPS_AT_ONCE", 100)
    for batches in ([(x, lengths)], list(zip(x.split(5), lengths.split(5), strict=True))):
        for path, found in sp.collect(net, iter(batches)).items():
            assert_moments(found, (whole[path].gram, whole[path].cross, whole[path].power))


def test_single_precision_models_have_moments_in_double_precision():
    net, x = model("s5"), torch.randn(50, 40, 2, dtype=torch.float64)
    exact, found = sp.collect(net, [x]), sp.collect(net.float(), [x.float()])
    for path in exact:
        assert found[path].gram.dtype == np.float64
        np.testing.assert_allclose(found[path].gram, exact[path].gram, rtol=1e-4, atol=1e-5 * exact[path].gram.max())


@given(systems(max_n=6))
def test_white_noise_moments_are_the_sums_over_impulse_responses(system):
    system = sp.DiagonalSystem.from_discrete(  # fast poles, so that a short window holds the whole response
        system.poles * 0.6, system.B, system.C, channel=system.channel, channels=system.channels,
        gain=system.gain, backward_delay=system.backward_delay,
    )  # fmt: skip
    span, layout = 80, Layout.of(system)
    gram = cross = 0
    for j in range(system.inputs):
        u = np.zeros((2 * span + 1, system.inputs))
        u[span, j] = 1
        z = [layout.spread(z_k) for z_k in features(system, u)]
        gram = gram + sum(np.einsum("gsa,gtb->gsatb", z_k, z_k) for z_k in z)
        own = u[span][None] if system.channel is None else u[span][:, None]
        cross = cross + np.einsum("gsa,gq->gsaq", z[span], own)
    found = sp.white_noise(system)
    np.testing.assert_allclose(found.gram, gram, atol=1e-12 * np.abs(gram).max())
    np.testing.assert_allclose(found.cross, cross, atol=1e-12)
    np.testing.assert_array_equal(found.power, 1)


def test_unstable_states_are_silent_in_white_noise():
    B, C = np.ones((2, 1)), np.ones((1, 2))
    system = sp.DiagonalSystem.from_discrete([0.5, 1.5], B, C)
    gram = sp.white_noise(system).gram
    assert np.isfinite(gram).all()
    assert not gram[0, 1].any()
    np.testing.assert_allclose(gram[0, 0, 0, 0, 0], 1 / 0.75)


@given(systems())
def test_weights_are_the_readout_in_real_numbers(system):
    np.testing.assert_allclose(readout(system, weights(system)), system.C, rtol=1e-12)
    layout, u = Layout.of(system), np.random.default_rng(0).normal(size=(9, system.inputs))
    z = np.stack([layout.spread(z_k) for z_k in features(system, u)])
    y = np.einsum("tgsa,gsaq->tgq", z, weights(system)).reshape(9, -1)
    np.testing.assert_allclose(y, system.simulate(u), atol=1e-12 * (1 + np.abs(y).max()))


@settings(max_examples=20)
@given(systems(max_n=5))
def test_the_energy_of_a_state_is_that_of_its_own_output(system):
    rng = np.random.default_rng(0)
    sequences = rng.normal(size=(2, 11, system.inputs))
    gram, cross, power = moments(system, sequences, [range(11)] * 2)
    found = sp.energies(system, sp.Moments(gram, cross, power))
    for i in range(system.n):
        alone = system.select(np.arange(system.n) == i)
        energy = np.mean([np.sum(alone.simulate(u) ** 2, axis=1) for u in sequences])
        np.testing.assert_allclose(np.exp(found[i]), energy, rtol=1e-9)


def test_the_callers_model_stays_as_it_was():
    net = model("s5").train()
    before = copy.deepcopy(net.state_dict())
    sp.collect(net, [torch.randn(2, 9, 2, dtype=torch.float64)])
    assert net.training
    assert not any(module._forward_hooks for module in net.modules())
    assert all(torch.equal(value, net.state_dict()[name]) for name, value in before.items())


def test_layers_inside_any_torch_module_are_watched():
    net = nn.Sequential(nn.Linear(3, 4), S5Layer(4, 6), nn.GELU(), S5Layer(4, 5))
    assert {path: found.gram.shape[1] for path, found in sp.collect(net, [torch.randn(5, 20, 3)]).items()} == {
        "1": 6,
        "3": 5,
    }


def test_models_of_tokens_and_of_pairs_are_watched():
    torch.manual_seed(0)
    net = Classifier(Config("s5", 7, 2, width=4, states=(5,), tokens=True, retrieval=True))
    found = sp.collect(net, [(torch.randint(7, (6, 3000)), torch.tensor([3000, 8, 70, 9, 2999, 1]))])
    assert np.isfinite(found["layers.0.ssm"].gram).all()


class Unused(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.spare = S5Layer(2, 3), S5Layer(2, 3)

    def forward(self, x):
        return self.used(x)


class Turned(nn.Module):
    def __init__(self):
        super().__init__()
        self.ssm = S5Layer(2, 3)

    def forward(self, x):
        return self.ssm(x[0])


@pytest.mark.parametrize(
    ("net", "batches", "message"),
    [
        (S5Layer(2, 3), [], "at least one sequence"),
        (S5Layer(2, 3), [torch.zeros(4)], r"\(batch, length, ...\) or \(x, lengths\); got x of shape \(4,\)"),
        (S5Layer(2, 3), [(torch.zeros(2, 5, 2), torch.tensor([0, 3]))], "from 1 to 5, not .0, 3.*labels are not"),
        (S5Layer(2, 3), [(torch.zeros(2, 5, 2), torch.tensor([1]))], "lengths must be 2 whole numbers"),
        (S5Layer(2, 3), [(torch.zeros(2, 5, 2), torch.tensor([1.0, 2.0]))], "lengths must be 2 whole numbers"),
        (Unused(), [torch.zeros(2, 5, 2)], "Layer 'spare' did not see every sequence"),
        (Turned(), [torch.zeros(1, 2, 5, 2)], "did not see every sequence"),
    ],
)
def test_what_cannot_be_calibrated_is_refused(net, batches, message):
    with pytest.raises(sp.InputError, match=message):
        sp.collect(net, batches)
