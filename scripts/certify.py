"""What embedded engineers ask of generated C, of the models of tests/deploy/test_c_contract.py.

python scripts/certify.py [CHECK ...]    (Debian: gcc clang cppcheck valgrind gcc-arm-none-eabi libnewlib-arm-none-eabi)

Warnings at three levels of optimisation, gcc's analyser, cppcheck with its MISRA addon, the branches that the models
reach, the readers of the program at random, instructions of a step whatever the data, flash, memory and stack.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
from same_bits import models as small_models
from same_bits import write

import ssmprune as sp
from ssmprune.deploy.c import export_c
from ssmprune.deploy.c.source import golden_text
from ssmprune.integers.whole import in_whole_numbers
from ssmprune.models.classifier import Classifier

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in ("tests", "tests/deploy", "tests/integers")]

from test_c_certified import FUZZ, fuzz_program  # noqa: E402
from test_c_contract import quantised, random_models, shrunk_models, trial  # noqa: E402
from test_c_text import bare_engine  # noqa: E402
from test_integers import whole_number_model  # noqa: E402

from c_builds import STRICT  # noqa: E402

DEVIATIONS = ROOT / "docs" / "certified.md"
BOTH = ("-DSSMPRUNE_MAIN", "-DSSMPRUNE_SELF_TEST")
# What else a caller may do: lengths of 0 and beyond the end, tokens that there are not, nowhere to write.
CORNERS = {
    "whole": "model_run(w, in, 3, 0, out), model_run(w, in, 3, 9, out), model_run(w, in, 16, 16, out);",
    "stream": "model_init(s), model_run(s, in, 0, out), model_run(s, in, 16, out), model_step(s, in, NULL);",
}
STEPS = """
#include "model.h"
#include <stdio.h>
int main(int count, char **files) {
    static model_input in[200 * 64];
    static model_state state;
    static LOGIT out[4096];
    FILE *file = count == 2 ? fopen(files[1], "rb") : NULL;
    if (!file || fread(in, sizeof in, 1, file) != 1) return 1;
    model_init(&state);
    for (int t = 0; t < 200; t++) model_step(&state, in + 64 * t, out);
    return 0;
}
"""
BUILDS = (("-U__SSE__",), (), ("-mavx2",), ("-mavx2", "-DMODEL_BLOCK=1"))  # 1, 4 and 8 lanes
ENGINE = ("engine.c", "end.c")  # what a model's files consist of
VARIES = 0.01  # instructions of a step in whole numbers
OVERFLOW_STEPS = 1_700_000  # of each of six models
CORTEX_M4 = ("arm-none-eabi-gcc", "-std=c99", "-O2", "-mcpu=cortex-m4", "-mthumb")
CORTEX_M4 += ("-mfloat-abi=hard", "-mfpu=fpv4-sp-d16", "-DMODEL_BLOCK=1")
# Bytes of flash, of a stream's state, and of all frames together, with Debian 12's gcc 12.2; smaller is welcome.
PINNED = {"smnist-s5": (74_412, 988, 2_216), "smnist-s4d": (47_296, 10_948, 1_640)}


def contract_models() -> dict[str, Classifier]:
    """Models with every choice that a config has, in floats, on 8 and 4 bits, and in whole numbers."""
    floats = random_models() | shrunk_models()
    integers = {f"integer_{name}": whole_number_model(model) for name, model in floats.items()}
    return {**floats, **quantised(floats), **integers}


def check_warnings(models: Mapping[str, Classifier], folder: Path) -> str:
    """Compile all models with two compilers at three levels."""
    for compiler in ("gcc", "clang"):
        for level in ("-O1", "-O2", "-O3"):
            run([compiler, *STRICT, *BOTH, level, "-c", *(f"{name}.c" for name in models)], folder)
    return f"{len(models)} models, gcc and clang, -O1 -O2 -O3: no warning of {' '.join(STRICT[1:-1])}"


def check_analyser(models: Mapping[str, Classifier], folder: Path) -> str:
    """Let gcc follow the paths of every fifth model, which takes it long.

    It does not understand arrays of vectors: words of two bits, it says, that nobody has set. So two of its checks are
    made in the build without vectors alone, which has the same loops.
    """
    names = [f"{name}.c" for name in models][::5]
    analyse = ["gcc", "-std=c99", "-O1", "-fanalyzer", "-Werror", "-c", *BOTH]
    not_of_vectors = (f"-Wno-analyzer-{name}" for name in ("shift-count-overflow", "use-of-uninitialized-value"))
    run([*analyse, "-U__SSE__", *names], folder)
    run([*analyse, *not_of_vectors, *names], folder)
    return f"{len(names)} models: gcc -fanalyzer finds nothing"


def check_cppcheck(models: Mapping[str, Classifier], folder: Path) -> str:
    """Look for defects, and for deviations from MISRA C 2012 that the docs do not list."""
    names = [f"{name}.c" for name in models]
    defects = [
        "cppcheck",
        "--std=c99",
        "--quiet",
        "--error-exitcode=1",
        "--enable=warning,style,performance,portability",
    ]
    run([*defects, "-DSSMPRUNE_MAIN", "-DSSMPRUNE_SELF_TEST", *names], folder)
    told = run(
        ["cppcheck", "--std=c99", "--quiet", "--addon=misra", "-USSMPRUNE_MAIN", *names[::4]], folder, errors=True
    )
    found = set(re.findall(r"misra-c2012-(\d+\.\d+)", told))
    listed = set(re.findall(r"^\| (\d+\.\d+) \|", DEVIATIONS.read_text(), re.MULTILINE))
    if found - listed:
        sys.exit(
            f"MISRA rules that {DEVIATIONS.name} does not list: {', '.join(sorted(found - listed))}\n{told[-3000:]}"
        )
    return f"{len(models)} models: cppcheck finds nothing; {len(found)} MISRA rules deviated from, all listed"


def check_branches(models: Mapping[str, Classifier], folder: Path) -> str:
    """Count the branches of both engines that models reach; that in floats in builds with 1, 4 and 8 lanes."""
    integers = {name: model for name, model in models.items() if in_whole_numbers(model)}
    floats = {name: model for name, model in models.items() if name not in integers}
    told = [branches(floats, folder, "engine.c", BUILDS), branches(integers, folder, "integer.c", ((),))]
    return "; ".join(told)


def branches(models: Mapping[str, Classifier], folder: Path, engine: str, builds: Iterable[tuple[str, ...]]) -> str:
    """Count the lines and branches of an engine that no model reaches; there must be none."""
    taken: dict[tuple[str, str, int], list[int]] = {}  # by line, function it is in or inlined into, number of branches
    lines: dict[str, int] = defaultdict(int)
    for name, model in models.items():
        for i, flags in enumerate(builds):
            for line in covered(model, folder / f"{name}_{i}", flags):
                number, counts = line["line_number"], [branch["count"] for branch in line["branches"]]
                lines[number] += line["count"]
                before = taken.setdefault((number, line.get("function_name", ""), len(counts)), [0] * len(counts))
                before[:] = [a + b for a, b in zip(before, counts, strict=True)]
    missed = sorted(number for number, count in lines.items() if not count)
    counted = [count for counts in taken.values() for count in counts]
    untaken = sorted({number for (number, *_), counts in taken.items() if not all(counts)})
    reached = sum(count > 0 for count in counted)
    print(f"  {engine}: lines {len(lines) - len(missed)} of {len(lines)}, branches {reached} of {len(counted)}")
    if missed or untaken:
        sys.exit(f"{engine}: lines {missed} are not reached, branches of lines {untaken} not taken")
    return f"{engine}: all {len(lines)} lines and all {len(counted)} branches are reached"


def covered(model: Classifier, folder: Path, flags: Iterable[str]) -> list[dict]:
    """Run a model in the whole engine, and return gcov's lines of it."""
    folder.mkdir()
    bare_engine(model, folder, calls=False)
    golden, expected = golden_text(model), "!= 0"
    if in_whole_numbers(model):
        sizes = (folder / "sizes.h").read_text()  # of the steps that a mean counts, so few that they are reached
        (folder / "sizes.h").write_text(sizes.replace("MOST_STEPS 2147483647u", "MOST_STEPS 19u"))
        golden, expected = golden + "\n#define GOLDEN_OUT WRONG\nstatic const int32_t WRONG[GOLDEN_NUMBERS];", "== 0"
    elif not flags:  # a test that fails, as none is right to the last digit
        golden, expected = re.sub("(GOLDEN_BOUND) .*", r"\1 0.0f", golden), "< 0"
    (folder / "golden.h").write_text(golden)
    engine = (folder / "engine.c").read_text()  # inlined, a branch would count once for each call
    (folder / "engine.c").write_text(engine.replace("static inline __attribute__((always_inline))", "static"))
    corners = "in[1] = -1, in[2] = (model_input)MODEL_INPUTS; "
    corners += CORNERS["whole" if model.config.bidirectional else "stream"]
    text = re.sub(r"(?=free\([ws]\);)", f"{corners} ", trial("model", model))
    (folder / "try.c").write_text(
        text + f"int main(void) {{ return !try_model() + (model_self_test() {expected}); }}\n"
    )
    build = ["gcc", "-O0", "--coverage", "-DSSMPRUNE_SELF_TEST", *flags]
    run([*build, "engine.c", "try.c", "-lm", "-o", "try"], folder)
    run(["./try"], folder)
    told = run(["gcov", "--branch-probabilities", "--json-format", "--stdout", "try-engine.gcda"], folder)
    found = [(file["file"], line) for file in json.loads(told)["files"] for line in file["lines"]]
    return [line | {"line_number": f"{name}:{line['line_number']}"} for name, line in found if name in ENGINE]


