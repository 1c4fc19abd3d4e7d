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
from ssmprune.deploy.c.reading import numbers_of
from ssmprune.deploy.c.source import sources
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
    assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", written.prefix)
    assert len(written.prefix) <= 50
    assert written.c == sources(make(1, "s5"), written.prefix).c
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


def bare_engine(model, folder):
    """Write the engine with all its branches, and the files that it includes."""
    writer = source.Writer(numbers_of(model), calls=True)
    sizes = {
        "public_sizes.h": source.defines(writer.features | writer.public_sizes()),
        "sizes.h": source.defines(writer.sizes()),
        "weights.h": writer.tables(),
    }
    for name, text in sizes.items():
        (folder / name).write_text(text + "\n")
    for name in ("engine.c", "model.h"):
        shutil.copy(Path(source.__file__).parent / "engine" / name, folder)


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
