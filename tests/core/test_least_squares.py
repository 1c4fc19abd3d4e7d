import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from calibrated import features, moments
from ssmprune.core.least_squares import RIDGE, Residual, fit_residual
from ssmprune.core.moments import Moments
from strategies import systems


def least_squares(z, u, r):
    """For every output: weights of z and of its own input that explain r, by numpy's least squares on rows.

    The ridge is one more row for each regressor that asks its weight to be 0, as strongly as its energy says.
    """
    solved = []
    for j in range(r.shape[1]):
        regressors = np.column_stack([z, u[:, j]])
        rows = np.concatenate([regressors, np.diag(np.sqrt(RIDGE) * np.linalg.norm(regressors, axis=0))])
        solved.append(np.linalg.lstsq(rows, np.append(r[:, j], np.zeros(rows.shape[1])), rcond=1e-14)[0])
    return np.array([w[:-1] for w in solved]).T, np.array([w[-1] for w in solved])


@given(systems(max_n=4, multi_siso=(False,)), st.data())
def test_a_refit_is_the_least_squares_fit(system, data):
    """The ridge makes the problem well posed whatever the states: the condition number is below features / RIDGE."""
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    width = system.inputs
    u, r = rng.normal(size=(60, width)), rng.normal(size=(60, width))
    refittable = rng.random(system.n) < 0.7
    z = features(system, u)
    gram, cross, power = moments(system, [u], [range(60)])
    residual = Residual(np.einsum("tsa,tq->saq", z, r)[None] / 60, np.mean(u * r, axis=0)[None])
    change = fit_residual(Moments(gram, cross, power), residual, refittable[None])
    expected_change, expected_D = least_squares(z[:, refittable].reshape(60, -1), u, r)
    assert not change.weights[0, ~refittable].any()
    fitted = np.einsum("tsa,saq->tq", z, change.weights[0]) + change.D * u
    expected = z[:, refittable].reshape(60, -1) @ expected_change + expected_D * u
    np.testing.assert_allclose(fitted, expected, atol=1e-7)
    assert (np.linalg.norm(r - fitted, axis=0) < np.linalg.norm(r, axis=0)).all()
