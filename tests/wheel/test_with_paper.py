"""The wheel with the paper's package beside it, which `make wheel-test` installs after the first tests."""

import json
import subprocess
import sys
from pathlib import Path


def run(command: str, *arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    script = Path(sys.executable).with_name(command)
    return subprocess.run([script, *map(str, arguments)], cwd=folder, capture_output=True, text=True)


def test_a_task_of_the_paper_is_trained(tmp_path):
    (tmp_path / "listops").mkdir()
    lines = ["Source\tTarget", *(f"[MAX {number} {600 * '3 '}]\t{max(number, 3)}" for number in range(10))]
    for part in ("train", "val", "test"):
        (tmp_path / "listops" / f"basic_{part}.tsv").write_text("\n".join(lines) + "\n")
    words = ["--data", ".", "--out", "run", "--recipe", "general", "--epochs", "1", "--batch", "10"]
    result = run("ssmprune", "train", "listops", *words, "--layers", "1", "--width", "4", "--json", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["steps"] == 1


def test_its_command_is_there(tmp_path):
    result = run("ssmprune-paper", "--help", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert all(verb in result.stdout for verb in ("reproduce", "table", "figure"))
