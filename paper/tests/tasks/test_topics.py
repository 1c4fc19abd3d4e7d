"""Topics of words, and pieces of documents that ask how much of them is about each."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ssmprune.errors import InputError
from ssmprune.tasks import Split, get
from ssmprune_paper.tasks import retrieval
from ssmprune_paper.tasks.topics import RARE, shares, sort_words

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


def pieces(texts: list[bytes], length: int) -> list[bytes]:
    return [text[at : at + length] for text in texts for at in range(0, len(text) - length + 1, length)]


def test_pieces_of_documents_ask_how_much_of_them_is_about_each_topic(root, documents):
    task = get("retrieval").replace(documents=1, topics=6, length=40)
    assert (task.outputs, task.retrieval) == (6, False)
    split, topics = task.load("val", root), sort_words(documents, 6)
    expected = pieces(reviews(8, seed=1), 40)
    batch = split.batch(np.arange(len(expected)))
    assert len(split) == len(expected) > 8
    assert [bytes((row - 1).astype(np.uint8)) for row in batch.x] == expected
    assert batch.lengths.tolist() == [40] * len(expected)
    usual = np.array([shares(piece, topics, 6) for piece in pieces(documents, 40)])
    for amounts, piece in zip(batch.y, expected, strict=True):
        assert amounts == pytest.approx((shares(piece, topics, 6) - usual.mean(0)) / usual.std(0), rel=1e-4, abs=1e-4)
    train = task.load("train", root)
    assert np.allclose(train.labels.mean(0), 0, atol=1e-4)
    assert np.allclose(train.labels.std(0), 1, atol=1e-4)


def test_a_topic_that_has_lost_all_its_words_is_never_there(root, monkeypatch):
    monkeypatch.setattr(retrieval, "sort_words", lambda texts, topics: {b"ghosta": 0})
    labels = get("retrieval").replace(documents=1, topics=2, length=40).load("train", root).labels
    assert labels[:, 0].std() == pytest.approx(1, abs=1e-4)
    assert not labels[:, 1].any()


def test_pieces_longer_than_every_document_are_refused(root):
    with pytest.raises(InputError, match="No document is 4000 bytes long"):
        get("retrieval").replace(documents=1, topics=6).load("train", root)


@pytest.mark.parametrize("labels", [np.zeros(3), np.zeros((3, 1)), np.full((3, 2), np.nan)], ids=["1-d", "few", "NaN"])
def test_amounts_of_another_shape_or_none_at_all_are_refused(labels):
    with pytest.raises(InputError, match=r"finite and of shape \(3, 2\)"):
        Split(labels.astype(np.float32), lambda rows: (np.zeros((len(rows), 4, 1), np.float32), None), 1, 2, 4)
