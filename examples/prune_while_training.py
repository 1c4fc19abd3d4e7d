"""Prune inside your own training script: train, shrink, and continue with the smaller model."""

import torch
from torch import nn
from torch.nn.functional import mse_loss

import ssmprune as sp

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1, 16), sp.S5Layer(16, 32), nn.GELU(), nn.Linear(16, 1))
x = torch.randn(16, 100, 1)
target = 0.3 * x.cumsum(1).sin()  # something with a memory


def train(model: nn.Module, steps: int) -> float:
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
    return loss.item()


print(f"32 pairs, trained:             loss {train(model, 100):.4f}")
small = sp.prune(model, ratio=0.75)
with torch.no_grad():
    print(f"8 pairs, not trained further:  loss {mse_loss(small(x), target):.4f}")
final = train(small, 100)
print(f"8 pairs, trained a little:     loss {final:.4f}")
assert small[1].pole_re.shape == (8,)
