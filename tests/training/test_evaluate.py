"""What is evaluated: splits and labelled batches, by which engine, with which statistics of batch norms."""

from __future__ import annotations

import copy
import dataclasses
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

import ssmprune as sp
from ssmprune.deploy import build, compiled
from ssmprune.models import checkpoint, s5_kernel
from ssmprune.models.classifier import Classifier, measure_statistics
from ssmprune.models.config import Config
from ssmprune.tasks.task import Split
from ssmprune.training import evaluate
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


@pytest.mark.parametrize("numbers", [16, 100])  # of 4 features: less than a sequence of 7 steps, less than 5 of them
def test_statistics_are_of_whole_batches_however_evaluation_cuts_them(batches, numbers, monkeypatch):
    whole = Classifier(CONFIG)
    cut = copy.deepcopy(whole)
    measure_statistics(whole, batches)
    monkeypatch.setattr(s5_kernel, "NUMBERS_AT_ONCE", numbers)
    measure_statistics(cut, batches)
    for (name, expected), given in zip(whole.state_dict().items(), cut.state_dict().values(), strict=True):
        torch.testing.assert_close(given, expected, msg=lambda text, name=name: f"{name}: {text}")


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


@pytest.mark.slow
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


def padded_split(config: Config) -> Split:
    """Sequences of different lengths; pairs of them for a model that compares documents."""
    rng = np.random.default_rng(0)
    documents = 2 if config.retrieval else 1

    def read(rows):
        count = documents * len(rows)
        shape = (count, 20) if config.tokens else (count, 20, config.inputs)
        x = rng.integers(0, config.inputs, shape) if config.tokens else rng.normal(size=shape).astype(np.float32)
        return x, rng.integers(1, 21, count)

    chosen = [read(np.arange(start, start + 5)) for start in (0, 5, 10)]
    labels = rng.integers(0, config.outputs, 15)
    return Split(labels, lambda rows: chosen[rows[0] // 5], config.inputs, config.outputs, 20)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"family": "s4d", "states": (9, 9), "bidirectional": True},
        {"tokens": True, "retrieval": True, "norm": "layer"},
    ],
)
def test_compiled_models_count_the_same_answers(options):
    torch.manual_seed(1)
    model = Classifier(dataclasses.replace(CONFIG, **options)).train()
    split = padded_split(model.config)
    expected, counted = (evaluate(model, split, 5, engine) for engine in ("torch", "compiled"))
    assert (counted.accuracy, counted.examples) == (expected.accuracy, 15)
    assert counted.loss == pytest.approx(expected.loss, rel=1e-5)
    assert model.training


@pytest.mark.slow
def test_what_is_compiled_for_an_evaluation_goes_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with compiled.forward(Classifier(CONFIG), "compiled") as logits_of:
        assert logits_of(torch.zeros(1, 3, 2)).shape == (1, 3)
        assert str(tmp_path) in Path("/proc/self/maps").read_text()
    assert not any(tmp_path.iterdir())
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()


def test_auto_compiles_where_a_compiler_is(monkeypatch):
    assert [compiled.choose_engine(name) for name in compiled.ENGINES] == ["torch", "compiled", "compiled"]
    monkeypatch.setattr(build, "find_compiler", lambda: None)
    assert compiled.choose_engine("auto") == "torch"
    with pytest.raises(sp.InputError, match="needs a C compiler"):
        compiled.choose_engine("compiled")
    with pytest.raises(sp.InputError, match="no engine 'gpu'; there are torch, compiled, auto"):
        evaluate(Classifier(dataclasses.replace(CONFIG, inputs=1, outputs=2)), TOY.load("test", "."), engine="gpu")


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A folder for temporary files that others can write."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o770)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


@pytest.mark.slow
def test_a_shared_folder_for_temporary_files_is_not_compiled_in(shared, tmp_path):
    assert compiled.choose_engine("auto") == compiled.choose_engine("compiled") == "compiled"
    model = Classifier(dataclasses.replace(CONFIG, inputs=1, outputs=2))
    expected, counted = (evaluate(model, TOY.load("test", "."), engine=engine) for engine in ("torch", "auto"))
    assert counted.accuracy == expected.accuracy
    assert not any(shared.iterdir())
    assert not any((tmp_path / "cache" / "ssmprune" / "compiled").iterdir())  # what was compiled is gone


def test_auto_is_torch_where_nothing_is_safe(shared, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared / "cache"))
    assert compiled.choose_engine("auto") == "torch"
    with pytest.raises(sp.InputError, match=r"no safe folder to compile in.*set TMPDIR"):
        compiled.choose_engine("compiled")


def test_auto_is_torch_where_nothing_can_be_written(monkeypatch):
    monkeypatch.setattr(build, "find_compiler", lambda: ["cc"])
    monkeypatch.setattr(build.os, "access", lambda folder, mode: False)
    assert compiled.choose_engine("auto") == "torch"
    with pytest.raises(sp.InputError, match="cannot be written"):
        compiled.choose_engine("compiled")


def test_only_our_own_classifiers_are_compiled():
    with pytest.raises(sp.InputError, match="this is Linear"), compiled.forward(torch.nn.Linear(1, 1), "compiled"):
        pass


def test_labelled_batches_count_as_their_split():
    torch.manual_seed(1)
    model = Classifier(CONFIG).train()
    split = padded_split(model.config)
    parts = [split.batch(range(start, start + 5)) for start in (0, 5, 10)]
    expected = evaluate(model, split, 5)
    assert evaluate(model, [(sp.Sequences(part.x, part.lengths), part.y) for part in parts]) == expected
    assert model.training
    assert (evaluate(model, [(part.x, part.y) for part in parts])).loss != expected.loss  # padding counts


def test_any_model_of_logits_is_evaluated():
    model = torch.nn.Linear(2, 3)
    x = torch.randn(4, 6, 2)
    with torch.no_grad():
        labels = model(x).argmax(-1)
    seen = evaluate(model, [(x, labels), (x[:2].numpy(), (labels[:2] + 1) % 3)])
    assert (seen.accuracy, seen.examples) == (24 / 36, 36)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "no batches"),
        ([torch.zeros(3, 4, 2)], "labelled batch is .* got Tensor"),
        ([(torch.zeros(3, 4, 2), torch.zeros(3))], "give one class for each answer"),
        ([(torch.zeros(3, 4, 2), torch.full((3, 4, 3), 0.5))], "the outputs are numbers, not classes.*max_energy"),
        ([(torch.zeros(3, 4, 2), torch.full((3, 4), 0.5))], "the outputs are numbers, not classes"),
        (TOY.load("test", "."), "our own classifiers; to evaluate Linear"),
    ],
)
def test_data_that_cannot_be_evaluated_are_refused(data, message):
    with pytest.raises(sp.InputError, match=message):
        evaluate(torch.nn.Linear(2, 3), data)
