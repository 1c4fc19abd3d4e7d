"""Models in whole numbers: the C equals the reference to the bit, both follow the floats, and nothing overflows."""

import json
import math
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

import ssmprune as sp
from c_builds import STRICT, Called, build, make, program
from c_builds import fed as fed_to
from deploy.test_c_contract import inputs_of, random_models, shrunk_models
from ssmprune.deploy.c import export_c
from ssmprune.files import load_tensors, save_tensors
from ssmprune.integers.numbers import numbers_of
from ssmprune.integers.reference import Reference, look_up, mean, recurrence, root, shift_right, standardised
from ssmprune.integers.whole import STATE, fold, gelu_table, short_rows, sigmoid_table, whole_of
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config
from ssmprune.quantisation.quantise import quantize

COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
LENGTHS = [37, 5, 20, 1]
SHIPPED = Path(sp.__file__).parent / "demo/smnist-s5.safetensors"


def whole_number_model(model, **options):
    return quantize(model, data=[inputs_of(model.config)[0]], arithmetic="integer", **options)


@pytest.fixture(scope="module")
def models():
    """Every family, activation, norm, pooling and direction."""
    return {name: whole_number_model(model) for name, model in (random_models() | shrunk_models()).items()}


@pytest.fixture(scope="module", params=COMPILERS)
def library(request, models, tmp_path_factory):
    return build(models, tmp_path_factory.mktemp("c"), request.param, ["-O2", "-Wdouble-promotion", "-Wundef"])


def samples_of(config, *, wild=False):
    """Samples as calibrated, or any samples of 16 bits, most of which saturate; and the same for C."""
    if config.tokens:
        x = inputs_of(config)[0].numpy()
        return x, x.astype(np.int32)
    generator = np.random.default_rng(5)
    x = generator.integers(-32768, 32768, (4, 37, config.inputs)) if wild else None
    x = generator.normal(0, 8000, (4, 37, config.inputs)).clip(-32768, 32767).astype(int) if x is None else x
    return x, x.astype(np.int16)


@pytest.mark.slow
@pytest.mark.parametrize("wild", [False, True], ids=["usual", "wild"])
def test_c_is_the_reference_to_the_bit(library, models, wild):
    for name, model in models.items():
        x, for_c = samples_of(model.config, wild=wild)
        called, reference = Called(library, name, model), Reference(whole_of(model))
        assert np.array_equal(called.logits(for_c), reference(x)), name
        if model.config.pooling != "none":
            assert np.array_equal(called.logits(for_c, LENGTHS), reference(x, LENGTHS)), name


@pytest.mark.slow
def test_steps_are_the_run(library, models):
    for name, model in models.items():
        if not model.config.bidirectional:
            called, (_, for_c) = Called(library, name, model), samples_of(model.config)
            steps, whole = (
                called.stepped(for_c[0]),
                called.run(for_c[0], cuts=() if model.config.pooling == "none" else (3, 11)),
            )
            assert np.array_equal(steps if model.config.pooling == "none" else steps[-1], whole), name


@pytest.fixture
def bounded(monkeypatch):
    """Sees that no state of a reference exceeds its bound."""

    def checked(states, v, backward):
        after, before = recurrence(states, v, backward)
        assert (np.hypot(*after) < states.bound).all()
        return after, before

    monkeypatch.setattr("ssmprune.integers.reference.recurrence", checked)


def test_the_reference_follows_the_floats(models, bounded):
    """To 1e-3 of the largest logit; a layer norm over three features can magnify what rounding does."""
    for name, model in models.items():
        x, _ = inputs_of(model.config)
        reference = Reference(whole_of(model))
        with torch.no_grad():
            wanted = model(x).numpy()
        ours = reference(reference.whole.units.samples(x.numpy())) * reference.whole.units.logit
        loose = 20 if model.config.width == 3 and model.config.norm == "layer" else 1
        assert np.abs(ours - wanted).max() <= 1e-3 * loose * np.abs(wanted).max(), name
        assert reference.saturated == 0


