"""The paper's claims one by one: its figure, ours, and whether it holds here."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ssmprune import make_plan, read
from ssmprune.budgets import ROUNDING
from ssmprune.core import DiagonalSystem
from ssmprune.errors import InputError
from ssmprune.methods import LAST
from ssmprune.models import load
from ssmprune.report import Table, label, method_curves
from ssmprune.sweeps import FULL, Cell

from . import paper
from .averages import HINF, TASKS, at_last_ratio, pairs_at_last
from .query import Group, Query, against, lost_in_pairs
from .sizes import FAMILY, Sized, Sizes, sizes
from .statistics import LEVEL, answers_of, correlation, interval, probability_of_means

Row = dict[str, Any]
HOLDS, FAILS, UNTESTED = "holds", "does not hold", "cannot be tested here"
NEAR = 5.0  # points of an average ratio that count as the paper's
MIDDLE = 0.5  # the ratio at which layers and poles are looked at
UNEQUAL = 10.0  # points between the layer that loses most and the one that loses least
FASTER = 1.05  # times; less is noise
RATIO_RULE = (
    f"held if our average ratio is at least the paper's less {NEAR:.0f} points and the average loss on test examples "
    "is below 1 point."
)
DUEL_RULE = "held if the average is lower and it is better on more tasks than worse."
NO_SIZE = "No S5 model in this sweep has as many states as the paper's and can be compressed by LAST."
OTHER = "; with other numbers "


def claims(query: Query) -> Table:
    """Return the table of claims."""
    rows: list[Row] = []
    if query.paper_groups():
        for family in ("s5", "s4d"):
            rows += [_ratio_and_loss(query, family), *_order(query, family)]
            rows += _sizes(query) if family == FAMILY else []
        rows += [_magnitude(query), _random(query), _layers(query), _lead_and_layers(query), *_lead_and_training(query)]
        rows += [_half_rate(query, family) for family in ("s5", "s4d")]
        rows += [_poles(query), _speed(query), *_path_x(query)]
    return Table(
        "The paper's claims", rows, ["All methods are compared at LAST's largest ratio unless said otherwise."]
    )


def _row(claim: str, printed: str, ours: str | None, holds: bool, why: str) -> Row:
    verdict = UNTESTED if ours is None else HOLDS if holds else FAILS
    return {"claim": claim, "paper": printed, "ours": ours, "verdict": verdict, "why": why}


def _ratio_and_loss(query: Query, family: str) -> Row:
    ratio, _, loss, _ = paper.AVERAGE[family, LAST.name]
    claim = f"{family.upper()}: LAST prunes {ratio:.0f} % of the states on average for less than a point"
    pairs = pairs_at_last(query, query.paper_groups(family), LAST.name)
    if not pairs:
        return _row(claim, f"{ratio:.0f} % at {loss}", None, False, "No task of the paper in this sweep.")
    ours, lost = np.mean(pairs, axis=0)
    why = f"{len(pairs)} of the paper's {TASKS[family]} tasks; {RATIO_RULE}"
    return _row(
        claim, f"{ratio:.0f} % at {loss}", f"{ours:.1f} % at {lost:.2f}", _keeps_promise(ours, lost, ratio), why
    )


def _keeps_promise(ours: float, lost: float, theirs: float) -> bool:
    return bool(ours >= theirs - NEAR and lost < 1)


def _order(query: Query, family: str) -> list[Row]:
    return [_better(query, family, *pair) for pair in (("last", "uniform-hinf"), ("uniform-hinf", "global-hinf"))]


def _better(query: Query, family: str, method: str, other: str) -> Row:
    claim = f"{family.upper()}: {label(method)} loses less than {label(other)}"
    printed = " < ".join(f"{paper.AVERAGE[family, name][2]:.2f}" for name in (method, other))
    duel = Duel.of(query, query.paper_groups(family), method, other)
    if duel is None:
        return _row(claim, printed, None, False, "No task of the paper that LAST can compress in this sweep.")
    why = (
        f"Significantly better on {duel.better}, worse on {duel.worse} of {duel.tasks} compressible tasks; {DUEL_RULE}"
    )
    return _row(claim, printed, f"{duel.loss:.2f}, {duel.other_loss:.2f}", duel.won, why)


@dataclass(frozen=True)
class Duel:
    """Two methods on the tasks that LAST can compress: average losses, and on how many one is significantly better."""

    loss: float
    other_loss: float
    better: int
    worse: int
    tasks: int

    @classmethod
    def of(cls, query: Query, groups: Iterable[Group], method: str, other: str) -> Duel | None:
        """Compare methods at LAST's largest ratio of each group; None where LAST can compress nothing."""
        losses, signs = [], []
        for group in groups:
            first, second = (at_last_ratio(query, group, name) for name in (method, other))
            if first and second and first[0] > 0:
                losses.append([float(np.mean([t.lost for t in tests])) for _, tests in (first, second)])
                paired = against(first[1], second[1])
                signs.append(0 if paired is None or not paired.significant else int(np.sign(paired.difference)))
        if not losses:
            return None
        loss, other_loss = map(float, np.mean(losses, axis=0))
        return cls(loss, other_loss, signs.count(1), signs.count(-1), len(signs))

    @property
    def won(self) -> bool:
        """Return whether the first method is the better one by the rule of the table."""
        return self.loss < self.other_loss and self.better > self.worse


