"""Pathfinder pictures: two long dashed contours among short ones, and a disc at two ends of the long ones.

Both discs lie on one contour (label 1) or on two (label 0). A contour grows dash by dash: after a gap, the margin,
the next dash turns by an angle delta with weight max(cos(min(c |delta|, pi/2)), 0)^2, among the directions that
stay clear of everything drawn. Clear means that the two contours, their discs and the distractors remain apart even
when all of them are widened by the margin on every side, which joins the dashes of a contour: there is one answer.

Many pictures are drawn at once; those in which a contour gets stuck are dropped. All lengths of a `Pen` are in
pixels of the canvas, which has twice the resolution of the picture and a border around it.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

SCALE = 2  # canvas pixels per picture pixel
DIRECTIONS = 16  # tried for each dash
TRIES = 12  # to place a distractor
SLACK = 1.0  # canvas pixels by which rounding may bring two strokes closer

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Canvas = NDArray[np.uint8]  # (pictures, side, side)


@dataclass(frozen=True)
class Look:
    """The measures of a kind of picture, in its pixels."""

    size: int
    dash: float
    thickness: float
    margins: tuple[float, ...]  # each picture has one of them
    distance: float  # between the seeds of the two contours
    radius: float  # of a disc
    straightness: float  # c
    distractors: int
    dashes: int = 14  # in a contour
    few: int = 4  # dashes in a distractor


@dataclass(frozen=True)
class Pictures:
    """What was drawn, and where."""

    images: NDArray[np.uint8]  # (pictures, size, size)
    labels: NDArray[np.int64]  # (pictures,)
    canvas: Canvas  # (pictures, 2 size, 2 size): the drawing before it was reduced
    discs: Floats  # (pictures, 2, 2): their centres on the canvas, as (y, x)
    margin: Floats  # (pictures,) on the canvas


def draw(look: Look, pictures: int, rng: np.random.Generator) -> Pictures:
    """Start `pictures` pictures and return those that could be finished."""
    pen = Pen(look, rng)
    scenes = pen.start(pictures)
    for step in range(look.dashes):
        for which in (0, 1):
            scenes = pen.lengthen(scenes, which, last=step == look.dashes - 1)
    for _ in range(look.distractors):
        scenes = pen.distract(scenes)
    return pen.finish(scenes)


@dataclass
class Contour:
    """One contour in each of many pictures."""

    seed: Floats  # (pictures, 2): where it begins, as (y, x)
    own: Canvas  # what its next dash may not touch of itself: everything but the last dash
    tip: Floats  # (pictures, 2): where it ends
    heading: Floats  # (pictures,)
    dashes: list[Floats] = field(default_factory=list)  # each (pictures, 2, 2): start and end


@dataclass
class Scenes:
    """Pictures being drawn."""

    margin: Floats  # (pictures,)
    contours: tuple[Contour, Contour]
    near: tuple[Canvas, Canvas]  # where the other contour, and later the distractors, may not go
    distractors: list[Floats] = field(default_factory=list)  # their dashes


class Pen:
    """Draws pictures of one look."""

    def __init__(self, look: Look, rng: np.random.Generator) -> None:
        """Prepare a pen; what it draws depends on the look and the generator alone."""
        self.look, self.rng = look, rng
        self.size, self.dash, self.half, self.radius = (
            SCALE * measure for measure in (look.size, look.dash, look.thickness / 2, look.radius)
        )
        # Wide enough that neither a dash nor what is painted around it leaves the canvas.
        self.border = math.ceil(self.dash + self.radius + self.half + 2 * SCALE * max(look.margins) + SLACK)
        self.side = int(self.size) + 2 * self.border

    def start(self, pictures: int) -> Scenes:
        """Place two seeds in every picture, at their distance."""
        margin = SCALE * np.array(self.look.margins)[self._choose(len(self.look.margins), pictures)]
        apart = SCALE * self.look.distance / 2 * _unit(2 * np.pi * self.rng.random(pictures))
        room = math.ceil(self.radius) + np.abs(apart)
        middle = self.border + room + self.rng.random((pictures, 2)) * (self.size - 1 - 2 * room)
        first, second = self._seed(middle - apart), self._seed(middle + apart)
        near = self._frame(pictures), self._frame(pictures)
        for contour, canvas in zip((first, second), near, strict=True):
            paint(canvas, contour.seed, contour.seed, self.radius + self._clearance(margin))
        return Scenes(margin, (first, second), near)

    def lengthen(self, scenes: Scenes, which: int, last: bool) -> Scenes:
        """Add one more dash to contour `which`; pictures in which there is no room are dropped."""
        scenes = _select(scenes, self._extend(scenes.contours[which], scenes.near[1 - which], scenes.margin, last))
        start, end = _ends(scenes.contours[which].dashes[-1])
        paint(scenes.near[which], start, end, self.half + self._clearance(scenes.margin))
        if last:
            paint(scenes.near[which], end, end, self.radius + self._clearance(scenes.margin))
        return scenes

    def distract(self, scenes: Scenes) -> Scenes:
        """Draw one more distractor in every picture; pictures in which there is no room are dropped."""
        pictures = len(scenes.margin)
        taken = np.maximum(*scenes.near)
        dashes = np.zeros((self.look.few, pictures, 2, 2))
        todo = np.arange(pictures)
        for _ in range(TRIES):
            contour, lucky = self._seed(self._somewhere(taken[todo])), todo
            for _ in range(self.look.few):
                free = self._extend(contour, taken[lucky], scenes.margin[lucky], last=False)
                contour, lucky = _select(contour, free), lucky[free]
            dashes[:, lucky] = contour.dashes
            todo = np.setdiff1d(todo, lucky)
        done = ~np.isin(np.arange(pictures), todo)
        scenes = _select(scenes, done)
        for dash in dashes[:, done]:
            scenes.distractors.append(dash)
            paint(scenes.near[0], *_ends(dash), self._apart(scenes.margin))
        return scenes

    def finish(self, scenes: Scenes) -> Pictures:
        """Choose the labels, put the discs, paint everything and halve the resolution."""
        pictures = len(scenes.margin)
        label, which, rows = self._choose(2, pictures), self._choose(2, pictures), np.arange(pictures)
        seeds = np.stack([contour.seed for contour in scenes.contours])
        tips = np.stack([contour.tip for contour in scenes.contours])
        discs = seeds[which, rows], tips[np.where(label, which, 1 - which), rows]
        canvas = np.zeros((pictures, self.side, self.side), np.uint8)
        cap = self.half / self.dash  # the share of a dash that a round end takes
        first, second = scenes.contours
        for start, end in map(_ends, (*first.dashes, *second.dashes, *scenes.distractors)):
            paint(canvas, start + cap * (end - start), end - cap * (end - start), self.half)
        for disc in discs:
            paint(canvas, disc, disc, self.radius)
        canvas = canvas[:, self.border : -self.border, self.border : -self.border]
        blocks = canvas.reshape(pictures, self.look.size, SCALE, self.look.size, SCALE)
        images = np.rint(blocks.mean(axis=(2, 4))).astype(np.uint8)
        return Pictures(images, label, canvas, np.stack(discs, axis=1) - self.border, scenes.margin)

    def _extend(self, contour: Contour, others: Canvas, margin: Floats, last: bool) -> Mask:
        """Add a dash to the contour in every picture, in place, and say in which pictures it is free."""
        rows, first = np.arange(len(margin)), not contour.dashes
        spread = (np.arange(DIRECTIONS) + self.rng.random((len(rows), 1))) / DIRECTIONS  # in [0, 1)
        turn = (2 * spread - 1) * (np.pi if first else np.pi / 2 / self.look.straightness)
        weight = np.ones_like(turn) if first else np.cos(self.look.straightness * turn) ** 2
        unit = _unit(contour.heading[:, None] + turn)  # (pictures, directions, 2)
        start = contour.tip[:, None] + (0.0 if first else margin[:, None, None]) * unit
        end = start + self.dash * unit
        steps = np.linspace(0, self.dash, math.ceil(self.dash) + 1)[:, None]
        along = start[:, :, None] + steps * unit[:, :, None]
        free = ~touches(others, along) & ~touches(contour.own, along)
        if last:  # this end may carry a disc
            around = (self.radius - self.half) * _unit(np.linspace(0, 2 * np.pi, 12, endpoint=False))
            free &= ~touches(others, end[:, :, None] + around)
            from_seed = np.sqrt(((end - contour.seed[:, None]) ** 2).sum(axis=2))
            free &= from_seed > 2 * self.radius + 2 * margin[:, None] + SLACK
        sums = np.cumsum(weight * free, axis=1)
        chosen = (sums > self.rng.random((len(rows), 1)) * sums[:, -1:]).argmax(axis=1)
        if not first:
            paint(contour.own, *_ends(contour.dashes[-1]), self._apart(margin))
        contour.heading = contour.heading + turn[rows, chosen]
        contour.tip = end[rows, chosen]
        contour.dashes.append(np.stack([start[rows, chosen], contour.tip], axis=1))
        return np.asarray(free[rows, chosen])

    def _clearance(self, margin: Floats) -> Floats:
        """Return how far the axis of a stroke stays from the edge of a stroke or disc that it must not join."""
        return 2 * margin + self.half + SLACK

    def _apart(self, margin: Floats) -> Floats:
        """Return how far apart the axes of two strokes stay that may join: of distractors, of one contour."""
        return margin + 2 * self.half + SLACK

    def _seed(self, place: Floats) -> Contour:
        return Contour(place, self._frame(len(place)), place, np.zeros(len(place)))

    def _frame(self, pictures: int) -> Canvas:
        """Return canvases on which only the border is taken, and room within it for half a disc."""
        canvas = np.full((pictures, self.side, self.side), 255, np.uint8)
        inset = self.border + math.ceil(self.radius)
        canvas[:, inset:-inset, inset:-inset] = 0
        return canvas

    def _somewhere(self, taken: Canvas) -> Floats:
        """Return a random place on every canvas, free if one of some tries is."""
        places = self.border + self.rng.random((len(taken), 64, 2)) * (self.size - 1)
        return np.asarray(places[np.arange(len(taken)), touches(taken, places[:, :, None]).argmin(axis=1)])

    def _choose(self, choices: int, pictures: int) -> NDArray[np.int64]:
        return (self.rng.random(pictures) * choices).astype(np.int64)


def paint(canvas: Canvas, start: Floats, end: Floats, radius: float | Floats) -> None:
    """Draw a stroke on every canvas: all that is within `radius` of the line from start to end, (pictures, 2) each.

    The canvas has to have room around the stroke.

    >>> canvas = np.zeros((1, 5, 7), np.uint8)
    >>> paint(canvas, np.array([[2.0, 2.0]]), np.array([[2.0, 4.0]]), 0.5)
    >>> canvas[0, 1:4].tolist()
    [[0, 0, 0, 0, 0, 0, 0], [0, 0, 255, 255, 255, 0, 0], [0, 0, 0, 0, 0, 0, 0]]
    """
    line = (end - start).astype(np.float32)
    wide = np.broadcast_to(np.asarray(radius, np.float32), len(canvas))[:, None, None]
    reach = math.ceil(np.abs(line).max(initial=0) / 2 + wide.max(initial=0))
    window = np.rint((start + end) / 2).astype(np.int64)[:, :, None] + np.arange(-reach, reach + 1)
    y, x = (window - start[:, :, None]).astype(np.float32).transpose(1, 0, 2)
    y, x = y[:, :, None], x[:, None, :]
    dy, dx = line.T[:, :, None, None]
    along = np.clip((y * dy + x * dx) / np.maximum(dy * dy + dx * dx, 1e-9), 0, 1)  # the nearest point of the line
    distance = np.sqrt((y - along * dy) ** 2 + (x - along * dx) ** 2)  # not hypot: it rounds as the platform likes
    ink = (255 * np.clip(wide + 0.5 - distance, 0, 1)).astype(np.uint8)
    place = np.arange(len(canvas))[:, None, None], window[:, 0, :, None], window[:, 1, None, :]
    canvas[place] = np.maximum(canvas[place], ink)


def touches(canvas: Canvas, points: Floats) -> Mask:
    """Return whether any of some points (pictures, groups, points, 2) is painted: (pictures, groups)."""
    y, x = np.rint(points).astype(np.int64).transpose(3, 0, 1, 2)
    return np.asarray((canvas[np.arange(len(canvas))[:, None, None], y, x] > 127).any(axis=2))


def _ends(dash: Floats) -> tuple[Floats, Floats]:
    return dash[:, 0], dash[:, 1]


def _unit(angle: Floats) -> Floats:
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1)


Structure = TypeVar("Structure")


def _select(structure: Structure, chosen: Mask) -> Structure:
    """Return the same structure with only the chosen pictures in its arrays."""
    return structure if chosen.all() else cast(Structure, _chosen(structure, chosen))


def _chosen(part: Any, chosen: Mask) -> Any:
    if isinstance(part, np.ndarray):
        return part[chosen]
    if isinstance(part, list | tuple):
        return type(part)(_chosen(item, chosen) for item in part)
    return dataclasses.replace(part, **{name: _chosen(item, chosen) for name, item in vars(part).items()})
