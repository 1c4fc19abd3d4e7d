"""What embedded engineers ask of generated C and a test can answer fast; `scripts/certify.py` answers the rest.

`PYTHONPATH=tests python tests/deploy/test_c_certified.py` writes the golden files anew.
"""

import re
import subprocess
from pathlib import Path

import pytest

import ssmprune as sp
from c_builds import STRICT, make
from ssmprune.deploy.bundle import origin_of
from ssmprune.deploy.c import export_c
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config
from ssmprune.quantisation.quantise import quantize

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[1] / "golden" / "c"
TINY = {
    "stream": Config("s5", inputs=2, outputs=3, width=4, states=(2, 1), activation="half_glu1"),
    "both": Config("s4d", inputs=1, outputs=2, width=3, states=(5,), bidirectional=True, norm="layer", pooling="last"),
    "words": Config(
        "s5", inputs=5, outputs=2, width=3, states=(2,), tokens=True, retrieval=True, activation="full_glu"
    ),
}
SYMBOLS = {"memcpy", "memset", "sqrtf"}  # sqrtf for layer norms; a freestanding build calls fabsf as well


@pytest.mark.parametrize("name", TINY)
def test_the_text_is_the_same_to_the_byte(name, tmp_path):
    """On any machine, with any version of numpy and torch: a changed engine or writer shows here, and is reviewed."""
    checkpoint = GOLDEN / f"{name}.safetensors"
    export_c(sp.load(checkpoint), tmp_path / f"{name}.c", origin=origin_of(checkpoint))
    for ending in ("c", "h"):
        golden, text = ((folder / f"{name}.{ending}").read_text() for folder in (GOLDEN, tmp_path))
        version = re.search(r"ssmprune (\d+\.\d+\.\w+)", golden)[1]
        assert text.replace(f"ssmprune {sp.__version__}", f"ssmprune {version}") == golden


@pytest.mark.parametrize("flags", [("-O2",), ("-O2", "-ffreestanding")], ids=["hosted", "freestanding"])
def test_the_symbols_that_a_file_needs_are_the_documented_ones(flags, tmp_path):
    models = {
        "s5": make(3, "s5", norm="layer"),
        "both": make(4, "s4d", bidirectional=True),
        "words": quantize(make(6, "s5", tokens=True), 4),
    }
    needed = set()
    for name, model in models.items():
        export_c(model, tmp_path / f"{name}.c")
        line = ["cc", *STRICT, *flags, "-fno-stack-protector", "-fno-pic", "-c", f"{name}.c"]
        subprocess.run(line, cwd=tmp_path, check=True)
        table = subprocess.run(["nm", "-u", f"{name}.o"], cwd=tmp_path, check=True, capture_output=True, text=True)
        needed |= {line.split()[-1] for line in table.stdout.splitlines()}
    if "-ffreestanding" in flags:
        assert needed == SYMBOLS | {"fabsf"}
    else:  # where a compiler may clear small memory without a call
        assert SYMBOLS - {"memset"} <= needed <= SYMBOLS


THREADS = """
#include "{name}.h"
#include <pthread.h>
#include <string.h>
static {name}_input in[40 * {stride}];
static void *stream(void *to) {{
    {name}_state state;
    {name}_init(&state);
    {name}_run(&state, in, 37, NULL);
    for (int t = 37; t < 40; t++) {name}_step(&state, in + t * {stride}, to);
    return NULL;
}}
int main(void) {{
    static float a[{NAME}_OUTPUTS], b[{NAME}_OUTPUTS];
    pthread_t threads[2];
    for (int i = 0; i < 40 * {stride}; i++) in[i] = ({name}_input)(i % {NAME}_INPUTS);
    pthread_create(threads, NULL, stream, a);
    pthread_create(threads + 1, NULL, stream, b);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    return memcmp(a, b, sizeof a) != 0;
}}
"""


