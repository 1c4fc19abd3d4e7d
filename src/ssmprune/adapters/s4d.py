"""Our S4D layers."""

from __future__ import annotations

from typing import ClassVar

from ._ours import Ours


class S4DAdapter(Ours):
    """Reads and cuts `ssmprune.models.s4d.S4DLayer`; steps belong to the channels and stay, a channel may lose all."""

    name = "s4d"
    kind = ("ssmprune.models.s4d", "S4DLayer")
    state_axis: ClassVar = {"pole_re": 0, "pole_im": 0, "B": 0, "C": 1, "channel": 0, "mask": 0}


ADAPTER = S4DAdapter()
