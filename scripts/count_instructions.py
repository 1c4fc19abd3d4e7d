"""What does a step cost without a floating-point unit? Instructions of the shipped model's C, counted by qemu.

python scripts/count_instructions.py     (part of `make portable`, which installs what it needs)

Files in floats, with weights of 8 bits, and in whole numbers, of the whole model and with 80 % of its states pruned,
are compiled for soft-float ARM. qemu logs each instruction (-singlestep -d exec,nochain); a program of two steps less
the same program of one is a step with its answer.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import torch
from same_bits import PLACES, SHIPPED

import ssmprune as sp
from ssmprune.deploy.c import export_c
from ssmprune.models.classifier import Classifier

DRIVER = """
#include "model.h"
static model_state state;
static model_input in[MODEL_INPUTS];
static LOGIT out[MODEL_OUTPUTS];
int main(void) {
    model_init(&state);
    for (int i = 0; i < STEPS; i++) in[0] = (model_input)(i + 1), model_step(&state, in, out);
    return 0;
}
"""


def count(model: Classifier, place: str, steps: int) -> int:
    """Return the instructions of a program that takes so many steps."""
    compiler, runner = PLACES[place]
    whole = model.grid is not None and model.grid.ranges is not None
    macros = [f"-DSTEPS={steps}", f"-DLOGIT={'int32_t' if whole else 'float'}"]
    with tempfile.TemporaryDirectory() as folder:
        export_c(model, Path(folder) / "model.c", name="model")
        (Path(folder) / "driver.c").write_text(DRIVER)
        line = [*compiler, "-std=c99", "-O2", *macros, "model.c", "driver.c", "-lm", "-o", "program"]
        subprocess.run(line, cwd=folder, check=True)
        log = [*runner, "-singlestep", "-d", "exec,nochain", "./program"]
        with subprocess.Popen(log, cwd=folder, stderr=subprocess.PIPE) as process:
            assert process.stderr is not None
            found = sum(line.startswith(b"Trace") for line in process.stderr)
    if process.returncode:
        raise SystemExit(f"{' '.join(log)} failed with exit code {process.returncode}")
    return found


def main() -> None:
    """Print a line for each file."""
    data = [torch.rand(4, 200, 1, generator=torch.Generator().manual_seed(0))]
    for name, model in {"whole": sp.load(SHIPPED), "80 % pruned": sp.prune(sp.load(SHIPPED), 0.8)}.items():
        files = {
            "floats": model,
            "weights of 8 bits": sp.quantize(model),
            "whole numbers": sp.quantize(model, data=data, arithmetic="integer"),
        }
        for kind, file in files.items():
            for place in (label for label in PLACES if "soft-float" in label):
                step = count(file, place, 2) - count(file, place, 1)
                print(f"{name}, {kind}; {place}: {step:,} instructions a step", flush=True)


if __name__ == "__main__":
    main()
