"""The contract of every adapter: forward(mask) = forward(shrink) = simulate(plan applied) + D u, and copies only."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import families
import ssmprune as sp
from ssmprune import adapters
from ssmprune.methods import named
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config
from ssmprune.planning import refit_each_layer
from ssmprune.testing import check_adapter

WIDTH = 4
OWN = ["s4d", "s5"]  # the families of our own torch models


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("family", sorted(adapters.found()))
def test_the_contract(family, seed):
    torch.manual_seed(seed)
    adapter, model, run, shrinks = getattr(families, family)(np.random.default_rng(seed))
    check_adapter(adapter, model, run, shrinks=bool(shrinks), masks=shrinks is not None)


def models(family, draw):
    """Draw a model of one of our families with any of the options that change what a layer computes."""
    torch.manual_seed(draw(st.integers(0, 2**31)))
    per_layer = st.integers(1, 6) if family == "s5" else st.integers(1, 3).map(lambda n: n * WIDTH)
    states = draw(st.lists(per_layer, min_size=1, max_size=3))
    own = {} if family == "s5" else {"train_B": draw(st.booleans()), "backward_delay": draw(st.sampled_from([0, 1]))}
    config = Config(
        family,
        inputs=WIDTH,
        outputs=2,
        width=WIDTH,
        states=tuple(states),
        bidirectional=draw(st.booleans()),
        conj_sym=draw(st.booleans()),
        discretization=draw(st.sampled_from(["zoh", "bilinear"])),
        pole_form=draw(st.sampled_from(["exp", "clip", "free"])),
        step_rescale=draw(st.sampled_from([0.5, 1.0, 2.0])),
        **own,
    )
    return Classifier(config).double().eval()


ratios = st.integers(0, 10).map(lambda k: k / 10)
methods = st.sampled_from(sorted(name for name, method in named().items() if method.reduce is None))


@pytest.mark.parametrize("family", OWN)
@settings(max_examples=60)
@given(data=st.data())
def test_masking_shrinking_and_simulation_agree(family, data):
    model, ratio = models(family, data.draw), data.draw(ratios)
    before = copy.deepcopy(model.state_dict())
    systems = sp.read(model)
    plan = sp.make_plan(systems, ratio, named()[data.draw(methods)])
    if data.draw(st.booleans()):
        plan = refit_each_layer(plan, systems)
    masked, shrunk, kept = sp.mask(model, plan), sp.shrink(model, plan), plan.apply(systems)
    u = torch.randn(1, 12, WIDTH, dtype=torch.float64)
    for path, system in kept.items():
        D = model.get_submodule(path).D.detach().numpy() + plan.D_change.get(path, 0)
        expected = system.simulate(u[0].numpy()) + D * u[0].numpy()
        for pruned in (masked, shrunk):
            with torch.no_grad():
                y = pruned.get_submodule(path)(u)[0].numpy()
            np.testing.assert_allclose(y, expected, atol=1e-9 * (1 + np.abs(expected).max()))
    assert shrunk.config.states == tuple(system.n for system in kept.values())
    assert {path: system.n for path, system in sp.read(shrunk).items()} == {p: s.n for p, s in kept.items()}
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("family", OWN)
@settings(max_examples=15)
@given(data=st.data())
def test_a_masked_model_reads_as_having_silent_states(family, data):
    model, ratio = models(family, data.draw), data.draw(ratios)
    plan = sp.make_plan(sp.read(model), ratio)
    masked = sp.mask(model, plan)
    again = sp.make_plan(sp.read(masked), ratio)
    assert all(np.array_equal(plan.keep[layer], again.keep[layer]) for layer in plan.keep)
    for layer, system in sp.read(masked).items():
        np.testing.assert_array_equal(system.B[~plan.keep[layer]], 0)


@pytest.mark.parametrize("family", OWN)
@settings(max_examples=10)
@given(data=st.data())
def test_pruned_models_train_and_masked_states_stay_silent(family, data):
    model = models(family, data.draw)
    plan = sp.make_plan(sp.read(model), 0.5)
    for pruned in (sp.mask(model, plan).train(), sp.shrink(model, plan).train()):
        optimizer = torch.optim.SGD(pruned.parameters(), lr=0.01)
        pruned(torch.randn(3, 12, WIDTH, dtype=torch.float64)).square().sum().backward()
        gradients = [layer.ssm.C.grad for layer in pruned.layers]
        assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)
        assert any(gradient.abs().max() > 0 for gradient in gradients)
        optimizer.step()
    trained = sp.mask(model, plan).train()
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        trained(torch.randn(3, 12, WIDTH, dtype=torch.float64)).square().sum().backward()
        optimizer.step()
    for layer, system in sp.read(trained).items():
        np.testing.assert_array_equal(system.B[~plan.keep[layer]], 0)


@pytest.mark.parametrize("family", OWN)
@settings(max_examples=10)
@given(data=st.data())
def test_shrunk_checkpoints_reload_like_any_other(family, data, tmp_path_factory):
    model = models(family, data.draw)
    small = sp.prune(model, ratio=data.draw(ratios))
    path = tmp_path_factory.mktemp("checkpoint") / "small.safetensors"
    sp.save(small, path)
    x = torch.randn(2, 9, WIDTH, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(sp.load(path)(x), small(x), rtol=0, atol=0)
