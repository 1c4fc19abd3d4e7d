"""Golden numbers of PyPI's lrnnx 1.0.0.post1, made by running its own layers on the CPU.

    python scripts/golden_lrnnx.py      # writes tests/golden/lrnnx.npz; needs einops, opt-einsum and lrnnx (--no-deps)

The package imports its CUDA extensions without a guard (`lrnnx.ops`, `lrnnx.models.ltv`), so `import lrnnx.models.lti`
fails on a machine that has not built them. `stand_in` puts empty packages in place of the two `__init__` files, whose
modules then load one by one; no line of a layer is replaced. The one exception is the scan of `ltv.S5.forward`, which
has no CPU code: the package's own pure torch reference of that kernel, `simplified_scan_ref`, takes its place.

Keys: config_json (by NAME: class, constructor arguments, seed, dtype, ...), NAME/state/PARAMETER, NAME/y (forward),
NAME/y_step (step by step from an empty cache), NAME/A_bar and NAME/B_bar (discrete poles and input matrix as the cache
for stepping has them; some layers; ltv.S5 caches the continuous ones). The input is x/WIDTH (2, 12, WIDTH).
NAME/y_step64 of a layer with dtype float64: stepping with a complex128 state handed in, so double throughout.
NAME/y_events: `integration_timesteps` = events (2, 12) given.
"""

import importlib.util
import json
import math
import sys
import types
from functools import partial
from pathlib import Path

import numpy as np
import torch

BATCH, LENGTH = 2, 12


def stand_in(*packages, extensions=()):
    """Register packages without running their __init__, and empty modules for extensions that are not built."""
    root = Path(importlib.util.find_spec("lrnnx").submodule_search_locations[0])
    for name in packages:
        package = types.ModuleType(f"lrnnx.{name}")
        package.__path__ = [str(root / name.replace(".", "/"))]
        sys.modules[package.__name__] = package
    for name in extensions:
        sys.modules[name] = types.ModuleType(name)


stand_in("ops", "models.ltv", extensions=("simplified_scan_cuda",))
from lrnnx.architectures.classifier import Classifier  # noqa: E402
from lrnnx.models.lti import LRU, S5  # noqa: E402
from lrnnx.models.ltv import s5 as ltv  # noqa: E402
from lrnnx.ops.simplified_scan import simplified_scan_ref  # noqa: E402

ltv.simplified_scan_fn = simplified_scan_ref
CLASSES = {"lti.S5": S5, "lti.LRU": LRU, "ltv.S5": ltv.S5}


def move(layer, kind, options, seed):
    """Move the parameters off their initial values, which are too regular to tell one layout from another."""
    random = torch.Generator().manual_seed(1000 + seed)

    def noise(parameter, size):
        return size * torch.randn(parameter.shape, generator=random, dtype=parameter.dtype)

    with torch.no_grad():
        if kind == "lti.LRU":
            layer.gamma_log += noise(layer.gamma_log, 0.2)
        else:
            layer.log_dt += 1.5 + noise(layer.log_dt, 0.3)
            layer.A += noise(layer.A, 0.1)
            layer.B += noise(layer.B, 0.3)
        if options.get("discretization") == "bilinear" and kind == "lti.S5":
            layer.log_dt -= 1.0  # its poles lie outside the unit circle
        if options.get("discretization") == "dirac":
            layer.B *= 0.2  # nothing scales it with the step
        if options.get("discretization") == "no_discretization":
            layer.A[:, 0] -= 0.5
            layer.A[:, 1] = 0.3 * torch.randn(layer.A.shape[0], generator=random)  # so that |A| < 1


PAIRS = {"discretization": "bilinear", "conj_sym": True, "step_rescale": 2.0}
# name: class, width, states, other arguments, dtype, whether the parameters are moved
LAYERS = {
    "s5_initial": ("lti.S5", 3, 5, {"discretization": "zoh"}, "float32", False),
    "s5_zoh": ("lti.S5", 4, 6, {"discretization": "zoh"}, "float32", True),
    "s5_bilinear": ("lti.S5", 4, 6, {"discretization": "bilinear"}, "float32", True),
    "s5_dirac": ("lti.S5", 4, 6, {"discretization": "dirac"}, "float32", True),
    "s5_none": ("lti.S5", 4, 6, {"discretization": "no_discretization"}, "float32", True),
    "s5_narrow": ("lti.S5", 2, 8, {"discretization": "zoh"}, "float32", True),  # H² ≤ N: dense kernel
    "s5_double": ("lti.S5", 4, 4, {"discretization": "zoh"}, "float64", True),  # N ≤ H: the only forward in float64
    "lru": ("lti.LRU", 4, 6, {}, "float32", True),
    "lru_ring": ("lti.LRU", 3, 8, {"r_min": 0.8, "r_max": 0.99, "max_phase": math.pi / 5}, "float32", False),
    "lru_double": ("lti.LRU", 4, 4, {"r_min": 0.5}, "float64", True),
    "event_zoh": ("ltv.S5", 4, 6, {}, "float32", True),
    "event_zoh_pairs": ("ltv.S5", 4, 4, {"discretization": "zoh", "conj_sym": True}, "float32", True),
    "event_bilinear_pairs": ("ltv.S5", 4, 4, PAIRS, "float32", True),
    "event_dirac": ("ltv.S5", 4, 6, {"discretization": "dirac"}, "float32", True),
}


