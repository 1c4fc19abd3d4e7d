"""With few sequences a re-fit is trusted as far as sequences that it has not seen allow."""

import numpy as np
import pytest
import torch

import ssmprune as sp
from calibrated import refit_on_data
from ssmprune.calibration.data import count
from ssmprune.calibration.refit import split
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config
from ssmprune.planning import refit_each_layer

CHOSEN_ON = range(240)  # how cautious a re-fit is was chosen on these cases
FRESH = range(240, 480)


def draw(rng, kind, sequences, length):
    x = rng.normal(size=(sequences, length, 2))
    if kind == "walk":
        x = np.cumsum(x, axis=1) / np.sqrt(length)
    if kind == "tones":
        angles = rng.uniform(0, 1, (sequences, 1, 2)) * np.arange(length)[:, None] + rng.uniform(
            0, 6, (sequences, 1, 2)
        )
        x = np.sin(angles)
    return torch.from_numpy(x.astype(np.float32))


def errors(seed):
    """The error of the logits on 200 fresh sequences: without re-fit, and re-fitted on six."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    family, depth, width = ("s5", "s4d")[seed % 2], int(rng.integers(1, 5)), int(rng.choice([4, 6, 8]))
    n, both = int(rng.integers(4, 13)) * (1 if family == "s5" else width), bool(rng.integers(2))
    activation = str(rng.choice(["gelu", "half_glu1", "half_glu2", "full_glu"]))
    pooling = str(rng.choice(["mean", "last"])) if not both else "mean"
    options = {"bidirectional": both, "activation": activation, "pooling": pooling}
    config = Config(family, 2, 5, width, (n,) * depth, norm=str(rng.choice(["batch", "layer"])), **options)
    net, length, kind = (
        Classifier(config).eval(),
        int(rng.integers(15, 80)),
        ("noise", "walk", "tones")[rng.integers(3)],
    )
    few, fresh = draw(rng, kind, 6, length), draw(rng, kind, 200, length)
    ratio, method = float(rng.choice([0.2, 0.4, 0.6, 0.8])), [sp.SURGEON, sp.LAST][int(rng.integers(2))]
    work = sp.Pruning(net, method, data=[few])
    with torch.no_grad():
        plans = work.choose_states(ratio), work.plan(ratio)
        return [float((work.shrink(plan)(fresh) - net(fresh)).square().mean()) for plan in plans]


def check(seeds):
    found = np.array([errors(seed) for seed in seeds])
    assert (found[:, 1] <= 1.01 * found[:, 0] + 1e-12).all()
    assert np.median(found[:, 1] / np.maximum(found[:, 0], 1e-12)) < 0.3  # cautious, but not idle


def test_few_sequences_do_no_harm():
    check(CHOSEN_ON[::12])


@pytest.mark.slow
def test_few_sequences_do_no_harm_in_any_of_240_fresh_cases():
    check(FRESH)


def test_a_single_sequence_is_fitted_for_the_whole_models_inputs_alone():
    torch.manual_seed(0)
    net = Classifier(Config("s5", 2, 3, 4, (6, 6))).double().eval()
    x = torch.randn(1, 300, 2, dtype=torch.float64)
    plan, systems = sp.make_plan(sp.read(net), 0.5), sp.read(net)
    alone, found = refit_each_layer(plan, systems, sp.collect(net, [x])), refit_on_data(plan, net, [x])
    for layer, C in alone.C.items():
        np.testing.assert_allclose(found.C[layer], C, rtol=1e-4, atol=1e-6)


def test_models_of_pairs_get_pairs():
    for total in (2, 4, 6, 40, 50):
        parts = split([sp.Sequences(torch.zeros(total, 3))], pairs=True)
        sizes = [count(part) for part in parts]
        assert sum(sizes) == total
        assert all(size % 2 == 0 for size in sizes)
        assert (sizes[1] > 0) is (total > 2)
