"""How balanced truncation shares states out: python paper/scripts/balanced_sizes.py --data DATA [NAME ...]

Accuracy on 500 validation examples of models cut down by balanced truncation, whose Hankel singular values σ are
compared between layers in four ways, and of those that LAST leaves. Finished rows are kept in
paper/results/balanced_sizes.jsonl, so it resumes; the table is paper/results/balanced_sizes.md.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import ssmprune as sp
from ssmprune.files import write_atomically
from ssmprune.methods import BALANCED, layer_share
from ssmprune.report import markdown_rows
from ssmprune.tasks import cards
from ssmprune.tasks.task import fewer
from ssmprune.training import evaluate

ROOT = Path(__file__).parents[1]
ROWS, TABLE = ROOT / "results" / "balanced_sizes.jsonl", ROOT / "results" / "balanced_sizes.md"
NAMES, RATIOS, EXAMPLES = ("smnist-s5", "image-s4d"), (0.2, 0.4, 0.6, 0.8), 500
WAYS = {
    "LAST": sp.LAST,
    "σ², layer-adaptive": BALANCED,
    "σ², shares of the layer": replace(BALANCED, allocation=layer_share),
    "σ, shares of the layer": replace(
        BALANCED, criterion=lambda system, evidence: BALANCED.criterion(system, evidence) / 2, allocation=layer_share
    ),
    "the same share of every layer": replace(BALANCED, allocation=sp.uniform),
}
ABOUT = """# How balanced truncation shares states out

Accuracy, %, on 500 validation examples after pruning without data and without retraining, by
`python paper/scripts/balanced_sizes.py --data DATA`. σ are the Hankel singular values of a layer, or of its channels,
two for each state. "Layer-adaptive" is LAST's comparison between layers and that of `sp.BALANCED`; shares of a layer's
whole Σ σ are shares of its bound on the gain of the error. How far LAST and balanced truncation go within a point, on
all checkpoints, is in [tables/surgeon.md](tables/surgeon.md).

"""


def rows_of(name: str, root: Path, finished: set[tuple[str, str, float]]) -> Any:
    """Yield a row for every way and ratio that is not finished yet."""
    path = ROOT / "checkpoints" / f"{name}.safetensors"
    model = sp.load(path)
    examples = fewer(cards.task_of(path).load("val", root), EXAMPLES)
    for ratio in (0.0, *RATIOS):
        for way, method in WAYS.items() if ratio else [("whole", sp.LAST)]:
            if (name, way, ratio) not in finished:
                small = sp.prune(model, ratio, method)
                accuracy = evaluate(small, examples, engine="compiled").accuracy
                yield {"checkpoint": name, "way": way, "ratio": ratio, "accuracy": accuracy}


def write_table(rows: list[dict[str, Any]]) -> None:
    """Write a line for every checkpoint and way."""
    found = {(row["checkpoint"], row["way"], row["ratio"]): f"{100 * row['accuracy']:.1f}" for row in rows}
    lines = [
        (f"`{name}`", way, found[name, "whole", 0.0], *(found[name, way, ratio] for ratio in RATIOS))
        for name in dict.fromkeys(row["checkpoint"] for row in rows)
        for way in WAYS
    ]
    columns = ("checkpoint", "comparison", "whole", *(f"{ratio:.0%} pruned" for ratio in RATIOS))
    write_atomically(TABLE, (ABOUT + markdown_rows(columns, lines) + "\n").encode())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=NAMES, help=f"checkpoints; {' and '.join(NAMES)} unless given")
    parser.add_argument("--data", type=Path, required=True)
    arguments = parser.parse_args()
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []
    for name in arguments.names:
        for row in rows_of(name, arguments.data, {(row["checkpoint"], row["way"], row["ratio"]) for row in rows}):
            rows.append(row)
            write_atomically(ROWS, "".join(json.dumps(line) + "\n" for line in rows).encode())
            print(row, flush=True)
    write_table(rows)
