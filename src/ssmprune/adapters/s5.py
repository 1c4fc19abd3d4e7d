"""Our S5 layers."""

from __future__ import annotations

from typing import ClassVar

from ._ours import Ours


class S5Adapter(Ours):
    """Reads and cuts `ssmprune.models.s5.S5Layer`."""

    name = "s5"
    kind = ("ssmprune.models.s5", "S5Layer")
    state_axis: ClassVar = {"pole_re": 0, "pole_im": 0, "B": 0, "C": 2, "log_step": 0, "mask": 0}


ADAPTER = S5Adapter()
