"""The contract of an adapter, for the families that come with ssmprune and for anybody's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .adapters import Adapter
from .apply import mask, read, shrink
from .arrays import Mask, Real
from .errors import InputError
from .plan import Plan, make_plan
from .system import DiagonalSystem

Run = Callable[[Any, str, Real], Real]


def check_adapter(
    adapter: Adapter,
    model: Any,
    run: Run,
    *,
    ratios: Sequence[float] = (0.0, 0.3, 0.5, 0.9, 1.0),
    shrinks: bool = True,
    tolerance: float = 1e-4,
) -> None:
    """Raise AssertionError where `adapter` is wrong about `model`: run(mask) = run(shrink) = simulate(kept) + D u.

    run(model, path, u) is what the model's own code computes in the layer at `path` for u (length, inputs), D u
    included. What it computes beyond the system that was read must be D u for one D per channel. A family whose
    layout cannot lose single states has `shrinks=False` and must refuse to with an InputError. Differences count
    relative to the largest output.
    """
    systems = read(model, adapter=adapter)
    inputs = {path: np.random.default_rng(0).normal(size=(24, system.inputs)) for path, system in systems.items()}
    through = {}
    for path, u in inputs.items():
        y, own = run(model, path, u), systems[path].simulate(u)
        through[path] = _feed_through(y - own, u)
        _close(y, own + through[path], tolerance, f"{path}: the model's code and what was read")
    for ratio in ratios:
        plan = make_plan(systems, ratio)
        kept = plan.apply(systems)
        pruned = {"mask": _masked(adapter, model, plan)}
        if shrinks:
            pruned["shrink"] = _shrunk(adapter, model, plan, kept)
        for (path, u), (verb, smaller) in ((a, b) for a in inputs.items() for b in pruned.items()):
            expected = kept[path].simulate(u) + through[path]
            _close(run(smaller, path, u), expected, tolerance, f"{path}: {verb} at {ratio:.0%} and the plan applied")
    if not shrinks:
        _check_refusal(adapter, model, make_plan(systems, 1.0))
    after = read(model, adapter=adapter)
    assert all(after[path].fingerprint == system.fingerprint for path, system in systems.items()), "the model changed"


def _feed_through(y: Real, u: Real) -> Real:
    """Return the D u that is nearest to y; zero where inputs and outputs do not correspond."""
    nearest: Real = (y * u).sum(0) / (u * u).sum(0) * u if y.shape == u.shape else np.zeros_like(y)
    return nearest


def _masked(adapter: Adapter, model: Any, plan: Plan) -> Any:
    masked = mask(model, plan, adapter=adapter)
    for path, system in read(masked, adapter=adapter).items():
        keep = plan.keep[path]
        assert system.n == len(keep), f"{path}: masking changed the number of states"
        heard: Mask = np.abs(system.B).max(axis=1) * np.abs(system.C).max(axis=(0, 1)) > 0
        assert not heard[~keep].any(), f"{path}: a masked state is heard"
    return masked


def _shrunk(adapter: Adapter, model: Any, plan: Plan, kept: dict[str, DiagonalSystem]) -> Any:
    shrunk = shrink(model, plan, adapter=adapter)
    for path, system in read(shrunk, adapter=adapter).items():
        for name in ("log_poles", "B", "C"):
            np.testing.assert_allclose(getattr(system, name), getattr(kept[path], name), rtol=1e-5, atol=1e-12)
    return shrunk


def _check_refusal(adapter: Adapter, model: Any, plan: Plan) -> None:
    try:
        shrink(model, plan, adapter=adapter)
    except InputError:
        return
    raise AssertionError("a layout that cannot lose single states was cut")


def _close(ours: Real, expected: Real, tolerance: float, what: str) -> None:
    atol = tolerance * max(1e-30, float(np.abs(expected).max()))
    np.testing.assert_allclose(ours, expected, rtol=0, atol=atol, err_msg=f"{what} do not agree")
