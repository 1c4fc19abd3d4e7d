"""Models as C in one shared library, called through their C interface as a program would."""

import ctypes
import random
import subprocess

import numpy as np
import torch

from ssmprune.deploy.c import export_c
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config

WARNINGS = "all extra pedantic conversion shadow double-promotion vla undef float-equal cast-qual strict-prototypes"
STRICT = ("-std=c99", *(f"-W{name}" for name in f"{WARNINGS} missing-prototypes error".split()))


def make(seed, family, **options):
    """A random model whose norms, B and masks are not those of the initialisation."""
    torch.manual_seed(seed)
    rng = random.Random(seed)
    width = rng.choice([3, 16, 13])
    states = [rng.choice([1, 5, 8]) if family == "s5" else rng.choice([0, 5, 3 * width]) for _ in range(2)]
    sizes = {"inputs": rng.choice([1, 3, 9]), "outputs": rng.choice([2, 10]), "width": width, "states": tuple(states)}
    model = Classifier(Config(family, **sizes, train_B=True, **options)).eval()
    with torch.no_grad():
        for block in model.blocks:
            for tensor in block.norm.state_dict().values():
                tensor.copy_(torch.rand_like(tensor) + 0.5)
            block.ssm.B += 0.3 * torch.randn_like(block.ssm.B)
            if rng.random() < 0.3:
                block.ssm.mask[torch.rand(len(block.ssm.mask)) < 0.4] = False
    return model


def build(models, folder, compiler="cc", flags=("-O2",)):
    """Compile every model, and one function for each that tells the size of its state; return the library."""
    for name, model in models.items():
        export_c(model, folder / f"{name}.c")
    (folder / "sizes.c").write_text("".join(_size(name, model) for name, model in models.items()))
    files = [*(f"{name}.c" for name in models), "sizes.c"]
    command = [compiler, *STRICT, *flags, "-shared", "-fPIC", *files, "-lm", "-o", "all.so"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return ctypes.CDLL(str(folder / "all.so"))


def _size(name, model):
    upper = name.upper()
    room = f"4 * {upper}_WORKSPACE(length)" if model.config.bidirectional else f"(void)length, sizeof({name}_state)"
    head = f"size_t {name}_room(size_t length)"
    return f'#include "{name}.h"\n{head};\n{head} {{ return {room}; }}\n'


class Called:
    """One model of the library."""

    def __init__(self, library, name, model):
        self.library, self.name, self.config = library, name, model.config
        self.function("room").restype = ctypes.c_size_t
        self.each = self.config.width if self.config.retrieval else self.config.outputs
        whole = model.grid is not None and model.grid.ranges is not None
        self.kind, self.nothing = (np.int32, -(2**31)) if whole else (np.float32, np.nan)  # of what leaves the C

    def function(self, name):
        return getattr(self.library, f"{self.name}_{name}")

    def room(self, length=0):
        """Memory for a state or, bidirectional, for a sequence; filled with what would be noticed."""
        size = self.function("room")(ctypes.c_size_t(length))
        return np.full(size, 0xFF, np.uint8)

    def run(self, x, valid=None, cuts=()):
        """The answer to one sequence (length, inputs), or tokens (length,), a stream perhaps in several parts."""
        length, room = len(x), self.room(len(x))
        out = np.full((length if self.config.pooling == "none" else 1, self.each), self.nothing, self.kind)
        if self.config.bidirectional:
            sizes = ctypes.c_size_t(length), ctypes.c_size_t(valid or length)
            self.function("run")(at(room), at(x), *sizes, at(out))
        else:
            self.function("init")(at(room))
            for part in np.split(x, np.cumsum(cuts, dtype=int)):
                self.function("run")(at(room), at(part), ctypes.c_size_t(len(part)), at(out))
        return out if self.config.pooling == "none" else out[0]

    def stepped(self, x):
        """The answers after each step."""
        room, out = self.room(), np.full((len(x), self.each), self.nothing, self.kind)
        self.function("init")(at(room))
        for now, answer in zip(x, out, strict=True):
            self.function("step")(at(room), at(np.atleast_1d(now)), at(answer))
        return out

    def compare(self, a, b):
        out = np.full(self.config.outputs, self.nothing, self.kind)
        self.function("compare")(at(a), at(b), at(out))
        return out

    def logits(self, x, lengths=None):
        """What the model's `forward` gives for a batch."""
        lengths = [x.shape[1]] * len(x) if lengths is None else lengths
        if self.config.bidirectional:
            rows = [self.run(row, valid) for row, valid in zip(x, lengths, strict=True)]
        else:
            rows = [self.run(np.ascontiguousarray(row[:valid])) for row, valid in zip(x, lengths, strict=True)]
        if self.config.retrieval:
            rows = [self.compare(a, b) for a, b in zip(rows[: len(x) // 2], rows[len(x) // 2 :], strict=True)]
        return np.stack(rows)


def at(array):
    return array.ctypes.data_as(ctypes.c_void_p)


def program(model, folder, name="model", flags=("-O1",), compiler="cc"):
    """A model's own program."""
    export_c(model, folder / f"{name}.c")
    command = [compiler, *STRICT, *flags, "-DSSMPRUNE_MAIN", f"{name}.c", "-lm", "-o", name]
    subprocess.run(command, cwd=folder, check=True)
    return folder / name


def fed(path, text, *options):
    result = subprocess.run([path, *options], input=text, capture_output=True)
    return result.returncode, result.stdout.decode(), result.stderr.decode()
