"""The contract of an adapter, for the families that come with ssmprune and for those of users."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .adapters import Adapter, layers_of
from .adapters.families import is_torch_module
from .arrays import Complex, Mask, Real
from .core.system import DiagonalSystem
from .errors import InputError
from .methods import SURGEON
from .planning.make import make_plan
from .planning.plan import Plan
from .pruning import convert, mask, read, shrink

Run = Callable[[Any, str, Real], Real]
LARGEST = 1e4  # times its old size: what C may reach by a refit


def check_adapter(
    adapter: Adapter,
    model: Any,
    run: Run,
    *,
    ratios: Sequence[float] = (0.0, 0.3, 0.5, 0.9, 1.0),
    shrinks: bool = True,
    masks: bool = True,
    tolerance: float = 1e-4,
) -> None:
    """Raise AssertionError where `adapter` is wrong about `model`: run(mask) = run(shrink) = simulate(kept) + D u.

    run(model, path, u) is what the model's own code computes in the layer at `path` for u (length, inputs), D u
    included. What it computes beyond the system that was read must be D u for one D per channel. A family whose
    layout cannot lose single states has `shrinks=False`, if it cannot silence them either `masks=False`, and must
    refuse with an InputError. Differences count relative to the largest output.

    Of `refit`, `write` and `convert` those are tested that the adapter has, and with `refit` also what a recorded call
    is taken for. A refit may refuse a complex C or a change of D with an InputError, `write` a system that the layer
    cannot hold; what they accept must be heard.
    """
    contract = _Contract(adapter, model, run, tolerance)
    for ratio in ratios:
        plan = make_plan(contract.systems, ratio)
        if masks:
            contract.check_mask(plan)
        if shrinks:
            contract.check_shrink(plan)
    half = make_plan(contract.systems, 0.5)
    if not shrinks:
        contract.check_refusal(shrink, make_plan(contract.systems, 1.0))
    if not masks:
        contract.check_refusal(mask, half)
    written = type(adapter)
    if written.refit is not Adapter.refit:
        contract.check_refit(half, shrinks)
        contract.check_recording()
    if written.write is not Adapter.write:
        contract.check_write(half)
    if written.convert is not Adapter.convert:
        contract.check_convert(half)
    after = read(model, adapter=adapter)
    same = (after[path].fingerprint == system.fingerprint for path, system in contract.systems.items())
    assert all(same), "the model changed"


class _Contract:
    """One model with what its layers compute: the standard for everything that an adapter makes of it."""

    def __init__(self, adapter: Adapter, model: Any, run: Run, tolerance: float) -> None:
        """Read the model; what its code computes beyond that must be D u."""
        self.adapter, self.model, self.run, self.tolerance = adapter, model, run, tolerance
        self.rng = np.random.default_rng(0)
        self.systems = read(model, adapter=adapter)
        self.inputs: dict[str, Real] = {}
        self.feed_through: dict[str, Real] = {}
        for path, system in self.systems.items():
            u = np.random.default_rng(0).normal(size=(24, system.inputs))
            y, simulated = run(model, path, u), system.simulate(u)
            self.inputs[path], self.feed_through[path] = u, np.zeros_like(y)
            if y.shape == u.shape:  # inputs and outputs correspond: the nearest D u
                self.feed_through[path] = ((y - simulated) * u).sum(0) / (u * u).sum(0) * u
            self.agree(y, path, system, "the model's code and what was read")

    def agree(self, y: Real, path: str, system: DiagonalSystem, what: str, D_change: Real | float = 0.0) -> None:
        """Compare an output with that of a system and the feed-through."""
        u = self.inputs[path]
        expected = system.simulate(u) + self.feed_through[path]
        if np.any(D_change):
            expected = expected + D_change * u
        atol = self.tolerance * max(1e-30, float(np.abs(expected).max()))
        np.testing.assert_allclose(y, expected, rtol=0, atol=atol, err_msg=f"{path}: {what} do not agree")

    def check_mask(self, plan: Plan) -> None:
        """Check that masked states are silent, the others as they were."""
        masked = mask(self.model, plan, adapter=self.adapter)
        for path, system in read(masked, adapter=self.adapter).items():
            keep = plan.keep[path]
            assert system.n == len(keep), f"{path}: masking changed the number of states"
            heard: Mask = np.abs(system.B).max(axis=1) * np.abs(system.C).max(axis=(0, 1)) > 0
            assert not heard[~keep].any(), f"{path}: a masked state is heard"
        self._compare(masked, plan, "mask")

    def check_shrink(self, plan: Plan) -> None:
        """Check that removed states are gone, the others as they were."""
        shrunk = shrink(self.model, plan, adapter=self.adapter)
        kept = plan.apply(self.systems)
        for path, system in read(shrunk, adapter=self.adapter).items():
            for name in ("log_poles", "B", "C"):
                ours, expected = getattr(system, name), getattr(kept[path], name)
                np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-12)
        self._compare(shrunk, plan, "shrink")

    def check_refusal(self, prune: Callable[..., Any], plan: Plan) -> None:
        """Check that a layout that cannot lose or silence single states says so."""
        try:
            prune(self.model, plan, adapter=self.adapter)
        except InputError:
            return
        raise AssertionError(f"a layout whose states cannot go alone was pruned by {prune.__name__}")

    def check_refit(self, plan: Plan, shrinks: bool) -> None:
        """Try the refits there are, the most general first; whichever is not refused must do all it was asked for."""
        accepted = 0
        for C_is_complex, D_changes in ((True, True), (False, True), (True, False), (False, False)):
            refitted = self._refitted(plan, C_is_complex, D_changes)
            asked = f"a refit with a {'complex' if C_is_complex else 'real'} C{' and a change of D' * D_changes}"
            for prune in (mask, shrink)[: 1 + shrinks]:
                try:
                    pruned = prune(self.model, refitted, adapter=self.adapter)
                except InputError:
                    continue
                accepted += 1
                self._compare(pruned, refitted, f"{asked}, then {prune.__name__},")
        assert accepted, "refit refuses everything; an adapter that cannot write a C should not override refit"
        for path, C in make_plan(self.systems, 0.5, SURGEON).C.items():
            largest = LARGEST * _size(self.systems[path].C)
            assert _size(C) < largest, f"{path}: a fit gives weights of up to {_size(C):.1e}; is a state nearly silent?"

    def check_recording(self) -> None:
        """Check that calibration takes what goes into and comes out of a torch layer for just that."""
        if not is_torch_module(self.model):
            return
        for path, layer in layers_of(self.model, self.adapter).items():
            calls: list[tuple[Any, Any]] = []
            module = self.model.get_submodule(layer.calling_module)
            hook = module.register_forward_hook(lambda _, arguments, y, calls=calls: calls.append((arguments, y)))
            try:
                y = self.run(self.model, path, self.inputs[path])
            finally:
                hook.remove()
            for arguments, result in calls[:1]:  # none where `run` does not call the module
                recorded = {"input": self.adapter.inputs_of(arguments), "output": self.adapter.outputs_of(result)}
                for (kind, batch), expected in zip(recorded.items(), (self.inputs[path], y), strict=True):
                    shape = tuple(batch.shape)
                    assert shape == (1, *expected.shape), (
                        f"{path}: the {kind} of a recorded call has the shape {shape}; expected {(1, *expected.shape)}"
                    )
                    close = np.allclose(batch[0].detach().cpu().numpy(), expected, rtol=0, atol=1e-4 * _size(expected))
                    assert close, f"{path}: the {kind} of a recorded call is not that of the layer"

    def check_write(self, plan: Plan) -> None:
        """Check that another system is written whole, unless the layer cannot hold it and says so; D stays."""
        other, kept = copy.deepcopy(self.model), plan.apply(self.systems)
        for path, layer in layers_of(other, self.adapter).items():
            try:
                layer.write(kept[path])
            except InputError:
                layer.shrink(plan.keep[path])
            assert layer.read().n == kept[path].n, f"{path}: write left another number of states"
        self._compare(other, plan, "write")

    def check_convert(self, plan: Plan) -> None:
        """Check that our torch layers compute the same."""
        layers = convert(self.model, plan, adapter=self.adapter)
        import torch

        for path, system in plan.apply(self.systems).items():
            u = torch.from_numpy(self.inputs[path])[None].to(layers[path].D.dtype)
            with torch.no_grad():
                y = layers[path](u)[0].double().numpy()
            self.agree(y, path, system, "the converted layer and the plan applied")

    def _compare(self, pruned: Any, plan: Plan, what: str) -> None:
        for path, system in plan.apply(self.systems).items():
            y = self.run(pruned, path, self.inputs[path])
            what_agrees = f"{what} at {plan.ratio:.0%} and the plan applied"
            self.agree(y, path, system, what_agrees, plan.D_change.get(path, 0.0))

    def _refitted(self, plan: Plan, C_is_complex: bool, D_changes: bool) -> Plan:
        """Return a plan with another C, and changes of D where outputs correspond to inputs."""
        C: dict[str, Complex] = {}
        D_change: dict[str, Real] = {}
        for path, system in plan.apply(self.systems).items():
            noise = self.rng.normal(size=(2, *system.C.shape)) * _size(system.C)
            C[path] = system.C.real + noise[0] + 1j * C_is_complex * (system.C.imag + noise[1])
            size = self.rng.normal(size=system.outputs) * _size(self.run(self.model, path, self.inputs[path]))
            D_change[path] = size * (D_changes and system.inputs == system.outputs)
        return replace(plan, C=C, D_change=D_change)


def _size(values: Real | Complex) -> float:
    """Return the largest magnitude, or 1 for zeros."""
    return float(np.abs(values).max(initial=0)) or 1.0
