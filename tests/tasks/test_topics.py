"""Topics of words, and the pieces of documents that ask for them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ssmprune.errors import InputError
from ssmprune.tasks import get
from ssmprune.tasks._topics import RARE, label_bytes, sort_words

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
    assert set(topics.values()) <= set(range(1, len(THEMES) + 1))


def test_the_same_documents_give_the_same_topics(documents):
    assert sort_words(documents, 4) == sort_words(documents, 4)


def test_too_few_words_are_refused(documents):
    with pytest.raises(InputError, match=rf"at least 64 words that occur in {RARE} documents .* have 48\."):
        sort_words(documents, 64)


@pytest.mark.parametrize("text", [b"", b"Ghosta", b"a ghosta, GHOSTA's ghosta's 12 12", "é ghosta é".encode()])
def test_every_byte_has_the_topic_of_the_word_around_it(text):
    topics = {b"ghosta": 3, b"12": 1}
    letters = set(b"abcdefghijklmnopqrstuvwxyz'0123456789")
    lower, expected = text.lower(), []
    for place in range(len(text)):
        left = right = place
        while left > 0 and lower[left - 1] in letters and lower[place] in letters:
            left -= 1
        while right < len(lower) and lower[right] in letters and lower[place] in letters:
            right += 1
        expected.append(topics.get(lower[left:right], 0))
    assert label_bytes(text, topics).tolist() == expected


def test_pieces_of_documents_ask_for_the_topic_at_every_byte(tmp_path, documents):
    (tmp_path / "aan").mkdir()
    for part, texts in (("train", documents), ("eval", reviews(8, seed=1)), ("test", reviews(8, seed=2))):
        rows = (f"1.0\ta\tb\t{a.decode()}\t{b.decode()}\n" for a, b in zip(texts[::2], texts[1::2], strict=True))
        (tmp_path / "aan" / f"new_aan_pairs.{part}.tsv").write_text("".join(rows))
    task = get("retrieval").replace(documents=1, topics=6, length=40)
    assert (task.outputs, task.retrieval, task.every_step) == (7, False, True)
    split, topics = task.load("val", tmp_path), sort_words(documents, 6)
    texts = reviews(8, seed=1)
    pieces = [text[at : at + 40] for text in texts for at in range(0, len(text) - 39, 40)]
    batch = split.batch(np.arange(len(pieces)))
    assert len(split) == len(pieces) > len(texts)
    assert batch.y.shape == batch.x.shape == (len(pieces), 40)
    assert [bytes((row - 1).astype(np.uint8)) for row in batch.x] == pieces
    whole = [label_bytes(text, topics) for text in texts]
    assert batch.y.ravel().tolist() == [int(n) for row in whole for n in row[: len(row) // 40 * 40]]
    assert batch.lengths.tolist() == [40] * len(pieces)
    with pytest.raises(InputError, match="No document has 4000 bytes"):
        get("retrieval").replace(documents=1, topics=6).load("train", tmp_path)
