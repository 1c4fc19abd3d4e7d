"""ListOps: the expressions we draw, and LRA's files."""

from __future__ import annotations

import hashlib
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ssmprune as sp
from ssmprune.errors import InputError
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config
from ssmprune.tasks import cards, get
from ssmprune_paper.tasks import listops
from ssmprune_paper.tasks import listops_trees as _listops_trees
from ssmprune_paper.tasks.listops import encode
from ssmprune_paper.tasks.listops_trees import TOKENS, draw, evaluate, grow, write
from tiny_data import KNOWN, write_tsv


def median(values):
    ordered = sorted(values)
    return int((ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2)


OPERATORS = {"[MIN": min, "[MAX": max, "[MED": median, "[SM": lambda values: sum(values) % 10}


def answer(tokens):
    """The value of an expression, by a stack: the rules as they are told."""
    stack = [[]]
    for token in tokens:
        if token in OPERATORS:
            stack.append([token])
        elif token == "]":
            operator, *values = stack.pop()
            stack[-1].append(OPERATORS[operator](values))
        else:
            stack[-1].append(int(token))
    [[value]] = stack
    return value


def spell(codes):
    return [TOKENS[code] for code in codes]


@pytest.mark.parametrize("expression", KNOWN)
def test_known_answers(expression):
    assert answer(expression.split()) == KNOWN[expression]
    assert spell(encode(expression.encode())) == expression.split()


@given(st.integers(0, 2**32))
def test_drawn_expressions_have_the_value_that_the_rules_give(seed):
    levels = grow(40, np.random.default_rng(seed))
    values, lengths = evaluate(levels)
    written = write(levels, lengths)
    for tree in range(40):
        tokens = written.tokens[written.starts[tree] : written.starts[tree + 1]]
        assert len(tokens) == lengths[0][tree]
        assert answer(spell(tokens)) == values[0][tree]


def test_trees_follow_the_rules():
    levels = grow(20_000, np.random.default_rng(0))
    assert len(levels) == 10
    assert not levels[-1].children.any(), "the tenth level has digits only"
    operators = np.concatenate([level.symbol[level.children > 0] for level in levels])
    children = np.concatenate([level.children[level.children > 0] for level in levels])
    share = [np.mean(level.children > 0) for level in levels[:-1]]
    assert share == pytest.approx([0.25] * 9, abs=0.02)
    assert np.bincount(operators) / len(operators) == pytest.approx([0.25] * 4, abs=0.01)
    assert np.bincount(children)[2:] / len(children) == pytest.approx([1 / 9] * 9, abs=0.01)
    digits = np.concatenate([level.symbol[level.children == 0] for level in levels])
    assert np.bincount(digits) / len(digits) == pytest.approx([0.1] * 10, abs=0.01)


def test_lengths_and_labels_as_published():
    examples = list(islice(draw(500, 2000, seed=0), 3000))
    lengths = np.array([len(expression) for expression, _ in examples])
    assert 500 < lengths.min() <= lengths.max() < 2000
    share = np.bincount([value for _, value in examples]) / len(examples)
    assert share[[0, 9]] == pytest.approx([0.16, 0.15], abs=0.025)
    assert len({expression for expression, _ in examples}) == len(examples)
    levels = grow(30_000, np.random.default_rng(1))
    total = evaluate(levels)[1][0]
    assert ((total > 500) & (total < 2000)).mean() == pytest.approx(0.083, abs=0.008)


def test_pinned_stream():
    digest = hashlib.sha256()
    for expression, value in islice(draw(50, 300, seed=7), 500):
        digest.update(expression + bytes([value]))
    assert digest.hexdigest()[:16] == "df6d05c1f767c343"


@pytest.fixture
def fewer(monkeypatch):
    monkeypatch.setattr(listops, "SIZES", {"test": 40, "val": 20})


def test_fewer_training_examples_leave_the_test_set_alone(tmp_path, fewer):
    short = get("listops").replace(length=60, shortest=5, examples=50)
    long = short.replace(examples=100)
    one, other = (task.load("test", tmp_path) for task in (short, long))
    assert np.array_equal(one.batch(range(40)).x, other.batch(range(40)).x)
    assert [len(task.load("train", tmp_path)) for task in (short, long)] == [50, 100]
    everything = [short.load(part, tmp_path) for part in ("train", "val", "test")]
    seen = [row.tobytes() for split in everything for row in split.batch(range(len(split))).x]
    assert len(set(seen)) == len(seen)


def test_the_cache_is_used_and_mended(tmp_path, fewer):
    task = get("listops").replace(length=60, shortest=5, examples=50)
    first = task.load("train", tmp_path).batch(range(50)).x
    [file] = (tmp_path / "cache").iterdir()
    written = file.stat().st_mtime_ns
    task.load("val", tmp_path)
    assert file.stat().st_mtime_ns == written
    for content in (file.read_bytes()[:-100], b"", file.read_bytes()[:-1] + b"\xff"):
        file.write_bytes(content)
        assert np.array_equal(task.load("train", tmp_path).batch(range(50)).x, first)


def test_impossible_lengths_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(_listops_trees, "PATIENCE", 3)
    with pytest.raises(InputError, match="widen the lengths"):
        get("listops").replace(length=3, shortest=1).load("test", tmp_path)


def test_lra_files_are_read_without_their_parentheses(tmp_path):
    lines = [f"( ( ( {expression} ) ) )\t{value}" for expression, value in KNOWN.items()]
    write_tsv(tmp_path / "lra_release" / "lra_release" / "listops-1000", lines)
    split = get("listops").replace(shortest=1).load("val", tmp_path)
    batch = split.batch(range(3))
    assert batch.y.tolist() == [3, 7, 7]
    for row, length, expression in zip(batch.x, batch.lengths, KNOWN, strict=True):
        assert spell(row[:length]) == expression.split()
    shortest = min(len(expression.split()) for expression in KNOWN)
    assert len(get("listops").replace(shortest=shortest).load("val", tmp_path)) == 1, "two are as short"


def test_fewer_training_examples_leave_the_test_file_alone(tmp_path):
    write_tsv(tmp_path / "listops", [f"{expression}\t{value}" for expression, value in KNOWN.items()])
    task = get("listops").replace(shortest=1, examples=1)
    assert [len(task.load(split, tmp_path)) for split in ("train", "val", "test")] == [1, 3, 3]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[MIN 1 2 ]", "1 columns"),
        ("[MIN 1 2 ]\t1\t1", "3 columns"),
        ("[MIN 1 2 ]\t10", "line 2"),
        ("[MIN 1 2 ]\tx", "line 2"),
        ("[AVG 1 2 ]\t1", "line 2"),
        ("[MIN 1 é ]\t1", "line 2"),
        ("( )\t1", "line 2"),
    ],
)
def test_bad_lines_are_refused(tmp_path, line, message):
    write_tsv(tmp_path / "listops", [line])
    with pytest.raises(InputError, match=message):
        get("listops").replace(shortest=1).load("train", tmp_path)


def test_expressions_shorter_than_any_in_the_files_are_drawn(tmp_path, fewer):
    write_tsv(tmp_path / "listops", ["[MIN 1 2 ]\t1"])
    split = get("listops").replace(shortest=5, length=60, examples=50).load("train", tmp_path)
    assert len(split) == 50


@pytest.mark.parametrize(
    "parameters", [{"shortest": 2**63}, {"shortest": 1999}, {"length": 2**62}, {"examples": 2**80}]
)
def test_a_listops_card_out_of_range_is_refused_before_anything_is_drawn(ssmprune, tmp_path, monkeypatch, parameters):
    monkeypatch.setattr(listops, "draw", lambda *_: pytest.fail("expressions were drawn"))
    path = tmp_path / "listops.safetensors"
    sp.save(Classifier(Config("s5", inputs=16, outputs=10, width=4, states=(4,), tokens=True)), path)
    cards.write_card(path, {"task": "listops", "task_parameters": parameters})
    result = ssmprune("evaluate", path, "--task", "listops", "--data", tmp_path)
    assert result.returncode == 2
    assert next(iter(parameters)) in result.stderr
