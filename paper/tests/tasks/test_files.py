"""Archives that are unpacked, and data that are made once and kept."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pooch
import pytest

from ssmprune.errors import InputError
from ssmprune.tasks import get
from ssmprune.tasks.data import as_found
from ssmprune_paper.tasks import files
from ssmprune_paper.tasks.files import load_or_make, unpack
from tiny_data import write_cifar, write_imdb


def tar(path: Path, members: dict[str, bytes | tarfile.TarInfo]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
            else:
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return path


def link(name: str, target: str, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def test_archives_are_unpacked_and_read(tmp_path):
    for write, folder, archive, task in (
        (write_cifar, "cifar-10-batches-bin", "cifar-10-binary.tar.gz", "image"),
        (write_imdb, "aclImdb", "aclImdb_v1.tar.gz", "text"),
    ):
        write(tmp_path / "folder")
        (tmp_path / "archive").mkdir(exist_ok=True)
        with tarfile.open(tmp_path / "archive" / archive, "w:gz") as file:
            file.add(tmp_path / "folder" / folder, folder)
        ours, unpacked = (get(task).load("test", tmp_path / origin) for origin in ("folder", "archive"))
        assert np.array_equal(ours.batch(range(5)).x, unpacked.batch(range(5)).x)
        get(task).load("train", tmp_path / "archive")


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"../evil": b"x"}, "outside"),
        ({"a/../../evil": b"x"}, "outside"),
        ({"/tmp/ssmprune_evil": b"x"}, "outside"),
        ({"l": link("l", "/etc/passwd", tarfile.SYMTYPE)}, "not a plain file"),
        ({"l": link("l", "../../evil", tarfile.LNKTYPE)}, "not a plain file"),
        ({"p": link("p", "", tarfile.FIFOTYPE)}, "not a plain file"),
        ({"d": link("d", "", tarfile.CHRTYPE)}, "not a plain file"),
    ],
)
def test_no_member_leaves_the_folder(tmp_path, members, message):
    inner = tmp_path / "inner"
    inner.mkdir()
    archive = tar(inner / "a.tar.gz", {"fine": b"1", **members})
    with pytest.raises(InputError, match=message):
        unpack(archive, inner / "out")
    assert [path.name for path in inner.iterdir()] == ["a.tar.gz"]
    assert [path.name for path in tmp_path.iterdir()] == ["inner"]


def test_bombs_are_bounded(tmp_path, monkeypatch):
    archive = tar(tmp_path / "a.tar.gz", {str(i): b"x" * 100 for i in range(10)})
    monkeypatch.setattr(files, "BYTES", 999)
    with pytest.raises(InputError, match="999 bytes"):
        unpack(archive, tmp_path / "out")
    monkeypatch.setattr(files, "BYTES", 1000)
    monkeypatch.setattr(files, "MEMBERS", 9)
    with pytest.raises(InputError, match="9 files"):
        unpack(archive, tmp_path / "out")
    monkeypatch.setattr(files, "MEMBERS", 10)
    assert len(list(unpack(archive, tmp_path / "out").iterdir())) == 10


def test_a_cut_archive_leaves_nothing(tmp_path):
    content = np.random.default_rng(0).bytes(50_000)
    archive = tar(tmp_path / "a.tar.gz", {"one": content, "two": content})
    archive.write_bytes(archive.read_bytes()[:70_000])
    with pytest.raises(InputError, match="complete"):
        unpack(archive, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar.gz"]


def test_an_archive_of_something_else(tmp_path):
    tar(tmp_path / "aclImdb_v1.tar.gz", {"other/file": b"1"})
    with pytest.raises(InputError, match="no aclImdb/train in it"):
        get("text").load("train", tmp_path)


def test_arrays_are_kept(tmp_path):
    made = []

    def make():
        made.append(1)
        return {"a": np.arange(5), "b": np.ones((2, 3), np.uint8)}

    for _ in range(3):
        arrays = load_or_make(tmp_path / "folder" / "x.safetensors", make)
        assert arrays["a"].tolist() == [0, 1, 2, 3, 4]
        assert arrays["b"].shape == (2, 3)
    assert len(made) == 1


def test_as_found_neither_fetches_nor_makes(tmp_path, monkeypatch):
    monkeypatch.setattr(pooch, "retrieve", lambda *_arguments, **_options: pytest.fail("it was fetched"))
    with as_found():
        for name in ("image", "text", "speech", "listops", "pathfinder"):
            with pytest.raises(InputError, match=rf"'{name}', split 'test': .* does not exist\.$"):
                get(name).load("test", tmp_path)
        assert not any(tmp_path.iterdir())
    assert load_or_make(tmp_path / "x.safetensors", lambda: {"a": np.arange(5)})["a"][4] == 4