def _sizes(query: Query) -> list[Row]:
    """Return what the claims come to on models with the paper's number of states, beside ours with others."""
    found = sizes(query)
    of_paper = [task.paper.group for task in found]
    others = [(task.other or task.paper).group for task in found] if any(task.other for task in found) else []
    return [
        _ratio_at_sizes(query, found, of_paper, others),
        _order_at_sizes(query, of_paper, others),
        *_more_states(query, [task.by_size for task in found if task.by_size]),
    ]


def _ratio_at_sizes(query: Query, found: list[Sizes], of_paper: list[Group], others: list[Group]) -> Row:
    ratio, _, loss, _ = paper.AVERAGE[FAMILY, LAST.name]
    claim = f"S5 with the paper's number of states: LAST prunes {ratio:.0f} % of them on average for less than a point"
    pairs = pairs_at_last(query, of_paper, LAST.name)
    if not pairs:
        return _row(claim, f"{ratio:.0f} % at {loss}", None, False, NO_SIZE)
    means = [np.mean(pairs, axis=0), *([np.mean(pairs_at_last(query, others, LAST.name), axis=0)] if others else [])]
    texts = [f"{ours:.1f} % at {lost:.2f}" for ours, lost in means]
    lines = [paper.TASKS[group.task, FAMILY] for group in of_paper]
    theirs = np.mean([(line.ratio, line.accuracy[FULL][0] - line.accuracy[LAST.name][0]) for line in lines], axis=0)
    names = ", ".join(task.paper.text + (f" (other: {task.other.states})" if task.other else "") for task in found)
    why = f"{len(pairs)} of the paper's {TASKS[FAMILY]} tasks: {names}; on these the paper has {theirs[0]:.1f} % "
    why += f"at {theirs[1]:.2f}, with which ours is compared; {RATIO_RULE}"
    holds = _keeps_promise(*map(float, (*means[0], theirs[0])))
    return _row(claim, f"{ratio:.0f} % at {loss}", OTHER.join(texts), holds, why)


def _order_at_sizes(query: Query, of_paper: list[Group], others: list[Group]) -> Row:
    claim = "S5 with the paper's number of states: LAST loses less than Uniform H∞, and that less than Global H∞"
    order = ("last", "uniform-hinf", "global-hinf")
    printed = " < ".join(f"{paper.AVERAGE[FAMILY, name][2]:.2f}" for name in order)
    sides = [[Duel.of(query, groups, *pair) for pair in pairwise(order)] for groups in (of_paper, others)]
    whole = [[duel for duel in side if duel] for side in sides]
    first = whole[0]
    if len(first) < 2:
        return _row(claim, printed, None, False, NO_SIZE)
    texts = [f"{a.loss:.2f}, {b.loss:.2f}, {b.other_loss:.2f}" for a, b in (side for side in whole if len(side) == 2)]
    counts = " and ".join(f"better on {duel.better}, worse on {duel.worse} of {duel.tasks}" for duel in first)
    why = f"Significantly {counts} compressible tasks; {DUEL_RULE}"
    return _row(claim, printed, OTHER.join(texts), all(duel.won for duel in first), why)


