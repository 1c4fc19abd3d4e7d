"""Tables of made-up results, whose figures can be reckoned by hand; and the whole of `reproduce` on a tiny model."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import ssmprune as sp
import tiny_data
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config
from ssmprune.sweeps import Cell, Key, Results, Session
from ssmprune.sweeps.runners import pack
from ssmprune.sweeps.store import open_results
from ssmprune.tasks.cards import write_card
from ssmprune_paper import cli, paper, reproduce, table_formats, tables
from ssmprune_paper.cli import run
from ssmprune_paper.statistics import answers_of
from tiny_results import with_cells

RATIOS = [0.2, 0.5, 1.0]
ABOUT = {
    "format": "ssmprune-sweep", "version": 1, "methods": ["last", "uniform-hinf", "random", "surgeon"],
    "ratios": RATIOS, "seeds": [0, 1], "examples": 100, "split": "test", "max_loss": 1.0, "machine": "a machine",
    "commands": ["ssmprune sweep"], "date": "2026-01-01",
    "checkpoints": [
        {"name": "easy", "file": "easy.safetensors", "family": "s5", "stored_states": 10, "task": "smnist"},
        {"name": "hard", "file": "hard.safetensors", "family": "s5", "stored_states": 10, "task": "listops"},
        {"name": "spoken", "file": "spoken.safetensors", "family": "s4d", "stored_states": 10, "task": "speech"},
    ],
}  # fmt: skip
LOSS = {"last": 2.0, "uniform-hinf": 3.0, "random": 30.0, "surgeon": 0.5}  # points at ratio 1, in proportion below


def cell(checkpoint: str, method: str, ratio: float, split: str, examples: int, lost: float, **other) -> Cell:
    full = {"easy": 0.99, "hard": 0.60, "spoken": 0.90}[checkpoint]
    common = {"task": "", "loss": 0.0, "states_before": {"layer": 20}, "parameters_before": 100}
    kept = {"states": {"layer": round(20 * (1 - ratio))}, "parameters": round(100 * (1 - ratio / 2))}
    numbers = {"seed": 0, "rate": 1.0, "accuracy": max(0.0, full - lost / 100)} | other
    right = np.arange(examples) < round(numbers["accuracy"] * examples)
    numbers["right"] = pack(right) if split == "test" else None
    return Cell(checkpoint, method=method, ratio=ratio, split=split, examples=examples, **common, **kept, **numbers)


def lost(checkpoint: str, method: str, ratio: float) -> float:
    return LOSS[method] * ratio * (10 if checkpoint == "hard" else 1)


@pytest.fixture
def results(tmp_path) -> Results:
    with open_results(tmp_path, ABOUT) as writer:

        def add(cell: Cell) -> None:
            writer.write(cell.key, cell)

        for name in ("easy", "hard", "spoken"):
            for split, examples in (("test", 100), ("test", 500), ("val", 100)):
                add(cell(name, "full", 0.0, split, examples, 0))
                for method in LOSS:
                    grid = RATIOS if split == "test" else [k / 10 for k in range(1, 11)]
                    for ratio in grid:
                        extra = 0.25 if examples == 500 else 0  # the whole test set says a little more
                        speed = 1.5 if method == "last" and (split, examples, ratio) == ("test", 100, 0.5) else None
                        add(cell(name, method, ratio, split, examples, lost(name, method, ratio) + extra, speed=speed))
        add(cell("easy", "random", 0.5, "test", 500, lost("easy", "random", 0.5) + 2.25, seed=1))
        add(cell("spoken", "full", 0.0, "test", 500, 5, rate=0.5))
        add(cell("spoken", "last", 0.5, "test", 500, 6, rate=0.5))
        add(cell("spoken", "full", 0.0, "test", 100, 5, rate=0.5))
        add(cell("spoken", "random", 0.5, "test", 100, 7, rate=0.5))
    return Results.read(tmp_path)


def rows(results: Results, kind: str, **wanted: str) -> list[dict]:
    every = tables.make(results, kind).rows
    return [row for row in every if all(row[name] == value for name, value in wanted.items())]


def test_every_method_at_the_largest_ratio_of_last_on_the_whole_test_set(results):
    (last,) = rows(results, "tasks", checkpoint="easy", method="LAST")
    assert (str(last["ratio, %"]), str(last["accuracy, %"]), str(last["loss, points"])) == ("50", "97.75", "1.25")
    assert (last["examples"], last["95 % interval"]) == (500, "96.10 to 98.77")
    assert (last["paper: ratio, %"], last["paper: accuracy, %"]) == ("50", "99.01 ± 0.57")
    (random,) = rows(results, "tasks", checkpoint="easy", method="Random")
    assert str(random["loss, points"]) == "16.25 ± 1.00"  # the mean of 15.25 and 17.25
    assert random["ahead of LAST, points"] == "-15.00"
    (surgeon,) = rows(results, "tasks", checkpoint="easy", method="Surgeon")
    assert str(surgeon["loss, points"]) == "0.50 n.s."  # three of 500 answers
    assert surgeon["ahead of LAST, points"] == "+0.60 n.s."
    (hard,) = rows(results, "tasks", checkpoint="hard", method="LAST")
    assert (str(hard["ratio, %"]), str(hard["loss, points"])) == ("0", "0.00")
    errata = "went from 384 to 269"
    assert not any(errata in note for note in tables.make(results, "tasks").notes), "Image is not in this sweep"


def test_averages_with_and_without_what_cannot_be_compressed(results):
    (last,) = rows(results, "average", model="S5", method="LAST")
    assert last["ratio (compressible only), %"] == "25.00 (50.00)"
    assert last["loss (compressible only), points"] == "0.62 (1.25)"
    assert (last["paper: ratio, %"], last["paper: loss, points"]) == ("33.00 (36.67)", "0.52 (0.58)")
    notes = tables.make(results, "average").notes
    assert any("S5: from the smallest loss up, our order is the paper's: LAST, Uniform H∞, Random" in n for n in notes)
    assert [row["method"] for row in rows(results, "random", model="S5")] == ["Random"]
    assert [row["method"] for row in rows(results, "magnitude", model="S4D")] == ["LAST", "Uniform H∞", "Random"]


def of_own_tasks(results: Results) -> Results:
    entries = [entry | {"task": f"mine-{entry['task']}"} for entry in results.about["checkpoints"]]
    return replace(results, about=results.about | {"checkpoints": entries})


@pytest.mark.parametrize("kind", ["average", "tasks", "random", "magnitude", "speed", "rate"])
def test_the_paper_is_silent_on_tasks_of_one_s_own(kind, results):
    theirs, ours = tables.make(results, kind), tables.make(of_own_tasks(results), kind)
    assert kind == "speed" or any(column.startswith("paper:") for column in theirs.columns)
    assert not [column for column in ours.columns if column.startswith("paper:")]
    assert [len(row) > 3 for row in ours.rows] == [True] * len(theirs.rows)
    assert "paper" not in " ".join(ours.notes)
    assert not {*ours.notes} & {note for _, note in paper.AVERAGE_ERRATA + paper.TASK_ERRATA}


def test_curves_say_where_less_was_pruned_than_asked_for(results):
    assert len(tables.make(results, "curves").notes) == 2
    kept = [replace(cell, states={"layer": 2}) if cell.ratio == 1 else cell for cell in results.cells]
    assert tables.make(with_cells(results, kept), "curves").notes[2].endswith("less: 90.0% to 90.0% at 100%.")


def test_averages_are_over_the_papers_tasks_alone(results):
    results.about["checkpoints"][1]["task"] = "chess"
    (last,) = rows(results, "average", model="S5", method="LAST")
    assert (last["tasks"], last["ratio (compressible only), %"]) == (1, "50.00 (50.00)")
    assert not rows(results, "surgeon", checkpoint="average of S5 over 1 tasks")


def test_models_of_one_training_are_one_row_with_mean_and_deviation(results):
    for entry, seed in zip(results.about["checkpoints"][:2], (0, 1), strict=True):
        entry |= {"task": "smnist", "card": {"seed": seed, "settings": {"epochs": 3}, "epochs": 3}}
    (full,) = rows(results, "tasks", checkpoint="easy (2 seeds)", method="Full")
    assert str(full["accuracy, %"]) == "79.50 ± 19.50"
    assert any("Over seeds" in note for note in tables.make(results, "tasks").notes)
    (last,) = rows(results, "average", model="S5", method="LAST")
    assert last["ratio (compressible only), %"] == "50.00 (50.00)", "of the first, on which all methods were tried"
    results.about["checkpoints"][1]["card"]["epochs"] = 4
    assert len(rows(results, "tasks", method="Full")) == 3, "another training is another row"


def test_claims_hold_or_not_by_what_was_measured(results):
    verdicts = {row["claim"]: row for row in tables.make(results, "claims").rows}
    first = verdicts["S5: LAST prunes 33 % of the states on average for less than a point"]
    assert (first["ours"], first["verdict"]) == ("25.0 % at 0.62", "does not hold")
    order = verdicts["S5: LAST loses less than Uniform H∞"]
    assert (order["ours"], order["verdict"]) == ("1.25, 1.75", "does not hold"), "not significant on 500 examples"
    assert "better on 0, worse on 0 of 1" in order["why"]
    assert (
        verdicts["S5: single elements at random lose more than states at random, and these more than by magnitude"][
            "verdict"
        ]
        == "cannot be tested here"
    )
    rate = verdicts["S4D: a pruned model still works at half the sampling rate"]
    assert (rate["ours"], rate["verdict"]) == ("1.00 points", "holds")
    assert verdicts["S5: a pruned model is faster"]["ours"] == "1.50 to 1.50 times"
    assert sum("Path-X" in claim for claim in verdicts) >= 1


def test_a_claim_about_order_holds_where_pairs_differ_significantly(results):
    worse = replace(results.by_key[Key("easy", "uniform-hinf", 0.5, 0, "test", 500, 1.0)], accuracy=0.5)
    worse = replace(worse, right=pack(np.arange(500) < 250))
    results = with_cells(results, [worse if one.key == worse.key else one for one in results.cells])
    order = rows(results, "claims", claim="S5: LAST loses less than Uniform H∞")[0]
    assert order["verdict"] == "holds"
    assert "better on 1, worse on 0 of 1" in order["why"]


def test_a_claim_about_order_compares_no_whole_test_set_with_a_part(results):
    cells = [one for one in results.cells if (one.method, one.examples) != ("uniform-hinf", 500)]
    order = rows(with_cells(results, cells), "claims", claim="S5: LAST loses less than Uniform H∞")[0]
    assert order["ours"] == "1.25, 1.50", "LAST of 500 examples, Uniform of 100"
    assert "better on 0, worse on 0 of 1" in order["why"]


def test_whether_the_lead_grows_with_training_is_told_from_the_same_examples(results):
    def claims(lead_of_few: int, states_of_few: int = 20) -> list[dict]:
        """Let LAST have 20 more right answers than Uniform after many epochs, `lead_of_few` after few."""
        right = {("easy", "last"): 70, ("hard", "last"): 50 + lead_of_few}
        cells = []
        for one in results.cells:
            if one.method in ("last", "uniform-hinf") and one.key[2:6] == (0.5, 0, "test", 100):
                count = right.get((one.checkpoint, one.method), 50)
                one = replace(one, right=pack(np.arange(100) < count), accuracy=count / 100)
            cells.append(replace(one, states_before={"layer": states_of_few if one.checkpoint == "hard" else 20}))
        claim = "LAST's lead over Uniform grows with training (smnist S5, at 50%)"
        return rows(with_cells(results, cells), "claims", claim=claim)

    assert claims(5) == [], "no card says how long they were trained"
    for entry, epochs in zip(results.about["checkpoints"][:2], (6, 1), strict=True):
        entry |= {"task": "smnist", "card": {"settings": {"epochs": epochs}, "epochs": epochs}}
    (grows,) = claims(5)
    assert grows["ours"] == "after 1 epoch: +5.00 points; after 6 epochs: +20.00 points"
    assert grows["verdict"] == "holds"
    assert "hard and easy on the same 100 examples" in grows["why"]
    (hardly,) = claims(18)
    assert hardly["verdict"] == "does not hold", "two examples more may be chance"
    assert claims(5, states_of_few=40) == [], "models of another size differ in more than their training"


def test_the_front_page_names_whose_test_set_is_not_whole(results):
    results.about["checkpoints"][1]["card"] = {"test_examples": 400}
    results.about["checkpoints"][2]["card"] = {"test_examples": 100}
    part = with_cells(results, [one for one in results.cells if one.checkpoint == "easy" or one.examples == 100])
    assert reproduce._final_examples(part) == (500, ", but 100 for hard")
    assert reproduce._final_examples(results) == (500, "")


def test_every_method_at_its_own_largest_ratio(results):
    (uniform,) = rows(results, "own", checkpoint="easy", method="Uniform H∞")
    assert [str(uniform[name]) for name in ("of the grid, %", "largest ratio, %")] == ["20", "30.0"]
    (surgeon,) = rows(results, "surgeon", checkpoint="easy")
    assert surgeon["LAST"] == pytest.approx(50)
    assert surgeon["Surgeon"] == pytest.approx(100)
    (mean,) = rows(results, "surgeon", checkpoint="average of S5 over 2 tasks")
    assert mean["LAST"] == pytest.approx(25)
    assert mean["Surgeon"] == pytest.approx((100 + 20) / 2)


def test_speed_and_other_rates(results):
    (fast, *_) = rows(results, "speed", checkpoint="easy")
    assert (str(fast["times faster"]), str(fast["parameters left, %"])) == ("1.50", "75.0")
    full, last, random = rows(results, "rate")
    assert [str(full[name]) for name in ("accuracy, %", "at 0.5 of the rate, %")] == ["90.00", "85.00"]
    assert [str(last[name]) for name in ("accuracy, %", "at 0.5 of the rate, %")] == ["88.75", "84.00"]
    assert full["paper: at 0.5 of the rate, %"] == "91.23 ± 0.93"
    assert str(last["loss there, points"]) == "1.00 n.s." if last["examples"] == 100 else "1.00"
    assert (last["examples"], random["examples"]) == (500, 100), "both rates on the same"
    assert str(random["accuracy, %"]) == f"{90 - lost('spoken', 'random', 0.5):.2f}"


def test_speed_in_c_stands_beside_that_in_torch_where_it_was_measured(results):
    def ours() -> str:
        return rows(results, "claims", claim="S5: a pruned model is faster")[0]["ours"]

    assert ours() == "1.50 to 1.50 times"
    results.about["checkpoints"][0]["sha256"] = "good"
    found = [("good", "ours", 1.7), ("good", "the paper's", 1.2), ("of another model", "ours", 9.0)]
    lines = [json.dumps({"sha256": sha, "whose": whose, "C": {"faster": faster}}) for sha, whose, faster in found]
    (results.folder / "speed.jsonl").write_text("\n".join(lines) + "\n")
    expected = "; in C 1.70 to 1.70 times (1 tasks); in C, at the paper's ratios 1.20 to 1.20 times (1 tasks)"
    assert ours() == "1.50 to 1.50 times" + expected


def test_without_a_search_the_largest_ratio_is_that_of_the_test_examples(results):
    results = with_cells(results, [one for one in results.cells if one.split == "test"])
    (uniform,) = rows(results, "own", checkpoint="easy", method="Uniform H∞")
    assert [str(uniform[name]) for name in ("of the grid, %", "largest ratio, %")] == ["20", "20.0"]
    assert "test examples of the sweep" in tables.make(results, "own").notes[0]


@pytest.mark.parametrize("kind", tables.KINDS)
def test_every_format_has_every_row(results, kind):
    table = tables.make(results, kind)
    assert table.rows
    assert table_formats.markdown(table).count("\n| ") == 1 + len(table.rows)
    assert table_formats.latex(table).count(r"\\") == 1 + len(table.rows)
    assert "%" not in table_formats.latex(table).replace(r"\%", "")
    assert len(json.loads(table_formats.as_json(table))["rows"]) == len(table.rows)


@pytest.mark.parametrize("kind", tables.KINDS)
def test_an_unfinished_sweep_has_the_rows_of_what_is_there(results, kind):
    whole = tables.make(results, kind)
    for count in range(0, len(results.cells), 7):
        part = with_cells(results, results.cells[:count])
        table, checkpoints = tables.make(part, kind), {cell.checkpoint for cell in part.cells}
        assert len(table.rows) <= len(whole.rows) if count else table.rows == []
        named = {row["checkpoint"] for row in table.rows if "checkpoint" in row}
        assert {name for name in named if not name.startswith("average")} <= checkpoints
        assert table_formats.markdown(table).startswith(f"### {whole.title}\n")


def test_the_papers_averages_follow_from_its_tasks_where_it_prints_no_error():
    for (family, method), (ratio, squeezed, loss, squeezed_loss) in paper.AVERAGE.items():
        lines = [line for (_, model), line in paper.TASKS.items() if model == family and method in line.accuracy]
        if lines:
            losses = [line.accuracy["full"][0] - line.accuracy[method][0] for line in lines]
            pruned = [line.ratio for line in lines]
            kept = [k for k, one in enumerate(pruned) if one > 0]
            assert np.mean(pruned) == pytest.approx(ratio, abs=0.005)
            assert np.mean(losses) == pytest.approx(loss, abs=0.006)
            assert np.mean([pruned[k] for k in kept]) == pytest.approx(squeezed, abs=0.005)
            assert np.mean([losses[k] for k in kept]) == pytest.approx(squeezed_loss, abs=0.006)


def test_the_command_prints_a_table_and_refuses_what_it_does_not_know(results, capsys):
    assert run(["table", str(results.folder), "--kind", "own", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "The largest ratio of each method"
    for wrong in (["--kind", "none"], ["--format", "none"]):
        assert run(["table", str(results.folder), *wrong]) == 2
        assert "There is no" in capsys.readouterr().err
    (results.folder / "cells.jsonl").write_text("")
    assert run(["table", str(results.folder), "--kind", "rate"]) == 2
    assert "no results for the table 'rate'" in capsys.readouterr().err


@pytest.mark.slow
def test_reproduce_writes_tables_figures_and_report_and_goes_on_where_it_stopped(tmp_path, monkeypatch, capsys):
    tiny_data.write_speech(tmp_path)
    torch.manual_seed(0)
    models = tmp_path / "models"
    sp.save(Classifier(Config("s5", 1, 3, width=4, states=(4,), norm="layer")), models / "spoken.safetensors")
    write_card(models / "spoken.safetensors", {"task": "speech", "task_parameters": {}})
    shutil.copy(models / "spoken.safetensors", models / "without-a-card.safetensors")
    monkeypatch.setattr(reproduce, "default_approaches", lambda: ["last", "random", "unstructured-random"])
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.md").write_text("Said by hand.")
    arguments = ["reproduce", "--models", str(models), "--work", str(tmp_path / "work"), "--engine", "torch"]
    arguments += ["--data", str(tmp_path), "--seeds", "0", "--examples", "2", "--ratios", "0.5", "--json"]
    assert run([*arguments, "--out", str(out)]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["seconds"] >= 0
    kinds = {".md", ".tex", ".json", ".jsonl", ".txt", ".png", ".html"}
    assert {Path(path).suffix for path in first["written"]} == kinds
    assert all(Path(path).is_file() for path in first["written"])
    front = (out / "README.md").read_text()
    assert "Said by hand." in front
    assert "the whole test set, at most 3 examples." in front
    assert str(tmp_path) not in front.replace(str(out), "")
    found = Results.read(out)
    assert {one.checkpoint for one in found.cells} == {"spoken"}
    assert all(answers_of(one).mean() == one.accuracy for one in found.cells if one.split == "test")
    scale = reproduce.Scale(ratios=[0.5], seeds=[0], examples=2)
    again = reproduce.run_all(
        reproduce.find_trained(models), scale, tmp_path / "work", Session(tmp_path, command="new")
    )
    assert again.cells == found.cells
    assert again.about["commands"] == ["new"]
    part = replace(scale, methods=["last"])
    partly = reproduce.run_all(
        reproduce.find_trained(models), part, tmp_path / "work", Session(tmp_path, command="part")
    )
    assert partly.about["commands"][1:] == ["new", "part"]

    monkeypatch.setattr(cli, "RESULTS", out)
    arguments[arguments.index("--work") + 1] = str(tmp_path / "anew")
    chosen = [*arguments, "--checkpoints", "spoken", "--methods", "last"]
    assert run(chosen) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["different"] == []
    assert said["same"] == said["cells"] > 2
    (out / "cells.jsonl").write_text("")
    assert run(chosen) == 1
