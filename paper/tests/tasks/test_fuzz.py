"""Damaged files of every format: a loader reads something or says InputError, and nothing else happens."""

from __future__ import annotations

import gzip
import tarfile

import numpy as np
import pytest

from ssmprune.errors import InputError
from ssmprune.tasks import get
from ssmprune_paper.tasks.files import unpack
from tiny_data import KNOWN, write_all, write_lra_pathfinder, write_tsv

TIMES = 40
FILES = {
    "mnist/t10k-images-idx3-ubyte.gz": "smnist",
    "mnist/t10k-labels-idx1-ubyte.gz": "smnist",
    "cifar-10-batches-bin/test_batch.bin": "image",
    "aclImdb/test/pos/3_3.txt": "text",
    "speech_commands/cat/1.wav": "speech",
    "speech_commands/testing_list.txt": "speech",
    "aan/new_aan_pairs.test.tsv": "retrieval",
    "listops/basic_test.tsv": "listops",
    "pathfinder32/curv_contour_length_14/metadata/0.npy": "pathfinder",
    "pathfinder32/curv_contour_length_14/imgs/0/sample_3.png": "pathfinder",
}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = write_all(tmp_path_factory.mktemp("data"))
    write_lra_pathfinder(root / "pathfinder32" / "curv_contour_length_14", listings=1)
    write_tsv(root / "listops", [f"{expression}\t{value}" for expression, value in KNOWN.items()])
    return root


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """Some bits flipped, bytes overwritten by extreme ones, a piece cut out, doubled, or the end lost."""
    data = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        # Formats begin with what matters most, so half of the damage is done there.
        at = int(rng.integers(max(1, min(len(data), 64 if rng.random() < 0.5 else len(data)))))
        size = int(rng.integers(1, 9))
        match rng.integers(5):
            case 0:
                data[at : at + 1] = bytes([(data[at] if at < len(data) else 0) ^ (1 << int(rng.integers(8)))])
            case 1:
                data[at : at + size] = bytes([int(rng.choice([0, 127, 128, 255]))]) * size
            case 2:
                del data[at : at + size]
            case 3:
                data[at:at] = data[at : at + size]
            case _:
                del data[at:]
    return bytes(data)


def test_damaged_archives_are_unpacked_or_told(tmp_path):
    rng = np.random.default_rng(0)
    for folder in ("a", "b"):
        (tmp_path / "content" / folder).mkdir(parents=True)
        (tmp_path / "content" / folder / "file").write_bytes(rng.bytes(700))
    refused = 0
    for packing in ("", "gz"):
        archive = tmp_path / f"archive.{packing}"
        with tarfile.open(archive, f"w:{packing}") as tar:
            tar.add(tmp_path / "content", "content")
        original = archive.read_bytes()
        for i in range(TIMES):
            archive.write_bytes(damaged(original, rng))
            try:
                unpack(archive, tmp_path / "out" / f"{packing}{i}")
            except InputError:
                refused += 1
                assert not (tmp_path / "out" / f"{packing}{i}").exists()
    assert refused
    assert {path.name for path in tmp_path.iterdir()} == {"content", "archive.", "archive.gz", "out"}


CASES = [(name, False) for name in FILES] + [(name, True) for name in FILES if name.endswith(".gz")]


@pytest.mark.parametrize(("name", "packed"), CASES)
def test_damage_is_read_or_told(root, name, packed):
    """`packed` damages what a gzip holds, so that the idx reader itself is reached."""
    task = get(FILES[name]).replace(shortest=1) if FILES[name] == "listops" else get(FILES[name])
    path = root / name
    original = path.read_bytes()
    rng = np.random.default_rng(len(name))
    refused = 0
    try:
        for _ in range(TIMES):
            broken = damaged(gzip.decompress(original) if packed else original, rng)
            path.write_bytes(gzip.compress(broken) if packed else broken)
            for file in (root / "cache").glob("pathfinder/*"):
                file.unlink()
            try:
                split = task.load("test", root)
                split.batch(range(len(split)))
            except InputError:
                refused += 1
    finally:
        path.write_bytes(original)
    assert refused or name.endswith(("3_3.txt", "testing_list.txt")), "no damage was noticed at all"
