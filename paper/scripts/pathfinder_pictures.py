"""Draw docs/pathfinder.png: Pathfinder and Path-X pictures of both labels, as the tasks draw them.

Prints in what share of pictures widening the strokes by the margin joins the discs exactly when the label is 1, on the
canvas and on the picture that is made of it by halving the resolution.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray
from scipy import ndimage  # comes with ssmprune[all]

from ssmprune.report import save_figure
from ssmprune.tasks import get
from ssmprune_paper.tasks.contours import draw

COLUMNS = 4
BEGUN = {"pathfinder": 4000, "pathx": 2000}  # pictures; those in which a contour gets stuck are dropped
INK = {"canvas": 127, "picture": 60}  # the least brightness of a stroke; halving dims strokes thinner than a pixel


def main(out: Path) -> None:
    """Draw both tasks side by side, label 1 above label 0."""
    figure, axes = plt.subplots(2, 2 * COLUMNS, figsize=(12, 3.4), layout="constrained")
    for half, name in enumerate(("pathfinder", "pathx")):
        drawn = draw(get(name).look, BEGUN[name], np.random.default_rng(0))
        halved = drawn.images, (drawn.discs - 0.5) / 2, drawn.margin / 2
        for what, measures in {"canvas": (drawn.canvas, drawn.discs, drawn.margin), "picture": halved}.items():
            right = connected(*measures, INK[what]) == drawn.labels
            print(f"{name}, {what}: {right.sum():,} of {len(right):,}")
        for row, label in enumerate((1, 0)):
            chosen = drawn.images[drawn.labels == label][:COLUMNS]
            for column, image in enumerate(chosen):
                axis = axes[row, half * COLUMNS + column]
                axis.imshow(image, cmap="gray", interpolation="nearest")
                axis.set(xticks=[], yticks=[])
            axes[row, half * COLUMNS].set_ylabel(f"label {label}")
        axes[0, half * COLUMNS].set_title(f"{name}, {drawn.images.shape[1]} x {drawn.images.shape[1]}", loc="left")
    save_figure(figure, out)


def connected(canvas: NDArray, discs: NDArray, margin: NDArray, ink: int) -> NDArray:
    """Return whether the two discs of each picture are connected when all strokes are widened by its margin."""
    answers = []
    for picture, places, width in zip(canvas, np.rint(discs).astype(int), margin, strict=True):
        reach = int(width)
        y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
        wide = ndimage.binary_dilation(picture > ink, y * y + x * x <= width * width)
        parts, _ = ndimage.label(wide, np.ones((3, 3)))
        first, second = (parts[tuple(place)] for place in places)
        answers.append(first == second != 0)
    return np.array(answers)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs/pathfinder.png"))
