"""The C file of a model computes what the model does: every family, activation, norm, pooling and direction."""

import itertools
import random
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import ssmprune as sp
from c_builds import STRICT, Called, build, fed, make, program
from ssmprune.deploy.c import export_c
from ssmprune.integers.whole import in_whole_numbers
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config
from ssmprune.quantisation.quantise import quantize

pytestmark = pytest.mark.slow

LENGTH = 37  # two blocks and a bit
TOLERANCE = 1e-5  # of the largest logit
COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
CPLUSPLUS = [  # clang calls it deprecated that a file ending in .c is C++, which is what is tried here
    pytest.param(name, flags, id=name)
    for name, flags in (("g++", ()), ("clang++", ("-Wno-deprecated",)))
    if shutil.which(name)
]
SHIPPED = Path(__file__).parents[2] / "paper/checkpoints/smnist-s5.safetensors"
ACTIVATIONS = ("gelu", "half_glu1", "half_glu2", "full_glu")


def random_models():
    """Both families with every activation; the other choices are drawn, so that together they all occur."""
    rng, models = random.Random(7), {}
    for seed, (family, activation) in enumerate(itertools.product(("s5", "s4d"), ACTIVATIONS * 2)):
        retrieval, both = seed % 4 == 3, seed % 3 == 1
        options = {
            "activation": activation,
            "retrieval": retrieval,
            "bidirectional": both,
            "tokens": seed % 5 == 0,
            "pooling": ("mean", "last", "last" if retrieval else "none")[seed % 3],
            "norm": rng.choice(["batch", "layer"]),
            "prenorm": rng.random() < 0.5,
            "exact_gelu": rng.random() < 0.5,
            "conj_sym": rng.random() < 0.7,
            "discretization": rng.choice(["zoh", "bilinear"]),
            "step_rescale": rng.choice([1.0, 2.0]),
            "backward_delay": int(family == "s4d" and both and rng.random() < 0.7),
        }
        models[f"{family}_{seed}"] = make(seed, family, **options)
    return models


def shrunk_models():
    """Unequal layers, unequal channels, channels and whole layers without states; channels with many; three panels."""
    wide = make(50, "s4d", pooling="mean")
    torch.manual_seed(3)
    full = Classifier(Config("s4d", inputs=2, outputs=4, width=11, states=(40, 0), bidirectional=True)).eval()
    both = Classifier(Config("s5", inputs=2, outputs=4, width=20, states=(12, 7), bidirectional=True)).eval()
    many = [
        Classifier(Config("s4d", inputs=2, outputs=3, width=5, states=(35, 10), bidirectional=bidirectional)).eval()
        for bidirectional in (False, True)
    ]
    return {
        "many_s4d": many[0],  # seven states a channel: four slots at once, then two, then one
        "many_s4d_both": many[1],
        "shrunk_s4d": sp.prune(wide, 0.8),
        "shrunk_s4d_both": sp.prune(full, 0.7),
        "shrunk_s5_both": sp.prune(both, 0.6),
    }


def quantised(models):
    """The same models on 8 and 4 bits in turn, so that each family has both, with and without tokens."""
    return {f"whole_{name}": quantize(model, (8, 4)[i % 2]) for i, (name, model) in enumerate(models.items())}


@pytest.fixture(scope="module")
def models():
    floats = random_models() | shrunk_models()
    return floats | quantised(floats)


@pytest.fixture(scope="module", params=COMPILERS)
def library(request, models, tmp_path_factory):
    return build(models, tmp_path_factory.mktemp("c"), request.param, ["-O1"])


def inputs_of(config, batch=4, length=LENGTH):
    """Random inputs for torch and the same for C."""
    generator = torch.Generator().manual_seed(1)
    if config.tokens:
        x = torch.randint(0, config.inputs, (batch, length), generator=generator)
        return x, x.numpy().astype(np.int32)
    x = torch.randn(batch, length, config.inputs, generator=generator)
    return x, x.numpy()


def forward(model, x, lengths=None):
    with torch.no_grad():
        return model(x, lengths).numpy()


def assert_close(ours, theirs):
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() <= TOLERANCE * np.abs(theirs).max()


