"""Train the toy task in a process of its own: `python train_toy.py long|curves RUN_DIR`."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from ssmprune.errors import InputError
from ssmprune.training import Schedule
from ssmprune.training.distributed import join_group
from toy import RECIPE, TWENTY_STEPS, fit


def main(what: str, run_dir: str) -> None:
    if what == "long":
        pruning = Schedule(to=0.75, start=0.2, until=0.9, every=20)
        fit(Path(run_dir), dataclasses.replace(RECIPE, epochs=12), pruning=pruning)
        return
    with join_group() as group:
        for norm, pruning in (("layer", Schedule(to=0.5, start=0.25, until=0.25)), ("batch", None)):
            fit(Path(run_dir) / norm, dataclasses.replace(TWENTY_STEPS, norm=norm), pruning=pruning, save_every=1)
        if group.size > 1:
            mine = Path(run_dir) / ("batch" if group.rank == 0 else "another disk")
            with pytest.raises(InputError, match="a folder they share"):
                fit(mine, dataclasses.replace(TWENTY_STEPS, norm="batch"))
    # A thread of the group that outlives it meets an interpreter that is being torn down, and aborts the process.
    names = [file.read_text().strip() for file in Path("/proc/self/task").glob("*/comm")]  # empty except on Linux
    assert not [name for name in names if "gloo" in name], names


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
