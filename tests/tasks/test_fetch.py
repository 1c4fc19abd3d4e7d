"""Where data is looked for, and how it is fetched."""

from __future__ import annotations

import hashlib
import importlib
import sys
from pathlib import Path

import numpy as np
import pooch
import pytest

from ssmprune.errors import InputError
from ssmprune.tasks import Task, data, features, get, smnist
from ssmprune.tasks.data import Source, as_found, data_folder
from tiny_data import write_mnist


def test_the_folder_is_the_argument_then_the_variable_then_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SSMPRUNE_DATA", str(tmp_path))
    (tmp_path / "other").mkdir()
    assert data_folder(tmp_path / "other") == tmp_path / "other"
    assert data_folder() == tmp_path
    monkeypatch.setenv("SSMPRUNE_DATA", str(tmp_path / "absent"))
    with pytest.raises(InputError, match="SSMPRUNE_DATA"):
        data_folder()
    with pytest.raises(InputError, match="not a folder"):
        data_folder(tmp_path / "absent")
    monkeypatch.delenv("SSMPRUNE_DATA")
    assert data_folder().name == "ssmprune"


def test_the_variable_is_obeyed(tmp_path, monkeypatch):
    write_mnist(tmp_path)
    monkeypatch.setenv("SSMPRUNE_DATA", str(tmp_path))
    assert len(get("smnist").load("test")) == 40


def test_a_missing_extra_is_named(tmp_path, monkeypatch):
    def without(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(InputError, match=r"file\.bin \(4 B\).*pooch.*'\.\[data\]'"):
        data.fetch(Source("https://example.org/file.bin", "4 B", "md5:0"), tmp_path)


class Made(Task):
    """A task that is a program, and one that has a file."""

    name, inputs, outputs, length = "made", 1, 2, 3

    def read(self, split, root):
        if split == "test":
            raise InputError(f"{root / 'file'} does not exist.")
        return features(np.zeros((4, 3, 1), np.uint8), np.zeros(4, np.uint8), 2, scale=1)


def test_a_task_is_asked_for_a_folder_only_if_it_lacks_one(monkeypatch):
    """Also where pooch is not installed."""
    monkeypatch.delenv("SSMPRUNE_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "pooch", None)
    monkeypatch.setattr(data, "find_spec", lambda name: None)
    assert len(Made().load("train")) == 4
    with pytest.raises(InputError, match=r"file does not exist\. No data folder was named: give one \(--data\)"):
        Made().load("test")


def test_the_images_in_the_package_serve_where_no_folder_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("SSMPRUNE_DATA", raising=False)
    monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path)
    smnist._announce_sample.cache_clear()
    task = get("smnist")
    assert [len(task.load(split)) for split in ("train", "val", "test")] == [100, 1000, 1000]
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("Task smnist: no data folder is named, so the images in the package serve, 1,000 of")
    write_mnist(tmp_path)  # fetched before
    assert len(task.load("test")) == 40
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("SSMPRUNE_DATA", str(tmp_path / "other"))
    with pytest.raises(InputError, match="is not a folder"):
        task.load("test")


def test_what_is_there_is_not_fetched(tmp_path):
    (tmp_path / "file.bin").write_bytes(b"here")
    assert data.fetch(Source("https://example.org/file.bin", "4 B", "md5:0"), tmp_path) == tmp_path / "file.bin"


@pytest.fixture
def served(monkeypatch):
    """Downloads come from this dictionary of addresses instead of the network."""
    files: dict[str, bytes] = {}

    def download(self, url, output_file, pooch, check_only=False):
        if url not in files:
            raise OSError("no route to host")
        self.progressbar.total = len(files[url])
        self.progressbar.update(len(files[url]))
        self.progressbar.reset()
        self.progressbar.close()
        Path(output_file).write_bytes(files[url])

    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", download)
    return files


def test_a_file_is_fetched_once_with_its_checksum(tmp_path, served):
    content = b"content"
    source = Source("https://example.org/a/file.bin", "7 B", f"md5:{hashlib.md5(content).hexdigest()}")
    served[source.url] = content
    assert data.fetch(source, tmp_path / "new").read_bytes() == content
    served.clear()
    assert data.fetch(source, tmp_path / "new").read_bytes() == content


def test_a_wrong_checksum_leaves_nothing(tmp_path, served):
    source = Source("https://example.org/a/file.bin", "7 B", "md5:" + 32 * "0")
    served[source.url] = b"something else"
    with pytest.raises(InputError, match=r"https://example.org/a/file.bin \(7 B\)"):
        data.fetch(source, tmp_path)
    assert not list(tmp_path.iterdir())


def test_no_network_gives_address_and_size(tmp_path, served):
    with pytest.raises(InputError, match=r"no route to host.*https://ossci.*\(10 MB\).*mnist"):
        get("smnist").load("train", tmp_path)


def test_as_found_does_not_fetch(tmp_path, monkeypatch):
    monkeypatch.setattr(pooch, "retrieve", lambda *_arguments, **_options: pytest.fail("it was fetched"))
    with as_found():
        with pytest.raises(InputError, match=r"'smnist', split 'test': .* does not exist\.$"):
            get("smnist").load("test", tmp_path)
        assert not any(tmp_path.iterdir())
        write_mnist(tmp_path)
        assert len(get("smnist").load("test", tmp_path)) == 40
