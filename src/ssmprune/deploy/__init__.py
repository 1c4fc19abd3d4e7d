"""Models for where they run.

`c` writes a model as one C99 file with its header, `build` compiles C for this machine and keeps the libraries,
`compiled` calls them, and chooses between them and torch; `verify` compares a C file with its checkpoint. `wasm` makes
a page for browsers of the same C. `onnx` writes graphs in real arithmetic for other runtimes. `bundle` writes a
checkpoint, its C and its graph into one folder.

Functions are imported when they are asked for, so that `import ssmprune` does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import names_that_need_torch

if TYPE_CHECKING:
    from .c import export_c as export_c
    from .compiled import compile as compile
    from .onnx import export_onnx as export_onnx

__all__ = ["compile", "export_c", "export_onnx"]
__getattr__ = names_that_need_torch(__name__, {"compile": "compiled", "export_c": "c", "export_onnx": "onnx"})
