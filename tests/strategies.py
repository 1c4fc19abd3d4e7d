"""Random systems for property tests."""

import numpy as np
from hypothesis import strategies as st

from ssmprune import DiagonalSystem


@st.composite
def systems(draw, max_n=12, directions=(1, 2), multi_siso=(False, True)):
    """A stable system of any shape: MIMO or multi-SISO (with empty channels), one or two directions."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d = draw(st.integers(1, max_n)), draw(st.sampled_from(directions))
    poles = rng.uniform(0, 1, n) ** draw(st.sampled_from([0.01, 0.3, 1])) * np.exp(1j * rng.uniform(-np.pi, np.pi, n))
    fields = {"gain": draw(st.sampled_from([1.0, 2.0])), "backward_delay": draw(st.sampled_from([0, 1]))}
    p, q = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    if draw(st.sampled_from(multi_siso)):
        p = q = 1
        channels = draw(st.integers(1, 5))
        fields |= {"channel": np.sort(rng.integers(0, channels, n)), "channels": channels}
    complex_normal = lambda *shape: rng.normal(size=shape) + 1j * rng.normal(size=shape)  # noqa: E731
    return DiagonalSystem.from_discrete(poles, complex_normal(n, p), complex_normal(d, q, n), **fields)
