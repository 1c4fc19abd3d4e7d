"""A classifier as one C99 file and its header.

`engine/` holds the C, written by hand and readable by itself: its `#if FEATURE` lines say for which models a line is
there. `reading` turns a model into the discretised arrays of `numbers`, `packing` lays them out for the loops that read
them, `text` resolves names and conditions, and `source` puts the file together. Weights on a grid stay whole numbers:
`engine/2_integers.c` then takes the place of `engine/2_product.c`.
"""

from .source import callable_sources as callable_sources
from .source import export_c as export_c
from .source import sources as sources
from .source import takes_standard_header as takes_standard_header
