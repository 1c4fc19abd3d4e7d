"""A new head on trained layers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config
from ssmprune.tasks._task import Split
from ssmprune.training._new_head import fit_head, take_raw_features
from ssmprune.training.evaluate import evaluate

CONFIG = Config("s5", inputs=5, outputs=2, width=6, states=(4,), tokens=True)
COMPARING = Config("s5", inputs=5, outputs=2, width=6, states=(4,), tokens=True, retrieval=True)


@pytest.mark.parametrize("config", [CONFIG, COMPARING], ids=["one", "two documents"])
def test_a_head_for_standardised_features_becomes_the_same_for_raw_ones(config):
    torch.manual_seed(0)
    model = Classifier(config).double()
    features, shift, scale = torch.randn(8, 6).double(), torch.randn(6).double(), torch.rand(6).double() + 0.1
    expected = model.head((features - shift) / scale)
    take_raw_features(model, shift, scale)
    assert torch.allclose(model.head(features), expected, atol=1e-12)


def documents(count: int, seed: int) -> Split:
    """Pairs of texts of one letter each, mostly: is it the same letter?"""
    rng = np.random.default_rng(seed)
    first, second = rng.integers(1, 5, (2, count))
    other = rng.integers(1, 5, (2, count, 20))
    texts = np.where(rng.random((2, count, 20)) < 0.8, np.stack([first, second])[..., None], other)

    def read(rows):
        return texts[:, rows].reshape(-1, 20), np.full(2 * len(rows), 20)

    return Split((first == second).astype(np.int64), read, 5, 2, 20)


def test_a_head_learns_from_features_that_stay_as_they_are():
    torch.manual_seed(0)
    model = Classifier(COMPARING)
    layers = {name: value.clone() for name, value in model.named_parameters() if name.startswith(("encoder", "layers"))}
    before = evaluate(model, documents(400, seed=1)).accuracy
    fit_head(model, documents(3000, seed=2))
    assert evaluate(model, documents(400, seed=1)).accuracy > max(0.85, before)
    assert all(torch.equal(layers[name], value) for name, value in model.named_parameters() if name in layers)