@pytest.mark.slow
def test_compile_runs_whole_numbers(models, tmp_path):
    for name, model in models.items():
        x, _ = inputs_of(model.config)
        reference = Reference(whole_of(model))
        wanted = (reference(reference.whole.units.samples(x.numpy())) * reference.whole.units.logit).astype(np.float32)
        fast = sp.compile(model, threads=2, cache=tmp_path)
        assert np.array_equal(fast(x).numpy(), wanted), name
        if not model.config.bidirectional and model.config.pooling == "mean":
            stream = fast.stream(batch=len(x))
            answers = [stream(x[:, k]).numpy() for k in range(x.shape[1])]
            assert np.array_equal(answers[-1], wanted), name


@pytest.mark.slow
def test_the_shipped_model_answers_as_in_floats():
    """300 images of the package; the raw samples are pixels from 0 to 255."""
    from ssmprune.tasks import get

    task, model = get("smnist"), sp.load(SHIPPED)
    test = task.load("test").batch(range(300))
    inputs = [task.load("train").batch(range(64)).x]
    small = sp.quantize(model, data=inputs, arithmetic="integer", raw=(1 / 255, 0.0))
    fast = sp.compile(small)
    ours = fast(test.x).argmax(1)
    with torch.no_grad():
        floats = model(torch.from_numpy(test.x)).argmax(1).numpy()
    assert (ours == floats).mean() >= 0.99
    assert abs((ours == test.y).mean() - (floats == test.y).mean()) <= 0.005
    reference = Reference(whole_of(small))
    pixels = reference.whole.units.samples(test.x[:2])
    assert pixels.min() == 0
    assert pixels.max() == 255
    logits = (reference(pixels) * reference.whole.units.logit).astype(np.float32)
    assert np.array_equal(logits, fast(test.x[:2]))
    assert re.search(r"on 20 of them 0 of [0-9]+ numbers saturate, 20 of 20 answers are the same", small.history[-1])


def worst_input(states, state, length):
    """The inputs that push one state furthest: each with the sign of its part in the impulse response."""
    re, im, shift = (int(part[state]) for part in states.pole)
    pole, n = 1 + complex(re, im) / 2**shift, len(states.bound)
    powers = pole ** np.arange(length)[::-1]
    B = np.ones(1) if states.drive is None else states.drive[state] + 1j * states.drive[n + state]
    feed = complex(int(states.feed[0][state]), int(states.feed[1][state]))
    response = feed / abs(feed) * powers[:, None] * B[None]
    turned = response * np.exp(-1j * np.angle(response[-1][np.abs(response[-1]).argmax()]))
    return np.where(turned.real < 0, -32767, 32767)


def fed(states, u):
    """What the reference feeds into the states from inputs (length, inputs)."""
    if states.drive is None:
        v = np.stack([u[:, states.channel * 0], np.zeros((len(u), len(states.bound)), np.int64)])
    else:
        v = np.stack(np.split(u @ states.drive.T, 2, axis=-1))
    re, im, shift = states.feed
    return np.stack([shift_right(re * v[0] - im * v[1], shift), shift_right(re * v[1] + im * v[0], shift)])[:, None]


@pytest.mark.parametrize("family", ["s5", "s4d"])
def test_the_worst_inputs_come_near_the_bound_and_do_not_pass_it(family):
    """Slow poles, among them real ones, whose bound is reached."""
    torch.manual_seed(2)
    model = Classifier(Config(family, inputs=1, outputs=2, width=4, states=(8,), step_min=1e-3, step_max=1e-2)).eval()
    with torch.no_grad():
        ssm = next(iter(model.blocks)).ssm
        ssm.pole_im[:2] = 0
        ssm.B[:2, ..., 1] = 0
    states = whole_of(whole_number_model(model)).layers[0].states
    assert (states.bound <= STATE).all()
    reached = []
    for state in range(len(states.bound)):
        x, _ = recurrence(states, fed(states, worst_input(states, state, 20_000)), backward=False)
        size = np.hypot(*x[:, 0])
        assert (size <= states.bound).all()
        reached.append((size / states.bound).max())
    print(reached)
    assert max(reached) > 0.99
    assert min(reached) > 0.5


