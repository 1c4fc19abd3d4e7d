"""idx files, sequential MNIST, the images in the package."""

from __future__ import annotations

import gzip
import hashlib
import runpy
import struct
from pathlib import Path

import numpy as np
import pytest

from ssmprune.errors import InputError
from ssmprune.tasks import get
from ssmprune.tasks.data import read_idx
from ssmprune.tasks.smnist import load_sample
from tiny_data import idx, write_mnist

ARRAY = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


@pytest.mark.parametrize("packed", [False, True])
def test_idx_reads_what_was_written(tmp_path, packed):
    path = tmp_path / ("a.gz" if packed else "a")
    path.write_bytes(gzip.compress(idx(ARRAY)) if packed else idx(ARRAY))
    assert np.array_equal(read_idx(path, 3), ARRAY)


GOOD = idx(ARRAY)
HUGE = struct.pack(">BBBB3I", 0, 0, 8, 3, 2**31, 28, 28)
BAD = {
    "empty": (b"", "starts with nothing"),
    "wrong magic": (b"\0\0\x0d\x03" + GOOD[4:], "starts with 00 00 0d 03"),
    "wrong dimensions": (idx(ARRAY[0]), "3-dimensional"),
    "cut header": (GOOD[:9], "inside its header"),
    "cut data": (GOOD[:-1], "24 bytes of data announced, 23 there"),
    "too long": (GOOD + b"x", "continues after"),
    "huge": (HUGE, "more than such a file can hold"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("packed", [False, True])
def test_bad_idx_is_refused(tmp_path, case, packed):
    content, message = BAD[case]
    path = tmp_path / ("a.gz" if packed else "a")
    path.write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(InputError, match=message):
        read_idx(path, 3)


def test_a_cut_or_flipped_gzip_is_refused(tmp_path):
    whole = gzip.compress(idx(np.random.default_rng(0).integers(0, 256, (9, 28, 28), np.uint8)))
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 64
    for content in (whole[:-20], whole[: len(whole) // 2], whole[:5], bytes(flipped), b"no gzip at all"):
        path = tmp_path / "a.gz"
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"a\.gz"):
            read_idx(path, 3)


def test_a_folder_where_a_file_is_meant(tmp_path):
    with pytest.raises(InputError, match="Cannot read"):
        read_idx(tmp_path, 3)


def test_pixels_are_scaled_and_in_order(tmp_path):
    write_mnist(tmp_path)
    raw = read_idx(tmp_path / "mnist" / "t10k-images-idx3-ubyte.gz", 3)
    batch = get("smnist").load("test", tmp_path).batch([3])
    assert np.array_equal(batch.x, (raw[3].reshape(1, 784, 1) * np.float32(1 / 255)).astype(np.float32))
    assert batch.y.tolist() == [3]


def test_images_and_labels_must_match(tmp_path):
    write_mnist(tmp_path)
    labels = tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz"
    labels.write_bytes(gzip.compress(idx(np.zeros(39, np.uint8))))
    with pytest.raises(InputError, match="one label each"):
        get("smnist").load("test", tmp_path)
    labels.write_bytes(gzip.compress(idx(np.full(40, 10, np.uint8))))
    with pytest.raises(InputError, match="expected 0 to 9"):
        get("smnist").load("test", tmp_path)


def test_plain_files_in_the_folder_of_torchvision(tmp_path):
    write_mnist(tmp_path)
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for file in (tmp_path / "mnist").iterdir():
        (raw / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
        file.unlink()
    assert len(get("smnist").load("test", tmp_path)) == 40


def test_the_images_in_the_package():
    split = load_sample()
    assert np.bincount(split.labels).tolist() == [100] * 10
    batch = split.batch(range(1000))
    digest = hashlib.sha256(np.rint(batch.x * 255).astype(np.uint8).tobytes() + batch.y.tobytes()).hexdigest()
    assert digest[:16] == "ea264d43fd0bef0f"


def test_the_sample_takes_the_first_of_each_digit(tmp_path):
    write_mnist(tmp_path / "all", count=1250)
    script = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "sample_mnist.py"))
    script["make_sample"](tmp_path / "all", tmp_path / "some")
    everything, some = (get("smnist").load("test", tmp_path / part) for part in ("all", "some"))
    assert np.array_equal(some.batch(range(1000)).x, everything.batch(range(1000)).x)
    assert len(some) == 1000
