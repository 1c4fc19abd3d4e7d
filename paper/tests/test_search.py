"""What the paper adds to a sweep: the largest ratio within a loss, half the sampling rate, speed, lost plans."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import ssmprune as sp
from ssmprune import tasks
from ssmprune.methods import LAMP
from ssmprune.sweeps import (
    FULL,
    Key,
    Results,
    Session,
    Sweep,
    approaches,
    describe,
    entries,
    fill,
    load_subject,
    open_results,
    runners,
)
from ssmprune.tasks.task import fewer
from ssmprune.training import evaluate
from ssmprune_paper import search
from ssmprune_paper.bisection import largest_within
from ssmprune_paper.models_of_cells import measure_speed
from ssmprune_paper.query import Query
from ssmprune_paper.search import Search, sweep_and_search
from tiny_sweep import PLAN, write_models

to_the_end = runners._answer
NONE = Search([], 0)


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """A folder with data and three checkpoints with cards."""
    return write_models(tmp_path_factory.mktemp("sweep"))


def searched(root: Path, out: Path, plan: Sweep, wanted: Search, name: str) -> Results:
    sweep_and_search(entries([root / f"{name}.safetensors"]), plan, wanted, out, Session(root))
    return Results.read(out)


def bounds(results: Results) -> dict[Key, float]:
    return {key: outcome for key, outcome in results.outcomes.items() if isinstance(outcome, float)}


@pytest.fixture(scope="module")
def results(root) -> Results:
    return searched(root, root / "results", PLAN, NONE, "one")


@pytest.fixture
def without_plans(results, tmp_path) -> Path:
    """The results, as they can be committed."""
    for name in ("sweep.json", "cells.jsonl"):
        shutil.copy(results.folder / name, tmp_path)
    return tmp_path


def test_lost_plans_are_made_again_without_evaluating_anything(root, without_plans, results, monkeypatch):
    monkeypatch.setattr(runners, "_answer", None)
    again = searched(root, without_plans, PLAN, NONE, "one")
    assert (without_plans / "cells.jsonl").read_bytes() == (results.folder / "cells.jsonl").read_bytes()
    made = [cell for cell in results.cells if results.plan_path(cell).is_file()]
    assert len(made) == 2 * 4  # ratios; last, surgeon, and random with two seeds
    for cell in made:
        assert again.plan_path(cell).read_bytes() == results.plan_path(cell).read_bytes()


def test_a_cell_stands_if_its_lost_plan_cannot_be_made_again(root, without_plans, results, monkeypatch):
    def refuse(*_):
        raise sp.InputError("Not enough memory.")

    monkeypatch.setattr(approaches.PruneStates, "prune", refuse)
    again = searched(root, without_plans, PLAN, NONE, "one")
    assert again.outcomes == results.outcomes


def test_a_lost_plan_that_keeps_other_states_now_is_refused(root, without_plans, monkeypatch):
    prune = approaches.PruneStates.prune
    monkeypatch.setattr(approaches.PruneStates, "prune", lambda self, subject, *_: prune(self, subject, 0.9, 0, None))
    with pytest.raises(sp.InputError, match=r"last at 0\.5 leaves 'one' other states than when it was measured"):
        searched(root, without_plans, PLAN, NONE, "one")


@pytest.mark.slow
def test_the_largest_ratio_agrees_with_a_plain_search(root, tmp_path):
    plan = Sweep(methods=["last", "lamp"], ratios=[0.2, 0.5, 1.0], examples=30)
    found = searched(root, tmp_path, plan, Search(plan.methods, 10**9, budget=3.0), "two")
    model = sp.load(root / "two.safetensors")
    systems, split = sp.read(model), fewer(tasks.get("smnist").load("val", root), 30)
    full = evaluate(model, split).accuracy
    test = len(tasks.get("smnist").load("test", root))

    def loss(ratio: float) -> float:
        return 100 * (full - evaluate(sp.shrink(model, sp.make_plan(systems, ratio, LAMP)), split).accuracy)

    largest = largest_within(loss, 3.0, 24, plan.ratios)
    for ratio in {largest.exact} - {0.0}:
        assert Key("two", "lamp", ratio, 0, "test", test, 1.0) in found.by_key
    assert Key("two", FULL, 0.0, 0, "test", test, 1.0) in found.by_key


def test_only_named_methods_are_searched_and_all_are_tested_at_the_ratio_of_last(root, tmp_path):
    names = ["last", "lamp"]
    results = searched(root, tmp_path, Sweep(names, [0.2, 0.5], examples=10), Search(["last"], 20, budget=60), "one")
    assert {cell.method for cell in results.cells if cell.split == "val"} == {FULL, "last"}
    query = Query(results)
    entry = results.entry("one")
    assert query.largest(entry, "lamp") is None
    ratio = query.last_ratio(entry)
    assert ratio
    assert [query.test("one", name, ratio).examples for name in names] == [20, 20]


@pytest.mark.slow
def test_a_model_that_cannot_stay_within_the_loss_is_not_evaluated_to_the_end(root, tmp_path, monkeypatch):
    plan = Sweep(methods=["last", "random"], ratios=[0.2, 0.5, 1.0], seeds=[0, 1], examples=30)
    wanted = Search(plan.methods, 10**9, budget=3.0)
    monkeypatch.setattr(runners, "STEPS_AT_ONCE", 2 * 784)
    monkeypatch.setattr(search, "load_subject", with_labels_of_the_model)
    stopping = searched(root, tmp_path / "stopping", plan, wanted, "two")
    assert bounds(stopping)
    monkeypatch.setattr(runners, "_answer", lambda model, split, job: to_the_end(model, split, replace(job, least=0)))
    whole = searched(root, tmp_path / "whole", plan, wanted, "two")
    assert not bounds(whole)
    assert {key for key in whole.by_key if key not in stopping.by_key} == set(bounds(stopping))
    (full,) = [cell for cell in whole.cells if (cell.method, cell.split) == (FULL, "val")]
    for key, at_most in bounds(stopping).items():
        assert whole.by_key[key].accuracy <= at_most < full.accuracy - 0.03
    for method, seed in (("last", 0), ("random", 0), ("random", 1)):
        largest = [Query(found).largest(found.entry("two"), method, seed) for found in (stopping, whole)]
        assert largest[0] == largest[1] is not None
    monkeypatch.setattr(runners, "run", lambda subject, job: pytest.fail("nothing is left to do"))
    assert bounds(searched(root, tmp_path / "stopping", plan, wanted, "two")) == bounds(stopping)


def with_labels_of_the_model(entry, *data):
    """The model's own answers are the right ones, so that pruning has something to lose."""
    subject = load_subject(entry, *data)
    for key, split in subject.splits.items():
        x = torch.from_numpy(split.batch(np.arange(len(split))).x)
        with torch.no_grad():
            subject.splits[key] = replace(split, labels=subject.model.eval()(x).argmax(-1).numpy())
    return subject


