"""What scripts keep: finished rows, of the models that are shipped now; and the table of speeds."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import ssmprune as sp
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config

SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.fixture
def script(monkeypatch):
    """Import a script by its name."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    yield importlib.import_module
    for name in ("kept_rows", "speed_of_claims", "largest_ratios"):
        sys.modules.pop(name, None)


def test_finished_rows_are_kept_and_those_of_a_replaced_model_measured_anew(script, tmp_path, monkeypatch, capsys):
    kept = script("kept_rows")
    monkeypatch.setattr(kept, "CHECKPOINTS", tmp_path)
    monkeypatch.setattr("sys.argv", ["script", "--data", str(tmp_path)])
    for name in ("one", "two"):
        (tmp_path / f"{name}.safetensors").write_bytes(name.encode())
    asked, tables = [], []

    def rows_of(name, data, finished):
        asked.append((name, [row["way"] for row in finished]))
        assert data == tmp_path
        for way in ("a", "b")[len(finished) :]:
            yield {"way": way}

    def run() -> list:
        asked.clear()
        kept.measure_all("what", tmp_path / "rows.jsonl", rows_of, lambda rows: tables.append(len(rows)))
        return list(asked)

    assert run() == [("one", []), ("two", [])]
    assert tables == [1, 2, 3, 4, 4], "a table after each row, and at the end"
    assert run() == [("one", ["a", "b"]), ("two", ["a", "b"])]
    (tmp_path / "one.safetensors").write_bytes(b"another")
    assert run() == [("one", []), ("two", ["a", "b"])]
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [(row["checkpoint"], row["way"]) for row in rows] == [("two", "a"), ("two", "b"), ("one", "a"), ("one", "b")]
    monkeypatch.setattr("sys.argv", ["script", "two", "--data", str(tmp_path)])
    assert [name for name, _ in run()] == ["two"]


@pytest.mark.parametrize("name", ["largest", "operations", "quantised"])
def test_the_committed_rows_are_of_the_shipped_models(script, name):
    kept = script("kept_rows")
    file = kept.RESULTS / f"{name}.jsonl"
    assert kept.read_rows(file) == [json.loads(line) for line in file.read_text().splitlines()]


def test_averages_of_largest_ratios_are_over_checkpoints_that_are_finished(script, tmp_path, monkeypatch):
    largest = script("largest_ratios")
    monkeypatch.setattr(largest, "TABLE", tmp_path / "largest.md")
    row = {"family": "s5", "whole": 0.9, "pruned": 0.89}
    rows = [row | {"checkpoint": "a-s5", "way": way, "ratio": 0.5} for way in largest.WAYS]
    largest.write_table([*rows, row | {"checkpoint": "b-s5", "way": largest.WAYS[0], "ratio": 0.1}])
    text = (tmp_path / "largest.md").read_text()
    assert "| average of 1 S5 |  | 50.0% (1.00) | 50.0% (1.00) | 50.0% (1.00) | 50.0% (1.00) |" in text
    assert "| `b-s5` | 90.00 | 10.0% (89.00) |  |  |  |" in text
    assert "| average of 0 S4D |  |  |  |  |  |" in text


@pytest.mark.slow
@pytest.mark.parametrize("bidirectional", [False, True])
def test_speeds_of_two_models_in_both_engines(script, bidirectional, monkeypatch):
    speed = script("speed_of_claims")
    monkeypatch.setattr(speed, "ROUNDS", 3)
    torch.manual_seed(0)
    whole = Classifier(Config("s5", 1, 2, width=8, states=(64,), bidirectional=bidirectional))
    found = speed.measure(whole, sp.prune(whole, 0.5), np.zeros((4, 100, 1), np.float32))
    assert set(found) == ({"torch", "C"} if bidirectional else {"torch", "C", "stream"})
    for times in found.values():
        assert min(times.values()) > 0
        assert json.dumps(times)


def test_the_table_of_speeds_has_the_paper_beside_its_own_ratio(script, tmp_path, monkeypatch):
    speed = script("speed_of_claims")
    monkeypatch.setattr(speed, "TABLE", tmp_path / "speed.md")
    times = {"whole": 4.0, "small": 2.0, "faster": 2.0}
    row = {"machine": "a machine", "torch": times | {"faster": 1.5}, "C": times}
    rows = [
        row | {"checkpoint": "image-s5", "whose": "ours", "ratio": 0.1},
        row | {"checkpoint": "image-s5", "whose": "the paper's", "ratio": 0.3},
        row | {"checkpoint": "smnist-s5", "whose": "both", "ratio": 0.5, "stream": times},
    ]
    speed.write_table(rows)
    text = (tmp_path / "speed.md").read_text()
    assert "| `image-s5` | 10% | ours | 4.00 → 2.00, 1.50× | 4.00 → 2.00, 2.00× |  |  |" in text
    assert "| `image-s5` | 30% | the paper's | 4.00 → 2.00, 1.50× | 4.00 → 2.00, 2.00× |  | 1.2 |" in text
    assert "| 2 S5, from … to |  | ours | 1.50 to 1.50× | 2.00 to 2.00× | 2.00 to 2.00× |  |" in text