@pytest.mark.parametrize("family", ["s5", "s4d"])
def test_two_threads_with_a_stream_each_do_not_meet(family, tmp_path):
    model = quantize(make(3, family), 8)
    export_c(model, tmp_path / "model.c")
    (tmp_path / "main.c").write_text(THREADS.format(name="model", NAME="MODEL", stride=model.config.inputs))
    line = ["cc", "-std=c99", "-O1", "-fsanitize=thread", "main.c", "model.c", "-lm", "-lpthread", "-o", "main"]
    subprocess.run(line, cwd=tmp_path, check=True)
    # Its memory has fixed places, which randomised addresses may take.
    result = subprocess.run(["setarch", "-R", "./main"], cwd=tmp_path, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")


# The program at the end of a file, with inputs made of what its readers look for.
HARNESS = """
#define _GNU_SOURCE
#define main model_main
#include "{name}.c"
#undef main
#include <stdlib.h>
static const char *const PIECES[] = {{
    "0", "1", "2", "-1", "7.5", "1e9", "1e-40", "1e999", "nan", "inf", "-", "+", ".", "e", "0x1p3", " ", "\\n", "\\t",
    "4294967296", "99999999999999999999999999999999999", "x", "\\377", "3 ", "1 2 ", "0 0 0 ", "1,2"}};
int main(int count, char **options) {{
    static char text[4096];
    char *modes[] = {{"p", "--s16", "--class", NULL}};
    const long trials = count > 1 ? strtol(options[1], NULL, 10) : 0;
    long answered = 0;
    FILE *report = fdopen(dup(1), "w");
    if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr)) return 3;
    srand(1);
    for (long i = 0; i < trials; i++) {{
        size_t size = 0;
        for (int pieces = rand() % 40; pieces > 0; pieces--) {{
            const char *piece = PIECES[(size_t)rand() % (sizeof PIECES / sizeof *PIECES)];
            if (rand() % 8 == 0) text[size++] = (char)rand();
            memcpy(text + size, piece, strlen(piece));
            size += strlen(piece);
        }}
        if (rand() % 50 == 0) size = sizeof text; /* longer than the program can hold */
        modes[1] = i % 2 ? (char *)"--s16" : (char *)"--class";
        stdin = size ? fmemopen(text, size, "r") : fopen("/dev/null", "r");
        const int code = model_main(2 + (int)(i % 4 == 3), modes);
        fclose(stdin);
        if (code != 0 && code != 1) return 4;
        answered += code == 0;
    }}
    fprintf(report, "%ld of %ld inputs answered, the others refused\\n", answered, trials);
    return 0;
}}
"""
SANITIZERS = ("-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all")
FUZZ = 400  # inputs of each kind of program


def fuzz_program(folder, name):
    """Build a model's program with a main that feeds it."""
    (folder / f"fuzz_{name}.c").write_text(HARNESS.format(name=name))
    line = ["cc", "-O1", "-w", *SANITIZERS, "-DSSMPRUNE_MAIN", "-DSSMPRUNE_LONGEST=64", f"fuzz_{name}.c", "-lm"]
    subprocess.run([*line, "-include", "unistd.h", "-o", f"fuzz_{name}"], cwd=folder, check=True)
    return folder / f"fuzz_{name}"


@pytest.mark.parametrize("kind", ["numbers", "tokens", "whole", "documents"])
def test_the_readers_of_the_program_take_anything(kind, tmp_path):
    options = {"tokens": {"tokens": True}, "whole": {"bidirectional": True}, "documents": {"retrieval": True}}
    export_c(make(3, "s5", **options.get(kind, {})), tmp_path / f"{kind}.c")
    path = fuzz_program(tmp_path, kind)
    result = subprocess.run([path, str(FUZZ)], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert 0 < int(result.stdout.split()[0]) < FUZZ


def write_golden_files():
    import torch

    GOLDEN.mkdir(exist_ok=True)
    for name, config in TINY.items():
        path = GOLDEN / f"{name}.safetensors"
        if not path.exists():
            torch.manual_seed(0)
            model = Classifier(config).eval()
            sp.save(quantize(model, 8) if name == "words" else model, path)
        export_c(sp.load(path), GOLDEN / f"{name}.c", origin=origin_of(path))


if __name__ == "__main__":
    write_golden_files()
