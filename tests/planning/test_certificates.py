import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ssmprune as sp
from calibrated import moments
from ssmprune import planning
from ssmprune.core.moments import Moments
from strategies import systems


def certified(system, ratio, refit):
    """A certified plan for one layer, and what it does: u -> y before - y after."""
    found = {"ssm": system}
    plan = sp.make_plan(found, ratio, sp.SURGEON) if refit else sp.make_plan(found, ratio)
    small = plan.apply(found)["ssm"]
    D = plan.D_change.get("ssm", 0)
    return plan, sp.certify(plan, found)["ssm"], lambda u: system.simulate(u) - small.simulate(u) - D * u


def square(system):
    """The same states with as many outputs as inputs, as layers have."""
    if system.channel is not None:
        return system
    width = min(system.inputs, system.outputs)
    fields = {"gain": system.gain, "backward_delay": system.backward_delay}
    return sp.DiagonalSystem(system.log_poles, system.B[:, :width], system.C[:, :width], **fields)


@settings(max_examples=50)
@given(systems(max_n=8).map(square), st.integers(1, 9), st.booleans(), st.integers(0, 1000))
def test_no_input_exceeds_a_certificate(system, tenths, refit, seed):
    """50 systems, 20 inputs each: noise, slow noise, impulses, steps."""
    _, certificate, error = certified(system, tenths / 10, refit)
    rng = np.random.default_rng(seed)
    assert certificate.exact <= certificate.bound * (1 + 1e-6)
    for k in range(20):
        u = rng.normal(size=(24, system.inputs))
        u = [u, np.cumsum(u, axis=0), u * (np.arange(24) == 12)[:, None], np.ones_like(u) * u[0]][k % 4]
        reached = np.linalg.norm(error(u)) / np.linalg.norm(u)
        assert reached <= certificate.exact * (1 + 2e-6) + 1e-9


@pytest.mark.parametrize("refit", [False, True])
@pytest.mark.parametrize("kind", ["mimo", "wide", "bidirectional", "multi-SISO"])
def test_a_sinusoid_at_the_peak_reaches_the_exact_norm(kind, refit):
    rng = np.random.default_rng(3)
    n, width, d = 12, 30 if kind == "wide" else 3, 1 + (kind == "bidirectional")
    poles = rng.uniform(0.5, 0.95, n) * np.exp(1j * rng.uniform(0, np.pi, n))
    owners = {"channel": np.arange(n) // 4, "channels": width} if kind == "multi-SISO" else {}
    side = 1 if owners else width
    B, C = rng.normal(size=(n, side)), rng.normal(size=(d, side, n))
    system = sp.DiagonalSystem.from_discrete(poles, B, C, gain=2.0, **owners)
    plan, certificate, error = certified(system, 0.5, refit)
    G = system.response(certificate.theta) - plan.apply({"ssm": system})["ssm"].response(certificate.theta)
    G = np.diag(G[0]) if kind == "multi-SISO" else G[0]
    if refit:
        G = G - np.diag(plan.D_change["ssm"])
    top = np.linalg.svd(G)[2][0].conj()
    u = (top * np.exp(1j * certificate.theta * np.arange(2000))[:, None]).real
    assert np.linalg.norm(error(u)) / np.linalg.norm(u) > 0.95 * certificate.exact


def test_the_papers_expression_is_no_bound():
    """Two equal states removed: their gains add up to 4, the root of the sum of squares says 2.83."""
    poles, B, C = [0.5, 0.5, 0.5], [[1]] * 3, [[1, 1, 2]]
    system = sp.DiagonalSystem.from_discrete(poles, B, C)
    _, certificate, error = certified(system, 0.6, refit=False)
    u = np.ones((2000, 1))
    reached = np.linalg.norm(error(u)) / np.linalg.norm(u)
    assert certificate.paper < reached <= certificate.exact <= certificate.bound
    np.testing.assert_allclose([certificate.exact, certificate.paper, reached], [4, 8**0.5, 4], rtol=1e-3)


@settings(max_examples=20)
@given(systems(max_n=6).map(square), st.booleans())
def test_the_measured_error_is_that_on_the_data(system, refit):
    sequences = np.random.default_rng(0).normal(size=(3, 25, system.inputs))
    known = {"ssm": Moments(*moments(system, sequences, [range(25)] * 3))}
    found = {"ssm": system}
    plan = sp.make_plan(found, 0.5)
    plan = planning.refit_each_layer(plan, found, known) if refit else plan
    small = plan.apply(found)["ssm"]
    errors = [system.simulate(u) - small.simulate(u) - plan.D_change.get("ssm", 0) * u for u in sequences]
    expected = np.linalg.norm(errors) / np.linalg.norm([system.simulate(u) for u in sequences])
    np.testing.assert_allclose(sp.certify(plan, found, known)["ssm"].measured, expected, atol=1e-6)


def test_a_layer_left_whole_has_nothing_to_certify():
    system = sp.DiagonalSystem.from_discrete([0.5, 0.6], np.ones((2, 1)), np.ones((1, 2)))
    plan, certificate, _ = certified(system, 0, refit=True)
    assert plan.C == {}
    assert (certificate.exact, certificate.bound, certificate.paper) == (0, 0, 0)


def test_unstable_states_do_not_spoil_the_certificate_of_the_others():
    rng = np.random.default_rng(0)
    B, C = rng.normal(size=(4, 2)), rng.normal(size=(2, 4))
    system = sp.DiagonalSystem.from_discrete([0.9, 1.2, 0.8, 0.7], B, C)
    for refit in (False, True):
        assert 0 < certified(system, 0.5, refit)[1].exact < np.inf


@pytest.mark.slow
def test_a_thousand_layers_do_not_overflow():
    """The paper's expression for the whole model is a product over layers; far too large a one is infinite."""
    loud = sp.DiagonalSystem.from_discrete([0.9, 0.5], [[1], [1]], [[1, 1]])
    systems = {f"layers.{i}": loud for i in range(1000)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        certificates = sp.certify(sp.make_plan(systems, 0.5), systems)
    assert all(certificate.paper_model == np.inf for certificate in certificates.values() if certificate.paper)
    assert any(certificate.paper for certificate in certificates.values())
