"""The examples are what users copy first, so they run."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))

STRICT = ["-W", "error", "-W", "ignore::DeprecationWarning:torch.jit._script"]  # s5-pytorch still scripts its functions


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path):
    result = subprocess.run([sys.executable, *STRICT, path], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert result.stdout


def test_there_are_examples():
    assert len(EXAMPLES) >= 4
