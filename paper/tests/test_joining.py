"""Folders of sweeps that become one, and what can be made of a folder without its plans."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ssmprune as sp
from ssmprune.sweeps import Results, Session, Sweep, entries, open_results
from ssmprune_paper import cli, figures, masks, reproduce
from ssmprune_paper.joining import join
from ssmprune_paper.search import Search, sweep_and_search
from tiny_results import tiny_results
from tiny_sweep import write_models

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """A folder with data, three checkpoints with cards, and the results of two in two folders."""
    root = write_models(tmp_path_factory.mktemp("joined"))
    for folder, name, methods in (("a", "one", ["last"]), ("b", "one", ["last", "random"]), ("c", "two", ["last"])):
        plan = Sweep(methods, [0.5], examples=10)
        sweep_and_search(found(root, name), plan, Search([], 0), root / folder, Session(root, command=folder))
    masks.write(masks.collect(Results.read(root / "c")), root / "c")
    return root


def found(root: Path, *names: str) -> list:
    return entries([root / f"{name}.safetensors" for name in names])


@pytest.fixture
def copy(root, tmp_path) -> Path:
    shutil.copytree(root, tmp_path / "copy")
    return tmp_path / "copy"


def outcomes(*folders: Path) -> dict:
    return {key: outcome for folder in folders for key, outcome in Results.read(folder).outcomes.items()}


def change(folder: Path, **fields: object) -> None:
    """Write the first pruned cell of a folder once more, with other figures."""
    results = Results.read(folder)
    cell = next(cell for cell in results.cells if cell.method == "last")
    with open_results(folder, results.about) as writer:
        writer.write(cell.key, replace(cell, **fields))


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_first_folder_has_everything_then_and_the_others_are_as_they_were(copy):
    before = [files(copy / name) for name in "bc"]
    expected = outcomes(copy / "a", copy / "b", copy / "c")
    join(copy / "a", [copy / "b", copy / "c"], found(copy, "one", "two"))
    joined = Results.read(copy / "a")
    assert joined.outcomes == expected
    assert [entry["name"] for entry in joined.about["checkpoints"]] == ["one", "two"]
    assert joined.about["methods"] == ["last", "random"]
    assert [files(copy / name) for name in "bc"] == before
    for cell in joined.cells:
        assert joined.plan_path(cell).is_file() == (cell.method != "full")
    assert {name for name, *_ in masks.read(copy / "a")} == {"two"}
    again = (copy / "a" / "cells.jsonl").read_bytes()
    join(copy / "a", [copy / "b", copy / "c"], found(copy, "one", "two"))
    assert (copy / "a" / "cells.jsonl").read_bytes() == again, "nothing is written twice"


def test_a_folder_that_does_not_exist_yet_can_be_the_first(copy):
    join(copy / "new", [copy / "b"], found(copy, "one"))
    assert outcomes(copy / "new") == outcomes(copy / "b")


def test_only_the_checkpoints_that_are_asked_for_are_read(copy):
    join(copy / "a", [copy / "b", copy / "c"], found(copy, "one", "two"))
    join(copy / "new", [copy / "a"], found(copy, "two"))
    assert outcomes(copy / "new") == outcomes(copy / "c")
    with pytest.raises(sp.InputError, match="c has no results of one; leave that folder out"):
        join(copy / "a", [copy / "c"], found(copy, "one"))


def test_results_follow_a_model_that_was_renamed(copy):
    for ending in ("safetensors", "card.json"):
        shutil.move(copy / f"one.{ending}", copy / f"small.{ending}")
        shutil.copy(copy / f"two.{ending}", copy / f"one.{ending}")
    masks.write(masks.collect(Results.read(copy / "b")), copy / "b")
    join(copy / "new", [copy / "b", copy / "c"], found(copy, "small", "one"))
    joined = Results.read(copy / "new")
    assert {cell.checkpoint for cell in joined.cells} == {"small", "one"}
    assert {name for name, *_ in masks.read(copy / "new")} == {"small", "one"}
    (one,) = (cell for cell in joined.cells if (cell.checkpoint, cell.method) == ("one", "last"))
    (two,) = (cell for cell in Results.read(copy / "c").cells if cell.method == "last")
    assert replace(one, checkpoint="two") == two
    joined.plan(one).check(sp.read(sp.load(copy / "one.safetensors")))


def test_cells_that_differ_are_named_and_nothing_is_written(copy):
    change(copy / "b", accuracy=0.123)
    before = files(copy / "a")
    with pytest.raises(sp.InputError, match=r"b has another result .* for one last 0\.5, seed 0, 10 test examples"):
        join(copy / "a", [copy / "c", copy / "b"], found(copy, "one", "two"))
    assert files(copy / "a") == before


def test_a_speed_that_one_folder_measured_is_kept_and_two_need_not_agree(copy):
    change(copy / "b", speed=1.5)
    join(copy / "a", [copy / "b"], found(copy, "one"))
    assert 1.5 in {cell.speed for cell in Results.read(copy / "a").cells}
    change(copy / "b", speed=1.7)
    join(copy / "a", [copy / "b"], found(copy, "one"))
    assert 1.5 in {cell.speed for cell in Results.read(copy / "a").cells}


@pytest.mark.parametrize(
    ("here", "there", "kept"),
    [
        *[(0.4, 0.3, 0.4), ("cell", 1.0, "cell"), (1.0, "cell", "cell"), ("cell", 0.0, None)],
        *[("no", "not so", "no"), ("no", "cell", None), ("no", 0.4, None)],
    ],
)
def test_bounds_and_refusals_agree_with_what_they_do_not_contradict(copy, here, there, kept):
    (cell,) = (cell for cell in Results.read(copy / "a").cells if cell.method == "last")
    cell = replace(cell, accuracy=0.5)
    for folder, outcome in (("a", here), ("b", there)):
        with open_results(copy / folder, Results.read(copy / folder).about) as writer:
            writer.write(cell.key, cell if outcome == "cell" else outcome)
    if kept is None:
        with pytest.raises(sp.InputError, match="another result"):
            join(copy / "a", [copy / "b"], found(copy, "one"))
    else:
        join(copy / "a", [copy / "b"], found(copy, "one"))
        assert outcomes(copy / "a")[cell.key] == (cell if kept == "cell" else kept)


def test_a_folder_twice_is_refused(copy):
    with pytest.raises(sp.InputError, match="name each once"):
        join(copy / "a", [copy / "b", copy / "." / "a"], found(copy, "one"))


@pytest.mark.slow
def test_the_command_joins_and_the_front_page_has_it_word_for_word(copy, monkeypatch, capsys):
    monkeypatch.chdir(copy)
    Path("models").mkdir()
    for file in copy.glob("one.*"):
        shutil.move(file, "models")
    monkeypatch.setattr(reproduce, "default_approaches", lambda: ["last", "random"])
    line = "reproduce --models models --checkpoints one --ratios 0.5 --seeds 0 --examples 10"
    line += " --work new --work a --work b --engine torch --data . --out out"
    monkeypatch.setattr("sys.argv", ["ssmprune-paper", *line.split()])
    Path("b/seconds.txt").write_text("3600\n")
    assert cli.run(line.split()) == 0
    front = Path("out/README.md").read_text()
    assert f"    ssmprune-paper {line.replace('--data .', '--data DATA')}\n" in front
    assert "in 1 h " in front, "the time of all folders"
    assert outcomes(Path("out")).keys() > outcomes(Path("b")).keys()
    change(Path("b"), accuracy=0.123)
    capsys.readouterr()
    assert cli.run(line.split()) == 2
    assert "for one last 0.5, seed 0, 10 test examples" in capsys.readouterr().err


def test_pages_and_figures_of_a_folder_are_the_same_without_its_plans(tmp_path, capsys):
    results = tiny_results(tmp_path)
    masks.write(masks.collect(results), results.folder)
    shutil.copytree(results.folder, tmp_path / "bare", ignore=shutil.ignore_patterns("plans"))
    choice = figures.choose(results, "tiny-s5")
    for folder, name in ((results.folder, "with"), (tmp_path / "bare", "without")):
        figures.save_figure(figures.draw("poles", Results.read(folder), choice), tmp_path / f"{name}.png")
    assert (tmp_path / "with.png").read_bytes() == (tmp_path / "without.png").read_bytes()
    collected = masks.collect(Results.read(tmp_path / "bare"))
    assert len(collected) == 2 * 4 * 3, "models, methods with plans, ratios; of seeds the first"
    for place, keep in masks.collect(results).items():
        for layer, mask in keep.items():
            np.testing.assert_array_equal(collected[place][layer], mask)
    assert cli.run(["pages", str(tmp_path / "bare")]) == 0
    assert str(tmp_path / "bare" / "README.md") in capsys.readouterr().out
    page = (tmp_path / "bare" / "report.html").read_text()
    assert page.count('"keep"') == 2 * 4 * 3
    assert '"plan":' not in page


@pytest.mark.parametrize("line", ["{", "[]", '{"sizes":{"a":9},"keep":"eJxjAAAAAQAB"}', '{"sizes":3}'])
def test_masks_that_are_damaged_are_refused(tmp_path, line):
    (tmp_path / masks.FILE).write_text(line + "\n")
    with pytest.raises(sp.InputError, match=r"Line 1 of .*masks\.jsonl does not say which states stay"):
        masks.read(tmp_path)


@pytest.mark.slow
def test_what_is_committed_follows_from_the_committed_cells_to_the_byte(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)  # the results name checkpoints from there
    committed = Path("paper/results")
    for name in ("cells.jsonl", "sweep.json", "seconds.txt", "masks.jsonl", "speed.jsonl", "notes.md"):
        if name != "speed.jsonl" or (committed / name).is_file():  # speeds in C are measured by a script
            shutil.copy(committed / name, tmp_path)
    # In a process of its own, since charts are numbered in the order in which a process makes them.
    words = [sys.executable, "-c", "from ssmprune_paper.cli import main; main()", "pages", str(tmp_path)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    written = [Path(line) for line in done.stdout.splitlines()]
    assert len(written) > 40
    # Letters and lines of a figure are those of a version of matplotlib; that there is a figure is all that is sure.
    texts = [path.relative_to(tmp_path) for path in written if path.suffix != ".png"]
    assert [path for path in texts if (tmp_path / path).read_bytes() != (committed / path).read_bytes()] == []
    names = {path.name for path in written if path.suffix == ".png"}
    assert names == {path.name for path in (committed / "figures").glob("*.png")}
    assert json.loads((committed / "sweep.json").read_text())["commands"]
