"""Writes are whole or absent, nothing runs code from files, importing reaches no network; fuzzing, kills."""

from __future__ import annotations

import ast
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import is_local

from ssmprune.errors import InputError
from ssmprune.files import ABANDONED, check_new_folder, digest, existing, new_folder, read_whole, write_atomically

ROOT = Path(__file__).parents[1]
SOURCES = sorted([*ROOT.glob("src/**/*.py"), *ROOT.glob("scripts/*.py"), *ROOT.glob("examples/*.py")])


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("step", ["write", "fsync", "replace", "chmod"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), PermissionError(13, "Permission denied")])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, step, error):
    target = tmp_path / "plan"
    write_atomically(target, b"old")

    def fail(*_arguments, **_options):
        raise error

    if step == "write":
        real = os.fdopen

        class Full:
            def __init__(self, handle, mode):
                self.file = real(handle, mode)

            def __enter__(self):
                return self

            def __exit__(self, *_):
                self.file.close()

            write = fail

        monkeypatch.setattr(os, "fdopen", Full)
    else:
        monkeypatch.setattr(os, step, fail)
    with pytest.raises(InputError, match=f"Cannot write .*plan: {error.strerror}.*untouched"):
        write_atomically(target, b"new")
    monkeypatch.undo()
    assert target.read_bytes() == b"old"
    assert names_in(tmp_path) == ["plan"]


def test_a_folder_that_cannot_be_made_is_told(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="Cannot write"):
        write_atomically(tmp_path / "file" / "below", b"")

    def refuse(*_arguments, **_options):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    with pytest.raises(InputError, match="Read-only file system"):
        write_atomically(tmp_path / "new", b"")
    assert names_in(tmp_path) == ["file"]


def test_a_full_disk_in_earnest(tmp_path):
    """/dev/full accepts everything and stores nothing; a link to it is no place for an artefact either."""
    (tmp_path / "link").symlink_to("/dev/full")
    with pytest.raises(InputError, match="not a regular file"):
        write_atomically(tmp_path / "link", b"x")
    with pytest.raises(InputError, match="/dev/null is not a regular file"):
        write_atomically("/dev/null", b"x")
    assert not Path("/dev/null").is_file()


def test_parts_of_killed_writers_go_with_the_next_write(tmp_path):
    write_atomically(tmp_path / "a[1]", b"x")
    stale, fresh, others = (tmp_path / name for name in (".a[1].old.part", ".a[1].new.part", ".b.old.part"))
    for part in (stale, fresh, others):
        part.touch()
    for part in (stale, others):
        os.utime(part, (0, time.time() - ABANDONED - 1))
    write_atomically(tmp_path / "a[1]", b"y")
    assert names_in(tmp_path) == [".a[1].new.part", ".b.old.part", "a[1]"]


