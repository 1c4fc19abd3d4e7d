"""Adapters: one file per code, the only files that know its parameter names.

`ours` has our own S5 and S4D layers; `flax_s5`, `s5_pytorch`, `annotated_s4d`, `state_spaces`, `minimal_lru` and
`lrnnx` are those of other codes. `base` is the class to derive from, `layers` asks all families about a model. For
families whose layers are named arrays, `families` finds these in modules, state dicts and trees, describes a layer in
one set of words and cuts it. `importing` turns whole models of other codes into ours.
Frameworks are imported when a model is handed over.
"""

from .base import Adapter
from .layers import Layer, found, layers_of

__all__ = ["Adapter", "Layer", "found", "layers_of"]