def check_readers(models: Mapping[str, Classifier], folder: Path) -> str:
    """Feed random bytes to the program's readers of numbers, tokens and samples, under sanitizers."""
    kinds = ("s5_2", "s5_5", "s5_1", "s5_3")
    for name in (*kinds, *(f"integer_{name}" for name in kinds)):
        print(f"  {name}: {run([str(fuzz_program(folder, name)), str(100 * FUZZ)], folder).strip()}")
    return f"{100 * FUZZ:,} inputs each: no reader stumbles"


def check_work(models: Mapping[str, Classifier], folder: Path) -> str:
    """Count the instructions of 200 steps (valgrind): floats of any size, and samples of 16 bits.

    In whole numbers, gcc makes branches of clamps; to avoid them would cost a Cortex-M 12 % more instructions.
    """
    usual, seen, varies, differ = np.random.default_rng(0).normal(size=200 * 64), 0, 0.0, []
    floats = {"zero": 0 * usual, "denormal": 1e-41 * np.sign(usual), "usual": usual, "large": 1e9 * usual}
    floats |= {"largest": 3.4e38 * np.sign(usual), "nan": np.nan * usual}
    samples = {"zero": 0 * usual, "usual": 5000 * usual, "largest": 32767 * np.sign(usual), "least": -32768 + 0 * usual}
    (folder / "steps.c").write_text(STEPS)
    for name, model in models.items():
        if model.config.bidirectional or model.config.tokens:
            continue
        export_c(model, folder / "model.c")
        whole = in_whole_numbers(model)
        compiler = ["gcc", "-std=c99", "-O2", "-fno-math-errno", f"-DLOGIT={'int32_t' if whole else 'float'}"]
        run([*compiler, "steps.c", "model.c", "-lm", "-o", "steps"], folder)
        counts = {}
        for kind, numbers in (samples if whole else floats).items():
            given = numbers.clip(-32768, 32767).astype(np.int16) if whole else numbers.astype(np.float32)
            given.tofile(folder / "in")
            counts[kind] = instructions(["./steps", "in"], folder)
        spread = max(counts.values()) / min(counts.values()) - 1
        if spread > (VARIES if whole else 0):
            differ.append(f"{name} takes more instructions for some inputs: {counts}")
        varies, seen = max(varies, spread), seen + 1
    if differ:
        sys.exit("\n".join(differ))
    return (
        f"{seen} models: in floats the same number of instructions for {', '.join(floats)} numbers; in whole "
        f"numbers, for {', '.join(samples)} samples, at most {varies:.2%} more than the fewest"
    )


