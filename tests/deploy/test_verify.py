"""A C file says which model it is and tests itself; `verify` builds it, runs it and compares it with its checkpoint."""

import json
import re
import subprocess

import numpy as np
import pytest

import ssmprune as sp
from c_builds import fed, make, program
from ssmprune.deploy import bundle
from ssmprune.deploy.verify import random_inputs, verify
from ssmprune.quantisation.quantise import quantize

pytestmark = pytest.mark.slow

KINDS = {
    "s5": make(3, "s5", activation="half_glu1"),
    "s4d": make(4, "s4d", pooling="none"),
    "both": make(5, "s4d", bidirectional=True, norm="layer"),
    "tokens": make(6, "s5", tokens=True, pooling="last"),
    "documents": make(7, "s5", retrieval=True),
    "documents_both": make(8, "s5", retrieval=True, bidirectional=True, tokens=True),
    "bits": quantize(make(9, "s5", activation="full_glu"), 4),
}


@pytest.fixture
def exported(tmp_path):
    """A checkpoint and its C file."""
    sp.save(KINDS["s5"], tmp_path / "digits.safetensors")
    sp.export_c(KINDS["s5"], tmp_path / "digits.c", origin=bundle.origin_of(tmp_path / "digits.safetensors"))
    return tmp_path / "digits.c"


def damage(path, name="decoder_bias", number="7.0f"):
    """Change the first number of an array."""
    text, count = re.subn(rf"( {name}\[\d+\] = {{\s+)[^,}}]+", rf"\g<1>{number}", path.read_text(), count=1)
    assert count == 1
    path.write_text(text)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_is_verified(kind, tmp_path):
    model = KINDS[kind]
    sp.export_c(model, tmp_path / "model.c")
    found = verify(tmp_path / "model.c", model, [random_inputs(model.config)], None, None)
    assert found.passed
    assert 0 < found.ulp < 100
    assert re.fullmatch(rf"ssmprune {sp.__version__}, 0x[0-9a-f]{{8}}, a model in memory", found.id)


@pytest.mark.parametrize("flags", [("-O2",), ("-O3", "-ffast-math")], ids=["plain", "fast"])
@pytest.mark.parametrize("number", ["7.0f", "3e38f * 10.0f", "0.0f * (3e38f * 10.0f)"], ids=["wrong", "inf", "nan"])
def test_the_self_test_notices_a_wrong_weight(number, flags, exported):
    damage(exported, number=number)
    line = ["cc", *flags, "-w", "-DSSMPRUNE_MAIN", "-DSSMPRUNE_SELF_TEST", "digits.c", "-lm", "-o", "digits"]
    subprocess.run(line, cwd=exported.parent, check=True)
    code, out, _ = fed(exported.parent / "digits", b"", "--self-test")
    assert code == 0
    assert 1 < float(out) < 3.5e38, "a finite number, which careless arithmetic cannot take for 0"


def test_a_program_names_its_model_without_a_self_test(tmp_path):
    path = program(KINDS["s5"], tmp_path)
    assert fed(path, b"", "--id")[1].endswith("a model in memory\n")
    assert fed(path, b"", "--self-test")[0] == 2


def test_the_command_says_how_far_a_file_is_off(ssmprune, exported):
    result = ssmprune("verify", exported, "--json")
    assert result.returncode == 0, result.stderr
    facts = json.loads(result.stdout)
    assert (facts["result"], facts["self-test"], facts["bound"]) == ("as the checkpoint", 0, 256)
    assert 0 < facts["deviation"] < 100
    assert "digits.safetensors (SHA-256 " in facts["id"]
    assert facts["id"] in " ".join(ssmprune("verify", exported).stdout.split())


def test_a_file_that_was_changed_differs(ssmprune, exported):
    damage(exported)
    result = ssmprune("verify", exported, "--json")
    assert result.returncode == 2
    facts = json.loads(result.stdout)
    assert facts["result"] == "differs"
    assert facts["self-test"] > 1
    assert facts["deviation"] > facts["bound"]
    damage(exported, number="3e38f * 10.0f")
    result = ssmprune("verify", exported, "--cc", "cc -w")
    assert result.returncode == 2
    assert "not finite" in result.stderr


def test_inputs_compiler_and_runner_are_the_users(ssmprune, exported):
    folder = exported.parent
    np.save(folder / "x.npy", np.random.default_rng(0).normal(size=(5, 30, KINDS["s5"].config.inputs)))
    (folder / "runner").write_text('#!/bin/sh\necho "$@" >> "$0.log"\nexec "$@"\n')
    (folder / "runner").chmod(0o700)
    line = (folder / "digits.safetensors", folder / "x.npy", "--cc", "cc -O1 -DMARK", "--run", folder / "runner")
    result = ssmprune("verify", exported, *line)
    assert result.returncode == 0, result.stderr
    assert len((folder / "runner.log").read_text().splitlines()) == 7  # id, self-test, five sequences


def test_the_checkpoint_is_the_one_that_was_exported(ssmprune, exported):
    folder = exported.parent
    sp.save(make(2, "s5"), folder / "other.safetensors")
    other = ssmprune("verify", exported, folder / "other.safetensors")
    assert other.returncode == 2
    assert "was written from another checkpoint than" in other.stderr
    (folder / "digits.safetensors").rename(folder / "moved.safetensors")
    lost = ssmprune("verify", exported)
    assert lost.returncode == 2
    assert "digits.safetensors, which is not beside it; name it: " in lost.stderr
    assert ssmprune("verify", exported, folder / "moved.safetensors").returncode == 0
    exported.write_text("int x;\n")
    assert "does not say which model it is" in ssmprune("verify", exported).stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--cc", ""), "needs the name of a compiler"),
        (("--cc", "no-such-cc"), "no-such-cc cannot be run"),
        (("--cc", "cc -DMARK=1 -fno-such"), "could not compile"),
        (("--run", "no-such-emulator"), "no-such-emulator cannot be run"),
        (("--run", "false"), "say what runs it, as in --run qemu-arm-static"),
        (("--run", "echo"), "Expected"),
        (("{checkpoint}", "nothing"), "nothing"),
    ],
)
def test_what_cannot_be_built_or_run_is_told(words, message, ssmprune, exported):
    checkpoint = exported.with_suffix(".safetensors")
    result = ssmprune("verify", exported, *(word.format(checkpoint=checkpoint) for word in words))
    assert (result.returncode, result.stdout) == (2, "")
    assert message in result.stderr
    assert "Traceback" not in result.stderr