def _more_states(query: Query, pairs: list[tuple[Sized, Sized]]) -> list[Row]:
    """Compare LAST's largest ratios of a task's models with fewer and with more states."""
    ratios, cases = [], []
    for few, many in pairs:
        before, after = (query.largest(model.group.entries[0], LAST.name) for model in (few, many))
        if before and after:
            ratios.append((100 * before.exact, 100 * after.exact))
            cases.append(f"{few.text} to {many.states}: {ratios[-1][0]:.1f} to {ratios[-1][1]:.1f} %")
    if not ratios:
        return []
    of_few, of_many = np.mean(ratios, axis=0)
    more, less = (sum(sign * (after - before) > 0 for before, after in ratios) for sign in (1, -1))
    why = f"Not a claim of the paper; largest ratios, {'; '.join(cases)}; more on {more}, less on {less} tasks; "
    why += "held if the average is larger and it is more on more tasks than less."
    claim = "S5: of more states LAST can prune a larger share"
    ours = f"{of_few:.1f} % of fewer, {of_many:.1f} % of more"
    return [_row(claim, "–", ours, bool(of_many > of_few and more > less), why)]


def _average_losses(query: Query, methods: tuple[str, ...], family: str = "s5") -> dict[str, float]:
    pairs = {name: pairs_at_last(query, query.paper_groups(family), name) for name in methods}
    return {name: float(np.mean([lost for _, lost in found])) for name, found in pairs.items() if found}


def _magnitude(query: Query) -> Row:
    by_size = ("global-magnitude", "lamp", "uniform-magnitude")
    losses = _average_losses(query, (*HINF, *by_size))
    claim = "S5: magnitude criteria, LAMP among them, lose more than every H∞ method"
    printed = "17.49 to 22.03 against 0.52 to 7.51"
    if len(losses) < len(HINF) + len(by_size):
        return _row(claim, printed, None, False, "Not all of these methods are in this sweep.")
    sides = [[losses[name] for name in side] for side in (by_size, HINF)]
    ours = " against ".join(f"{min(side):.2f} to {max(side):.2f}" for side in sides)
    return _row(claim, printed, ours, min(sides[0]) > max(sides[1]), "Averages over S5 tasks of the paper.")


def _random(query: Query) -> Row:
    losses = _average_losses(query, ("random", "unstructured-random", "uniform-magnitude"))
    claim = "S5: single elements at random lose more than states at random, and these more than by magnitude"
    if len(losses) < 3:
        return _row(claim, "59.92 > 29.53 > 22.03", None, False, "Not all of these methods are in this sweep.")
    values = [losses[name] for name in ("unstructured-random", "random", "uniform-magnitude")]
    ours = ", ".join(f"{value:.2f}" for value in values)
    return _row(claim, "59.92 > 29.53 > 22.03", ours, values == sorted(values, reverse=True), "Averages over S5 tasks.")


def _layers(query: Query) -> Row:
    claim = "Layers differ in what they can lose: LAST prunes them by different shares"
    spreads = {name: _spread(cell) for name, cell in _last_in_the_middle(query).items()}
    if not spreads:
        return _row(claim, "figure 3", None, False, f"No cell of LAST at {MIDDLE:.0%}.")
    unequal = sum(spread > UNEQUAL for spread in spreads.values())
    ours = f"{min(spreads.values()):.0f} to {max(spreads.values()):.0f} points between layers at {MIDDLE:.0%}"
    why = f"More than {UNEQUAL:.0f} points in {unequal} of {len(spreads)} models; held if in more than half."
    return _row(claim, "figure 3", ours, unequal > len(spreads) / 2, why)


def _last_in_the_middle(query: Query) -> dict[str, Cell]:
    """Return LAST's cell at the middle ratio of every checkpoint that has one."""
    by_name = {entry["name"]: method_curves(query.results, entry["name"]).get(LAST.name) for entry in query.entries()}
    return {name: curve.cells[MIDDLE][0] for name, curve in by_name.items() if curve and MIDDLE in curve.cells}


def _spread(cell: Cell) -> float:
    """Return the points between the shares that the layers lose."""
    shares = [100 * (1 - cell.states[layer] / before) for layer, before in cell.states_before.items()]
    return max(shares) - min(shares)


