"""How far a fit is trusted: errors by hand, and choices by what was held out."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from calibrated import features, moments
from ssmprune.core.least_squares import DOUBT, RIDGES, Residual, Sample, WeightChange, fit_shrunk, most_cautious
from ssmprune.core.moments import Moments
from strategies import systems


def sample(system, u, r):
    layout, z = system.layout, features(system, u)
    spread = np.stack([layout.spread(z_k) for z_k in z])
    own, rest = (v[:, None] if system.channel is None else v[:, :, None] for v in (u, r))
    cross = np.einsum("tgsa,tgq->gsaq", spread, rest) / len(u)
    residual = Residual(cross, (own * rest).mean(axis=0))
    return Sample(Moments(*moments(system, [u], [range(len(u))])), residual, float(np.square(r).sum() / len(u)), 1)


@given(systems(max_n=4), st.integers(0, 1000))
def test_the_error_after_a_change_is_that_of_the_steps(system, seed):
    rng = np.random.default_rng(seed)
    u, r = rng.normal(size=(40, system.inputs)), rng.normal(size=(40, system.inputs))
    before = sample(system, u, r)
    change = WeightChange(rng.normal(size=before.residual.cross.shape), rng.normal(size=before.residual.input.shape))
    z = np.stack([system.layout.spread(z_k) for z_k in features(system, u)])
    rest = r - np.einsum("tgsa,gsaq->tgq", z, change.weights).reshape(r.shape) - u * change.D.ravel()
    found, expected = before.after(change), sample(system, u, rest)
    tolerance = 1e-9 * (1 + expected.error)
    np.testing.assert_allclose(found.error, expected.error, atol=tolerance)
    np.testing.assert_allclose(found.residual.cross, expected.residual.cross, atol=tolerance)
    np.testing.assert_allclose(found.residual.input, expected.residual.input, atol=tolerance)


@given(systems(max_n=4), st.integers(0, 1000))
def test_a_shrunk_fit_is_nearly_the_best_on_held_out_data(system, seed):
    rng = np.random.default_rng(seed)
    seen, held_out = (
        sample(system, rng.normal(size=(steps, system.inputs)), rng.normal(size=(steps, system.inputs)))
        for steps in (12, 30)
    )
    refittable = system.layout.spread(np.ones(system.n, bool))
    start = seen.no_change
    found = held_out.after(fit_shrunk(seen, held_out, refittable, start)).error
    errors = [held_out.after(seen.fit(refittable, ridge)).error for ridge in RIDGES]
    assert found <= min([held_out.error, *errors]) * (1 + DOUBT) * (1 + 1e-12)
    if held_out.error <= min(errors):
        assert found == held_out.error  # nothing helps, so nothing changes
    plenty = fit_shrunk(seen, held_out, refittable, start, all_data=held_out)
    assert held_out.after(plenty).error <= held_out.error * (1 + 1e-9)


def test_a_broken_error_is_never_chosen():
    assert most_cautious([2.0, math.nan, 1.0], 100) == 2
    assert most_cautious([2.0, math.inf], 100) == 0
    assert most_cautious([math.nan, math.nan], 100) == 0