def instructions(command: list[str], folder: Path) -> int:
    """Return how many instructions a program takes."""
    valgrind = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    told = run([*valgrind, *command], folder, errors=True)
    return int(re.search(r"I\s+refs:\s+([\d,]+)", told)[1].replace(",", ""))  # type: ignore[index]


def check_overflow(models: Mapping[str, Classifier], folder: Path) -> str:
    """Let clang stop a file in whole numbers at the first number that does not fit, over 10^7 steps.

    The file says where it makes 64 bits 32, by casts. Without them its sanitizer checks those places too.
    """
    steps = 0
    for model in small_models().values():
        macros = write(model, OVERFLOW_STEPS, folder)
        text = (folder / "model.c").read_text()
        (folder / "model.c").write_text(re.sub(r"\(int32_t\)(?=[a-z(])", "", text))
        checks = "-fsanitize=undefined,implicit-signed-integer-truncation"
        build = ["clang", "-std=c99", "-O2", "-w", checks, "-fsanitize-trap=all", *macros]
        run([*build, "model.c", "driver.c", "-o", "program"], folder)
        run(["./program"], folder)
        steps += OVERFLOW_STEPS
    return f"{steps:,} steps, random and extreme: no number overflows"


def check_sizes(models: Mapping[str, Classifier], folder: Path) -> str:
    """Weigh two shipped models, four of five states pruned, 8 bits, for a Cortex-M4."""
    for name, pinned in PINNED.items():
        model = sp.quantize(sp.prune(sp.load(ROOT / "paper" / "checkpoints" / f"{name}.safetensors"), 0.8), 8)
        export_c(model, folder / "model.c")
        (folder / "state.c").write_text('#include "model.h"\nmodel_state state;\n')
        run([*CORTEX_M4, "-fstack-usage", "-c", "model.c", "state.c"], folder)
        rows = run(["arm-none-eabi-size", "model.o", "state.o"], folder).splitlines()[1:]
        (text, data, bss), (_, _, state) = ([int(word) for word in row.split()[:3]] for row in rows)
        stack = sum(int(row.split("\t")[1]) for row in (folder / "model.su").read_text().splitlines())
        found = (text + data, state, stack)
        print(f"  {name}: {found[0]:,} bytes of flash, {state:,} of state, at most {stack:,} of stack, {bss} elsewhere")
        if bss or any(now > most for now, most in zip(found, pinned, strict=True)):
            sys.exit(f"{name} takes more than {pinned}")
    return "two models within their bytes of flash, state and stack"


