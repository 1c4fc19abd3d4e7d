"""The golden S5 models of the JAX codes as our classifiers: a mapping of names, kept apart from the library."""

import json
from pathlib import Path

import numpy as np
import torch

from ssmprune.models.classifier import Classifier, Config

GOLDEN = Path(__file__).parent / "golden"
S5 = sorted(path.name for path in GOLDEN.glob("s5_flax_*.io.npz"))
LAST = sorted(path.name for path in GOLDEN.glob("last_reference_*.npz"))


def golden(name: str) -> dict[str, np.ndarray]:
    with np.load(GOLDEN / name) as file:
        return dict(file)


def build(arrays: dict[str, np.ndarray], step_rescale: float = 1.0) -> Classifier:
    """The classifier in evaluation mode with the oracle's parameters."""
    stored = json.loads(str(arrays["config_json"]))
    config = Config(
        "s5",
        inputs=stored["d_input"],
        outputs=stored["d_output"],
        width=stored["d_model"],
        states=(stored["P"],) * stored["n_layers"],
        bidirectional=stored["bidirectional"],
        conj_sym=stored["conj_sym"],
        discretization=stored["discretization"],
        pole_form="clip" if stored["clip_eigs"] else "free",
        step_rescale=step_rescale,
        norm="batch" if stored["batchnorm"] else "layer",
        norm_eps=1e-5 if stored["batchnorm"] else 1e-6,
        norm_momentum=1 - stored["bn_momentum"],
        prenorm=stored["prenorm"],
        activation=stored["activation"],
        exact_gelu=False,
        pooling={"pool": "mean", "last": "last"}[stored["mode"]],
        retrieval=stored.get("retrieval", False),
    )
    model = Classifier(config)
    model.load_state_dict({name: torch.from_numpy(value) for name, value in renamed(arrays, config)})
    return model.eval()


def renamed(arrays, config):
    """Our parameter names with the oracle's values."""
    tree = {name.partition("/")[2]: value for name, value in arrays.items() if "/" in name and name[0] in "pb"}
    yield from dense("encoder", tree, "encoder/encoder")
    for i in range(config.depth):
        ours, theirs = f"layers.{i}", f"encoder/layers_{i}"
        yield from norm(f"{ours}.norm", tree, f"{theirs}/norm")
        yield from system(f"{ours}.ssm", tree, f"{theirs}/seq", config)
        if config.activation != "gelu":
            yield from dense(f"{ours}.gate", tree, f"{theirs}/out2")
        if config.activation == "full_glu":
            yield from dense(f"{ours}.value", tree, f"{theirs}/out1")
    if config.retrieval:
        yield from dense("hidden", tree, "decoder/layer1")
    yield from dense("decoder", tree, "decoder/layer2" if config.retrieval else "decoder")


def dense(ours, tree, theirs):
    yield f"{ours}.weight", tree[f"{theirs}/kernel"].T
    yield f"{ours}.bias", tree[f"{theirs}/bias"]


def norm(ours, tree, theirs):
    names = {"weight": "scale", "bias": "bias", "running_mean": "mean", "running_var": "var"}
    for name, other in names.items():
        if f"{theirs}/{other}" in tree:
            yield f"{ours}.{name}", tree[f"{theirs}/{other}"]


def system(ours, tree, theirs, config):
    n = config.states[0]
    yield f"{ours}.pole_re", tree[f"{theirs}/Lambda_re"]
    yield f"{ours}.pole_im", tree[f"{theirs}/Lambda_im"]
    yield f"{ours}.B", tree[f"{theirs}/B"]
    if f"{theirs}/C1" in tree:
        C = np.stack([tree[f"{theirs}/C1"], tree[f"{theirs}/C2"]])
    else:  # (H, directions * n, 2)
        C = np.stack(np.split(tree[f"{theirs}/C"], 1 + config.bidirectional, axis=1))
    yield f"{ours}.C", C
    yield f"{ours}.D", tree[f"{theirs}/D"]
    yield f"{ours}.log_step", tree[f"{theirs}/log_step"][:, 0]
    yield f"{ours}.mask", np.ones(n, dtype=bool)
