"""Run the tiny sweep in a process of its own: `python sweep_tiny.py FOLDER RESULTS`."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from tiny_sweep import swept

if __name__ == "__main__":
    torch.set_num_threads(1)
    swept(Path(sys.argv[1]), Path(sys.argv[2]))
