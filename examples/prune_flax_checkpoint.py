"""Prune a Flax checkpoint of the original S5 code, with no JAX installed, and write it back for JAX users."""

import tempfile
from pathlib import Path

import numpy as np

import ssmprune as sp
from ssmprune.adapters.flax_s5 import FlaxS5

checkpoint = Path(__file__).parents[1] / "tests" / "golden" / "s5_flax_checkpoint.msgpack"
family = FlaxS5(conj_sym=True, clip_eigs=False, discretization="zoh")  # what the file does not record

tree = sp.load_tree(checkpoint)
small = sp.prune(tree, ratio=0.5, adapter=family)

with tempfile.TemporaryDirectory() as folder:
    sp.save_tree(small, Path(folder) / "small.msgpack")
    again = sp.load_tree(Path(folder) / "small.msgpack")
for layer, system in sp.read(tree, adapter=family).items():
    kept = sp.read(again, adapter=family)[layer]
    print(f"{layer}: {system.states} -> {kept.states} states")
    assert np.isin(kept.log_poles, system.log_poles).all()
