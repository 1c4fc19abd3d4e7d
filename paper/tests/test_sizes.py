"""What the claims come to on models with the paper's number of states; made-up results of whatever models there are."""

from __future__ import annotations

import numpy as np
import pytest

from ssmprune.sweeps import Cell, Results
from ssmprune.sweeps.runners import pack
from ssmprune_paper import tables
from ssmprune_paper.query import Query
from ssmprune_paper.sizes import sizes

GRID = [0.1, 0.2, 0.3, 0.4, 0.5]
LOSSES = {"last": 1.0, "uniform-hinf": 4.0, "global-hinf": 9.0}  # points at LAST's largest ratio
RATIO = "S5 with the paper's number of states: LAST prunes 33 % of them on average for less than a point"
ORDER = "S5 with the paper's number of states: LAST loses less than Uniform H∞, and that less than Global H∞"
MORE = "S5: of more states LAST can prune a larger share"


def made_up(tmp_path, models: dict[str, tuple[str, int, float, int]], losses: dict = LOSSES) -> Results:
    """Results of {name: (task, states of a layer, LAST's largest ratio, epochs)}."""
    about = {
        "checkpoints": [],
        "methods": list(LOSSES),
        "ratios": GRID,
        "seeds": [0],
        "examples": 1000,
        "max_loss": 1.0,
        "split": "test",
    }
    outcomes = {}
    for name, (task, states, largest, epochs) in models.items():
        card = {"settings": {"states": states, "epochs": epochs}, "epochs": epochs}
        entry = {"name": name, "file": "", "family": "s5", "stored_states": 10, "task": task, "card": card}
        about["checkpoints"].append(entry)
        for split in ("test", "val"):
            tries = [("full", 0.0, 0.0)]
            tries += [(method, ratio, loss * ratio / largest) for method, loss in losses.items() for ratio in GRID]
            for method, ratio, lost in tries:
                count = round(900 - 10 * lost)
                cell = Cell(
                    name, task, method, ratio, 0, split, 1000, 1.0, count / 1000, 0.0, {"a": 1}, {"a": states}, 1, 1,
                    right=pack(np.arange(1000) < count),
                )  # fmt: skip
                outcomes[cell.key] = cell
    return Results(tmp_path, about, outcomes)


def claim(results: Results, name: str) -> dict | None:
    rows = [row for row in tables.make(results, "claims").rows if row["claim"] == name]
    return rows[0] if rows else None


SMALL = {"image-s5": ("image", 64, 0.1, 6)}
ONLY_IMAGE = {"image-s5": ("image", 384, 0.3, 6), "image-s5-64": ("image", 64, 0.1, 6)}


def test_without_a_model_of_the_papers_size_nothing_is_claimed(tmp_path):
    results = made_up(tmp_path, SMALL)
    assert sizes(Query(results)) == []
    for name in (RATIO, ORDER):
        row = claim(results, name)
        assert (row["ours"], row["verdict"]) == (None, "cannot be tested here")
    assert claim(results, MORE) is None


def test_a_single_task_of_the_papers_size_beside_its_smaller_model(tmp_path):
    results = made_up(tmp_path, ONLY_IMAGE)
    row = claim(results, RATIO)
    assert (row["paper"], row["ours"]) == ("33 % at 0.52", "30.0 % at 1.00; with other numbers 10.0 % at 1.00")
    assert row["verdict"] == "does not hold", "a loss of exactly a point is not below it"
    assert "1 of the paper's 10 tasks: image 384 (other: 64); on these the paper has 30.0 % at" in row["why"]
    order = claim(results, ORDER)
    assert order["paper"] == "0.52 < 4.32 < 7.51"
    assert order["ours"] == "1.00, 4.00, 9.00; with other numbers 1.00, 4.00, 9.00"
    assert order["verdict"] == "holds"
    more = claim(results, MORE)
    assert (more["ours"], more["verdict"]) == ("10.0 % of fewer, 30.0 % of more", "holds")
    assert "image 64 to 384: 10.0 to 30.0 %; more on 1, less on 0 tasks" in more["why"]


def test_the_promise_is_what_the_paper_has_on_the_same_tasks_less_five_points(tmp_path):
    gentle = LOSSES | {"last": 0.9}
    models = ONLY_IMAGE | {"smnist-s5": ("smnist", 128, 0.4, 3)}
    row = claim(made_up(tmp_path, models, gentle), RATIO)
    assert "on these the paper has 40.0 % at" in row["why"], "30 and 50 %"
    assert (row["ours"][:6], row["verdict"]) == ("35.0 %", "holds")
    models["smnist-s5"] = ("smnist", 128, 0.3, 3)
    row = claim(made_up(tmp_path, models, gentle), RATIO)
    assert (row["ours"][:6], row["verdict"]) == ("30.0 %", "does not hold")


def test_a_task_of_one_size_counts_on_both_sides(tmp_path):
    row = claim(made_up(tmp_path, ONLY_IMAGE | {"smnist-s5": ("smnist", 128, 0.5, 3)}), RATIO)
    assert row["ours"] == "40.0 % at 1.00; with other numbers 30.0 % at 1.00"
    alone = claim(made_up(tmp_path, {"smnist-s5": ("smnist", 128, 0.5, 3)}), RATIO)
    assert alone["ours"] == "50.0 % at 1.00"


def test_a_model_of_the_papers_size_counts_though_it_is_not_the_one_named_after_the_task(tmp_path):
    models = {"image-s5": ("image", 64, 0.1, 6), "image-s5-384": ("image", 384, 0.3, 6)}
    assert claim(made_up(tmp_path, models), RATIO)["ours"] == "30.0 % at 1.00; with other numbers 10.0 % at 1.00"


def test_of_several_other_sizes_the_one_trained_longest_counts(tmp_path):
    models = {"image-s5-1-epoch": ("image", 64, 0.5, 1), **ONLY_IMAGE}
    (task,) = sizes(Query(made_up(tmp_path, models)))
    assert (task.paper.group.name, task.other.group.name) == ("image-s5", "image-s5-64")


def test_the_papers_number_may_be_the_smaller_one(tmp_path):
    models = {"listops-s5": ("listops", 16, 0.2, 12), "listops-s5-64": ("listops", 64, 0.1, 12)}
    more = claim(made_up(tmp_path, models), MORE)
    assert (more["ours"], more["verdict"]) == ("20.0 % of fewer, 10.0 % of more", "does not hold")
    assert "listops 16 to 64" in more["why"]


@pytest.mark.parametrize("method", ["uniform-hinf", "global-hinf"])
def test_the_order_needs_all_three_methods(tmp_path, method):
    losses = {name: loss for name, loss in LOSSES.items() if name != method}
    assert claim(made_up(tmp_path, ONLY_IMAGE, losses), ORDER)["verdict"] == "cannot be tested here"
