"""A single layer as C computes what its system does, in memory of the size that the header asks for."""

import shutil
import subprocess

import numpy as np
import pytest
import torch

import ssmprune as sp
from c_builds import STRICT, make

pytestmark = pytest.mark.slow

LENGTH = 40
SANITIZED = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
PROGRAM = """
#include "firmware.h"
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    const size_t steps = STEPS, half = steps / 2;
    float *u = malloc(steps * FIRMWARE_INPUTS * sizeof *u), *y = malloc(steps * FIRMWARE_OUTPUTS * sizeof *y);
    firmware_state *s = malloc(sizeof *s);
    for (size_t i = 0; i < steps * FIRMWARE_INPUTS; i++)
        if (scanf("%f", u + i) != 1) return 1;
    for (int way = 0; way < 2; way++) {
        firmware_init(s);
        if (way) firmware_run(s, u, half, y);
        if (way) firmware_run(s, u + half * FIRMWARE_INPUTS, half, y + half * FIRMWARE_OUTPUTS);
        for (size_t t = 0; !way && t < steps; t++) firmware_step(s, u + t * FIRMWARE_INPUTS, y + t * FIRMWARE_OUTPUTS);
        for (size_t i = 0; i < steps * FIRMWARE_OUTPUTS; i++) printf("%.9g ", (double)y[i]);
    }
    free(u), free(y), free(s);
    return 0;
}
"""


def layer(n, inputs, outputs, channel=None, gain=2):
    rng = np.random.default_rng(n)
    poles = rng.uniform(0.3, 0.999, n) * np.exp(1j * rng.uniform(0, 3, n))
    if channel is not None:
        inputs = outputs = 1
    B, C = (rng.normal(size=(*shape, 2)) @ [1, 1j] for shape in ((n, inputs), (outputs, n)))
    channels = {} if channel is None else {"channel": channel, "channels": 4}
    return sp.DiagonalSystem.from_discrete(poles, B, C, gain=gain, **channels)


def run(system, D, folder, *, flags=SANITIZED):
    """Return the outputs of steps and of two runs, and of the system itself."""
    sp.export_c(system, folder / "layer.c", "firmware", D=D)
    (folder / "firmware.h").write_text('#include "layer.h"\n')
    (folder / "main.c").write_text(PROGRAM.replace("STEPS", str(LENGTH)))
    command = ["cc", *STRICT, *flags, "main.c", "layer.c", "-o", "main"]  # without libm
    subprocess.run(command, cwd=folder, check=True)
    u = np.random.default_rng(0).normal(size=(LENGTH, system.inputs)).astype(np.float32)
    result = subprocess.run(folder / "main", input=" ".join(map(str, u.ravel())), capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    ours = np.array(result.stdout.split(), float).reshape(2, LENGTH, system.outputs)
    through = 0 if np.ndim(D) == 0 else u @ np.asarray(D).T if np.ndim(D) == 2 else u * np.asarray(D)
    return ours, system.simulate(u) + through


@pytest.mark.parametrize(
    ("system", "D"),
    [
        (layer(5, 3, 3), np.array([1.0, -2.0, 0.5])),
        (layer(5, 3, 2, gain=1), np.arange(6.0).reshape(2, 3)),
        (layer(1, 1, 1), 0),
        (layer(7, 4, 4, channel=[0, 0, 2, 0, 2, 3, 3]), np.ones(4)),
        (layer(7, 4, 4, channel=[3, 0, 2, 0, 2, 3, 3], gain=1), 0),
        (layer(0, 4, 4, channel=[]), np.ones(4)),
        (layer(0, 2, 2), 0),
    ],
    ids=["pairs", "single states and a matrix D", "one of all", "channels", "any order", "D alone", "silent"],
)
def test_steps_and_runs_are_those_of_the_system(system, D, tmp_path):
    ours, theirs = run(system, D, tmp_path)
    assert np.abs(ours - theirs).max() <= 1e-5 * max(1, np.abs(theirs).max())


@pytest.mark.parametrize("family", ["s5", "s4d"])
def test_a_layer_of_a_model_with_its_own_D(family, tmp_path):
    model = make(3, family)
    name, system = next(iter(sp.read(model).items()))
    D = model.blocks[0].ssm.D
    ours, theirs = run(system, D.detach(), tmp_path, flags=("-O3",))
    assert np.abs(ours - theirs).max() <= 1e-5 * np.abs(theirs).max()
    sp.export_c(system, tmp_path / "again.c", "firmware", D=D)  # which needs a gradient
    assert "D u_k" in (tmp_path / "again.h").read_text()
    sp.export_c(model.blocks[0].ssm, tmp_path / "again.c", "firmware")  # a layer of ours brings its D
    assert (tmp_path / "again.c").read_text().replace("again.h", "layer.h") == (tmp_path / "layer.c").read_text()
    assert name


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_cplusplus_takes_a_layer(tmp_path):
    sp.export_c(layer(5, 3, 3), tmp_path / "layer.c", D=0)
    command = ["g++", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror", "-x", "c++", "-c", "layer.c"]
    subprocess.run(command, cwd=tmp_path, check=True)


@pytest.mark.parametrize(
    ("model", "D", "message"),
    [
        (layer(5, 3, 3), np.ones(4), r"must have the shape \(3,\) or \(3, 3\); it has \(4,\)"),
        (layer(5, 3, 2), np.ones(2), r"must have the shape \(2, 3\); it has \(2,\)"),
        (layer(2, 4, 4, channel=[0, 1]), np.ones((4, 4)), r"must have the shape \(4,\); it has \(4, 4\)"),
        (sp.DiagonalSystem.from_discrete([0.5], [[1]], [[[1]], [[1]]]), None, "only forward layers are written as C"),
        (layer(5, 3, 3), np.full(3, np.nan), "D has numbers too large for single precision"),
        (torch.nn.Linear(2, 2), np.ones(2), "D is given for a single layer"),
        (torch.nn.Linear(2, 2), None, "classifiers; got Linear. Its layers can be written one by one"),
        (layer(5, 3, 3), None, "D=layer.D, or D=0"),
    ],
)
def test_what_is_no_forward_layer_with_its_D_is_refused(model, D, message, tmp_path):
    with pytest.raises(sp.InputError, match=message):
        sp.export_c(model, tmp_path / "layer.c", D=D)
    assert not any(tmp_path.iterdir())
