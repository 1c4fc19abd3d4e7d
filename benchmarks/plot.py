"""The picture of the last results."""

from __future__ import annotations

from matplotlib import figure
from matplotlib.axes import Axes

from table import Figure

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#E69F00", "#009E73", "#777777"  # told apart by colour-blind eyes too


def draw(results: dict[str, list[Figure]], path: str) -> None:
    """Three panels: speed of shrunk models, time per step against the length, steps per second of a stream."""
    picture = figure.Figure(figsize=(14, 4.2), layout="constrained")
    left, middle, right = picture.subplots(1, 3)
    shrunk_speed(left, [row for row in results["paper_sizes"] if row.what.endswith("shrunk, speed")])
    time_per_step(middle, [row for row in results["length"] if "length" in row.beside])
    streams(right, [row for row in results["streaming"] if row.what.endswith("pruned") and row.what[0].isdigit()])
    picture.savefig(path, dpi=130)


def shrunk_speed(axes: Axes, rows: list[Figure]) -> None:
    names = [row.what.split(",")[0].replace(" ", "\n") for row in rows]
    series = {
        "measured": ([row.value for row in rows], BLUE),
        "ideal, by operations": ([row.beside["ideal"] for row in rows], GREY),
        "paper, on a GPU": ([row.beside["paper's GPU"] for row in rows], ORANGE),
    }
    for place, (label, (values, colour)) in enumerate(series.items()):
        axes.bar([x + 0.27 * (place - 1) for x in range(len(rows))], values, 0.25, label=label, color=colour)
    axes.set_xticks(range(len(rows)), names)
    axes.set_xlabel("task, share of states pruned")
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_title("Evaluation of shrunk S5, times as fast as full")
    axes.set_ylim(0, 2.3)
    axes.legend(loc="upper right", fontsize=8)


def time_per_step(axes: Axes, rows: list[Figure]) -> None:
    for label, colour, alone in (("all threads", BLUE, False), ("one thread", ORANGE, True)):
        line = [row for row in rows if row.what.startswith("one thread") == alone]
        axes.plot([row.beside["length"] for row in line], [row.value for row in line], "o-", color=colour, label=label)
    axes.set_xscale("log", base=2)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("length of the sequence")
    axes.set_title("Microseconds per step, sMNIST size, batch 1")
    axes.legend(loc="lower right", fontsize=8)


def streams(axes: Axes, rows: list[Figure]) -> None:
    axes.bar([row.what for row in rows], [row.value for row in rows], 0.5, color=GREEN)
    axes.set_title("Steps per second of a stream, S5, batch 1")
