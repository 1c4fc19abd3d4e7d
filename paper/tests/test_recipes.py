"""Recipes: the paper's tables as printed, and cuts that can be listed."""

from __future__ import annotations

import dataclasses
import math

import pytest

from ssmprune import tasks
from ssmprune.errors import InputError
from ssmprune.training import recipes
from ssmprune_paper.recipes import differences

EVERY = recipes.found()


def test_the_paper_trains_s5_on_ten_tasks_and_s4d_on_eight():
    names = {
        family: {task for task, its, name in EVERY if its == family and name == "paper"} for family in ("s5", "s4d")
    }
    assert names["s5"] == set(tasks.found())
    assert names["s4d"] == set(tasks.found()) - {"smnist", "psmnist"}


def test_rows_as_printed():
    text = recipes.get("text", "s5", "paper")
    assert (text.depth, text.width, text.states, text.blocks) == (6, 256, 192, 12)
    assert (text.dropout, text.lr, text.ssm_lr, text.batch, text.epochs) == (0.1, 0.004, 0.001, 50, 35)
    assert (text.weight_decay, text.step_min, text.step_max, text.norm, text.prenorm) == (
        0.07,
        0.001,
        0.1,
        "batch",
        True,
    )
    scifar = recipes.get("scifar", "s4d", "paper")
    assert (scifar.depth, scifar.width, scifar.states, scifar.norm, scifar.prenorm) == (6, 512, 64, "layer", False)
    pathx = recipes.get("pathx", "s4d", "paper")
    assert (pathx.lr, pathx.batch, pathx.epochs, pathx.step_max) == (0.001, 32, 50, 0.01)


@pytest.mark.parametrize("key", EVERY, ids="-".join)
def test_every_recipe_builds_a_model_config_for_its_task(key):
    task, family, _ = key
    recipe = EVERY[key]
    changed = tasks.get(task).replace(**recipe.task)
    config = recipe.config(changed, inputs=changed.inputs, outputs=changed.outputs)
    stored = recipe.states // 2 if config.conj_sym else recipe.states
    assert config.states == (stored if family == "s5" else stored * recipe.width,) * recipe.depth
    assert config.bidirectional == (task not in ("smnist", "psmnist"))
    assert (config.tokens, config.retrieval) == (changed.tokens, changed.retrieval)
    assert recipe.warmup < recipe.epochs


def test_every_task_has_a_cpu_recipe_for_each_family():
    assert {key[:2] for key in EVERY if key[2] == "cpu"} == {(t, f) for t in tasks.found() for f in ("s5", "s4d")}


def test_the_lru_is_that_of_compressm():
    """One block, 256 complex states, width 8, radii from 0.9 to 0.999 (configs/paper/smnist_baseline.yaml there)."""
    recipe = recipes.get("smnist", "s5", "lru")
    config = recipe.config(tasks.get("smnist"), 1, 10)
    assert (config.kind, config.states, config.width, config.conj_sym) == ("lru", (256,), 8, False)
    assert (config.norm, config.prenorm, config.activation, config.pooling) == ("batch", True, "full_glu", "mean")
    assert (math.exp(-config.step_max), math.exp(-config.step_min)) == pytest.approx((0.9, 0.999))


@pytest.mark.parametrize("key", [key for key in EVERY if key[2] == "cpu"], ids="-".join)
def test_differences_turn_the_paper_into_the_cpu_recipe(key):
    task, family, name = key
    changes = differences(task, family, name)
    paper = EVERY.get((task, family, "paper"))
    if paper:
        assert dataclasses.replace(paper, **{field: ours for field, (_, ours) in changes.items()}) == EVERY[key]
    assert changes
    assert all(theirs != ours for theirs, ours in changes.values())


def test_the_paper_does_not_differ_from_itself():
    assert differences("image", "s5", "paper") == {}


def test_an_unknown_recipe_lists_those_there_are():
    with pytest.raises(InputError, match=r"smnist s5 paper.*smnist s5 cpu"):
        recipes.get("smnist", "s4d", "paper")
