"""Poles that stay and poles that go, a panel per layer: the paper's figure 4, and the same by memory and frequency."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ssmprune.arrays import Complex, join_parts
from ssmprune.report import COLOURS, label, panels, shared_legend, systems
from ssmprune.sweeps import Results

from .choice import Choice, kept_states

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(results: Results, choice: Choice, plane: str = "complex") -> Figure:
    """Draw the states of every layer in a plane; a stored pair is drawn as its two poles.

    plane: "complex", where discrete poles lie in the unit circle; or "memory", where slow poles lie apart and not on
    the rim: 1 / (1 - |pole|), the steps a state remembers, against the angle it turns by in a step.
    """
    place, finish, height = PLANES[plane]
    keep = kept_states(results, choice)
    layers = systems(results, choice.checkpoint)
    figure, axes = panels(len(layers), columns=4, height=height)
    for panel, (layer, system) in zip(axes, layers.items(), strict=True):
        small = min(1.0, 12 / np.sqrt(system.n))  # thousands of poles must not cover one another
        kinds = [
            ("pruned", ~keep[layer], {"marker": "x", "color": COLOURS[1], "linewidths": 0.9 * small, "s": 16 * small}),
            ("kept", keep[layer], {"marker": "o", "color": COLOURS[0], "edgecolors": "none", "s": 13 * small}),
        ]
        for name, which, look in kinds:
            poles = system.log_poles[which]
            at = place(np.concatenate([poles, poles.conj()]) if system.states_per_entry == 2 else poles)
            panel.scatter(at.real, at.imag, label=name, rasterized=len(at) > 1000, **look)
        panel.set_title(f"{layer}: {keep[layer].sum()} of {system.n}", fontsize="small")
    figure.suptitle(f"{choice.checkpoint}, {label(choice.method)} at {choice.ratio:.0%}", fontsize="medium")
    shared_legend(figure, axes[0])
    finish(figure, axes)
    return figure


draw_memory = partial(draw, plane="memory")


def _by_memory(log_poles: Complex) -> Complex:
    return join_parts(-1 / np.expm1(log_poles.real), np.angle(np.exp(1j * log_poles.imag)) / np.pi)


def _finish_circle(figure: Figure, axes: list[Axes]) -> None:
    figure.set_layout_engine("compressed")  # square panels, close together
    angle = np.linspace(0, 2 * np.pi, 200)
    for panel in axes:
        panel.plot(np.cos(angle), np.sin(angle), color="0.6", linewidth=0.8)
        panel.set(aspect="equal", xlim=(-1.08, 1.08), ylim=(-1.08, 1.08), xticks=[-1, 0, 1], yticks=[-1, 0, 1])


def _finish_memory(figure: Figure, axes: list[Axes]) -> None:
    for panel in axes:
        panel.set(xscale="log", ylim=(-1.05, 1.05), xlabel="memory (steps)")
    for panel in axes[::4]:
        panel.set_ylabel("frequency (π per step)")


Plane = tuple[Callable[[Complex], Complex], Callable[["Figure", "list[Axes]"], None], float]
PLANES: dict[str, Plane] = {"complex": (np.exp, _finish_circle, 3.0), "memory": (_by_memory, _finish_memory, 2.7)}
