"""CIFAR-10's binary version as colour and as grey sequences."""

from __future__ import annotations

import numpy as np
import pytest

from ssmprune.errors import InputError
from ssmprune.tasks import get
from ssmprune_paper.tasks.files import load_or_make_records, read_records
from tiny_data import write_cifar


@pytest.fixture
def root(tmp_path):
    write_cifar(tmp_path)
    return tmp_path


def planes(root, row):
    content = (root / "cifar-10-batches-bin" / "test_batch.bin").read_bytes()
    return np.frombuffer(content[3073 * row + 1 : 3073 * (row + 1)], np.uint8).reshape(3, 1024) / 255


def test_colours_are_normalised_per_channel(root):
    x = get("scifar").load("test", root).batch([7]).x[0]
    mean, std = np.array([0.4914, 0.4822, 0.4465]), np.array([0.2470, 0.2435, 0.2616])
    for step in (0, 31, 1023):
        expected = [(planes(root, 7)[channel, step] - mean[channel]) / std[channel] for channel in range(3)]
        assert x[step] == pytest.approx(expected, abs=1e-5)


def test_grey_is_luma(root):
    x = get("image").load("test", root).batch([7]).x[0, :, 0]
    red, green, blue = planes(root, 7)
    grey = 0.299 * red + 0.587 * green + 0.114 * blue
    assert x == pytest.approx((grey - 0.4809) / 0.2392, abs=1e-5)


def test_the_batches_that_are_there_make_the_training_set(root):
    assert len(get("image").load("train", root)) + len(get("image").load("val", root)) == 40
    (root / "cifar-10-batches-bin" / "data_batch_2.bin").unlink()
    assert len(get("image").load("train", root)) + len(get("image").load("val", root)) == 20


@pytest.mark.parametrize("cut", [0, 1, 3072, 3073 * 20 - 1])
def test_a_file_that_is_not_whole_records_is_refused(root, cut):
    path = root / "cifar-10-batches-bin" / "test_batch.bin"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(InputError, match="multiple of 3073"):
        get("image").load("test", root)


def test_a_label_above_nine_is_refused(root):
    path = root / "cifar-10-batches-bin" / "test_batch.bin"
    path.write_bytes(b"\x0a" + path.read_bytes()[1:])
    with pytest.raises(InputError, match="expected 0 to 9"):
        get("scifar").load("test", root)


def test_a_folder_where_a_file_is_meant(tmp_path):
    (tmp_path / "file").mkdir()
    with pytest.raises(InputError, match="file"):
        read_records(tmp_path / "file", 3)


def test_kept_records_are_made_once_and_again_when_damaged(tmp_path):
    made = []

    def make():
        made.append(1)
        return np.arange(8, dtype=np.uint8).reshape(2, 4)

    path = tmp_path / "folder" / "a.records"
    for damage, times in ((False, 1), (False, 1), (True, 2)):
        if damage:
            path.write_bytes(b"123")
        assert load_or_make_records(path, 3, make).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
        assert len(made) == times
