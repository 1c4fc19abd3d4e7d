"""A model learns how much of a text is about each topic, and then gets a head that compares documents."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import replace

import numpy as np
import pytest
import torch

import ssmprune as sp
from ssmprune.errors import InputError
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config
from ssmprune.tasks import Split, cards
from ssmprune.training import evaluate
from ssmprune.training.recipes import get
from ssmprune_paper import pretrain_retrieval
from ssmprune_paper.pretrain_retrieval import (
    compare_documents,
    cut_pieces,
    fit_head,
    learn_to_read,
    read_pieces,
    take_raw_features,
)
from ssmprune_paper.topics import RARE, shares, sort_words

THEMES = {
    theme: [f"{theme}{letter}" for letter in "abcdefgh"]
    for theme in ("ghost", "robot", "sword", "tango", "horse", "crime")
}
EVERYWHERE = ["film", "the", "it", "was"]


def reviews(count: int, seed: int = 0) -> list[bytes]:
    """Texts of one theme each, among words that all texts have, and words that hardly any has."""
    rng = random.Random(seed)
    texts = []
    for number in range(count):
        theme = rng.choice(list(THEMES))
        words = rng.choices(THEMES[theme], k=12) + EVERYWHERE + [f"only{number}"]
        rng.shuffle(words)
        texts.append(" ".join(words).capitalize().encode())
    return texts


@pytest.fixture(scope="module")
def documents():
    return reviews(12 * RARE)


def test_words_of_one_company_share_a_topic_and_others_do_not(documents):
    topics = sort_words(documents, len(THEMES), dimensions=len(THEMES))
    assert set(topics) == {word.encode() for words in THEMES.values() for word in words}
    of_theme = {theme: {topics[word.encode()] for word in words} for theme, words in THEMES.items()}
    shared = [numbers for numbers in of_theme.values() if len(numbers) == 1]
    assert len(shared) >= len(THEMES) - 2, f"k-means may split one theme and join two others, not more: {of_theme}"
    assert len(set().union(*shared)) >= len(shared) - 1
    assert set(topics.values()) <= set(range(len(THEMES)))


def test_the_same_documents_give_the_same_topics(documents):
    assert sort_words(documents, 4) == sort_words(documents, 4)


def test_too_few_words_are_refused(documents):
    with pytest.raises(InputError, match=rf"at least 64 words that occur in {RARE} documents .* have 48\."):
        sort_words(documents, 64)


@pytest.mark.parametrize("text", [b"", b"Ghosta", b"a ghosta, GHOSTA's ghosta's 12 12", "é ghosta é".encode()])
def test_shares_count_the_bytes_of_each_topic_s_words(text):
    topics, letters = {b"ghosta": 3, b"12": 1}, set(b"abcdefghijklmnopqrstuvwxyz'0123456789")
    expected = [0.0] * 4
    for place, byte in enumerate(lower := text.lower()):
        left = right = place
        while byte in letters and left > 0 and lower[left - 1] in letters:
            left -= 1
        while byte in letters and right < len(lower) and lower[right] in letters:
            right += 1
        if (word := lower[left:right]) in topics:
            expected[topics[word]] += 1 / len(text)
    assert shares(text, topics, 4) == pytest.approx(expected)


@pytest.fixture
def root(tmp_path, documents):
    (tmp_path / "aan").mkdir()
    for part, texts in (("train", documents), ("eval", reviews(8, seed=1)), ("test", reviews(8, seed=2))):
        rows = (f"1.0\ta\tb\t{a.decode()}\t{b.decode()}\n" for a, b in zip(texts[::2], texts[1::2], strict=True))
        (tmp_path / "aan" / f"new_aan_pairs.{part}.tsv").write_text("".join(rows))
    return tmp_path


def test_pieces_of_documents_ask_how_much_of_them_is_about_each_topic(root, documents):
    train, val = read_pieces(root, topics=6, length=40)
    topics, expected = sort_words(documents, 6), cut_pieces(reviews(8, seed=1), 40)
    x, amounts = val.batch(np.arange(len(expected)))
    assert len(val.tokens) == len(expected) > 8
    assert [bytes((row - 1).astype(np.uint8)) for row in x.numpy()] == expected
    usual = np.array([shares(piece, topics, 6) for piece in cut_pieces(documents, 40)])
    for shown, piece in zip(amounts.numpy(), expected, strict=True):
        assert shown == pytest.approx((shares(piece, topics, 6) - usual.mean(0)) / usual.std(0), rel=1e-4, abs=1e-4)
    assert np.allclose(train.amounts.mean(0), 0, atol=1e-4)
    assert np.allclose(train.amounts.std(0), 1, atol=1e-4)


def test_a_topic_that_has_lost_all_its_words_is_never_there(root, monkeypatch):
    monkeypatch.setattr(pretrain_retrieval, "sort_words", lambda texts, topics: {b"ghosta": 0})
    amounts = read_pieces(root, topics=2, length=40)[0].amounts
    assert amounts[:, 0].std() == pytest.approx(1, abs=1e-4)
    assert not amounts[:, 1].any()


def test_pieces_longer_than_every_document_are_refused(root):
    with pytest.raises(InputError, match="No document is 4000 bytes long"):
        read_pieces(root, topics=6, length=4000)


@pytest.mark.slow
def test_the_variance_explained_is_counted_by_hand(root):
    sizes = {"width": 16, "depth": 1, "states": 8, "blocks": 1, "epochs": 24}
    recipe = replace(get("retrieval", "s5", "cpu"), **sizes, lr=0.02, ssm_lr=0.01)
    train, val = read_pieces(root, topics=6, length=40)
    model, explained = learn_to_read(train, val, recipe)
    with torch.no_grad():
        answers = model(val.batch(np.arange(len(val.tokens)))[0]).numpy()
    assert explained == pytest.approx(1 - ((answers - val.amounts) ** 2).mean(), rel=1e-5)
    assert explained > 0.2


@pytest.mark.slow
def test_the_script_writes_a_checkpoint_to_start_from(root, ssmprune):
    out, words = root / "reader.safetensors", ["--topics", "6", "--length", "40", "--epochs", "1"]
    pretrain_retrieval.main(["--data", str(root), "--out", str(out), *words])
    reader = sp.load(out)
    assert (reader.config.retrieval, reader.config.outputs) == (True, 2)
    command = "python -m ssmprune_paper.pretrain_retrieval --model s5 --seed 0 --out runs/reader.safetensors"
    assert cards.read_card(out)["command"] == command + " --epochs 1 --topics 6 --length 40"
    words = ["--from", out, "--data", root, "--out", root / "run", "--batch", 4]
    assert ssmprune("train", "retrieval", *words).returncode == 0
    sp.save(Classifier(replace(reader.config, retrieval=False)), out)
    refused = ssmprune("train", "retrieval", "--from", out, "--data", root, "--out", root / "other")
    assert refused.returncode == 2
    assert "about pairs of documents, the model takes single sequences" in refused.stderr


COMPARING = Config("s5", inputs=5, outputs=2, width=6, states=(4,), tokens=True, retrieval=True)


def test_a_head_for_standardised_features_becomes_the_same_for_raw_ones():
    torch.manual_seed(0)
    model = Classifier(COMPARING).double()
    features, shift, scale = torch.randn(8, 6).double(), torch.randn(6).double(), torch.rand(6).double() + 0.1
    expected = model.head((features - shift) / scale)
    take_raw_features(model, shift, scale)
    assert torch.allclose(model.head(features), expected, atol=1e-12)


def test_a_model_that_is_to_compare_documents_keeps_all_but_its_head():
    config = Config("s5", inputs=9, outputs=5, width=4, states=(3, 3), tokens=True)
    reader = Classifier(config)
    model = compare_documents(reader).eval()
    assert model.config == dataclasses.replace(config, outputs=2, retrieval=True)
    assert model(torch.ones(4, 7, dtype=torch.long)).shape == (2, 2)
    before, after = reader.state_dict(), model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before if not name.startswith("decoder"))


def pairs_of_texts(count: int, seed: int) -> Split:
    """Pairs of texts of one letter each, mostly: is it the same letter?"""
    rng = np.random.default_rng(seed)
    first, second = rng.integers(1, 5, (2, count))
    other = rng.integers(1, 5, (2, count, 20))
    texts = np.where(rng.random((2, count, 20)) < 0.8, np.stack([first, second])[..., None], other)

    def read(rows):
        return texts[:, rows].reshape(-1, 20), np.full(2 * len(rows), 20)

    return Split((first == second).astype(np.int64), read, 5, 2, 20)


def test_a_head_learns_from_features_that_stay_as_they_are():
    torch.manual_seed(0)
    model = Classifier(COMPARING)
    layers = {name: value.clone() for name, value in model.named_parameters() if name.startswith(("encoder", "layers"))}
    before = evaluate(model, pairs_of_texts(400, seed=1)).accuracy
    fit_head(model, pairs_of_texts(3000, seed=2))
    assert evaluate(model, pairs_of_texts(400, seed=1)).accuracy > max(0.85, before)
    assert all(torch.equal(layers[name], value) for name, value in model.named_parameters() if name in layers)


def test_features_that_never_move_do_not_spoil_a_head():
    split = pairs_of_texts(64, seed=0)
    constant = Split(split.labels, lambda rows: (np.ones((2 * len(rows), 20), np.int64), None), 5, 2, 20)
    model = Classifier(COMPARING)
    fit_head(model, constant)
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_features_far_from_zero_keep_their_digits():
    torch.manual_seed(0)
    model = Classifier(COMPARING)
    shift, scale = 100 * torch.ones(6), 2 * torch.ones(6)  # as near as deviations may come to a mean
    features = shift + scale * torch.randn(8, 6)
    expected = model.head((features - shift) / scale)
    take_raw_features(model, shift, scale)
    assert torch.allclose(model.head(features), expected, atol=5e-3)