def _rivals(query: Query, checkpoint: str) -> tuple[Cell, Cell] | None:
    """Return the cells of LAST and Uniform at the middle ratio, on the sweep's own examples."""
    by_method = method_curves(query.results, checkpoint)
    pair = [by_method[name].cells.get(MIDDLE) for name in ("last", "uniform-hinf") if name in by_method]
    found = [cells[0] for cells in pair if cells]
    return (found[0], found[1]) if len(found) == 2 else None


def _lead_and_layers(query: Query) -> Row:
    claim = f"LAST's lead over Uniform grows with how much the layers differ (at {MIDDLE:.0%})"
    printed = "7.05 points on Path-X, whose layers differ most"
    points = [
        (_spread(last), last.accuracy - uniform.accuracy)
        for last, uniform in filter(None, (_rivals(query, entry["name"]) for entry in query.entries()))
    ]
    if len(points) < 5:
        return _row(claim, printed, None, False, f"A correlation needs at least 5 models; there are {len(points)}.")
    rho, p = correlation(*map(list, zip(*points, strict=True)))
    why = f"Spearman's correlation over {len(points)} models, p = {p:.2g}; held if positive with p < {LEVEL}."
    return _row(claim, printed, f"ρ = {rho:+.2f}", rho > 0 and p < LEVEL, why)


def _lead_and_training(query: Query) -> list[Row]:
    """Compare models of one task, family and size, trained for fewer and for more epochs."""

    def kind(group: Group) -> tuple[str, str, int]:
        return group.task, group.family, query.states_of(group.main.name)

    groups = sorted((group for group in query.groups if group.epochs), key=lambda group: group.epochs)
    pairs = [(few, many) for few, many in combinations(groups, 2) if kind(few) == kind(many)]
    pairs = [(few, many) for few, many in pairs if few.epochs < many.epochs]
    return [row for pair in pairs if (row := _compared_leads(query, *pair))]


def _compared_leads(query: Query, few: Group, many: Group) -> Row | None:
    """Say whether LAST's lead is larger after more training; None where answers to the same examples are missing."""
    before, after = (_lead_by_example(query, group) for group in (few, many))
    if before is None or after is None or before.shape != after.shape:
        return None
    claim = f"LAST's lead over Uniform grows with training ({few.task} {few.family.upper()}, at {MIDDLE:.0%})"
    sides = ((few, before), (many, after))
    ours = "; ".join(f"after {_epochs(group.epochs)}: {100 * lead.mean():+.2f} points" for group, lead in sides)
    p = probability_of_means(after, before)
    why = f"Not a claim of the paper; {few.name} and {many.name} on the same {len(before):,} examples, p = {p:.2g}; "
    why += f"held if larger with p < {LEVEL}."
    return _row(claim, "–", ours, bool(after.mean() > before.mean() and p < LEVEL), why)


def _lead_by_example(query: Query, group: Group) -> NDArray[np.float64] | None:
    """Return by how much LAST is ahead of Uniform at the middle ratio on every test example, -1 to 1."""
    leads = []
    for entry in group.entries:
        rivals = _rivals(query, entry["name"])
        last, uniform = map(answers_of, rivals) if rivals else (None, None)
        if last is None or uniform is None:
            return None
        leads.append(last.astype(float) - uniform)
    return np.mean(leads, axis=0) if len({len(lead) for lead in leads}) == 1 else None


def _epochs(count: float) -> str:
    return f"{count:g} epoch{'s' * (count != 1)}"


def _half_rate(query: Query, family: str) -> Row:
    line = paper.TASKS["speech", family]
    assert line.half_rate is not None
    lost = line.half_rate[FULL][0] - line.half_rate[LAST.name][0]
    claim = f"{family.upper()}: a pruned model still works at half the sampling rate"
    printed = f"{lost:.2f} points below the full model at that rate"
    tests = [
        slow
        for group in query.paper_groups(family)
        for entry in group.entries
        if group.task == "speech" and (ratio := query.last_ratio(entry))
        for _, slow in query.at_both_rates(entry["name"], LAST.name, ratio, 0.5)
    ]
    if not tests:
        return _row(claim, printed, None, False, "No Speech model that LAST can compress in this sweep.")
    ours, paired = float(np.mean([tested.lost for tested in tests])), lost_in_pairs(tests)
    why = f"p = {paired.p:.2g} on {tests[0].examples} examples; " if paired else ""
    return _row(claim, printed, f"{ours:.2f} points", ours <= 1 + ROUNDING, why + "held if at most 1 point.")


