"""What stands in a C file: safe names, finite numbers, functions that are accurate."""

import math
import re
import shutil
import subprocess
from ctypes import CDLL, c_int
from pathlib import Path

import numpy as np
import pytest
import torch

import ssmprune as sp
from c_builds import STRICT, at, make
from ssmprune.deploy.c import export_c, source
from ssmprune.deploy.c.source import sources
from ssmprune.integers.numbers import numbers_of
from ssmprune.integers.source import Writer as WholeWriter
from ssmprune.integers.whole import in_whole_numbers, whole_of
from ssmprune.quantisation.quantise import quantize

pytestmark = pytest.mark.slow

HOSTILE = [
    'x"; int evil; //',
    "*/ #error",
    "a\nb",
    "ünïcödé",
    "",
    "9lives",
    "__reserved__",
    "if",
    "x" * 500,
    "/etc/passwd",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_do_not_reach_the_text(name):
    written = sources(make(1, "s5"), name)
    prefix = re.search(r"void (.*)_init\(", written.header)[1]
    assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", prefix)
    assert len(prefix) <= 50
    assert written.c == sources(make(1, "s5"), prefix).c
    assert "evil;" not in written.c


@pytest.mark.parametrize("name", ['a".c', "a\nb.c", "model.txt", "a b.c", "ü.c"])
def test_files_with_odd_names_are_refused(name, tmp_path):
    with pytest.raises(sp.InputError, match="plain name"):
        export_c(make(1, "s5"), tmp_path / name)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["math.c", "string.c", "Stdint.c"])
def test_headers_of_c_itself_are_not_written(name, tmp_path):
    with pytest.raises(sp.InputError, match="which C has already; give it another name"):
        export_c(make(1, "s5"), tmp_path / name)
    assert not any(tmp_path.iterdir())


def test_numbers_that_are_not_finite_are_refused(tmp_path):
    model = make(1, "s5")
    with torch.no_grad():
        model.decoder.bias[0] = math.nan
    with pytest.raises(sp.InputError, match=r"decoder\.bias has numbers that are not finite"):
        export_c(model, tmp_path / "model.c")


def test_numbers_beyond_single_precision_are_refused(tmp_path):
    model = make(1, "s5")
    with torch.no_grad():
        model.blocks[0].ssm.C.fill_(3e38)  # finite, but twice as large it is not
    with pytest.raises(sp.InputError, match="C_0 has numbers too large for single precision"):
        export_c(model, tmp_path / "model.c")
    assert not any(tmp_path.iterdir())


def test_masked_states_are_left_out():
    model = make(1, "s5")
    whole = len(sources(model).c)
    for block in model.blocks:
        block.ssm.mask[1:] = False
    assert len(sources(model).c) < whole


def bare_engine(model, folder, calls=True):
    """Write the engine with all its branches, and the files that it includes."""
    writer = source.Writer(numbers_of(model), calls=calls)
    engine, header = "engine.c", "model.h"
    if in_whole_numbers(model):
        writer, engine, header = WholeWriter(whole_of(model), writer.features), "integer.c", "integer.h"
    sizes = {
        "public_sizes.h": source.defines(writer.features | writer.public_sizes()),
        "sizes.h": source.defines(writer.sizes()),
        "weights.h": writer.tables(),
    }
    for name, text in sizes.items():
        (folder / name).write_text(text + "\n")
    for name, copy in ((engine, "engine.c"), (header, "model.h"), ("end.c", "end.c")):
        shutil.copy(Path(source.__file__).parent / "engine" / name, folder / copy)