def run(command: list[str], folder: Path, *, errors: bool = False) -> str:
    """Return what a command prints, or writes to stderr; what is missing or goes wrong ends the script."""
    try:
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    except FileNotFoundError:
        sys.exit(f"{command[0]} is not installed; the top of this file names the packages.")
    if result.returncode:
        sys.exit(f"{' '.join(command)[:200]} failed:\n{result.stdout[-1000:]}{result.stderr[-4000:]}")
    return result.stderr if errors else result.stdout


CHECKS: dict[str, Callable[[Mapping[str, Classifier], Path], str]] = {
    "warnings": check_warnings,
    "analyser": check_analyser,
    "cppcheck": check_cppcheck,
    "branches": check_branches,
    "readers": check_readers,
    "work": check_work,
    "overflow": check_overflow,
    "sizes": check_sizes,
}


def main(names: list[str]) -> None:
    """Print what each check found, and how long it took; the first that fails ends the script."""
    models = contract_models()
    for name in names or CHECKS:
        start = time.process_time(), time.monotonic()
        with tempfile.TemporaryDirectory() as place:
            for model in models:
                export_c(models[model], Path(place) / f"{model}.c")
            found = CHECKS[name](models, Path(place))
        print(f"{name}: {found} ({time.monotonic() - start[1]:.0f} s)", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
