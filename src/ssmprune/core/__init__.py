"""A layer, and what its states do for its output; numpy only.

`system` is the layer as a frozen value, made by the rules in `discretization`, with its states laid out by channel;
`norms` are its exact gains. The other modules see the output as a linear regression on the states: `moments` writes
the readout C as weights and back, and holds the second moments of the regressors (of data, or of white noise in
closed form); `elimination` removes regressors one after the other with exact updates; `least_squares` lets the
states that stay take over what the others carried, as far as data that were not fitted say.

The regressors of a state are its real and imaginary part in each direction, z = [Re x, Im x, Re x', Im x'], and the
output is Wᵀz with W = gain [Re C, -Im C, Re C', -Im C']. A MIMO layer is one regression problem with many outputs, a
multi-SISO layer is one problem with one output for every channel. All problems stand side by side, laid out as in
`ChannelLayout`: z has the shape (channels, slots, parts).
"""

from .discretization import bilinear, zoh
from .moments import white_noise
from .system import ChannelLayout, DiagonalSystem

__all__ = ["ChannelLayout", "DiagonalSystem", "bilinear", "white_noise", "zoh"]
