"""Does a file in whole numbers give the same bits everywhere? Small models of every kind, and the shipped one pruned.

python scripts/same_bits.py [--steps 200000]    (`make portable`, which installs what it needs; zig: PyPI)

Each model takes random samples, constant and alternating extremes, and square waves, which push states towards their
bounds. A program prints a digest of all logits; those of all compilers, levels of optimisation and processors must be
the digest that gcc -O0 gives here, whose last logits the reference in Python gives too. Five small models take 200,000
steps each, 10^6 in each cell, which is half an hour of a core.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

import ssmprune as sp
from ssmprune.deploy.c import export_c
from ssmprune.integers.reference import Reference
from ssmprune.integers.whole import whole_of
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config

SHIPPED = Path(sp.__file__).parent / "demo" / "smnist-s5.safetensors"
KINDS = {
    "s5": Config("s5", inputs=2, outputs=3, width=8, states=(6, 5)),
    "s5 both ways, layer norm": Config(
        *("s5", 2, 3, 8, (6, 5)), bidirectional=True, norm="layer", activation="full_glu", pooling="last"
    ),
    "s5 pairs of token sequences": Config("s5", inputs=9, outputs=2, width=8, states=(5,), tokens=True, retrieval=True),
    "s4d, norm last": Config("s4d", 2, 3, 8, (24, 20), prenorm=False, activation="half_glu2", pooling="none"),
    "s4d both ways": Config("s4d", 2, 3, 8, (24, 20), bidirectional=True, norm="layer", activation="gelu"),
}
LENGTH = 100  # of a sequence
ZIG = (sys.executable, "-m", "ziglang", "cc")
PLACES = {  # what compiles, and what runs it
    "gcc, x86-64": (("gcc",), ()),
    "clang, x86-64": (("clang",), ()),
    "zig, x86-64": (ZIG, ()),
    "gcc, aarch64": (("aarch64-linux-gnu-gcc", "-static"), ("qemu-aarch64-static",)),
    "gcc, ARM soft-float, Thumb-1 (as Cortex-M0)": (
        ("arm-linux-gnueabi-gcc", "-static", "-march=armv5t", "-mthumb"),
        ("qemu-arm-static",),
    ),
    "gcc, ARM soft-float, Thumb-2 (as Cortex-M3)": (
        ("arm-linux-gnueabi-gcc", "-static", "-march=armv7-a", "-mthumb", "-mfloat-abi=soft"),
        ("qemu-arm-static",),
    ),
    "gcc, riscv64": (("riscv64-linux-gnu-gcc", "-static"), ("qemu-riscv64-static",)),
    "gcc, s390x (big-endian)": (("s390x-linux-gnu-gcc", "-static"), ("qemu-s390x-static",)),
}
LEVELS = ("-O0", "-O1", "-O2", "-O3")
DRIVER = """
#include "model.h"
#include <stdio.h>
#include <stdlib.h>
static model_input in[LENGTH * STRIDE];
static int32_t out[2][LENGTH * 256], logits[256], room[ROOM];

static uint32_t seed = 1;
static uint32_t draw(void) { return seed = seed * 1664525u + 1013904223u, seed >> 8; }

/* Kinds of sequences: random, constant, alternating, square waves of many periods. */
static void fill(int sequence) {
    for (int i = 0; i < LENGTH * STRIDE; i++) {
        const int period = 1 + sequence % 37, kind = sequence % 4;
        const int32_t extreme = i / STRIDE / period % 2 ? 32767 : -32768;
        in[i] = (model_input)(TOKENS ? i * (sequence + 7) % MODEL_INPUTS
                              : kind == 0 ? (int32_t)(draw() % 65536) - 32768 : kind == 1 ? 32767 : extreme);
    }
}

static void run(int32_t *to) {
#if BOTH
    model_run(room, in, LENGTH, LENGTH, to);
#else
    static model_state state;
    model_init(&state);
    model_run(&state, in, LENGTH, to);
#endif
}

