"""Reviews as characters, pairs of documents as bytes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssmprune.errors import InputError
from ssmprune.tasks import get
from ssmprune_paper.tasks import files
from ssmprune_paper.tasks.documents import Documents
from ssmprune_paper.tasks.files import read_rows
from ssmprune_paper.tasks.text import token_table, vocabulary
from tiny_data import write_imdb, write_pairs


@given(st.lists(st.lists(st.integers(1, 300), max_size=9), min_size=1), st.integers(1, 12), st.data())
def test_padding_is_the_loop(documents, length, data):
    rows = data.draw(st.lists(st.integers(0, len(documents) - 1), min_size=1))
    joined = Documents.join([np.array(document, np.uint16) for document in documents])
    x, lengths = joined.padded(np.array(rows), length)
    for i, row in enumerate(rows):
        cut = documents[row][:length]
        assert x[i].tolist() == cut + [0] * (length - len(cut))
        assert lengths[i] == max(len(cut), 1)


def test_vocabulary_and_tokens_are_the_loop(tmp_path):
    write_imdb(tmp_path)
    texts = [
        (tmp_path / "aclImdb" / "train" / mood / f"{i}_{i % 10}.txt").read_text("utf-8")
        for mood in ("neg", "pos")
        for i in range(12)
    ]
    seen = Counter("".join(texts))
    known = sorted(character for character, count in seen.items() if count >= 15)
    assert len(known) < len(seen), "the test needs a rare character"
    reviews = [np.array([ord(character) for character in text], np.uint32) for text in texts]
    assert [chr(code) for code in vocabulary(reviews)] == known
    expected = [known.index(character) + 3 if character in known else 1 for character in texts[5]]
    assert token_table(vocabulary(reviews))[reviews[5]].tolist() == expected
    train = np.concatenate([get("text").load(part, tmp_path).batch(range(2)).x for part in ("train", "val")])
    assert train.max() == len(known) + 2


def test_reviews_keep_their_end_when_cut(tmp_path):
    write_imdb(tmp_path)
    split = get("text").replace(length=8).load("test", tmp_path)
    batch = split.batch(range(len(split)))
    assert (batch.x[:, -1] == 2).all()
    assert (batch.lengths == 8).all()
    assert np.bincount(batch.y).tolist() == [12, 12]


def test_the_vocabulary_is_that_of_the_training_reviews(tmp_path):
    write_imdb(tmp_path)
    (tmp_path / "aclImdb" / "test" / "pos" / "z_9.txt").write_text("ΩΩΩ" * 20, encoding="utf-8")
    splits = [get("text").load(part, tmp_path) for part in ("train", "val", "test")]
    assert len({split.inputs for split in splits}) == 1
    strange = splits[2].batch([len(splits[2]) - 1]).x[0]
    assert strange[:61].tolist() == [1] * 60 + [2]


def test_text_that_is_not_utf8_is_refused(tmp_path):
    write_imdb(tmp_path)
    (tmp_path / "aclImdb" / "train" / "pos" / "3_3.txt").write_bytes(b"caf\xe9 noir")
    with pytest.raises(InputError, match=r"3_3.txt is not UTF-8 .* byte 3"):
        get("text").load("train", tmp_path)


def test_an_empty_half_and_an_enormous_review_are_refused(tmp_path):
    write_imdb(tmp_path)
    file = tmp_path / "aclImdb" / "train" / "pos" / "0_0.txt"
    with file.open("wb") as sparse:
        sparse.truncate(2**40)
    with pytest.raises(InputError, match="more than 1,048,576 bytes"):
        get("text").load("train", tmp_path)
    for file in (tmp_path / "aclImdb" / "test" / "neg").iterdir():
        file.unlink()
    (tmp_path / "aclImdb" / "train" / "pos" / "0_0.txt").unlink()
    with pytest.raises(InputError, match="is empty"):
        get("text").load("test", tmp_path)


def test_pairs_are_stacked_first_half_second_half(tmp_path):
    write_pairs(tmp_path)
    batch = get("retrieval").load("val", tmp_path).batch([4, 1])
    texts = ["first eval 4", "first eval 1", "second é 4", "second é 1"]
    for row, length, text in zip(batch.x, batch.lengths, texts, strict=True):
        content = text.encode()
        assert length == len(content)
        assert row[:length].tolist() == [byte + 1 for byte in content]
        assert not row[length:].any()
    assert batch.y.tolist() == [0, 1]


def test_cards_of_version_0_2_name_parameters_that_are_gone():
    assert get("retrieval").replace(length=100, documents=2, topics=64) == get("retrieval").replace(length=100)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1.0\ta\tb\tonly one text\n", "4 columns"),
        ("1.0\ta\tb\tone\ttwo\tthree\n", "6 columns"),
        ("\n", "1 columns"),
        ("maybe\ta\tb\tone\ttwo\n", "label b'maybe'"),
        ("2.0\ta\tb\tone\ttwo\n", "label b'2.0'"),
    ],
)
def test_bad_rows_are_refused(tmp_path, line, message):
    write_pairs(tmp_path)
    path = tmp_path / "aan" / "new_aan_pairs.train.tsv"
    path.write_text(path.read_text("utf-8") + line, "utf-8")
    with pytest.raises(InputError, match=message):
        get("retrieval").load("train", tmp_path)


def test_empty_files_and_documents(tmp_path):
    write_pairs(tmp_path)
    path = tmp_path / "aan" / "new_aan_pairs.train.tsv"
    path.write_text("1\ta\tb\t\ttext\n", "utf-8")
    assert get("retrieval").load("train", tmp_path).batch([0]).lengths.tolist() == [1, 4]
    path.write_text("", "utf-8")
    with pytest.raises(InputError, match="No examples"):
        get("retrieval").load("train", tmp_path)


def test_a_line_without_end_is_not_read_into_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LONGEST_LINE", 100)
    path = tmp_path / "a.tsv"
    path.write_text("a\t" + "b" * 97 + "\n")
    assert len(list(read_rows(path, 2))) == 1
    path.write_text("a\t" + "b" * 200)
    with pytest.raises(InputError, match="at most 100"):
        list(read_rows(path, 2))
