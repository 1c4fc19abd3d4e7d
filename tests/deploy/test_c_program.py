"""The program at the end of a C file: what it reads from a pipe, what it prints, what it says of the rest."""

import numpy as np
import pytest
import torch

from c_builds import fed, make, program
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config

pytestmark = pytest.mark.slow


def forward(model, x):
    with torch.no_grad():
        return model(x).numpy()


def test_a_program_reads_tokens_and_prints_the_class(tmp_path):
    model = make(12, "s5", tokens=True)
    path, x = program(model, tmp_path), torch.randint(0, model.config.inputs, (1, 37))
    tokens = "\n".join(map(str, x[0].tolist())).encode()
    assert fed(path, tokens, "--class") == (0, f"{forward(model, x).argmax()}\n", "")
    assert fed(path, f"{model.config.inputs}".encode())[0] == 1  # no such token


def test_a_program_reads_raw_audio(tmp_path):
    torch.manual_seed(0)
    model = Classifier(Config("s5", inputs=1, outputs=3, width=4, states=(4,), bidirectional=True)).eval()
    samples = np.array([0, 1, -1, 32767, -32768, 1000], "<i2")
    x = torch.from_numpy(samples.astype(np.float32) / 32768)[None, :, None]
    code, out, _ = fed(program(model, tmp_path), samples.tobytes(), "--s16")
    assert code == 0
    np.testing.assert_allclose(np.array(out.split(), np.float32)[None], forward(model, x), atol=1e-5)


@pytest.mark.parametrize(("text", "option", "code"), [(b"", (), 1), (b"1 x", (), 1), (b"1", ("--loud",), 2)])
def test_a_program_says_what_it_cannot_use(text, option, code, tmp_path):
    path = program(make(13, "s5"), tmp_path)
    found, out, error = fed(path, text, *option)
    assert (found, out) == (code, "")
    assert error


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"4294967297 2", "expected tokens from 0 to 2\n"),
        (b"0 3", "expected tokens from 0 to 2\n"),
        (b"0 -1", "expected tokens from 0 to 2\n"),
        (b"99999999999999999999999", "expected tokens from 0 to 2\n"),
        (b"1 2x", "expected tokens, 1 per step, and at least one step\n"),
        (b"0" * 40, "expected tokens, 1 per step, and at least one step\n"),
        (b" \n", "expected tokens, 1 per step, and at least one step\n"),
    ],
)
@pytest.mark.parametrize("both", [False, True], ids=["stream", "whole"])
def test_a_program_refuses_tokens_that_do_not_exist(text, message, both, tokens_programs):
    assert fed(tokens_programs[both], text) == (1, "", message)


def test_a_program_explains_itself(tokens_programs, tmp_path):
    for path, values in (
        (tokens_programs[0], "tokens as text, 1"),
        (program(make(13, "s5"), tmp_path), "numbers as text, "),
    ):
        code, out, error = fed(path, b"", "--help")
        assert (code, error) == (0, "")
        assert f"Reads {values}" in out
        for option in ("--s16 ", "--class "):
            assert f"\n  {option}" in out


@pytest.fixture(scope="module")
def tokens_programs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    sizes = {"inputs": 3, "outputs": 2, "width": 4, "states": (2,), "tokens": True}
    models = [Classifier(Config("s5", **sizes, bidirectional=both)).eval() for both in (False, True)]
    return [program(model, folder, f"tokens{i}") for i, model in enumerate(models)]


@pytest.mark.parametrize("samples", [False, True], ids=["text", "s16"])
def test_a_program_says_that_it_does_not_read_all(samples, tmp_path):
    torch.manual_seed(0)
    model = Classifier(Config("s5", inputs=1, outputs=3, width=4, states=(4,), bidirectional=True)).eval()
    path = program(model, tmp_path, flags=("-O1", "-DSSMPRUNE_LONGEST=4"))

    def answered(count):
        values = np.arange(count, dtype="<i2") * 100
        text = values.tobytes() if samples else b" ".join(b"%d" % value for value in values) + b"\n"
        return fed(path, text, *(["--s16"] if samples else []))

    whole, more = answered(4), answered(5)
    assert whole[::2] == (0, "")
    assert more[:2] == whole[:2]
    assert "read 4 steps, and there are more" in more[2]


def test_a_program_that_compares_documents_needs_all_of_them(tmp_path):
    sizes = {"inputs": 3, "outputs": 2, "width": 4, "states": (2,), "tokens": True, "retrieval": True}
    path = program(Classifier(Config("s5", **sizes)).eval(), tmp_path, flags=("-O1", "-DSSMPRUNE_LONGEST=4"))
    assert fed(path, b"0 1 2 0")[::2] == (0, "")
    code, out, error = fed(path, b"0 1 2 0 1 1")
    assert (code, out) == (1, "")
    assert "there are more" in error
