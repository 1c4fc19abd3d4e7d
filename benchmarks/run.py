"""Run every benchmark of this folder and write results.json, results.md and speed.png beside it.

python benchmarks/run.py             everything
python benchmarks/smnist.py          one question, printed
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import platform
import subprocess
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType

import numpy as np
import torch

import plot
from ssmprune.files import write_atomically
from ssmprune.sweeps.timing import processor
from table import Figure, markdown, prepare

FOLDER = Path(__file__).parent


def main() -> None:
    about = machine()
    results: dict[str, list[Figure]] = {}
    start = time.monotonic()
    for name, module in questions().items():
        # A process of its own each, so that no question inherits another's threads or memory.
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            results[name] = process.submit(answer, name).result()
        print(f"{module.__doc__}\n{markdown(results[name])}\n", flush=True)
    about["minutes"] = round((time.monotonic() - start) / 60, 1)
    rows = {name: [asdict(row) | {"met": row.met} for row in figures] for name, figures in results.items()}
    write("results.json", json.dumps({"machine": about, "results": rows}, indent=2) + "\n")
    write("results.md", page(about, results))
    plot.draw(results, str(FOLDER / "speed.png"))


def answer(name: str) -> list[Figure]:
    prepare()
    figures: list[Figure] = importlib.import_module(name).measure()
    return figures


def questions() -> dict[str, ModuleType]:
    """Every script of this folder that measures something."""
    names = [entry.name for entry in pkgutil.iter_modules([str(FOLDER)]) if entry.name != Path(__file__).stem]
    modules = {name: importlib.import_module(name) for name in names}
    return {name: module for name, module in modules.items() if hasattr(module, "measure")}


def machine() -> dict[str, object]:
    """What the figures were measured on."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load_before": round(os.getloadavg()[0], 1),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit(),
    }


def commit() -> str:
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=FOLDER, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return described.stdout.strip()


def page(about: dict[str, object], results: dict[str, list[Figure]]) -> str:
    """The results as Markdown: what missed its bound first, then every table."""
    bounded = [row for figures in results.values() for row in figures if row.bound]
    missed = [row for row in bounded if not row.met]
    parts = [
        "# Benchmarks",
        "Written by `make bench` (`benchmarks/run.py`). Times are medians of rounds in which everything that is "
        "compared took turns in one process; ratios are medians of the ratios of the rounds. Weights are random.",
        "\n".join(f"- {name.replace('_', ' ')}: {value}" for name, value in about.items()),
        f"{len(bounded) - len(missed)} of {len(bounded)} bounds are met.",
    ]
    if missed:
        parts.append(
            "Not met:\n\n" + "\n".join(f"- {row.what}: {row.cells()['measured']}, {row.bound}" for row in missed)
        )
    parts.append("![Speed of shrunk models, time per step, streaming](speed.png)")
    for name, figures in results.items():
        title, text = (importlib.import_module(name).__doc__ or name).strip().split("\n\n", 1)
        parts.append(f"## {title}\n\n{text}\n\n{markdown(figures)}\n\n`python benchmarks/{name}.py`")
    return "\n\n".join(parts) + "\n"


def write(name: str, text: str) -> None:
    write_atomically(FOLDER / name, text.encode())


if __name__ == "__main__":
    main()
