"""Batch norms' statistics for evaluation."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from ssmprune.models import checkpoint
from ssmprune.models.block import measure_statistics
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config
from toy import RECIPE, TOY, fit

CONFIG = Config(family="s5", inputs=2, outputs=3, width=4, states=(4, 4), dropout=0.5)


@pytest.fixture
def batches():
    generator = torch.Generator().manual_seed(0)
    return [(3 * torch.randn(5, 7, 2, generator=generator) + 1, None) for _ in range(4)]


def test_statistics_are_averages_over_the_batches(batches):
    model = Classifier(CONFIG)
    measure_statistics(model, batches)
    features = [model.encoder(x).flatten(0, 1) for x, _ in batches]
    norm = model.layers[0].norm
    assert torch.allclose(norm.running_mean, torch.stack([f.mean(0) for f in features]).mean(0), atol=1e-6)
    assert torch.allclose(norm.running_var, torch.stack([f.var(0) for f in features]).mean(0), rtol=1e-5)


def test_nothing_but_statistics_changes(batches):
    model = Classifier(CONFIG).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    measure_statistics(model, batches)
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {f"layers.{i}.norm.running_{what}" for i in (0, 1) for what in ("mean", "var")}
    assert all(module.training for module in model.modules())
    assert model.layers[0].norm.momentum == CONFIG.norm_momentum
    measure_statistics(layers := Classifier(dataclasses.replace(CONFIG, norm="layer")), batches)
    assert layers.training


def test_a_training_forgets_the_running_averages(tmp_path):
    """However they were weighted, its checkpoints are the same."""
    recipe = dataclasses.replace(RECIPE, norm="batch")
    files = []
    for momentum in (0.05, 0.5):
        torch.manual_seed(1)
        start = Classifier(dataclasses.replace(recipe.config(TOY, 1, 2), norm_momentum=momentum))
        files.append(fit(tmp_path / str(momentum), recipe, start=start).last)
    one, other = (checkpoint.load(file).state_dict() for file in files)
    assert all(torch.equal(one[name], other[name]) for name in one)