def test_every_choice_occurs(models):
    configs = [model.config for model in models.values()]
    for name in ("tokens", "bidirectional", "conj_sym", "prenorm", "exact_gelu", "retrieval"):
        assert {getattr(config, name) for config in configs} == {True, False}
    assert {config.pooling for config in configs} == {"mean", "last", "none"}
    assert {config.norm for config in configs} == {"batch", "layer"}
    assert {config.backward_delay for config in configs} == {0, 1}
    assert any(0 in config.states for config in configs)
    grids = {(m.config.family, m.config.tokens, m.grid.bits) for m in models.values() if m.whole_numbers() is not None}
    assert grids == set(itertools.product(("s5", "s4d"), (True, False), (8, 4)))


def test_run_is_forward(library, models):
    for name, model in models.items():
        x, for_c = inputs_of(model.config)
        assert_close(Called(library, name, model).logits(for_c), forward(model, x))


def test_padding_counts_as_it_does_in_the_model(library, models):
    lengths = [LENGTH, 5, 20, 1]
    for name, model in models.items():
        if model.config.pooling != "none":
            x, for_c = inputs_of(model.config)
            ours = Called(library, name, model).logits(for_c, lengths)
            assert_close(ours, forward(model, x, torch.tensor(lengths)))


def test_step_is_the_stream_and_ends_where_run_does(library, models):
    for name, model in models.items():
        if model.config.bidirectional:
            continue
        x, for_c = inputs_of(model.config)
        called = Called(library, name, model)
        steps = np.stack([called.stepped(row) for row in for_c])
        whole = np.stack([called.run(row) for row in for_c])
        np.testing.assert_allclose(steps if whole.ndim == 3 else steps[:, -1], whole, atol=1e-5 * np.abs(whole).max())
        if model.config.retrieval:
            steps = np.stack(
                [
                    [called.compare(*pair) for pair in zip(a, b, strict=True)]
                    for a, b in zip(steps[:2], steps[2:], strict=True)
                ]
            )
        with torch.no_grad():
            assert_close(steps, model.stream(x)[0].numpy())


def test_runs_may_be_cut_anywhere(library, models):
    name = next(n for n, m in models.items() if m.config.pooling == "mean" and not m.config.bidirectional)
    called = Called(library, name, models[name])
    _, for_c = inputs_of(models[name].config, batch=1)
    assert_close(called.run(for_c[0], cuts=(1, 17, 3)), called.run(for_c[0]))


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("flags", [("-O2", "-DPLAIN_BLOCK=1"), ("-O3", "-ffast-math")], ids=["small", "fast"])
def test_block_size_and_careless_arithmetic_change_nothing(compiler, flags, tmp_path):
    model = make(3, "s5", activation="half_glu1")
    models = {"plain": model, "whole": quantize(model, 4)}
    library = build(models, tmp_path, compiler, (*flags, *(flag.replace("PLAIN", "WHOLE") for flag in flags[1:])))
    for name, model in models.items():
        x, for_c = inputs_of(model.config)
        assert_close(Called(library, name, model).logits(for_c), forward(model, x))


def test_no_vectors_no_difference(tmp_path):
    """What a compiler without GNU's vector types makes of the same text."""
    models = {"s5": make(3, "s5"), "s4d": make(4, "s4d", bidirectional=True)}
    models |= quantised(models)
    library = build(models, tmp_path, flags=["-O1", "-U__SSE__", "-U__AVX__", "-U__ARM_NEON"])
    for name, model in models.items():
        x, for_c = inputs_of(model.config)
        assert_close(Called(library, name, model).logits(for_c), forward(model, x))


SANITIZED = ("-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")  # O1 takes three times as long


@pytest.mark.parametrize("family", ["s5", "s4d"])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "norm": "layer"}], ids=["stream", "whole"])
def test_sanitizers_find_nothing_in_a_program(family, options, tmp_path):
    model = make(11, family, activation="full_glu", **options)
    path = program(model, tmp_path, flags=SANITIZED)
    x, for_c = inputs_of(model.config, batch=1)
    code, out, error = fed(path, " ".join(f"{value:.9g}" for value in for_c.ravel()).encode())
    assert (code, error) == (0, "")
    assert_close(np.array(out.split(), np.float32)[None], forward(model, x))