def test_at_half_the_rate_the_plan_is_that_of_the_full_rate(root, tmp_path):
    plan, (entry,) = Sweep(methods=["last"], ratios=[0.5], examples=3), entries([root / "spoken.safetensors"])
    slow = [key._replace(rate=0.5) for key in plan.keys("spoken")]
    with open_results(tmp_path, describe([entry], plan, "")) as writer:
        fill(writer, [load_subject(entry, root=root)], plan.keys("spoken"), Session())
        full, half = fill(writer, [load_subject(entry, root=root, every=2)], slow, Session())
    assert (full.method, half.method, half.rate) == (FULL, "last", 0.5)
    model = sp.shrink(sp.load(root / "spoken.safetensors"), Results.read(tmp_path).plan(half)).at_rate(2)
    split = tasks.get("speech").replace(every=2).load("test", root)
    assert evaluate(model, split).loss == pytest.approx(half.loss, rel=1e-5)


@pytest.mark.slow
def test_speed_is_measured_for_cells_without_it(root, tmp_path):
    plan, (entry,) = Sweep(methods=["last"], ratios=[1.0], examples=5), entries([root / "one.safetensors"])
    subject = load_subject(entry, root=root)
    with open_results(tmp_path, describe([entry], plan, "")) as writer:
        filled = fill(writer, [subject], plan.keys("one"), Session())
        assert {cell.speed for cell in filled} == {None}
        measure_speed(writer, subject, filled)
    timed = Results.read(tmp_path).cells
    assert len(timed) == 2
    assert all(cell.speed > 0 for cell in timed)
