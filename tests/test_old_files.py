"""Files that version 0.2.0 wrote load with this version, and mean the same.

golden/v0.2.0 holds models (whole, pruned, masked, on 8 and on 4 bits), plans, a pruned module and a sweep, with the
logits that version 0.2.0 gave for `x` in expected.npz.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

import ssmprune as sp
from ssmprune.sweeps.store import Results

OLD = Path(__file__).parent / "golden" / "v0.2.0"
EXPECTED = np.load(OLD / "expected.npz")
CLOSE = {"rtol": 1e-5, "atol": 1e-6}  # processors add in different orders
MODELS = ("s5", "s4d", "s5-pruned", "s4d-pruned", "s5-masked", "s5-8-bits", "s4d-4-bits")


def answers(model) -> np.ndarray:
    with torch.no_grad():
        return model(torch.from_numpy(EXPECTED["x"])).numpy()


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    np.testing.assert_allclose(answers(sp.load(OLD / f"{name}.safetensors")), EXPECTED[name], **CLOSE)


@pytest.mark.parametrize("name", ["plan-last", "plan-surgeon"])
def test_plans(name):
    plan = sp.Plan.load(OLD / f"{name}.safetensors")
    assert (plan.kept, plan.total) == (12, 24)
    np.testing.assert_allclose(answers(sp.shrink(sp.load(OLD / "s5.safetensors"), plan)), EXPECTED[name], **CLOSE)


def test_pruned_modules():
    from ssmprune.models import S5Layer

    net = torch.nn.Sequential(S5Layer(2, 10), torch.nn.GELU(), S5Layer(2, 10))
    np.testing.assert_allclose(answers(sp.load_pruned(net, OLD / "module.safetensors")), EXPECTED["module"], **CLOSE)


def test_sweeps(monkeypatch):
    monkeypatch.chdir(OLD)  # where the sweep's checkpoint lies
    results = Results.read(OLD / "sweep")
    assert {(cell.method, cell.ratio) for cell in results.cells} == {
        ("full", 0.0),
        ("last", 0.5),
        ("surgeon", 0.5),
        ("balanced", 0.5),
    }
    model = sp.load("one.safetensors")
    planned = [cell for cell in results.cells if cell.method in ("last", "surgeon")]
    for cell in planned:
        plan = sp.Plan.load(results.plan_path(cell))
        assert sp.shrink(model, plan).config.states == plan_sizes(plan)


def plan_sizes(plan) -> tuple[int, ...]:
    return tuple(int(keep.sum()) for keep in plan.keep.values())
