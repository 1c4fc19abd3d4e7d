"""Elements set to zero at random."""

import pytest
import torch

from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config
from ssmprune_paper.baselines.unstructured import unstructured_random


@pytest.mark.parametrize(("family", "states"), [("s5", (6, 6)), ("s4d", (12, 12))])
def test_unstructured_random_zeroes_as_many_elements_as_states_would_take(family, states):
    model = Classifier(Config(family, inputs=1, outputs=10, width=4, states=states, norm="layer"))
    other = unstructured_random(model, 0.5, seed=3)
    for before, after in zip(model.blocks, other.blocks, strict=True):
        (log_poles, B), (log_poles2, B2) = before.ssm.discretized(), after.ssm.discretized()
        gone = log_poles2.exp().abs() < 1e-6
        assert int(gone.sum()) == len(gone) / 2
        assert torch.equal(log_poles[~gone], log_poles2[~gone])
        assert int((B2 == 0).sum()) == B.numel() / 2
        assert torch.allclose(B2[B2 != 0], B[B2 != 0], rtol=1e-5)
        zeros = (after.ssm.C == 0).all(-1)
        assert int(zeros.sum()) == zeros.numel() / 2
        assert torch.equal(before.ssm.C[~zeros], after.ssm.C[~zeros])
