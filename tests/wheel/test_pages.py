"""The README and the tutorial in an environment that was made as they say, by `make wheel-test`: all of it runs."""

import gzip
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ssmprune.tasks import read_idx
from ssmprune.tasks.smnist import SAMPLE

ROOT = Path(__file__).parents[2]
SHORTER = {"recover": " --minutes 0.1", "sweep": " --ratios 0.5"}


def write_few_images(folder: Path, count: int = 50) -> None:
    """Take some of the images in the package: budgets and sweeps look at all there are, again and again."""
    folder.mkdir(parents=True)
    for path in (SAMPLE / "mnist").iterdir():
        dims = 3 if "images" in path.name else 1
        some = np.ascontiguousarray(read_idx(path, dims)[:count])
        (folder / path.name).write_bytes(
            gzip.compress(struct.pack(f">BBBB{dims}I", 0, 0, 8, dims, *some.shape) + some.tobytes())
        )


def run(command: str, folder: Path, **more: str) -> None:
    """Run a line in a terminal, in a folder that knows nothing of the repository."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {name: value for name, value in os.environ.items() if name != "SSMPRUNE_DATA"} | {"PATH": path} | more
    result = subprocess.run(command, shell=True, cwd=folder, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, (command, result.stderr)


def test_the_readme(tmp_path):
    text = (ROOT / "README.md").read_text()
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", text, re.DOTALL)):
        (tmp_path / f"block{number}.py").write_text(block)
        run(f"python block{number}.py", tmp_path)
    run("ssmprune evaluate small.safetensors --task smnist --engine auto", tmp_path)  # on the images in the package
    write_few_images(tmp_path / "data" / "mnist")
    for line in re.findall(r"^    (ssmprune .*?)(?: *#.*)?$", text, re.MULTILINE):
        bounded = "--max-loss" in line  # which takes all 1,000 images in the package
        few = {} if bounded else {"SSMPRUNE_DATA": str(tmp_path / "data")}
        run(line + SHORTER.get(line.split()[1], ""), tmp_path, **few)


def test_the_tutorial(tmp_path):
    """One session of Python, which waits for the lines of the terminal."""
    pytest.importorskip("onnxruntime")
    blocks = re.findall(r"```(python|sh)\n(.*?)```", (ROOT / "docs" / "tutorial.md").read_text(), re.DOTALL)
    session = ["import subprocess"]
    for language, block in blocks:
        lines = [f"subprocess.run({line!r}, shell=True, check=True)" for line in block.splitlines()]
        session += [block] if language == "python" else lines
    (tmp_path / "session.py").write_text("\n".join(session))
    run("python session.py", tmp_path)
