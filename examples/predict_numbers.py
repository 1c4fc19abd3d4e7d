"""A model whose outputs are numbers, not classes: where a spring is, from the forces that pull at it, at every step.

What works as for classes: pruning with or without data, budgets of energy, gain, memory and latency, recovery, rounding
to 8 bits, C and ONNX. What does not: accuracy (`sp.evaluate`, `sp.max_loss` with batches), since there are no right
answers to count. Measure an error of your own instead; `sp.max_loss` also takes a function of a model.
"""

import tempfile
from pathlib import Path

import torch
from torch.nn.functional import mse_loss

import ssmprune as sp
from ssmprune.models.config import Config

torch.manual_seed(0)


def springs(count: int, length: int = 100) -> tuple[torch.Tensor, torch.Tensor]:
    """Return forces and positions, both (count, length, 1); the spring gives way less the harder it is pulled."""
    forces = torch.randn(count, length, 1)
    position = speed = torch.zeros(count, 1)
    positions = []
    for force in forces.unbind(1):
        speed = 0.9 * speed - 0.1 * position + 0.3 * torch.tanh(force)
        position = position + speed
        positions.append(position)
    return forces, torch.stack(positions, 1)


def error(model: torch.nn.Module) -> float:
    """Return the share of the positions' variance that a model gets wrong."""
    x, y = TEST
    with torch.no_grad():
        return float(mse_loss(model(x), y) / y.var())


TEST = springs(64)
config = Config("s5", inputs=1, outputs=1, width=16, states=(16, 16), norm="layer", pooling="none")  # no pooling
model = sp.Classifier(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for _ in range(150):
    x, y = springs(32)
    optimizer.zero_grad()
    mse_loss(model(x), y).backward()
    optimizer.step()
model.eval()
print(f"trained:                  error {error(model):.2%}, {sum(model.layer_states.values())} states")

inputs = [springs(32)[0] for _ in range(10)]  # unlabelled, as the model will see them
small = sp.prune(model, ratio=0.7, data=inputs)
print(f"70 % pruned, surgeon:     error {error(small):.2%}, {sum(small.layer_states.values())} states")
better = sp.recover(small, model, inputs, minutes=0.2)
print(f"... and recovered:        error {error(better):.2%}")
frugal = sp.prune(model, sp.max_energy(0.001), data=inputs)
print(f"0.1 % of energy to lose:  error {error(frugal):.2%}, {sum(frugal.layer_states.values())} states")
close = sp.prune(model, sp.max_loss(0.1, lambda candidate: 1 - error(candidate)), data=inputs)
print(f"0.1 points of error more: error {error(close):.2%}, {sum(close.layer_states.values())} states")
assert error(better) <= 1.01 * error(small)

try:
    sp.evaluate(better, [TEST])
except sp.InputError as refusal:
    print(f"accuracy:                 {refusal}")

with tempfile.TemporaryDirectory() as folder:
    sp.export_c(sp.quantize(better, bits=8, data=inputs), Path(folder) / "spring.c")
    sp.save(better, Path(folder) / "spring.safetensors")
    for path in sorted(Path(folder).iterdir()):
        print(f"written: {path.name}, {path.stat().st_size:,} bytes")