@pytest.mark.parametrize("bits", [None, 8, 4])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("family", ["s5", "s4d"])
def test_the_bare_engine_compiles_and_computes_the_same(family, bidirectional, bits, tmp_path):
    """With all its branches, as it stands in the folder `engine`."""
    model = make(2, family, bidirectional=bidirectional, norm="layer" if bidirectional else "batch")
    model = model if bits is None else quantize(model, bits)
    bare_engine(model, tmp_path)
    export_c(model, tmp_path / "lean.c")
    x = " ".join(map(str, np.random.default_rng(0).normal(size=40 * model.config.inputs)))
    answers = []
    for name in ("engine", "lean"):
        command = ["cc", *STRICT, "-O1", "-DSSMPRUNE_MAIN", f"{name}.c", "-lm", "-o", name]
        subprocess.run(command, cwd=tmp_path, check=True)
        answers.append(subprocess.run(tmp_path / name, input=x, capture_output=True, text=True, check=True).stdout)
    assert answers[0] == answers[1] != ""


@pytest.mark.parametrize("stem", ["model_x", "MODEL_2"])
def test_names_that_begin_as_those_of_the_engine_do(stem, tmp_path):
    export_c(make(1, "s5"), tmp_path / f"{stem}.c")
    subprocess.run(["cc", *STRICT, "-c", f"{stem}.c"], cwd=tmp_path, check=True)


def test_no_name_of_the_engine_is_taken_twice(tmp_path):
    """`next` would make `next_step` a function twice, `panels_of` and `decoder` as well."""
    models = [make(1, "s5"), make(3, "s4d", bidirectional=True), quantize(make(4, "s5", tokens=True, retrieval=True))]
    taken = set()
    for model in models:
        written = sources(model, calls=True)
        words = set(re.findall(r"\w+", written.c + written.header))
        endings = {word.lower().removeprefix("model") for word in words if word.lower().startswith("model_")}
        taken |= {word[: -len(end)].lower() for word in words for end in endings if word.lower().endswith(end)}
    names = sorted(filter(None, taken - {"model", "_"}))
    assert {"next", "panels_of", "decoder"} <= set(names)
    for name in names:
        for i, model in enumerate(models):
            (tmp_path / f"{name}_{i}.c").write_text((written := sources(model, name, f"{name}_{i}.h", calls=True)).c)
            (tmp_path / f"{name}_{i}.h").write_text(written.header)
    command = ["cc", *STRICT, "-DSSMPRUNE_MAIN", "-fsyntax-only", *sorted(path.name for path in tmp_path.glob("*.c"))]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stderr == ""


def test_a_header_of_another_model_is_refused(tmp_path):
    """As a kill between the two files would leave it: the state might be too small."""
    for seed in (1, 2):
        (tmp_path / str(seed)).mkdir()
        export_c(make(seed, "s5"), tmp_path / str(seed) / "digits.c")
    shutil.copy(tmp_path / "2" / "digits.h", tmp_path / "1" / "digits.h")
    command = ["cc", *STRICT, "-c", "digits.c"]
    result = subprocess.run(command, cwd=tmp_path / "1", capture_output=True, text=True)
    assert result.returncode != 0
    assert "digits.h belongs to another model; export both files again" in result.stderr
    subprocess.run(command, cwd=tmp_path / "2", check=True)


def test_a_full_disk_leaves_both_files_as_they_were(tmp_path, monkeypatch):
    export_c(make(1, "s5"), tmp_path / "digits.c")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    flushed = []

    def full_at_the_second_file(handle):
        flushed.append(handle)
        if len(flushed) == 2:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("ssmprune.files.os.fsync", full_at_the_second_file)
    with pytest.raises(sp.InputError, match="No space left on device"):
        export_c(make(2, "s5"), tmp_path / "digits.c")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("options", [{}, {"pooling": "last"}, {"tokens": True, "retrieval": True}])
def test_the_header_says_what_a_caller_must_know(options, tmp_path):
    model = make(1, "s4d", **options)
    export_c(model, tmp_path / "digits.c", origin='my model_1.safetensors */ "\n#error')
    header = (tmp_path / "digits.h").read_text()
    for words in (
        f"written by ssmprune {sp.__version__}.\n   From: my model_1.safetensors _ _error.",
        "scale them as those were that the model was trained on",
        "Logit k is that of class k, as the training labels count classes, from 0",
        "Re-entrant:",
    ):
        assert words in header
    size = re.search(r"A stream, (\d+) bytes", header)[1]
    check = f'#include "digits.h"\nint check[sizeof(digits_state) == {size} ? 1 : -1];\n'
    (tmp_path / "size.c").write_text(check)
    subprocess.run(["cc", *STRICT, "-c", "size.c", "digits.c"], cwd=tmp_path, check=True)


