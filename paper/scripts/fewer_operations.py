"""States, features or both: python paper/scripts/fewer_operations.py --data DATA [NAME ...]; results/operations.md.

For every checkpoint and for several shares of a step's operations: the accuracy on the whole test set (at most 10,000
examples, by the compiled engine) of the model that keeps this share, with states pruned alone, features alone, and both
as `operations` weighs them; closed form, on 200 unlabelled training sequences. Beside it how much faster a step in C
is, and parameters. Finished rows are kept in paper/results/operations.jsonl, so it resumes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kept_rows import CHECKPOINTS, RESULTS, Row, measure_all

import ssmprune as sp
from ssmprune.deploy.compiled import forward
from ssmprune.files import write_atomically
from ssmprune.models.checkpoint import parameters
from ssmprune.models.classifier import Classifier
from ssmprune.models.costs import operations
from ssmprune.narrowing import Narrowing, narrower
from ssmprune.report import markdown_rows
from ssmprune.sweeps.timing import measure
from ssmprune.tasks import cards
from ssmprune.tasks.task import fewer
from ssmprune.training import evaluate
from ssmprune.training.calibration_inputs import unlabelled_batches

ROWS, TABLE = RESULTS / "operations.jsonl", RESULTS / "operations.md"
SEQUENCES, TEST = 200, 10_000
SHARES = (0.5, 0.3, 0.2, 0.1)
WAYS = ("states", "features", "both")


def prune(model: Classifier, way: str, share: float, data: list[Any]) -> Classifier | None:
    """Return the model that keeps a share of the operations; None where these states or features are not enough."""
    if way == "both":
        return sp.prune(model, operations=share, data=data)
    config, most = model.config, share * operations(model.config)
    if way == "features":
        features = sp.Pruning(model, width=0.5, data=data).narrowing
        narrow = [left for left in range(1, config.width) if operations(_narrowed(features, left).config) <= most]
        return sp.prune(model, 0.0, width=1 - narrow[-1] / config.width, data=data) if narrow else None
    work = sp.Pruning(model, data=data)
    for ratio in (percent / 100 for percent in range(100)):  # the least that is enough
        if operations(work.shrink(work.choose(ratio)).config) <= most:
            return work.shrink(work.plan(ratio))
    return None


def _narrowed(features: Narrowing, width: int) -> Classifier:
    return narrower(features.model, features.choose(width))


def rows_of(name: str, root: Path, finished: list[Row]) -> Iterator[Row]:
    """Yield a row for every way and share that is not finished yet."""
    if len(finished) == len(WAYS) * len(SHARES):
        return
    path = CHECKPOINTS / f"{name}.safetensors"
    model, task = sp.load(path), cards.task_of(path)
    data, test = unlabelled_batches(task.load("train", root), SEQUENCES), fewer(task.load("test", root), TEST)
    whole = None
    for share in SHARES:
        for way in WAYS:
            if (way, share) in {(row["way"], row["share"]) for row in finished}:
                continue
            whole = whole or _measure(model, test)
            row = {"way": way, "share": share, "whole": whole}
            small = prune(model, way, share, data)
            yield row if small is None else row | _measure(small, test)


def _measure(model: Classifier, test: Any) -> dict[str, Any]:
    with forward(model, "compiled") as fast:
        steps = measure(model, fast)["steps_per_second"]
        accuracy = evaluate(model, test, engine=fast).accuracy
    sizes = {"operations": operations(model.config), "parameters": parameters(model), "width": model.config.width}
    return sizes | {"states": sum(model.config.states), "accuracy": accuracy, "steps_per_second": steps}


def write_table(rows: list[Row]) -> None:
    """Write a line for every checkpoint and share."""
    found = {(row["checkpoint"], row["share"], row["way"]): row for row in rows}
    lines = []
    for name, share in sorted({(row["checkpoint"], row["share"]) for row in rows}, key=lambda key: (key[0], -key[1])):
        some = [found.get((name, share, way)) for way in WAYS]
        accuracies = [f"{100 * row['accuracy']:.2f}" if row and "accuracy" in row else "–" for row in some]
        both, whole = some[-1], next(row["whole"] for row in some if row)
        made = f"{both['states']} × {both['width']}" if both else ""
        faster = both and whole["steps_per_second"] and both["steps_per_second"] / whole["steps_per_second"]
        before, gain = f"{100 * whole['accuracy']:.2f}", f"{faster:.1f}" if faster else ""
        lines.append((f"`{name}`", f"{share:.0%}", before, *accuracies, made, gain))
    text = (
        "# States, features or both\n\nAccuracy (%) on the whole test set of models that keep a share of a step's "
        "operations, without a gradient step: states pruned alone, features alone, both as `operations` weighs them; "
        "then the stored states and the width of that last model, and how many times as many steps a second it takes "
        "in C, called from Python, which takes its share. By `python paper/scripts/fewer_operations.py --data DATA`; a "
        "dash where that cannot save so much.\n\n"
    )
    titles = ("checkpoint", "operations", "whole", *WAYS, "states × width", "C step, times faster")
    write_atomically(TABLE, (text + markdown_rows(titles, lines) + "\n").encode())


if __name__ == "__main__":
    measure_all(__doc__ or "", ROWS, rows_of, write_table)
