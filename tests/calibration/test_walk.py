"""Walks from layer to layer: the residual stream of our own models is held, other models start again."""

from collections import Counter

import numpy as np
import pytest
import torch
from torch import nn

import ssmprune as sp
from calibrated import model, refit_on_all_data, refit_on_data
from ssmprune.calibration import record
from ssmprune.models import S5Layer, s5_kernel
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config

X = torch.randn(60, 50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).cumsum(1) / 7


class Deep(nn.Module):
    """Layers one after the other, which count their calls; a few sequences at a time, if asked for."""

    def __init__(self, depth, at_once=None):
        super().__init__()
        torch.manual_seed(0)
        self.layers, self.at_once, self.calls = nn.ModuleList(S5Layer(3, 8) for _ in range(depth)), at_once, Counter()
        self.double()

    def forward(self, x):
        return torch.cat([self.through(part) for part in x.split(self.at_once or len(x))])

    def through(self, x):
        for number, layer in enumerate(self.layers):
            self.calls[number] += 1
            x = x + layer(x).tanh()
        return x

    def __deepcopy__(self, memo):
        copy = type(self)(len(self.layers), self.at_once)
        copy.load_state_dict(self.state_dict())
        copy.calls = self.calls
        return copy


def refitted(net, x=X, **options):
    refit = refit_on_all_data if "ridge" in options else refit_on_data
    return refit(sp.make_plan(sp.read(net), 0.5), net, [x], **options)


def same(one, other):
    assert one.C.keys() == other.C.keys() != set()
    for layer, C in one.C.items():
        np.testing.assert_allclose(other.C[layer], C, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(other.D_change[layer], one.D_change[layer], rtol=1e-9, atol=1e-12)


def test_models_of_other_codes_start_again_at_every_layer():
    """Once for the order of the layers, then with both models to each layer in turn."""
    for depth in (2, 4, 8):
        net = Deep(depth)
        refitted(net, ridge=1e-6)
        assert sum(net.calls.values()) == depth + 2 * sum(range(1, depth + 1))


def test_what_is_too_large_to_hold_starts_again_and_finds_the_same(monkeypatch):
    torch.manual_seed(0)
    net = Classifier(Config("s5", 3, 2, width=5, states=(4,) * 3)).double().eval()
    expected = refitted(net)
    for most in (0, 3 * X.nbytes // 2):  # nothing is held, or some
        monkeypatch.setattr(record, "HELD_BYTES", most)
        same(refitted(net), expected)


def test_models_that_split_their_batches():
    same(refitted(Deep(3, at_once=7)), refitted(Deep(3)))


@pytest.mark.parametrize("numbers", [30, 300])  # parts of sequences, or of the batch
def test_layers_of_classifiers_that_work_in_parts_are_called_once(monkeypatch, numbers):
    """A wide model takes a few sequences at a time, a long causal one a few steps: neither must be recorded so."""
    totals, plain = {}, S5Layer.forward
    for depth in (2, 4, 8):
        torch.manual_seed(0)
        net = Classifier(Config("s5", 3, 2, width=5, states=(4,) * depth)).double().eval()
        calls = []
        monkeypatch.setattr(S5Layer, "forward", lambda *given, calls=calls: (calls.append(1), plain(*given))[1])
        monkeypatch.setattr(s5_kernel, "NUMBERS_AT_ONCE", 1 << 21)
        expected = refitted(net, ridge=1e-6)
        calls.clear()
        monkeypatch.setattr(s5_kernel, "NUMBERS_AT_ONCE", numbers)
        same(refitted(net, ridge=1e-6), expected)
        totals[depth] = len(calls)
        assert {moments.sequences for moments in sp.collect(net, [X]).values()} == {len(X)}
    assert totals[8] - totals[4] == 2 * (totals[4] - totals[2])


class Failing(Deep):
    """Fails on its way from the first layer to the second, in the second run."""

    runs = 0

    def through(self, x):
        Failing.runs += 1
        if Failing.runs > 2:
            self.layers[0](x)
            raise ZeroDivisionError("in the model")
        return super().through(x)


def test_what_goes_wrong_in_a_model_is_told_to_the_caller():
    net = Failing(2)
    with pytest.raises(ZeroDivisionError, match="in the model"):
        refitted(net)
    assert not any(module._forward_hooks for module in net.modules())
    assert all(module.training for module in net.modules())


def test_gradients_stay_off_and_the_model_as_it_was():
    net = model("s5")
    state = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    refitted(net, X[..., :2])
    assert all(torch.equal(tensor, state[name]) for name, tensor in net.state_dict().items())
    assert not any(module._forward_hooks for module in net.modules())
    assert torch.is_grad_enabled()
