"""No size of B, C or a pole that a float holds makes scores and norms over- or underflow."""

import warnings

import numpy as np
import pytest

import ssmprune as sp
from h2_norms import h2, pair_h2, state_h2
from ssmprune.core import bilinear, norms
from ssmprune.methods import Evidence, criteria
from ssmprune.planning.certificates import energy_lost_by_plan

SIZES = [(1e-90, 1e-90), (1e80, 1e80), (1e-90, 1e80), (1e80, 1e-150)]


def system(B_size=1.0, C_size=1.0, flat=False, directions=2):
    rng = np.random.default_rng(0)
    n, width = 6, 3
    poles = rng.uniform(0.1, 0.99, n) * np.exp(1j * rng.uniform(0, 3, n))
    B = rng.normal(size=(n, 1 if flat else width)) * B_size
    C = rng.normal(size=(directions, 1 if flat else width, n)) * C_size
    owners = {"channel": np.arange(n) // 2, "channels": width} if flat else {}
    return sp.DiagonalSystem.from_discrete(poles, B, C + 0.5j * C[:, ::-1], gain=2, **owners)


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("name", sorted(criteria().keys() - {"random"}))
def test_scores_shift_by_the_size_of_the_parameters(name, sizes, flat):
    criterion, (B, C) = criteria()[name], sizes
    usual, extreme = system(flat=flat), system(B, C, flat)
    shift = {"hinf_unit_B": 2 * np.log(C), "elimination": 0.0}.get(name, 2 * (np.log(B) + np.log(C)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = criterion(extreme, Evidence.without_data(extreme))
    np.testing.assert_allclose(scores - shift, criterion(usual, Evidence.without_data(usual)), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["hinf", "hinf_unit_B", "h2", "magnitude", "pair_hinf"])
def test_scores_of_parameters_whose_squares_no_float_holds(name):
    criterion, extreme = criteria()[name], system(1e-200, 1e-200)
    shift = 2 * np.log(1e-200) * (1 if name == "hinf_unit_B" else 2)
    expected = criterion(system(), Evidence.without_data(system()))
    np.testing.assert_allclose(criterion(extreme, Evidence.without_data(extreme)) - shift, expected, rtol=1e-9)


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("norm", [norms.state_hinf, state_h2, norms.pair_hinf, pair_h2, norms.hinf, h2])
def test_norms_scale_with_the_parameters(norm, sizes, flat):
    B, C = sizes
    now, usual = norm(system(B, C, flat)), norm(system(flat=flat))
    if norm is norms.hinf:
        (now, theta), (usual, expected) = now, usual
        assert theta == expected
    np.testing.assert_allclose(now / B / C, usual, rtol=1e-9)


@pytest.mark.parametrize("sizes", SIZES)
def test_the_energy_lost_is_a_share_at_any_size(sizes):
    usual, extreme = {"ssm": system()}, {"ssm": system(*sizes)}
    expected = energy_lost_by_plan(sp.make_plan(usual, 0.5), usual)["ssm"]
    assert energy_lost_by_plan(sp.make_plan(extreme, 0.5), extreme)["ssm"] == pytest.approx(expected, rel=1e-9)
    assert expected > 0


def test_states_without_gain_score_minus_infinity_also_on_the_circle():
    silent = sp.DiagonalSystem.from_discrete([0.5, 1.0, 0.5], [[0], [0], [1e-200]], [[1, 1, 0]])
    for name in ("hinf", "h2"):
        assert criteria()[name](silent, Evidence.without_data(silent)).tolist() == [-np.inf] * 3


@pytest.mark.parametrize("size", [1e-3, 1e-8, 1e-12, 1e-15])
@pytest.mark.parametrize("angle", [0.0, 1.0, np.pi])
def test_bilinear_poles_near_zero_keep_their_digits(size, angle):
    w = -1 + 2 * size * np.exp(1j * angle)  # w is known to 1e-16 beside 1, so the pole to 1e-16 / size
    log_poles, _ = bilinear(np.array([2 * w]), np.array([1.0]))
    exact = (1 + w) / (1 - w)
    assert np.exp(log_poles.real[0]) == pytest.approx(abs(exact), rel=1e-12)
    assert np.exp(log_poles[0]) == pytest.approx(exact, rel=1e-12)
