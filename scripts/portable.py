"""Is the C file the same everywhere? The shipped models for aarch64, run under qemu-user, and for a Cortex-M4, weighed.

python scripts/portable.py     (Debian: gcc gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static
                                gcc-arm-none-eabi libnewlib-arm-none-eabi)

Logits of the cross-compiled program are compared with torch's.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

import ssmprune as sp
from ssmprune.deploy.c import export_c, sources
from ssmprune.models.classifier import Classifier

CHECKPOINTS = Path(__file__).parents[1] / "paper" / "checkpoints"
STEPS, TOLERANCE = 200, 1e-5
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
CORTEX_M4 = (
    *("arm-none-eabi-gcc", "-std=c99", "-O2", "-mcpu=cortex-m4", "-mthumb"),
    *("-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"),
)
AARCH64 = ("aarch64-linux-gnu-gcc", *STRICT, "-O2", "-static", "-DSSMPRUNE_MAIN")


def main() -> int:
    """Print what every model does elsewhere; 1 if one of them differs."""
    worst = 0.0
    for name, model in models().items():
        with tempfile.TemporaryDirectory() as folder:
            export_c(model, Path(folder) / f"{name}.c")
            error = off_by(model, name, Path(folder))
            worst = max(worst, error)
            print(f"{name}: aarch64 under qemu differs from torch by {error:.1e} of the largest logit")
            print(f"{name}: {on_cortex_m4(model)}", flush=True)
    return int(not worst <= TOLERANCE)


def models() -> dict[str, Classifier]:
    """Shipped checkpoints of both families and directions, pruned and quantised ones."""
    found = {name: sp.load(CHECKPOINTS / f"{name}.safetensors") for name in ("smnist-s5", "smnist-s4d", "listops-s5")}
    found |= {f"{name}-80": sp.prune(found[name], 0.8) for name in ("smnist-s5", "smnist-s4d")}
    found |= {f"smnist-s5-80-{bits}-bits": sp.quantize(found["smnist-s5-80"], bits) for bits in (8, 4)}
    return {name.replace("-", "_"): model for name, model in found.items()}


def on_cortex_m4(model: Classifier) -> str:
    """What a model takes there: flash for code and weights, RAM for a stream's state and the stack.

    The stack counts all functions as if they were called at once, which is more than is ever needed. A bidirectional
    model has no stream.
    """
    text = sources(model)
    streams = "model_state" in text.header
    state = {"state.c": '#include "model.h"\nmodel_state state;\n'} if streams else {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, content in {"model.c": text.c, "model.h": text.header, **state}.items():
            (folder / file).write_text(content)
        run([*CORTEX_M4, "-DMODEL_BLOCK=1", "-fstack-usage", "-c", "model.c", *state], folder)
        lines = run(["arm-none-eabi-size", "model.o", *(file.replace(".c", ".o") for file in state)], folder)
        sizes = [[int(word) for word in line.split()[:3]] for line in lines.splitlines()[1:]]  # text, data, bss
        stack = sum(int(line.split("\t")[1]) for line in (folder / "model.su").read_text().splitlines())
    ram = f", {sizes[1][2] + stack:,} of RAM" if streams else ""
    return f"Cortex-M4 needs {sizes[0][0] + sizes[0][1]:,} bytes of flash{ram}"


def off_by(model: Classifier, name: str, folder: Path) -> float:
    """The largest difference of the logits of a random sequence, relative to the largest logit."""
    torch.manual_seed(0)
    config = model.config
    x = torch.randint(config.inputs, (1, STEPS)) if config.tokens else torch.rand(1, STEPS, config.inputs)
    run([*AARCH64, f"{name}.c", "-lm", "-o", "program"], folder)
    text = " ".join(f"{value:.9g}" for value in x.flatten().tolist())
    ours = np.array(run(["qemu-aarch64-static", "./program"], folder, text).split(), np.float32)
    with torch.no_grad():
        logits = model(x)[0].numpy()
    return float(np.abs(ours - logits).max() / np.abs(logits).max())


def run(command: list[str] | tuple[str, ...], folder: Path, text: str | None = None) -> str:
    """What a command prints; what is missing or goes wrong ends the script."""
    try:
        return subprocess.run(command, cwd=folder, input=text, capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        sys.exit(f"{command[0]} is not installed; the top of this file names the packages.")
    except subprocess.CalledProcessError as error:
        sys.exit(f"{' '.join(command[:2])} failed:\n{error.stderr}")


if __name__ == "__main__":
    sys.exit(main())