def stepped(layer, x, wide=False):
    """Run a layer step by step from an empty cache; `wide` hands in a state in double precision."""
    cache = layer.allocate_inference_cache(len(x), LENGTH)
    state = "ssm_state" if "ssm_state" in cache else "lrnn_state"
    if wide:
        cache[state] = cache[state].to(torch.complex128)
    outputs = []
    for u in x.unbind(1):
        y, cache = layer.step(u, cache)
        outputs.append(y.reshape(u.shape))
    return torch.stack(outputs, 1)


def record(name, seed, inputs, events):
    """Build a layer, run it and return its arrays by key."""
    kind, width, states, options, dtype, moved = LAYERS[name]
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (ltv.S5 draws B and C from numpy's global state)
    layer = CLASSES[kind](d_model=width, d_state=states, **options).eval()
    if moved:
        move(layer, kind, options, seed)
    if dtype == "float64":
        layer = layer.double()
    x = inputs[width].to(getattr(torch, dtype))
    config = {"class": kind, "arguments": {"d_model": width, "d_state": states, **options}, "dtype": dtype}
    config |= {"seed": seed, "moved": moved}
    arrays = {f"state/{key}": value for key, value in layer.state_dict().items()}
    arrays |= {"y": layer(x), "y_step": stepped(layer, x)}
    if dtype == "float64":
        arrays["y_step64"] = stepped(layer, x, wide=True)
    cache = layer.allocate_inference_cache(1, LENGTH)
    if name in ("s5_zoh", "s5_bilinear", "s5_dirac", "s5_none", "lru"):
        arrays["A_bar"] = cache["Lambda" if name == "lru" else "A_bar"]
        arrays["B_bar"] = cache["B_norm" if name == "lru" else "B_bar"]
    if name in ("event_zoh", "event_bilinear_pairs"):
        arrays["y_events"] = layer(x, integration_timesteps=events)
    return config, {f"{name}/{key}": value for key, value in arrays.items()}


def whole_model(seed, x):
    """A Classifier of two layers; its lrnn_params cannot bring d_model, so the classes are given as partials."""
    torch.manual_seed(seed)
    model = Classifier(3, 2, d_model=4, n_layers=2, lrnn_cls=[partial(S5, 4, 5, "zoh"), partial(LRU, 4, 5)]).eval()
    config = {"class": "Classifier", "layers": ["blocks.0.lrnn", "final_block.lrnn"], "discretization": "zoh"}
    arrays = {f"state/{key}": value for key, value in model.state_dict().items()} | {"y": model(x)}
    return config, {f"classifier/{key}": value for key, value in arrays.items()}


def main():
    """Write the file."""
    folder = Path(__file__).parents[1] / "tests" / "golden"
    random = torch.Generator().manual_seed(0)
    inputs = {width: torch.randn(BATCH, LENGTH, width, generator=random) for width in (2, 3, 4)}
    events = 2 * torch.rand(BATCH, LENGTH, generator=random)
    arrays = {f"x/{width}": x for width, x in inputs.items()} | {"events": events}
    configs = {"versions": {"lrnnx": "1.0.0.post1", "torch": torch.__version__}}
    with torch.no_grad():
        for seed, name in enumerate(LAYERS):
            configs[name], numbers = record(name, seed, inputs, events)
            arrays |= numbers
        configs["classifier"], numbers = whole_model(99, inputs[3])
        arrays |= numbers
    arrays = {key: v.numpy() if isinstance(v, torch.Tensor) else np.array(v) for key, v in arrays.items()}
    arrays["config_json"] = np.array(json.dumps(configs))
    assert all(np.isfinite(a).all() for a in arrays.values() if a.dtype.kind in "fc")
    np.savez_compressed(folder / "lrnnx.npz", **arrays)
    print(f"{folder / 'lrnnx.npz'}: {len(arrays)} arrays, {(folder / 'lrnnx.npz').stat().st_size} bytes")


if __name__ == "__main__":
    main()
