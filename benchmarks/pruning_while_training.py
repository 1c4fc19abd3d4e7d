"""Does pruning while training cost accuracy, and does it save time?

A small sMNIST S5 (2 layers of width 32 and 64 pairs, 8,000 images, 3 epochs) is trained whole, and on a cubic schedule
down to 30 % of its states. Seconds of processor time on one thread; accuracy on all 10,000 test images.

SSMPRUNE_DATA=DATA python benchmarks/pruning_while_training.py RUNS      about ten minutes; if interrupted, it resumes
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from time import process_time

import torch

from ssmprune import load, tasks
from ssmprune.training import Run, Schedule, evaluate, recipes, train
from table import Figure, markdown, prepare

TASK = tasks.get("smnist")
RECIPE = replace(
    recipes.get("smnist", "s5", "cpu"), depth=2, width=32, states=128, batch=25, epochs=3, warmup=0.3, examples=8_000
)
SCHEDULES = {
    "whole": None,
    "surgeon": Schedule(to=0.7, shape="cubic", start=0.1, until=0.5, every=25),
    "LAST": Schedule(to=0.7, shape="cubic", start=0.1, until=0.5, every=25, method="last"),
}


def compare(runs: Path) -> list[Figure]:
    test, seconds, accuracy = TASK.load("test"), {}, {}
    for name, pruning in SCHEDULES.items():
        start = process_time()
        result = train(TASK, RECIPE, Run(runs / name), pruning=pruning)
        seconds[name] = process_time() - start
        model = load(result.last)
        accuracy[name] = 100 * evaluate(model, test).accuracy
        print(f"{name}: {model.config.states} pairs, {accuracy[name]:.2f} %, {seconds[name]:.0f} s", flush=True)
    lost = {name: accuracy["whole"] - accuracy[name] for name in SCHEDULES}
    faster = {name: seconds["whole"] / seconds[name] for name in SCHEDULES}
    return [
        *(Figure(f"accuracy, {name}", value, "%") for name, value in accuracy.items()),
        Figure("lost, surgeon", lost["surgeon"], "points", at_most=0.5, beside={"LAST": lost["LAST"]}),
        Figure("times faster, surgeon", faster["surgeon"], at_least=1.0, beside={"LAST": faster["LAST"]}),
    ]


if __name__ == "__main__":
    torch.set_num_threads(1)
    prepare()
    print(f"{__doc__}\n{markdown(compare(Path(sys.argv[1])))}")