def _poles(query: Query) -> Row:
    claim = f"States with poles of large real or imaginary part go first (LAST at {MIDDLE:.0%})"
    layers = [chances for entry in query.entries() for chances in _chances(query, entry["name"])]
    if not layers:
        return _row(claim, "figure 4", None, False, "The checkpoints are not where the sweep found them.")
    real, imaginary = np.mean(layers, axis=0)
    ours = f"{real:.0%} for the real, {imaginary:.0%} for the imaginary part"
    above = [sum(pair[k] > 0.5 for pair in layers) for k in (0, 1)]
    low = [interval(count / len(layers), len(layers))[0] for count in above]
    why = "The chance that, of a pruned and a kept state of a layer, the pruned one has the larger part of λ times the "
    why += (
        f"step; above a half in {above[0]} and {above[1]} of {len(layers)} layers; held if in significantly more than "
    )
    why += "half, for both."
    return _row(claim, "figure 4", ours, min(low) > 0.5, why)


def _chances(query: Query, checkpoint: str) -> list[tuple[float, float]]:
    """Return, for every layer, how often a pruned state has a larger |Re λΔ|, and |Im λΔ|, than a kept one."""
    try:
        systems = read(load(query.results.checkpoint_file(checkpoint)), unstable="keep")
    except InputError:
        return []
    keep = make_plan(systems, MIDDLE, LAST).keep
    return [_chance(system, keep[layer]) for layer, system in systems.items() if 0 < keep[layer].sum() < system.n]


def _chance(system: DiagonalSystem, keep: Any) -> tuple[float, float]:
    def larger(values: Any) -> float:
        gone, kept = values[~keep][:, None], values[keep][None, :]
        return float(((gone > kept) + (gone == kept) / 2).mean())

    return larger(np.abs(system.log_poles.real)), larger(np.abs(system.log_poles.imag))


def _speed(query: Query) -> Row:
    claim = "S5: a pruned model is faster"
    speeds: list[float] = []
    for group in query.paper_groups("s5"):
        entry = group.entries[0]
        ratio = query.last_ratio(entry)
        cells = query.timed(entry["name"]).get((LAST.name, ratio), []) if ratio else []
        speeds += [cell.speed for cell in cells if cell.speed is not None]
    if not speeds:
        return _row(claim, "1.1 to 1.7 times", None, False, "No speed was measured at a ratio above 0.")
    ours = f"{_range(speeds)} times" + _speed_in_c(query)
    faster = sum(speed >= FASTER for speed in speeds)
    why = f"At least {FASTER} times in {faster} of {len(speeds)} tasks; held if in all. Evaluation in torch on a CPU "
    return _row(claim, "1.1 to 1.7 times", ours, faster == len(speeds), why + "at LAST's ratio; the paper's is a GPU.")


def _speed_in_c(query: Query) -> str:
    """Return how much faster the C of the same models is, where `speed_of_claims.py` has measured that."""
    path = query.results.folder / "speed.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    shown = {group.main.entries[0].get("sha256") for group in query.paper_groups(FAMILY)}
    rows = [row for row in rows if row["sha256"] in shown]
    texts = []
    for whose, where in (("ours", ""), ("the paper's", ", at the paper's ratios")):
        faster = [row["C"]["faster"] for row in rows if row["whose"] in (whose, "both")]
        texts += [f"; in C{where} {_range(faster)} times ({len(faster)} tasks)"] if faster else []
    return "".join(texts)


def _range(values: list[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}"


def _path_x(query: Query) -> list[Row]:
    if any(group.task == "pathx" for group in query.paper_groups()):
        return []  # then it is in all of the above
    claim = "S5: LAST prunes 30 % on Path-X, of length 16,384, for less than a point"
    why = "Two CPU cores cannot train it; one training step, one evaluation and one pruning at full length and size "
    return [_row(claim, "97.95 of 98.41 %", None, False, why + "are among the benchmarks (benchmarks/pathx.py).")]