TRIAL = """
#include "{name}.h"
#include <math.h>
#include <stdlib.h>
int try_{name}(void);
int try_{name}(void) {{ /* all memory has the size that the header asks for, not a byte more */
    {kind} *in = malloc({length} * {stride} * sizeof *in);
    {logit} *out = malloc({outs} * sizeof *out), *logits = malloc({NAME}_OUTPUTS * sizeof *logits);
    for (int i = 0; i < {length} * {stride}; i++) in[i] = ({kind})({tokens} ? i % {NAME}_INPUTS : i % 11 - 5);
    {calls}
    {compare}
    const int finite = isfinite((double)out[0]) != 0;
    free(in), free(out), free(logits);
    return finite;
}}
"""
STREAM = """{name}_state *s = malloc(sizeof *s);
    {name}_init(s), {name}_run(s, in, {length}, out), {name}_step(s, in, out), {name}_run(s, in, 1, NULL);
    free(s);"""
WHOLE = """{logit} *w = malloc({NAME}_WORKSPACE({length}) * sizeof *w);
    {name}_run(w, in, {length}, 20, out), {name}_run(w, in, 1, 1, out);
    free(w);"""


def trial(name, model):
    """C that calls everything a model has."""
    config = model.config
    words = {"name": name, "NAME": name.upper(), "length": LENGTH, "tokens": int(config.tokens)}
    words |= {"kind": f"{name}_input", "stride": 1 if config.tokens else config.inputs}
    words["logit"] = "int32_t" if in_whole_numbers(model) else "float"
    each = config.width if config.retrieval else config.outputs
    words["outs"] = each * (LENGTH if config.pooling == "none" else 1)
    words["calls"] = (WHOLE if config.bidirectional else STREAM).format(**words)
    words["compare"] = f"{name}_compare(out, out, logits);" if config.retrieval else ""
    return TRIAL.format(**words)


def test_sanitizers_find_nothing_in_any_model(models, tmp_path):
    for name, model in models.items():
        export_c(model, tmp_path / f"{name}.c")
        (tmp_path / f"try_{name}.c").write_text(trial(name, model))
    calls = " + ".join(f"try_{name}()" for name in models)
    known = "".join(f"int try_{name}(void);\n" for name in models)
    (tmp_path / "all.c").write_text(f"{known}int main(void) {{ return {calls} != {len(models)}; }}\n")
    files = sorted(path.name for path in tmp_path.glob("*.c"))
    subprocess.run(["cc", *STRICT, *SANITIZED, *files, "-lm", "-o", "all"], cwd=tmp_path, check=True)
    assert fed(tmp_path / "all", b"") == (0, "", "")


