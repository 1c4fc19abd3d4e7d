import json
import sys

import pytest

import ssmprune as sp
from ssmprune.report import demo
from ssmprune.report import style as figures
from ssmprune.tasks.cards import read_card


@pytest.mark.slow
def test_the_demo_prunes_the_shipped_model(tmp_path):
    full, pruned = demo.demo(demo.Scope(("Surgeon", "LAST", "Random"), [0.7], examples=200))
    assert (full.states, pruned.states) == (512, 152)
    assert full.accuracy["LAST"] == full.accuracy["Surgeon"] > 0.97
    assert pruned.accuracy["Surgeon"] > 0.97 > pruned.accuracy["LAST"] > pruned.accuracy["Random"]
    assert 0.4 < pruned.bytes / full.bytes < 0.6
    assert full.steps_per_second > 0
    assert full.speed == 1
    figures.save_figure(demo.picture([full, pruned]), tmp_path / "demo.png")
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_compiled_demo_counts_the_same_answers():
    scope, counted = demo.Scope(("Surgeon",), [0.7], examples=50), []
    in_torch, compiled = (demo.demo(scope, lambda: counted.append(1), engine) for engine in ("torch", "compiled"))
    assert len(counted) == 2 * scope.evaluations
    assert [row.accuracy for row in compiled] == [row.accuracy for row in in_torch]
    assert compiled[1].speed > 0


def test_the_demo_is_brief_unless_all_of_it_is_asked_for():
    assert demo.BRIEF.evaluations == 9
    assert demo.BRIEF.examples == 500
    assert demo.FULL.evaluations == 51


ROWS = [
    demo.DemoRow(ratio, 8, 1000, 9_000 - int(5000 * ratio), 4e5 * speed, speed, {"Surgeon": 1 - ratio / 2, "LAST": 0.5})
    for ratio, speed in ((0.0, 1.0), (1.0, 2.5))
]


def test_the_demo_speaks_at_once_and_needs_no_matplotlib_for_json(monkeypatch, tmp_path, ssmprune, capsys):
    """What it says before it works goes to standard error, also where that is no terminal; nothing is drawn."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # importing it raises ImportError
    said, scopes = [], []

    def run(scope, tick, engine):
        said.append(capsys.readouterr().err)
        scopes.append(scope)
        return ROWS

    monkeypatch.setattr(demo, "demo", run)
    result = ssmprune("demo", "--json")
    assert result.returncode == 0, result.stderr
    assert "about half a minute" in said[0]
    facts = json.loads(result.stdout)
    assert [row["ratio"] for row in facts["rows"]] == [0.0, 1.0]
    assert facts["picture"] is None
    assert list(tmp_path.iterdir()) == []
    assert ssmprune("demo", "--json", "--full").returncode == 0
    assert "by five methods at ten ratios" in said[1]
    assert scopes == [demo.BRIEF, demo.FULL]
    refused = ssmprune("demo", "--out", "demo.png")
    assert refused.returncode == 2
    assert "pip install '.[plot]'" in refused.stderr


def test_the_demo_explains_methods_and_sums_up(monkeypatch, tmp_path, ssmprune):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "demo", lambda scope, tick, engine: ROWS)
    told = {words: " ".join(ssmprune("demo", *words).stdout.split()) for words in [(), ("--full",)]}
    assert "surgeon looks at 100 unlabelled images" in told[()]
    assert "At 100% one pair of states stays in every layer" in told["--full",]
    assert "9 -> 4 KB, 400,000 -> 1,000,000 steps a second in " in told[()]
    assert "100.0% -> 50.0% of the images read correctly (LAST 50.0%)" in told[()]
    assert (tmp_path / "demo.png").exists()


def test_the_shipped_model_has_a_card():
    card = read_card(demo.CHECKPOINT)
    assert card["task"] == "smnist"
    assert card["test_accuracy"] > 0.99


def test_figures_are_refused_in_unknown_kinds(tmp_path):
    drawn = demo.picture(ROWS)
    with pytest.raises(sp.InputError, match=r"'\.doc'; end the name in \.png"):
        figures.save_figure(drawn, tmp_path / "figure.doc")


def test_a_method_looks_the_same_in_the_demo_as_in_any_figure():
    (axes,) = demo.picture(ROWS).axes
    look = {line.get_label(): (line.get_color(), line.get_marker()) for line in axes.get_lines()}
    for name in ("surgeon", "last"):
        style = figures.styles(["mine", "random", name])[name]
        assert look[figures.label(name)] == (style["color"], style["marker"])
