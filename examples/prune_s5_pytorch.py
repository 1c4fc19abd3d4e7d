"""Prune a model built with s5-pytorch; what comes back is still an s5-pytorch model, and faster."""

import tempfile

import torch
from s5 import S5

import ssmprune as sp


def build():
    return torch.nn.Sequential(S5(width=64, state_width=128), torch.nn.GELU(), S5(width=64, state_width=128)).eval()


torch.manual_seed(0)
model = build()

plan = sp.make_plan(sp.read(model), ratio=0.5)
masked, small = sp.mask(model, plan), sp.shrink(model, plan)
print(plan)

x = torch.randn(2, 200, 64)
with torch.no_grad():
    difference = (masked(x) - small(x)).abs().max()
print(f"masked and shrunk models differ by {difference:.1e}")
assert difference < 1e-4

with tempfile.TemporaryDirectory() as folder:
    sp.save_pruned(small, f"{folder}/small.safetensors")
    again = sp.load_pruned(build(), f"{folder}/small.safetensors")  # built whole, cut, filled
with torch.no_grad():
    assert torch.equal(again(x), small(x))
