"""Pruning while training: the schedule, and what is left of model and optimiser."""

import dataclasses
import json
import sys

import numpy as np
import pytest
import torch

from calibrated import kinds, model
from ssmprune import make_plan, read, tasks
from ssmprune.cli import main
from ssmprune.errors import InputError
from ssmprune.methods.allocation import kept_count
from ssmprune.models import checkpoint
from ssmprune.tasks import cards
from ssmprune.training import recipes
from ssmprune.training.gradual_pruning import Schedule, shrink_training
from toy import RECIPE, TOY, events, fit

pytestmark = pytest.mark.slow


def test_ratios_rise_at_the_cuts_only():
    schedule = Schedule(to=0.7, start=0.1, until=0.6, every=30)
    ratios = np.array([schedule.ratio(step, 1000) for step in range(1001)])
    assert not ratios[:100].any()
    assert (ratios[600:] == 0.7).all()
    changes = np.flatnonzero(np.diff(ratios)) + 1
    assert (np.diff(ratios) >= 0).all()
    assert changes.tolist() == [*range(130, 600, 30), 600]


def test_a_schedule_prunes_most_at_first():
    cubic = Schedule(to=0.8, start=0.0, until=1.0, every=1)
    assert cubic.ratio(50, 100) == pytest.approx(0.8 * (1 - 0.5**3))


@kinds
def test_the_optimiser_keeps_what_it_knows_of_the_states_that_stay(family, bidirectional, delay):
    net = model(family, bidirectional, delay)
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.randn(2, 20, 2, dtype=torch.float64)).square().sum().backward()
        optimizer.step()
    plan = make_plan(read(net), 0.5)
    small, moments = shrink_training(net, optimizer, plan)
    axes = {"C": 2 if family == "s5" else 1, "log_step": 0 if family == "s5" else None, "D": None}
    for name, parameter in net.named_parameters():
        *path, leaf = name.split(".")
        axis = axes.get(leaf, 0) if path[-1:] == ["ssm"] else None
        for moment, before in optimizer.state[parameter].items():
            if axis is not None and moment != "step":
                index = torch.from_numpy(np.flatnonzero(plan.keep[".".join(path)]))
                before = before.index_select(axis, index)
            assert torch.equal(moments[name][moment], before), (name, moment)
        assert small.get_parameter(name).shape == moments[name]["exp_avg"].shape
        assert moments[name]["exp_avg"].any() or not before.any()


@pytest.mark.parametrize("method", ["last", "aire", "surgeon"])
@pytest.mark.parametrize("family", ["s5", "s4d"])
def test_a_training_ends_with_the_states_it_was_told(tmp_path, family, method):
    recipe = dataclasses.replace(RECIPE, family=family, epochs=2)
    result = fit(tmp_path, recipe, pruning=Schedule(to=0.6, every=4, method=method))
    whole = json.loads((tmp_path / "log.jsonl").read_text().splitlines()[0])["model"]["states"]
    small = checkpoint.load(result.last)
    assert sum(small.config.states) == kept_count(sum(whole), 0.6)
    assert checkpoint.load(result.best).config == small.config
    pruned = [sum(event["states"]) for event in events(tmp_path, "pruning")]
    assert pruned == sorted(set(pruned), reverse=True)
    assert pruned[-1] == sum(small.config.states)
    assert len(pruned) > 1


def test_pruning_before_the_first_step_is_training_a_smaller_model(tmp_path):
    once = fit(tmp_path / "once", pruning=Schedule(to=0.5, start=0.0, until=0.0))
    assert events(tmp_path / "once", "pruning")[0]["step"] == 0
    assert once.best_accuracy > 0.6


def test_a_folder_with_another_schedule_is_refused(tmp_path):
    fit(tmp_path, pruning=Schedule(to=0.5))
    for other in (None, Schedule(to=0.6)):
        with pytest.raises(InputError, match="its pruning differ"):
            fit(tmp_path, pruning=other)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"to": 1.5}, "between 0 and 1; got 1.5"),
        ({"to": 0.5, "start": 0.6, "until": 0.5}, "got 0.6 to 0.5"),
        ({"to": 0.5, "every": 0}, "at least 1; got 0"),
        ({"to": 0.5, "method": "guess"}, "no method 'guess'"),
    ],
)
def test_schedules_that_make_no_sense_are_refused(wrong, message):
    with pytest.raises(InputError, match=message):
        Schedule(**wrong)


def test_the_command_line_prunes_while_training(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tasks, "get", lambda name: TOY)
    monkeypatch.setattr(recipes, "get", lambda *names: RECIPE)
    words = ["--prune-to", "0.5", "--prune-method", "last"]
    command = ["ssmprune", "train", "toy", "--out", str(tmp_path), "--json", *words]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as leave:
        main()
    assert not leave.value.code
    reached = json.loads(capsys.readouterr().out)
    assert sum(checkpoint.load(reached["best"]).config.states) == 4
    assert [event["step"] for event in events(tmp_path, "pruning")] == [30]  # halfway; a cut takes 50 steps
    curve = [event["accuracy"] for event in events(tmp_path, "validation")]
    assert cards.read_card(tmp_path / "best.safetensors")["validation_accuracy"] == max(curve[1:])
