import numpy as np
from hypothesis import given

import ssmprune as sp
from calibrated import features
from ssmprune.core import white_noise
from ssmprune.core.moments import readout, weights
from strategies import systems


@given(systems(max_n=6))
def test_white_noise_moments_are_the_sums_over_impulse_responses(system):
    system = sp.DiagonalSystem.from_discrete(  # fast poles, so that a short window holds the whole response
        system.poles * 0.6, system.B, system.C, channel=system.channel, channels=system.channels,
        gain=system.gain, backward_delay=system.backward_delay,
    )  # fmt: skip
    span, layout = 80, system.layout
    gram = cross = 0
    for j in range(system.inputs):
        u = np.zeros((2 * span + 1, system.inputs))
        u[span, j] = 1
        z = [layout.spread(z_k) for z_k in features(system, u)]
        gram = gram + sum(np.einsum("gsa,gtb->gsatb", z_k, z_k) for z_k in z)
        own = u[span][None] if system.channel is None else u[span][:, None]
        cross = cross + np.einsum("gsa,gq->gsaq", z[span], own)
    found = white_noise(system)
    np.testing.assert_allclose(found.gram, gram, atol=1e-12 * np.abs(gram).max())
    np.testing.assert_allclose(found.cross, cross, atol=1e-12)
    np.testing.assert_array_equal(found.power, 1)


def test_unstable_states_are_silent_in_white_noise():
    B, C = np.ones((2, 1)), np.ones((1, 2))
    system = sp.DiagonalSystem.from_discrete([0.5, 1.5], B, C)
    gram = white_noise(system).gram
    assert np.isfinite(gram).all()
    assert not gram[0, 1].any()
    np.testing.assert_allclose(gram[0, 0, 0, 0, 0], 1 / 0.75)


@given(systems())
def test_weights_are_the_readout_in_real_numbers(system):
    np.testing.assert_allclose(readout(system, weights(system)), system.C, rtol=1e-12)
    layout, u = system.layout, np.random.default_rng(0).normal(size=(9, system.inputs))
    z = np.stack([layout.spread(z_k) for z_k in features(system, u)])
    y = np.einsum("tgsa,gsaq->tgq", z, weights(system)).reshape(9, -1)
    np.testing.assert_allclose(y, system.simulate(u), atol=1e-12 * (1 + np.abs(y).max()))
