"""Where data is looked for, and how it is fetched."""

from __future__ import annotations

import hashlib
import importlib
from pathlib import Path

import pooch
import pytest

from ssmprune.errors import InputError
from ssmprune.tasks import data, get
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
    monkeypatch.delenv("SSMPRUNE_DATA", raising=False)
    with pytest.raises(InputError, match=r"set \$SSMPRUNE_DATA\. .*pooch.*ssmprune\[data\]"):
        data_folder()
    with pytest.raises(InputError, match=r"file\.bin \(4 B\).*pooch.*ssmprune\[data\]"):
        data.fetch(Source("https://example.org/file.bin", "4 B", "md5:0"), tmp_path)


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
