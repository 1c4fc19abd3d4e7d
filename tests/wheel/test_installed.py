"""The wheel as a user gets it: `make wheel-test` installs it into a new environment and runs this folder there."""

import json
import subprocess
import sys
import sysconfig
from importlib.metadata import files, metadata
from pathlib import Path

import pytest
import torch

import ssmprune as sp

SCRIPT = Path(sys.executable).with_name("ssmprune")
DEMO = Path(sp.__file__).parent / "demo" / "smnist-s5.safetensors"


def run(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the installed command in a folder that knows nothing of the repository."""
    return subprocess.run([SCRIPT, *map(str, arguments)], cwd=folder, capture_output=True, text=True)


def test_it_is_the_installed_package():
    assert Path(sp.__file__).is_relative_to(sysconfig.get_path("purelib"))
    facts = metadata("ssmprune")
    assert facts["Version"] == sp.__version__
    assert (facts["Author"], facts["License-Expression"]) == ("The ssmprune developers", "Apache-2.0")
    assert facts["Requires-Python"] == ">=3.11"


def test_types_and_demo_ship_along():
    package = Path(sp.__file__).parent
    assert (package / "py.typed").exists()
    assert DEMO.exists()
    assert not (package / "tests").exists()


def test_nothing_of_the_paper_ships_along(tmp_path):
    names = [str(path) for path in files("ssmprune")]
    assert [name for name in names if "paper" in name or "checkpoints" in name or "results" in name] == []
    result = run("train", "listops", "--out", "run", folder=tmp_path)
    assert result.returncode == 2
    assert "pip install ./paper" in result.stderr


def test_all_brings_no_tools_of_developers():
    everything = [line for line in metadata("ssmprune").get_all("Requires-Dist") if "extra == 'all'" in line]
    assert everything
    assert not [line for line in everything if any(tool in line for tool in ("pytest", "ruff", "mypy", "mkdocs"))]


def test_a_shipped_model_is_pruned_in_python(tmp_path):
    model = sp.load(DEMO)
    small = sp.prune(model, ratio=0.5)
    sp.save(small, tmp_path / "small.safetensors")
    assert sum(small.config.states) * 2 == sum(model.config.states)
    x = torch.linspace(0, 1, 60)[None, :, None]
    with torch.no_grad():
        assert torch.equal(sp.load(tmp_path / "small.safetensors")(x), small(x))


def test_a_shipped_model_is_pruned_at_the_command_line(tmp_path):
    result = run("prune", DEMO, "--ratio", "0.5", "--out", "small.safetensors", "--json", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["layers"][-1]["pruned"] == 0.5
    assert (tmp_path / "small.safetensors").stat().st_size < 0.75 * DEMO.stat().st_size


def test_a_bad_line_gets_exit_code_2_and_no_traceback(tmp_path):
    result = run("prune", "absent.safetensors", "--ratio", "0.5", "--out", "small.safetensors", folder=tmp_path)
    assert result.returncode == 2
    assert "absent.safetensors" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_demo_runs(tmp_path):
    result = run("demo", "--json", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    rows = {row["ratio"]: row for row in json.loads(result.stdout)["rows"]}
    assert rows[0.0]["accuracy"]["Surgeon"] == pytest.approx(0.992, abs=0.005)
    assert rows[0.8]["accuracy"]["Surgeon"] > 0.97
    assert rows[0.8]["accuracy"]["LAST"] < 0.7