@pytest.mark.parametrize(("compiler", "flags"), CPLUSPLUS)
def test_two_models_share_a_program_and_cplusplus_takes_them(compiler, flags, tmp_path):
    models = {"first": make(1, "s5"), "second": make(2, "s4d", bidirectional=True)}
    models |= quantised(models | {"third": make(1, "s5", tokens=True)})
    for name, model in models.items():
        export_c(model, tmp_path / f"{name}.c")
    (tmp_path / "both.cpp").write_text(
        '#include "first.h"\n#include "second.h"\n'
        "int main() { first_state s; first_init(&s); return sizeof s == SECOND_WORKSPACE(0); }\n"
    )
    strict = [compiler, "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    for name in models:
        subprocess.run([*strict, *flags, "-x", "c++", "-c", f"{name}.c"], cwd=tmp_path, check=True)
    subprocess.run([*strict, "both.cpp", "first.o", "second.o", "-o", "both"], cwd=tmp_path, check=True)
    assert subprocess.run([tmp_path / "both"]).returncode == 0


def test_a_byte_a_weight_in_the_object_file(tmp_path):
    """The shipped sMNIST S5, 80 % pruned, 8 bits: what a device's flash and memory must hold."""
    model = quantize(sp.prune(sp.load(SHIPPED), 0.8), 8)
    library = build({"small": model}, tmp_path, flags=["-Os"])
    subprocess.run(["cc", "-std=c99", "-Os", "-c", "small.c"], cwd=tmp_path, check=True)
    table = subprocess.run(["size", "-A", "small.o"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    sections = {line.split()[0]: int(line.split()[1]) for line in table.splitlines() if line.startswith(".")}
    read_only = sum(size for name, size in sections.items() if name.startswith((".rodata", ".data.rel.ro")))
    assert 60_000 < read_only < 75_000
    assert sections[".data"] == sections[".bss"] == 0
    assert len(Called(library, "small", model).room()) < 1024


LONG = """
#include "mean.h"
#include <stdio.h>
int main(void) {{
    mean_state s;
    float out[MEAN_OUTPUTS];
    const float in[1] = {{1.0f}};
    mean_init(&s);
    for (long k = 1; k <= {steps}; k++) mean_step(&s, in, k == 4096 || k == {steps} ? out : NULL), {print}
    return 0;
}}
"""


def test_long_streams_keep_their_precision(tmp_path):
    """A constant input: after a while all features are the same, so the mean nears theirs as 1 / steps."""
    torch.manual_seed(0)
    config = Config("s5", inputs=1, outputs=2, width=4, states=(1,))
    model, steps = Classifier(config).eval(), 2**22
    export_c(model, tmp_path / "mean.c")
    show = 'k == 4096 || k == {steps} ? printf("%.9g %.9g\\n", (double)out[0], (double)out[1]) : 0;'
    (tmp_path / "main.c").write_text(LONG.format(steps=steps, print=show.format(steps=steps)))
    subprocess.run(["cc", *STRICT, "-O2", "main.c", "mean.c", "-lm", "-o", "main"], cwd=tmp_path, check=True)
    code, out, _ = fed(tmp_path / "main", b"")
    assert code == 0
    short, long = np.array([line.split() for line in out.splitlines()], float)
    last = Classifier(replace(config, pooling="last")).eval()
    last.load_state_dict(model.state_dict())
    limit = forward(last, torch.ones(1, 4096, 1))[0]
    assert_close(short[None], forward(model, torch.ones(1, 4096, 1)))
    assert_close(long, limit + (short - limit) * 4096 / steps)


def test_whole_sequences_may_be_long(tmp_path):
    torch.manual_seed(0)
    model = Classifier(Config("s5", inputs=1, outputs=2, width=4, states=(1,), bidirectional=True)).eval()
    library = build({"both": model}, tmp_path, flags=["-O2", "-DBOTH_BLOCK=1"])
    x = torch.ones(1, 2**19, 1)
    assert_close(Called(library, "both", model).logits(x.numpy()), forward(model, x))


@pytest.mark.parametrize("pooling", ["mean", "last", "none"])
@pytest.mark.parametrize("padding", ["cut", "seen"])
def test_lengths_beyond_the_sequence_read_nothing_beyond_it(pooling, padding, tmp_path):
    model = make(3, "s5", bidirectional=True, pooling=pooling, padding=padding)
    export_c(model, tmp_path / "m.c")
    main = """#include "m.h"
#include <stdlib.h>
#include <string.h>
int main(void) {
    float *w = malloc(M_WORKSPACE(3) * sizeof *w), *in = calloc(3 * M_INPUTS, sizeof *in);
    float *a = calloc(3 * M_OUTPUTS, sizeof *a), *b = calloc(3 * M_OUTPUTS, sizeof *b);
    int bad = 0;
    a[0] = 7.0f, m_run(w, in, 3, 0, a), bad += memcmp(a, &(const float){7.0f}, sizeof *a) != 0;
    m_run(w, in, 0, 0, a), bad += memcmp(a, &(const float){7.0f}, sizeof *a) != 0;
    m_run(w, in, 3, 3, a), m_run(w, in, 3, 99, b), bad += memcmp(a, b, 3 * M_OUTPUTS * sizeof *a) != 0;
    free(w), free(in), free(a), free(b);
    return bad;
}
"""
    (tmp_path / "main.c").write_text(main)
    subprocess.run(["cc", *STRICT, *SANITIZED, "main.c", "m.c", "-lm", "-o", "main"], cwd=tmp_path, check=True)
    assert fed(tmp_path / "main", b"") == (0, "", "")
    assert "1 <= valid <= length" in (tmp_path / "m.h").read_text()
