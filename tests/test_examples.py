"""The examples are what users copy first, so they run."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tiny_data import write_wav

pytestmark = pytest.mark.slow

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))

STRICT = ["-W", "error", "-W", "ignore::DeprecationWarning:torch.jit._script"]  # s5-pytorch still scripts its functions


def run(path, *arguments):
    result = subprocess.run([sys.executable, *STRICT, path, *arguments], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path):
    assert run(path)


def test_spoken_words_listens_to_wav_files(tmp_path):
    """At the model's rate or twice that, too short or too long; the same sound is the same word."""
    noise = np.cumsum(np.random.default_rng(0).integers(-500, 501, 9000)).clip(-32000, 32000)
    write_wav(tmp_path / "long.wav", noise)
    write_wav(tmp_path / "fast.wav", np.repeat(noise, 2), rate=16000)
    write_wav(tmp_path / "short.wav", noise[:3000])
    (example,) = (path for path in EXAMPLES if path.stem == "spoken_words")
    said = run(example, *(tmp_path / f"{name}.wav" for name in ("long", "fast", "short")))
    words = dict(re.findall(r"^(\w+)\.wav: (\w+)$", said, re.MULTILINE))
    assert words.keys() == {"long", "fast", "short"}
    assert words["long"] == words["fast"]
    assert re.search(r"^program: \d+ kB; memory: \d\.\d MB$", said, re.MULTILINE)
    assert float(re.search(r"^real-time factor: ([\d.]+)", said, re.MULTILINE)[1]) > 0


def test_there_are_examples():
    assert len(EXAMPLES) >= 4
