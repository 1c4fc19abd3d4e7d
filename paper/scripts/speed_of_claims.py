"""What pruning gains in two engines: python paper/scripts/speed_of_claims.py --data DATA [NAME ...]; results/speed.md.

For every checkpoint at LAST's largest ratio, ours by paper/results and the paper's own: the time of a step of the whole
and of the pruned model, in torch and in C, when a batch of test sequences is evaluated, and in C when 64 streams take a
step at a time, where the model reads forward only. One thread each, by its own time; the calls take turns, and a ratio
is the median over rounds. Speed depends on the sizes alone, so LAST stands for all methods. Wants a quiet machine, for
about a quarter of a minute a ratio. Finished rows are kept in paper/results/speed.jsonl, so it resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import thread_time
from typing import Any

import numpy as np
import torch
from kept_rows import CHECKPOINTS, RESULTS, Row, measure_all
from numpy.typing import NDArray

import ssmprune as sp
from ssmprune.deploy.compiled import Compiled
from ssmprune.files import write_atomically
from ssmprune.models.classifier import Classifier
from ssmprune.report import markdown_rows
from ssmprune.sweeps import Entry, Results
from ssmprune.sweeps.timing import machine, time_in_turns
from ssmprune_paper import paper
from ssmprune_paper.query import Query
from ssmprune_paper.reproduce import find_trained

ROWS, TABLE = RESULTS / "speed.jsonl", RESULTS / "speed.md"
STEPS = 20_000  # of the batch, over all its sequences
STREAMS, STREAMED = 64, 50  # streams side by side, to amortise the overhead of a call; their steps in a round
ROUNDS = 15
ENGINES = {"torch": "torch", "C": "C", "stream": "C, streams"}


def ratios_of(entry: Entry) -> dict[str, float]:
    """Return LAST's largest ratios above 0 by whose they are."""
    query = Query(Results.read(RESULTS))
    swept = {about["name"]: query.last_ratio(about) or 0.0 for about in query.entries()}
    line = paper.TASKS.get((entry.task.name, entry.model.config.kind))
    ours, theirs = swept.get(entry.name, 0.0), line.ratio / 100 if line else 0.0
    ratios = {"both": ours} if ours == theirs else {"ours": ours, "the paper's": theirs}
    return {whose: ratio for whose, ratio in ratios.items() if ratio}


def rows_of(name: str, root: Path, finished: list[Row]) -> Iterator[Row]:
    """Yield a row for each ratio that is not finished yet."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    (entry,) = find_trained(CHECKPOINTS, [name])
    done = {(row["whose"], row["ratio"]) for row in finished}
    missing = {whose: ratio for whose, ratio in ratios_of(entry).items() if (whose, ratio) not in done}
    if not missing:
        return
    split = entry.task.load("test", root)
    x = split.batch(np.arange(max(1, STEPS // split.length))).x
    work = sp.Pruning(entry.model, sp.LAST, unstable="keep")
    for whose, ratio in missing.items():
        yield {"whose": whose, "ratio": ratio, "machine": machine()} | measure(
            entry.model, work.shrink(work.plan(ratio)), x
        )


def measure(whole: Classifier, small: Classifier, x: Any) -> Row:
    """Return, for each engine, the microseconds of a step of both models and how many times faster the smaller is."""
    calls: dict[str, Callable[[], object]] = {}
    steps = {"torch": x.shape[0] * x.shape[1], "C": x.shape[0] * x.shape[1], "stream": STREAMS * STREAMED}
    for side, model in (("whole", whole.eval()), ("small", small.eval())):
        compiled = sp.compile(model, threads=1)
        calls[f"torch {side}"] = partial(_in_torch, model, x)
        calls[f"C {side}"] = partial(compiled, x)
        if not model.config.bidirectional:
            calls[f"stream {side}"] = partial(_stream, compiled)
    seconds = time_in_turns(calls, ROUNDS, thread_time)
    return {
        engine: _compare(seconds[f"{engine} whole"] / steps[engine], seconds[f"{engine} small"] / steps[engine])
        for engine in ENGINES
        if f"{engine} whole" in calls
    }


def _compare(whole: NDArray[np.float64], small: NDArray[np.float64]) -> dict[str, float]:
    times = {"whole": 1e6 * whole, "small": 1e6 * small, "faster": whole / small}
    return {name: float(np.median(values)) for name, values in times.items()}


@torch.no_grad()
def _in_torch(model: Classifier, x: Any) -> object:
    return model(torch.from_numpy(x))


def _stream(compiled: Compiled) -> None:
    config, stream = compiled.config, compiled.stream(STREAMS)
    step = np.zeros(STREAMS, np.int64) if config.tokens else np.full((STREAMS, config.inputs), 0.5, np.float32)
    for _ in range(STREAMED):
        stream(step)


def write_table(rows: list[Row]) -> None:
    """Write a line for every checkpoint and ratio, and the range over S5, which the paper's claim is about."""
    lines = [
        (f"`{row['checkpoint']}`", f"{row['ratio']:.0%}", row["whose"], *map(_cell, map(row.get, ENGINES)), _paper(row))
        for row in sorted(rows, key=lambda row: (row["checkpoint"], row["whose"]))
    ]
    for whose in ("ours", "the paper's"):
        s5 = [row for row in rows if row["whose"] in (whose, "both") and row["checkpoint"].endswith("-s5")]
        lines.append((f"{len(s5)} S5, from … to", "", whose, *(_range(s5, engine) for engine in ENGINES), ""))
    text = (
        "# Speed at LAST's ratios, in torch and in C\n\nMicroseconds of a step before and after pruning, one thread, "
        "and how many times faster that is: a batch of test sequences in torch and in C, and in C by 64 streams that "
        "take a step at a time, called from Python, where the model reads forward only. Ratios are LAST's largest, "
        "ours and the paper's; its speeds are those of an RTX 3090. By `python paper/scripts/speed_of_claims.py "
        f"--data DATA` on {rows[-1]['machine']}."
        "\n\n"
    )
    titles = ("checkpoint", "pruned", "whose ratio", *ENGINES.values(), "paper: times faster")
    write_atomically(TABLE, (text + markdown_rows(titles, lines) + "\n").encode())


def _cell(found: dict[str, float] | None) -> str:
    return f"{found['whole']:.2f} → {found['small']:.2f}, {found['faster']:.2f}×" if found else ""


def _paper(row: Row) -> str:
    task, family = row["checkpoint"].split("-")[:2]
    return f"{paper.SPEED[task][0]}" if family == "s5" and task in paper.SPEED and row["whose"] != "ours" else ""


def _range(rows: list[Row], engine: str) -> str:
    faster = [row[engine]["faster"] for row in rows if engine in row]
    return f"{min(faster):.2f} to {max(faster):.2f}×" if faster else ""


if __name__ == "__main__":
    measure_all(__doc__ or "", ROWS, rows_of, write_table)
