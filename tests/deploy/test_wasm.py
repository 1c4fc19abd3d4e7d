"""A model as a page: what is written, what is refused. browser/test_model_page.py runs it in a browser."""

import base64
import os
import re
import subprocess
import sys

import pytest
import torch

import ssmprune as sp
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config
from ssmprune.tasks import cards

FILES = ["digits.html", "digits.js", "digits.wasm"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Small models: one that streams, with a card of smnist, and two that do not."""
    place = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    for name, options in {"digits": {}, "both": {"bidirectional": True}, "pairs": {"retrieval": True}}.items():
        config = Config("s5", inputs=1, outputs=10, width=6, states=(8, 8), pooling="mean", **options)
        sp.save(Classifier(config), place / f"{name}.safetensors")
    cards.write_card(place / "digits.safetensors", {"task": "smnist"})
    return place


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_page_holds_all_that_it_needs(ssmprune, place, tmp_path):
    pytest.importorskip("ziglang")
    result = ssmprune("export", place / "digits.safetensors", "--out", tmp_path / "digits.html", "--json")
    assert result.returncode == 0, result.stderr
    assert names(tmp_path) == FILES
    page, script, wasm = [(tmp_path / name).read_bytes() for name in FILES]
    assert wasm.startswith(b"\0asm")
    assert base64.b64encode(wasm) in page
    assert script in page
    assert not re.search(rb"\b(src|href|action)\s*=|@import|url\(|https?:", page)  # nothing from elsewhere
    assert b"default-src 'none'" in page  # and the browser sees to that
    assert b"Draw a digit" in page
    again = tmp_path / "again"
    assert ssmprune("export", place / "digits.safetensors", "--out", again / "digits.html").returncode == 0
    assert [(again / name).read_bytes() for name in FILES] == [page, script, wasm]  # the same bytes each time


def test_a_name_is_no_markup(ssmprune, place, tmp_path):
    pytest.importorskip("ziglang")
    cards.card_path(place / "plain.safetensors").unlink(missing_ok=True)
    (place / "plain.safetensors").write_bytes((place / "digits.safetensors").read_bytes())
    name = "<script>alert(1)<!-- %"
    result = ssmprune("export", place / "plain.safetensors", "--out", tmp_path / f"{name}.html")
    assert result.returncode == 0, result.stderr
    page = (tmp_path / f"{name}.html").read_text()
    assert page.count("<script") == 1
    assert "<!--" not in page
    assert "Draw a digit" not in page  # a model without a card takes numbers


def test_a_name_need_not_be_text(ssmprune, place, tmp_path):
    pytest.importorskip("ziglang")
    path = tmp_path / os.fsdecode(b"caf\xe9.html")
    assert ssmprune("export", place / "digits.safetensors", "--out", path).returncode == 0
    assert "<title>caf?</title>" in path.read_text()
    assert '"caf%E9.wasm"' in path.read_text()


@pytest.mark.parametrize(
    ("name", "reason"), [("both", "needs the whole sequence"), ("pairs", "this model compares two")]
)
def test_models_that_do_not_stream_are_refused(ssmprune, place, tmp_path, name, reason):
    refused = ssmprune("export", place / f"{name}.safetensors", "--out", tmp_path / "page.html")
    assert refused.returncode == 2
    assert reason in " ".join(refused.stderr.split())
    assert names(tmp_path) == []


def test_without_zig_it_says_what_to_install(ssmprune, place, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ziglang", None)
    refused = ssmprune("export", place / "digits.safetensors", "--out", tmp_path / "page.html")
    assert refused.returncode == 2
    assert "pip install '.[compile]'" in " ".join(refused.stderr.split())
    assert names(tmp_path) == []


def test_what_zig_refuses_is_told_and_nothing_written(ssmprune, place, tmp_path, monkeypatch):
    pytest.importorskip("ziglang")
    failed = subprocess.CompletedProcess([], 1, "", "error: no room")
    monkeypatch.setattr("ssmprune.deploy.build.run", lambda *arguments, **options: failed)
    refused = ssmprune("export", place / "digits.safetensors", "--out", tmp_path / "page.html")
    assert refused.returncode == 2
    assert "no room" in refused.stderr
    assert names(tmp_path) == []
