import json
import sys

import numpy as np
import pytest

import ssmprune as sp
from ssmprune.report import demo
from ssmprune.report import style as figures
from ssmprune.report.curves import draw_accuracies
from ssmprune.tasks.cards import read_card
from ssmprune.tasks.smnist import load_sample


@pytest.mark.slow
def test_the_demo_prunes_the_shipped_model(monkeypatch, tmp_path):
    parts = {"test": load_sample().subset(np.arange(0, 1000, 5)), "train": load_sample("train")}
    monkeypatch.setattr(demo, "load_sample", parts.get)
    full, pruned = demo.demo(ratios=[0.7])
    assert (full.states, pruned.states) == (512, 152)
    assert full.accuracy["LAST"] == full.accuracy["Surgeon"] > 0.97
    assert pruned.accuracy["Surgeon"] > 0.97 > pruned.accuracy["LAST"] > pruned.accuracy["Random"]
    figures.save_figure(demo.picture([full, pruned]), tmp_path / "demo.png")
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_compiled_demo_counts_the_same_answers(monkeypatch):
    parts = {"test": load_sample().subset(np.arange(0, 1000, 20)), "train": load_sample("train")}
    monkeypatch.setattr(demo, "load_sample", parts.get)
    monkeypatch.setattr(demo, "METHODS", {"Surgeon": sp.SURGEON})
    in_torch, compiled = (demo.demo(ratios=[0.7], engine=engine) for engine in ("torch", "compiled"))
    assert [row.accuracy for row in compiled] == [row.accuracy for row in in_torch]
    assert compiled[1].speed > 0


ROWS = [demo.DemoRow(ratio, 8, 1000, 1.0, {"Surgeon": 1 - ratio / 2, "LAST": 0.5}) for ratio in (0.0, 1.0)]


def test_the_demo_speaks_at_once_and_needs_no_matplotlib_for_json(monkeypatch, tmp_path, ssmprune, capsys):
    """What it says before it works goes to standard error, also where that is no terminal; nothing is drawn."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # importing it raises ImportError
    said = []

    def run(tick, engine):
        said.append(capsys.readouterr().err)
        return ROWS

    monkeypatch.setattr(demo, "demo", run)
    result = ssmprune("demo", "--json")
    assert result.returncode == 0, result.stderr
    assert "pruned by five methods at ten ratios" in said[0]
    assert "minutes" in said[0]
    facts = json.loads(result.stdout)
    assert [row["ratio"] for row in facts["rows"]] == [0.0, 1.0]
    assert facts["picture"] is None
    assert list(tmp_path.iterdir()) == []
    refused = ssmprune("demo", "--out", "demo.png")
    assert refused.returncode == 2
    assert "ssmprune[plot]" in refused.stderr


def test_the_demo_explains_accuracy_at_ratio_one(monkeypatch, tmp_path, ssmprune):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "demo", lambda tick, engine: ROWS)
    result = ssmprune("demo")
    assert "At 100% one pair of states stays in every layer" in result.stdout
    assert (tmp_path / "demo.png").exists()


def test_the_shipped_model_has_a_card():
    card = read_card(demo.CHECKPOINT)
    assert card["task"] == "smnist"
    assert card["test_accuracy"] > 0.99


def test_figures_are_refused_in_unknown_kinds(tmp_path):
    drawn = draw_accuracies({"last": [1.0, 0.5]}, [0, 1], "title")
    with pytest.raises(sp.InputError, match=r"'\.doc'; end the name in \.png"):
        figures.save_figure(drawn, tmp_path / "figure.doc")


def test_a_method_looks_the_same_in_the_demo_as_in_any_figure():
    (axes,) = demo.picture(ROWS).axes
    look = {line.get_label(): (line.get_color(), line.get_marker()) for line in axes.get_lines()}
    for name in ("surgeon", "last"):
        style = figures.styles(["mine", "random", name])[name]
        assert look[figures.label(name)] == (style["color"], style["marker"])