SANITIZED = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
EXTREMES = """
#include "{name}.h"
#include <stdlib.h>
static {name}_input in[STEPS * INPUTS];
static int32_t out[STEPS * 64];
int try_{name}(void);
int try_{name}(void) {{
    for (int kind = 0; kind < 4; kind++) {{
        for (int i = 0; i < STEPS * INPUTS; i++)
            in[i] = TOKENS ? ({name}_input)(rand() % 12 - 1)
                    : ({name}_input)(kind == 0 ? -32768 : kind == 1 ? 32767 : kind == 2 ? (i / 50 % 2 ? 32767 : -32768)
                                                                                 : rand() % 65536 - 32768);
        {run}
    }}
    return 0;
}}
"""
WHOLE = """int32_t *w = malloc({upper}_WORKSPACE(STEPS) * sizeof *w);
        {name}_run(w, in, STEPS, STEPS, out);
        free(w);"""
STREAM = """{name}_state s;
        {name}_init(&s);
        {name}_run(&s, in, STEPS, out);"""


@pytest.mark.slow
def test_sanitizers_find_nothing_at_the_extremes(models, tmp_path):
    """Constant, alternating and random extremes, and tokens that do not exist, through every kind of model."""
    files, calls = [], []
    for name, model in models.items():
        export_c(model, tmp_path / f"{name}.c")
        run = (WHOLE if model.config.bidirectional else STREAM).format(name=name, upper=name.upper())
        sizes = {"STEPS": 400, "INPUTS": 1 if model.config.tokens else model.config.inputs}
        sizes["TOKENS"] = int(model.config.tokens)
        lines = "".join(f"#undef {key}\n#define {key} {value}\n" for key, value in sizes.items())
        (tmp_path / f"try_{name}.c").write_text(lines + EXTREMES.format(name=name, run=run))
        files += [f"{name}.c", f"try_{name}.c"]
        calls.append(f"    try_{name}();\n")
    heads = "".join(f"int try_{name}(void);\n" for name in models)
    (tmp_path / "main.c").write_text(f"{heads}int main(void) {{\n{''.join(calls)}    return 0;\n}}\n")
    command = ["gcc", "-std=c99", *SANITIZED, *files, "main.c", "-o", "extremes"]
    subprocess.run(command, cwd=tmp_path, check=True)
    result = subprocess.run([tmp_path / "extremes"], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.slow
def test_there_is_no_float_and_no_division_in_the_file(models, tmp_path):
    """gcc refuses floats without their registers; of the functions outside the file only those on memory are called."""
    for name, model in models.items():
        export_c(model, tmp_path / f"{name}.c")
        command = ["gcc", *STRICT, "-O2", "-ffreestanding", "-mgeneral-regs-only", "-c", f"{name}.c", "-o", "model.o"]
        subprocess.run(command, cwd=tmp_path, check=True)
        wanted = subprocess.run(
            ["nm", "-u", "model.o"], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout
        assert set(wanted.split()) <= {"U", "memset", "memcpy"}, name
        engine = (tmp_path / f"{name}.c").read_text().partition("#ifdef SSMPRUNE_MAIN")[0]
        text = re.sub(r"/\*.*?\*/", "", engine, flags=re.DOTALL)
        code = re.sub(r"#ifdef \w+_FLOATS.*?#endif", "", text, flags=re.DOTALL)
        assert not re.search(r"[/%]|\b(float|double)\b", code), name


@pytest.mark.slow
@pytest.mark.parametrize("name", ["s5_2", "s5_5", "s5_7", "s4d_9", "s4d_10"])
def test_the_program_prints_the_reference(name, models, tmp_path):
    """As text and in 16 bits: logits of every step, of a stream, of two documents, of both directions, of tokens."""
    model = models[name]
    path = program(model, tmp_path, flags=("-O1", "-DSSMPRUNE_LONGEST=128", "-DSSMPRUNE_SELF_TEST"))
    x, for_c = samples_of(model.config)
    pair = 2 if model.config.retrieval else 1
    text = " ".join(map(str, for_c[:pair].ravel())).encode()
    wanted = Reference(whole_of(model))(x[:pair]).reshape(-1, model.config.outputs)
    for options, given in (((), text), (("--s16",), for_c[:pair].astype("<i2").tobytes())):
        code, out, error = fed_to(path, given, *options)
        assert (code, error) == (0, "")
        assert np.array_equal(np.array(out.split(), int).reshape(wanted.shape), wanted)
    assert fed_to(path, b"", "--id")[1].startswith("ssmprune ")
    assert fed_to(path, b"", "--self-test")[1] == "0\n"
    assert fed_to(path, text, "--class")[1].split() == [str(best) for best in wanted.argmax(axis=1)]
    values = "tokens" if model.config.tokens else "whole numbers"
    for bad, expected in ((b"", ", "), (b"0.5", ", "), (b"99999", " from "), (b"1 x", ", ")):
        code, _, error = fed_to(path, bad)
        assert code == 1
        assert f"expected {values}{expected}" in error
    more = fed_to(path, text + b" 1" * model.config.inputs * 129 + b" x")  # a stream takes them, up to what is none
    whole = model.config.bidirectional or model.config.retrieval
    assert ("read 128 steps, and there are more" if whole else f"expected {values}, ") in more[2]
    assert fed_to(path, b"1", "--float")[0] == 2


@pytest.mark.slow
def test_the_function_for_floats_gives_the_same_samples(tmp_path):
    model = whole_number_model(make(3, "s5"), raw=(0.25, 0.5))
    export_c(model, tmp_path / "plain.c")
    flags = ["-shared", "-fPIC", "-DPLAIN_FLOATS", "-O1", "plain.c", "-o", "plain.so"]
    subprocess.run(["gcc", *STRICT, *flags], cwd=tmp_path, check=True)
    import ctypes

    library, inputs = ctypes.CDLL(str(tmp_path / "plain.so")), model.config.inputs
    whole = whole_of(model)
    for values in np.random.default_rng(1).normal(0, 4000, (50, inputs)).astype(np.float32):
        samples = np.zeros(inputs, np.int16)
        library.plain_samples(values.ctypes.data_as(ctypes.c_void_p), samples.ctypes.data_as(ctypes.c_void_p))
        assert np.abs(samples - whole.units.samples(values)).max() <= 1  # a float may lie between two samples
    assert "scale * sample + offset, with the scale 0.25" in (tmp_path / "plain.h").read_text()


def test_scale_and_offset_go_into_the_encoder():
    """With a scale for each input too; the stream is then that of the normalised inputs."""
    model = make(9, "s5", norm="batch")
    scale, offset = [0.01 * (k + 1) for k in range(model.config.inputs)], [0.5] * model.config.inputs
    small = whole_number_model(model, raw=(scale, offset))
    whole, encoder = whole_of(small), numbers_of(small).encoder
    raw = np.random.default_rng(0).integers(-100, 100, (7, model.config.inputs))
    wanted = (raw * scale + offset) @ (encoder.weight * encoder.scale[:, None]).T + encoder.bias
    folded = fold(encoder, np.array(scale), np.array(offset))
    ours = raw @ (folded.weight * folded.scale[:, None]).T + folded.bias
    assert np.abs(folded.weight).max() == 127
    assert np.abs(ours - wanted).max() < 0.01 * np.abs(wanted).max()
    assert whole.units.scale.tolist() == scale


def test_saturation_is_counted(bounded):
    model = make(3, "s5")
    small = quantize(model, data=[inputs_of(model.config)[0] / 10], arithmetic="integer")
    quiet, loud = Reference(whole_of(small)), Reference(whole_of(small))
    quiet(samples_of(small.config)[0] // 10)
    loud(samples_of(small.config, wild=True)[0])
    assert quiet.saturated == 0
    assert 0 < loud.saturated < loud.activations


@pytest.mark.parametrize("family", ["s5", "s4d"])
def test_a_model_without_pooling_is_checked_on_steps_that_are_no_padding(family):
    model = make(0, family, pooling="none")
    x, _ = inputs_of(model.config)
    small = quantize(model, data=[sp.Sequences(x, torch.tensor(LENGTHS))], arithmetic="integer")
    assert f"of {sum(LENGTHS)} answers are the same" in small.history[-1]
    reference = Reference(whole_of(small))
    samples = reference.whole.units.samples(x.numpy())
    whole = reference(samples)
    wanted = np.concatenate([row[:valid] for row, valid in zip(whole, LENGTHS, strict=True)])
    assert np.array_equal(reference(samples, LENGTHS), wanted)


def test_a_file_gives_the_same_whole_numbers(tmp_path):
    small = whole_number_model(make(3, "s4d"), raw=(0.1, -0.3))
    sp.save(small, tmp_path / "small.safetensors")
    loaded = sp.load(tmp_path / "small.safetensors")
    assert loaded.grid.ranges == small.grid.ranges
    x, _ = samples_of(small.config)
    assert np.array_equal(Reference(whole_of(loaded))(x), Reference(whole_of(small))(x))
    sp.save(loaded, tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "small.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda ranges: ranges.pop("scale"), "not readable"),
        (lambda ranges: ranges.update(scale=[1.0] * 99), "scales and offsets"),
        (lambda ranges: ranges.update(scale=[0.0] * len(ranges["scale"])), "positive"),
        (lambda ranges: ranges["largest"].update(stream=math.nan), "finite"),
        (lambda ranges: ranges.update(largest=3), "not readable"),
    ],
)
def test_damaged_ranges_are_refused(change, message, tmp_path):
    path = tmp_path / "small.safetensors"
    sp.save(whole_number_model(make(3, "s5")), path)
    tensors, about = load_tensors(path)
    ranges = json.loads(about["ranges"])
    change(ranges)
    save_tensors(path, tensors, about | {"ranges": json.dumps(ranges)})
    with pytest.raises(sp.InputError, match=message):
        sp.load(path)


def test_what_changes_the_model_takes_it_back_to_floats():
    model = make(3, "s5")
    small = whole_number_model(model)
    assert small.grid.ranges is not None
    assert sp.prune(small, 0.5).grid.ranges is None
    assert quantize(small).grid.ranges is None
    again = whole_number_model(small)
    assert again.grid.ranges == small.grid.ranges
    with pytest.raises(sp.InputError, match="no ranges"):
        whole_of(quantize(model))


def test_what_cannot_be_done_is_refused():
    model = make(3, "s5")
    data = [inputs_of(model.config)[0]]
    for options, message in (
        ({"bits": 4, "data": data}, "needs weights of 8 bits, not 4"),
        ({}, "need data= (--calibrate)"),
        ({"arithmetic": "intger", "data": data}, "Did you mean integer"),
        ({"data": data, "raw": (0.0, 1.0)}, "positive scale"),
        ({"data": data, "arithmetic": "float", "raw": (1.0, 0.0)}, 'needs arithmetic="integer"'),
    ):
        with pytest.raises(sp.InputError, match=re.escape(message)):
            quantize(model, **{"arithmetic": "integer"} | options)
    tokens = make(5, "s5", tokens=True)
    with pytest.raises(sp.InputError, match="Tokens are whole numbers already"):
        whole_number_model(tokens, raw=(1.0, 0.0))
    slow = Classifier(Config("s5", inputs=1, outputs=2, width=4, states=(3,), pole_form="free")).eval()
    with torch.no_grad():
        next(iter(slow.blocks)).ssm.pole_re.fill_(-1e-9)
    with pytest.raises(sp.InputError, match=r"layers.0.ssm has states that decay by .* too slow"):
        whole_number_model(slow)
    with torch.no_grad():
        next(iter(slow.blocks)).ssm.pole_re.fill_(1e-3)
    with pytest.raises(sp.InputError, match="outside the unit circle"):
        whole_number_model(slow)


def test_tables_err_as_stated():
    a = np.arange(-32767, 32768)
    y, z = a / 4096, a / 2048
    for exact in (True, False):
        ours = np.maximum(y, 0) - look_up(gelu_table(exact=exact), np.abs(a)) / 2**17
        wanted = torch.nn.functional.gelu(torch.from_numpy(y), approximate="none" if exact else "tanh").numpy()
        assert np.abs(ours - wanted).max() < 1.1e-4
    upper = look_up(sigmoid_table(), np.abs(a)) / 2**15
    assert np.abs(np.where(z < 0, 1 - upper, upper) - 1 / (1 + np.exp(-z))).max() < 1e-4


def test_small_functions_are_exact():
    numbers = np.array([0, 1, 2, 3, 2**61, 2**62 - 1, 12345678987654321])
    assert root(numbers).tolist() == [math.isqrt(int(number)) for number in numbers]
    x = np.random.default_rng(0).integers(-(2**30) + 1, 2**30, (3, 777, 5))
    assert np.abs(mean(x) - x.mean(axis=1)).max() <= 3
    x = np.random.default_rng(0).integers(-(2**26), 2**26, (3, 7, 96))
    centred = x - x.mean(axis=-1, keepdims=True)
    wanted = centred / np.sqrt((centred**2).sum(axis=-1, keepdims=True))
    assert np.abs(standardised(x, 0) / 2**30 - wanted).max() < 1e-5
    assert np.abs(standardised(np.full((1, 1, 5), 2**20), 10**9)).max() < 2**30 / 1000
    assert shift_right(np.array([-3, -2, 2, 3, 5]), 1).tolist() == [-1, -1, 1, 2, 3]
    weights, scale = short_rows(np.full((2, 1000), 127.0), np.ones(2))
    assert np.abs(weights).sum(axis=1).max() * 32768 < 2**31
    assert (weights * scale[:, None] == 128).all()


@pytest.mark.slow
def test_the_command(ssmprune, tmp_path):
    model = make(3, "s5")
    sp.save(model, tmp_path / "model.safetensors")
    np.save(tmp_path / "inputs.npy", inputs_of(model.config)[0].numpy())
    line = [
        "quantize",
        str(tmp_path / "model.safetensors"),
        "--arithmetic",
        "integer",
        "--out",
        str(tmp_path / "w.safetensors"),
    ]
    result = ssmprune(*line)
    assert result.returncode == 2
    assert "--calibrate" in result.stderr
    assert not (tmp_path / "w.safetensors").exists()
    result = ssmprune(*line, "--calibrate", str(tmp_path / "inputs.npy"))
    assert result.returncode == 0, result.stderr
    assert "numbers saturate" in result.stdout
    assert ssmprune("export", str(tmp_path / "w.safetensors"), "--out", str(tmp_path / "w.c")).returncode == 0
    assert "in whole numbers" in (tmp_path / "w.h").read_text()
    result = ssmprune("verify", str(tmp_path / "w.c"))
    assert result.returncode == 0, result.stderr
    assert "as the checkpoint" in result.stdout
    text = (tmp_path / "w.c").read_text()
    found = re.search(r"static const int8_t encoder\[\d+\] = {\s*(-?\d+)", text)
    other = found[0].replace(found[1], str(int(found[1]) // 2 + 1))
    (tmp_path / "w.c").write_text(text.replace(found[0], other))
    assert ssmprune("verify", str(tmp_path / "w.c")).returncode == 2


@pytest.mark.slow
def test_deploy_takes_pixels_and_its_card_says_so(ssmprune, tmp_path):
    """Scale and offset are the task's; a self-test and `verify` agree, and the card has flash, state and stack."""
    torch.manual_seed(0)
    model = Classifier(Config("s5", inputs=1, outputs=10, width=8, states=(6, 5))).eval()
    sp.save(model, tmp_path / "model.safetensors")
    words = ("--ratio", "0.5", "--calibrate", "smnist", "--sequences", "20", "--arithmetic", "integer")
    result = ssmprune("deploy", tmp_path / "model.safetensors", *words, "--out", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    card = json.loads((tmp_path / "out" / "model.card.json").read_text())
    assert (card["samples"]["scale"], card["samples"]["offset"]) == ([1 / 255], [0.0])
    assert 1_000 < card["after"]["compiled_bytes"] < 30_000
    assert 100 < card["after"]["stack_bytes"] < 10_000
    assert (
        card["after"]["state_bytes"] == 4 * 2 * sum(sp.load(tmp_path / "out" / "model.safetensors").config.states) + 72
    )
    assert "0.00392156863 and the offset 0" in (tmp_path / "out" / "model.h").read_text()
    assert ssmprune("verify", tmp_path / "out" / "model.c").returncode == 0
