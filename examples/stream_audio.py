"""Stream audio, sample by sample, through an exported and pruned model; running it needs onnxruntime alone."""

import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
import torch

import ssmprune as sp
from ssmprune.deploy import export_onnx
from ssmprune.models import Classifier
from ssmprune.models.config import Config

torch.manual_seed(0)
listener = Classifier(Config("s5", inputs=1, outputs=12, width=32, states=(32, 32))).eval()  # yours would be trained
small = sp.prune(listener, ratio=0.7)

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "listener.onnx"
    export_onnx(small, path, mode="stream")
    session = onnxruntime.InferenceSession(path)

remembered = session.get_inputs()[1:]  # what a step hands on to the next: all zeros before the first
types = {"tensor(int64)": np.int64, "tensor(float)": np.float32}
shapes = [[1 if isinstance(size, str) else size for size in entry.shape] for entry in remembered]  # a batch of one
carried = [np.zeros(shape, types[entry.type]) for shape, entry in zip(shapes, remembered, strict=True)]
names = [entry.name for entry in remembered]

audio = np.sin(2 * np.pi * 440 * np.arange(400) / 8000).astype(np.float32)
for sample in audio:
    logits, *carried = session.run(None, {"x": [[sample]], **dict(zip(names, carried, strict=True))})

with torch.no_grad():
    whole = small(torch.from_numpy(audio)[None, :, None]).numpy()
print(
    f"after {len(audio)} samples the word is {logits.argmax()}; the stream is off by {np.abs(logits - whole).max():.1e}"
)
assert np.allclose(logits, whole, atol=1e-4)