def test_a_folder_is_complete_or_absent(tmp_path):
    with new_folder(tmp_path / "a" / "b") as place:
        write_atomically(place / "file", b"x")
        assert not (tmp_path / "a" / "b").exists()
    assert names_in(tmp_path / "a" / "b") == ["file"]
    (tmp_path / "empty").mkdir()
    with new_folder(tmp_path / "empty") as place:
        write_atomically(place / "file", b"y")
    assert names_in(tmp_path / "empty") == ["file"]
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / "c") as place:
        write_atomically(place / "file", bytes(1 // 0))
    assert names_in(tmp_path) == ["a", "empty"]
    assert names_in(tmp_path / "a") == ["b"]


def test_a_folder_that_cannot_be_new_is_refused_at_once(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    for path, reason in (
        (tmp_path, "not empty"),
        (tmp_path / "file", "not a folder"),
        (tmp_path / "file" / "x", "not a fold"),
    ):
        with pytest.raises(InputError, match=reason):
            check_new_folder(path)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(InputError, match="write-protected"):
        check_new_folder(tmp_path / "new")


def test_a_folder_that_another_has_filled_meanwhile_stays(tmp_path):
    with pytest.raises(InputError, match="Cannot write"), new_folder(tmp_path / "out"):
        write_atomically(tmp_path / "out" / "theirs", b"z")
    assert names_in(tmp_path) == ["out"]
    assert names_in(tmp_path / "out") == ["theirs"]


def test_folders_of_killed_writers_go_with_the_next(tmp_path):
    (stale := tmp_path / ".out.old.part").mkdir()
    (stale / "file").touch()
    os.utime(stale, (0, time.time() - ABANDONED - 1))
    with new_folder(tmp_path / "out"):
        pass
    assert names_in(tmp_path) == ["out"]


@pytest.mark.slow
def test_writers_of_one_target_do_not_mix(tmp_path):
    """Several processes write their own content again and again; readers only ever see one of them, whole."""
    target = tmp_path / "target"
    code = (
        "import sys; from ssmprune.files import write_atomically\n"
        "for _ in range(60): write_atomically(sys.argv[1], sys.argv[2].encode() * 200_000)"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, target, letter]) for letter in "ab"]
    seen = set()
    while any(writer.poll() is None for writer in writers):
        if target.exists():
            content = target.read_bytes()
            assert len(content) == 200_000
            assert len(set(content)) == 1
            seen.add(content[:1])
    assert [writer.wait() for writer in writers] == [0, 0]
    assert seen
    assert names_in(tmp_path) == ["target"]


def test_only_regular_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, reason in (
        (tmp_path / "pipe", "not a regular file"),
        (tmp_path, "a folder"),
        (tmp_path / "no", "No such"),
    ):
        with pytest.raises(InputError, match=reason):
            read_whole(path)
    with pytest.raises(InputError, match="null"):
        existing("a\0b")


def test_a_digest_sees_names_types_shapes_and_numbers():
    base = {"x": np.arange(4.0), "y": np.zeros(2)}
    variants = [
        {"x": np.arange(4.0), "z": np.zeros(2)},
        {"x": np.arange(4.0).astype(np.float32), "y": np.zeros(2)},
        {"x": np.arange(4.0).reshape(2, 2), "y": np.zeros(2)},
        {"x": np.nextafter(np.arange(4.0), 9), "y": np.zeros(2)},
    ]
    digests = {digest(base), digest(base, "about"), *(digest(variant) for variant in variants)}
    assert len(digests) == 6
    assert digest(dict(reversed(base.items()))) == digest(base)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_source_runs_code_from_files(path):
    """No pickle, no eval, no exec, no shell; torch.load and numpy's load only with their safe switches."""
    tree = ast.parse(path.read_text())
    ours = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}  # such as `ssmprune.compile`
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            assert not {"pickle", "dill", "joblib", "shelve", "marshal", "cloudpickle"} & set(names)
        if not isinstance(node, ast.Call):
            continue
        called, keywords = ast.unparse(node.func), {word.arg: ast.unparse(word.value) for word in node.keywords}
        assert called not in {"eval", "exec", "compile", "os.system", "__import__"} - ours
        assert keywords.get("shell") != "True"
        if called == "torch.load":
            assert keywords.get("weights_only") == "True"
        if called == "np.load":
            assert keywords.get("allow_pickle") == "False"


@pytest.mark.slow
def test_importing_opens_no_socket():
    code = """
import socket
def refuse(*_, **__): raise AssertionError("a socket was opened")
socket.socket.connect = socket.socket.bind = socket.getaddrinfo = socket.create_connection = refuse
import ssmprune, ssmprune.cli, ssmprune.models.checkpoint, ssmprune.tasks, ssmprune.training.loop
import ssmprune.deploy.onnx
print(len(ssmprune.tasks.found()))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) >= 10


def test_the_guard_of_the_suite_knows_this_machine():
    assert is_local(socket.AF_INET, ("127.0.0.1", 80))
    assert is_local(socket.AF_INET6, ("::1", 80))
    assert is_local(socket.AF_UNIX, "/tmp/socket")
    assert not is_local(socket.AF_INET, ("example.org", 443))
    assert not is_local(socket.AF_INET, ("192.0.2.1", 443))
    server = socket.create_server(("127.0.0.1", 0))
    with server, socket.create_connection(server.getsockname(), timeout=10), server.accept()[0]:
        pass


def counts(script: str, *arguments: str) -> dict[str, int]:
    """Run a script of scripts/ and return its last line under its titles."""
    result = subprocess.run(
        [sys.executable, ROOT / "scripts" / script, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stdout + result.stderr
    titles, *_, total = (re.split(r"\s+", line.strip()) for line in result.stdout.splitlines())
    return dict(zip(titles[1:], map(int, total[1:]), strict=True))


@pytest.mark.slow
def test_mutated_files_are_read_or_refused():
    seen = counts("fuzz.py", "--count", "540", "--seed", "1")
    assert seen["files"] == seen["refused"] + seen["accepted"] == 540
    assert seen["refused"] > seen["accepted"] > 0


@pytest.mark.slow
def test_killed_commands_leave_whole_files_and_go_on():
    commands = (word for name in ("train", "recover", "data", "shrink", "c", "deploy") for word in ("--command", name))
    seen = counts("kill.py", "--kills", "12", *commands)
    assert seen == {"kills": 12, "unreadable": 0, "wrong": 0, "lost": 0}
