"""Build the s5-pytorch model of tests/adapters/test_pruned_modules.py anew, load what is left of it, and run it.

python load_pruned.py FILE INPUTS.npy OUTPUTS.npy
"""

import sys
import warnings

import numpy as np
import torch

import ssmprune as sp

warnings.simplefilter("ignore", DeprecationWarning)  # s5-pytorch is older than this torch
from s5 import S5  # noqa: E402


def build():
    return torch.nn.Sequential(S5(width=8, state_width=16), torch.nn.GELU(), S5(width=8, state_width=12, bidir=True))


if __name__ == "__main__":
    file, inputs, outputs = sys.argv[1:]
    model = sp.load_pruned(build(), file).eval()
    with torch.no_grad():
        np.save(outputs, model(torch.from_numpy(np.load(inputs))).numpy())