int main(void) {
    uint32_t digest = 2166136261u;
    for (int sequence = 0; sequence < SEQUENCES; sequence++) {
        fill(sequence);
        run(out[0]);
#if PAIRS
        fill(sequence + 1);
        run(out[1]);
        model_compare(out[0], out[1], logits);
        for (int i = 0; i < MODEL_OUTPUTS; i++) out[0][i] = logits[i];
#endif
        for (int i = 0; i < NUMBERS; i++) digest = (digest ^ (uint32_t)out[0][i]) * 16777619u;
    }
    printf("%08lx", (unsigned long)digest);
    for (int i = 0; i < NUMBERS; i++) printf(" %ld", (long)out[0][i]);
    return 0;
}
"""


def models() -> dict[str, Classifier]:
    """Return random models with slow states, and the shipped one, pruned, in whole numbers."""
    found = {}
    for name, config in KINDS.items():
        torch.manual_seed(len(found))
        x = torch.randint(config.inputs, (4, 50)) if config.tokens else torch.randn(4, 50, config.inputs)
        found[name] = sp.quantize(Classifier(config).eval(), data=[x], arithmetic="integer")
    shipped = sp.prune(sp.load(SHIPPED), 0.8)
    found["smnist-s5, 80 % pruned"] = sp.quantize(shipped, data=[torch.rand(4, 200, 1)], arithmetic="integer")
    return found


def write(model: Classifier, steps: int, folder: Path) -> list[str]:
    """Write a model and its driver; return the macros."""
    config = model.config
    export_c(model, folder / "model.c", name="model")
    (folder / "driver.c").write_text(DRIVER)
    macros = {
        "LENGTH": LENGTH,
        "SEQUENCES": max(8, steps // LENGTH),
        "STRIDE": 1 if config.tokens else config.inputs,
        "TOKENS": int(config.tokens),
        "BOTH": int(config.bidirectional),
        "PAIRS": int(config.retrieval),
        "NUMBERS": config.outputs * (LENGTH if config.pooling == "none" else 1),
        "ROOM": "MODEL_WORKSPACE(LENGTH)" if config.bidirectional else 1,
    }
    return [f"-D{name}={value}" for name, value in macros.items()]


def printed(place: str, level: str, macros: list[str], folder: Path) -> str:
    """Return what the program of one compiler prints."""
    compiler, runner = PLACES[place]
    line = [*compiler, "-std=c99", level, *macros, "model.c", "driver.c", "-o", "program"]
    subprocess.run(line, cwd=folder, check=True, capture_output=True)
    return subprocess.run([*runner, "./program"], cwd=folder, check=True, capture_output=True, text=True).stdout


def last_logits(model: Classifier, last: int) -> str:
    """Return the reference's logits of the last sequence, of square waves, or of tokens, which needs no generator."""
    config = model.config
    i = np.arange(LENGTH * (1 if config.tokens else config.inputs))
    if config.tokens:
        x = np.stack([i * (sequence + 7) % config.inputs for sequence in (last, last + 1)[: 1 + config.retrieval]])
    else:
        x = np.where(i // config.inputs // (1 + last % 37) % 2, 32767, -32768).reshape(1, LENGTH, -1)
    return " ".join(map(str, Reference(whole_of(model))(x).ravel()))


def main() -> int:
    """Print the matrix; 1 if a cell differs or cannot be tried."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--steps", type=int, default=200_000, help="of each model in each cell; a tenth for the shipped one"
    )
    steps, differ = parser.parse_args().steps, 0
    for name, model in models().items():
        with tempfile.TemporaryDirectory() as place:
            few = steps // 10 if name.startswith("smnist") else steps
            few = max(8, few // LENGTH // 4 * 4) * LENGTH  # the last sequence is one of square waves
            folder = Path(place)
            macros = write(model, few, folder)
            wanted = printed("gcc, x86-64", "-O0", macros, folder)
            by_reference = wanted.split(" ", 1)[1] == last_logits(model, few // LENGTH - 1)
            differ += not by_reference
            print(
                f"{name}, {few:,} steps: {wanted[:8]}, {'as' if by_reference else 'NOT as'} the reference", flush=True
            )
            for label, (compiler, runner) in PLACES.items():
                if shutil.which(compiler[0]) is None or any(shutil.which(word) is None for word in runner):
                    print(f"    {label}: NOT INSTALLED; `make portable` installs it")
                    differ += 1
                    continue
                same = [printed(label, level, macros, folder) == wanted for level in LEVELS]
                differ += len(same) - sum(same)
                print(f"    {label}, {' '.join(LEVELS)}: {'the same' if all(same) else 'DIFFERENT'}", flush=True)
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
