"""The golden S5 models of the JAX codes, as trees and as our classifiers."""

import json
from pathlib import Path

import numpy as np

import reference
from ssmprune.adapters.flax_s5 import FlaxS5
from ssmprune.models.classifier import Classifier

GOLDEN = Path(__file__).parent / "golden"
S5 = sorted(path.name for path in GOLDEN.glob("s5_flax_*.io.npz"))
LAST = sorted(path.name for path in GOLDEN.glob("last_reference_*.npz"))


def close(ours, theirs, tolerance=1e-4):
    """Assert that we compute what another code did, in single precision."""
    reference.close(ours, theirs, tolerance)


def golden(name: str) -> dict[str, np.ndarray]:
    with np.load(GOLDEN / name) as file:
        return dict(file)


def tree_of(arrays: dict[str, np.ndarray], params: str = "params") -> dict:
    """The Flax tree whose leaves the file holds under their paths; `params` may be another collection of its shape."""
    tree: dict = {}
    for path, value in arrays.items():
        collection, *places = path.split("/")
        if collection in (params, "batch_stats"):
            node = tree
            for place in ("params" if collection == params else collection, *places[:-1]):
                node = node.setdefault(place, {})
            node[places[-1]] = value
    return tree


def family(arrays: dict[str, np.ndarray], step_rescale: float = 1.0) -> FlaxS5:
    """The adapter with the options the model was made with."""
    stored = json.loads(str(arrays["config_json"]))
    return FlaxS5(stored["conj_sym"], stored["clip_eigs"], stored["discretization"], step_rescale)


def build(
    arrays: dict[str, np.ndarray], step_rescale: float = 1.0, params: str = "params", tree: dict | None = None
) -> Classifier:
    """The classifier in evaluation mode with the oracle's parameters, or those of another tree of its layout."""
    stored = json.loads(str(arrays["config_json"]))
    return family(arrays, step_rescale).classifier(
        tree or tree_of(arrays, params),
        activation=stored["activation"],
        prenorm=stored["prenorm"],
        pooling={"pool": "mean", "last": "last"}[stored["mode"]],
        norm_momentum=1 - stored["bn_momentum"],
    )