def array_of(text, name):
    """The numbers of a constant array."""
    return [int(number, 0) for number in re.search(rf" {name}\[\d+\] = {{(.*?)}};", text, re.DOTALL)[1].split(",")]


@pytest.mark.parametrize("bits", [8, 4])
def test_the_file_holds_the_whole_numbers_of_the_grid(bits):
    model = quantize(make(5, "s5", activation="half_glu1"), bits)
    width, each = model.config.width, 32 // bits
    panels = np.array(array_of(sources(model).c, "gate_0")).reshape(-1, -(-width // each), 8)
    whole, digits = np.where(panels < 2**31, panels, panels - 2**32), []
    for j in range(each):  # the highest digit of what is left
        unit = 2 ** (bits * (each - 1 - j))
        digits.append(np.rint(whole / unit).astype(int))
        whole = whole - digits[-1] * unit
    assert not whole.any()
    parts = np.stack(digits, axis=2)
    numbers = parts.reshape(len(panels), -1, 8).swapaxes(1, 2).reshape(-1, parts.shape[1] * each)[:width, :width]
    assert numbers.tolist() == model.whole_numbers()["layers.0.gate.weight"].tolist()


def test_weights_that_have_left_their_grid_are_floats():
    model = quantize(make(1, "s5"))
    assert "const uint32_t *weights" in sources(model).c
    with torch.no_grad():
        model.decoder.weight *= 1.01
    assert "const float *weights" in sources(model).c


FUNCTIONS = """
#include <math.h>
#include <stddef.h>
{text}
void gelus(const float *x, float *y, int n);
void gelus(const float *x, float *y, int n) {{ for (int i = 0; i < n; i++) y[i] = gelu(x[i]); }}
void sigmoids(const float *x, float *y, int n);
void sigmoids(const float *x, float *y, int n) {{ for (int i = 0; i < n; i++) y[i] = sigmoid(x[i]); }}
"""


@pytest.mark.parametrize("exact", [True, False], ids=["erf", "tanh"])
def test_gelu_and_sigmoid_are_off_by_less_than_a_millionth(exact, tmp_path):
    text = sources(make(1, "s5", exact_gelu=exact, activation="half_glu1")).c
    inline, functions = (
        text[text.index(start) : text.index(end)]
        for start, end in (
            ("#if defined(__GNUC__)\n#define INLINE", "#define LOAD"),
            ("/* gelu(x)", "/* ---- What a layer"),
        )
    )
    (tmp_path / "f.c").write_text(FUNCTIONS.format(text=inline + functions))
    subprocess.run(["cc", *STRICT, "-O1", "-shared", "-fPIC", "f.c", "-lm", "-o", "f.so"], cwd=tmp_path, check=True)
    library = CDLL(str(tmp_path / "f.so"))
    x = np.concatenate([np.linspace(-8, 8, 160_001), np.linspace(-40, 40, 4_001), [0.0, -0.0]]).astype(np.float32)
    wide = x.astype(float)
    if exact:
        gelu = wide * np.array([math.erfc(-value / math.sqrt(2)) / 2 for value in wide])
    else:
        gelu = wide / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)))
    for function, expected in ((library.gelus, gelu), (library.sigmoids, 1 / (1 + np.exp(-wide)))):
        y = np.empty_like(x)
        function(at(x), at(y), c_int(len(x)))
        close = np.abs(wide) <= 8  # farther out a float has no digits for millionths
        assert np.abs(y - expected)[close].max() < 1e-6
        np.testing.assert_allclose(y, expected, rtol=1e-6, atol=1e-6)
    broken = np.full(1, np.nan, np.float32)
    library.gelus(at(broken), at(broken), c_int(1))
    assert np.isnan(broken[0])
