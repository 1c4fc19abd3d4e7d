"""A classifier, or a single layer, as one C99 file and its header.

`engine/` holds the C, written by hand: `engine.c` and `model.h` compile as they are, with `#if` lines about features
of models; `layer.c` and `layer.h` are those of a single layer. `packing` lays out a model's numbers for the loops that
read them, and `source` puts a file together, with the branches that are live for it alone.
"""

from .source import export_c as export_c
from .source import sources as sources
