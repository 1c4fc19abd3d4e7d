"""Draw docs/pathfinder.png: Pathfinder and Path-X pictures of both labels, as the tasks draw them."""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from ssmprune.experiments.figures import save_figure
from ssmprune.tasks import get
from ssmprune.tasks.contours import draw

COLUMNS = 4


def main(out: Path) -> None:
    """Draw both tasks side by side, label 1 above label 0."""
    figure, axes = plt.subplots(2, 2 * COLUMNS, figsize=(12, 3.4), layout="constrained")
    for half, name in enumerate(("pathfinder", "pathx")):
        drawn = draw(get(name).look, 60, np.random.default_rng(0))
        for row, label in enumerate((1, 0)):
            chosen = drawn.images[drawn.labels == label][:COLUMNS]
            for column, image in enumerate(chosen):
                axis = axes[row, half * COLUMNS + column]
                axis.imshow(image, cmap="gray", interpolation="nearest")
                axis.set(xticks=[], yticks=[])
            axes[row, half * COLUMNS].set_ylabel(f"label {label}")
        axes[0, half * COLUMNS].set_title(f"{name}, {drawn.images.shape[1]} x {drawn.images.shape[1]}", loc="left")
    save_figure(figure, out)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs/pathfinder.png"))
