"""Is the C file the same everywhere? The shipped models for other processors under qemu-user; weighed for a Cortex-M4.

python scripts/portable.py     (Debian: gcc gcc-aarch64-linux-gnu libc6-dev-arm64-cross gcc-arm-linux-gnueabi
                                libc6-dev-armel-cross qemu-user-static gcc-arm-none-eabi libnewlib-arm-none-eabi)

Logits of cross-compiled programs are compared with torch's, as `ssmprune verify` does.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import ssmprune as sp
from ssmprune.deploy.c import export_c, sources
from ssmprune.deploy.verify import random_inputs, verify
from ssmprune.models.classifier import Classifier

CHECKPOINTS = Path(__file__).parents[1] / "paper" / "checkpoints"
CORTEX_M4 = (
    *("arm-none-eabi-gcc", "-std=c99", "-O2", "-mcpu=cortex-m4", "-mthumb"),
    *("-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"),
)
ELSEWHERE = {  # a compiler, and what runs its programs
    "aarch64": ("aarch64-linux-gnu-gcc -static", "qemu-aarch64-static"),
    "ARM without floating-point unit": ("arm-linux-gnueabi-gcc -static", "qemu-arm-static"),
}


def main() -> int:
    """Print what every model does elsewhere; 1 if one of them differs."""
    differ = 0
    for name, model in models().items():
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / f"{name}.c"
            export_c(model, source)
            for processor, (compiler, emulator) in ELSEWHERE.items():
                found = verify(source, model, [random_inputs(model.config)], compiler, emulator)
                differ += not found.passed
                print(f"{name}: {processor}, under qemu, is off by {found.ulp:.1f} units in the last place of a logit")
            print(f"{name}: {on_cortex_m4(model)}", flush=True)
    return int(differ > 0)


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


def run(command: list[str] | tuple[str, ...], folder: Path) -> str:
    """What a command prints; what is missing or goes wrong ends the script."""
    try:
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        sys.exit(f"{command[0]} is not installed; the top of this file names the packages.")
    except subprocess.CalledProcessError as error:
        sys.exit(f"{' '.join(command[:2])} failed:\n{error.stderr}")


if __name__ == "__main__":
    sys.exit(main())
