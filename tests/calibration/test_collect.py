import copy

import numpy as np
import pytest
import torch
from torch import nn

import ssmprune as sp
from calibrated import kinds, layer_inputs, model, moments
from ssmprune.calibration import data
from ssmprune.models import S5Layer
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config


def assert_moments(found, expected):
    for name, value in zip(("gram", "cross", "power"), expected, strict=True):
        np.testing.assert_allclose(getattr(found, name), value, rtol=1e-10, atol=1e-13)


@kinds
@pytest.mark.parametrize("every", [1, 3, 40])
def test_moments_are_the_means_over_the_sampled_steps(family, bidirectional, delay, every):
    net, x = model(family, bidirectional, delay), torch.randn(3, 17, 2, dtype=torch.float64)
    inputs = layer_inputs(net, x)
    steps = [range(16, -1, -every)] * 3
    for path, found in sp.collect(net, [x], every=every).items():
        assert_moments(found, moments(sp.read(net)[path], inputs[path], steps))


@kinds
def test_padding_does_not_count(family, bidirectional, delay):
    net, x = model(family, bidirectional, delay), torch.randn(3, 17, 2, dtype=torch.float64)
    lengths = torch.tensor([17, 9, 2])
    inputs = layer_inputs(net, x, lengths)
    steps = [[k for k in range(16, -1, -3) if k < length] for length in lengths]
    for path, found in sp.collect(net, [sp.Sequences(x, lengths)], every=3).items():
        assert_moments(found, moments(sp.read(net)[path], inputs[path], steps))


@kinds
def test_what_padding_holds_does_not_matter(family, bidirectional, delay):
    net, x = model(family, bidirectional, delay), torch.randn(3, 17, 2, dtype=torch.float64)
    lengths = torch.tensor([17, 9, 2])
    zeros, tens = (x.clone(), x.clone())
    for padded, value in ((zeros, 0), (tens, 10)):
        padded[torch.arange(17) >= lengths[:, None]] = value
    ours, theirs = (sp.collect(net, [sp.Sequences(padded, lengths)]) for padded in (zeros, tens))
    for path in ours:
        assert_moments(ours[path], (theirs[path].gram, theirs[path].cross, theirs[path].power))


@pytest.mark.parametrize("family", ["s5", "s4d"])
def test_it_does_not_matter_how_the_sequences_are_batched(family, monkeypatch):
    net, x = model(family), torch.randn(12, 40, 2, dtype=torch.float64)
    lengths = torch.arange(29, 41)
    whole = sp.collect(net, [sp.Sequences(x, lengths)])
    monkeypatch.setattr(data, "STEPS_AT_ONCE", 100)
    for batches in ([sp.Sequences(x, lengths)], list(map(sp.Sequences, x.split(5), lengths.split(5)))):
        for path, found in sp.collect(net, iter(batches)).items():
            assert_moments(found, (whole[path].gram, whole[path].cross, whole[path].power))


def test_single_precision_models_have_moments_in_double_precision():
    net, x = model("s5"), torch.randn(50, 40, 2, dtype=torch.float64)
    exact, found = sp.collect(net, [x]), sp.collect(net.float(), [x.float()])
    for path in exact:
        assert found[path].gram.dtype == np.float64
        np.testing.assert_allclose(found[path].gram, exact[path].gram, rtol=1e-4, atol=1e-5 * exact[path].gram.max())


def test_the_callers_model_stays_as_it_was():
    net = model("s5").train()
    before = copy.deepcopy(net.state_dict())
    sp.collect(net, [torch.randn(2, 9, 2, dtype=torch.float64)])
    assert net.training
    assert not any(module._forward_hooks for module in net.modules())
    assert all(torch.equal(value, net.state_dict()[name]) for name, value in before.items())


def test_layers_inside_any_torch_module_are_recorded():
    net = nn.Sequential(nn.Linear(3, 4), S5Layer(4, 6), nn.GELU(), S5Layer(4, 5))
    assert {path: found.gram.shape[1] for path, found in sp.collect(net, [torch.randn(5, 20, 3)]).items()} == {
        "1": 6,
        "3": 5,
    }


def test_models_of_tokens_and_of_pairs_are_recorded():
    torch.manual_seed(0)
    net = Classifier(Config("s5", 7, 2, width=4, states=(5,), tokens=True, retrieval=True))
    found = sp.collect(net, [sp.Sequences(torch.randint(7, (6, 3000)), torch.tensor([3000, 8, 70, 9, 2999, 1]))])
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
        (S5Layer(2, 3), [torch.zeros(4)], r"A batch is x \(batch, length, ...\).*; got x of shape \(4,\)"),
        (S5Layer(2, 3), [sp.Sequences(torch.zeros(2, 5, 2), torch.tensor([0, 3]))], "numbers from 1 to 5, not .0, 3"),
        (S5Layer(2, 3), [sp.Sequences(torch.zeros(2, 5, 2), torch.tensor([1]))], "must be 2 whole numbers"),
        (S5Layer(2, 3), [sp.Sequences(torch.zeros(2, 5, 2), torch.tensor([1.0, 2.0]))], "must be 2 whole numbers"),
        (S5Layer(2, 3), [{"x": torch.zeros(2, 5, 2)}], "a mapping with 'x': give the inputs alone"),
        (S5Layer(2, 3), [()], "an empty tuple"),
        (S5Layer(2, 3), ["images"], "Sequences.*; got str"),
        (S5Layer(2, 3), {"train": [torch.zeros(2, 5, 2)]}, "list of batches or a DataLoader; got dict"),
        (S5Layer(2, 3), 200, "list of batches or a DataLoader; got int"),
        (Unused(), [torch.zeros(2, 5, 2)], "Layer 'spare' did not see every sequence"),
        (Turned(), [torch.zeros(1, 2, 5, 2)], "did not see every sequence"),
    ],
)
def test_what_cannot_be_calibrated_is_refused(net, batches, message):
    with pytest.raises(sp.InputError, match=message):
        sp.collect(net, batches)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sequences": 0}, "at least 1, or None for all; got 0"),
        ({"sequences": "all"}, "at least 1, or None for all; got 'all'"),
        ({"every": 0}, "at least 1; got 0"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(sp.InputError, match=message):
        sp.collect(S5Layer(2, 3), [torch.zeros(2, 5, 2)], **options)
