"""Small models and the moments of their layers by hand: slow twins for calibration and the surgeon."""

import numpy as np
import pytest
import torch

import reference
import ssmprune as sp
from ssmprune.calibration import refit
from ssmprune.calibration.data import SEQUENCES, take
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config

KINDS = [("s5", False, 0), ("s5", True, 0), ("s4d", False, 0), ("s4d", True, 0), ("s4d", True, 1)]
kinds = pytest.mark.parametrize(("family", "bidirectional", "delay"), KINDS)


def model(family, bidirectional=False, delay=0, **options):
    torch.manual_seed(0)
    states, own = ((5, 6), {}) if family == "s5" else ((12, 8), {"backward_delay": delay})
    config = Config(family, 2, 3, width=4, states=states, bidirectional=bidirectional, **own, **options)
    return Classifier(config).double().eval()


def layer_inputs(net, x, lengths=None):
    """What enters each SSM layer, by hand."""
    found = {}
    for path in sp.read(net):
        net.get_submodule(path).register_forward_hook(lambda _, u, y, path=path: found.update({path: u[0]}))
    with torch.no_grad():
        net(x, lengths)
    return {path: u.numpy() for path, u in found.items()}


def features(system, u):
    """z_k for one sequence u (length, inputs), a loop over steps and states: (length, n, parts)."""
    drive = u @ system.B.T if system.channel is None else u[:, system.channel] * system.B[:, 0]
    directions = [reference.states(system.poles, drive)]
    if system.directions == 2:
        late = np.concatenate([drive, np.zeros((1, system.n))])
        directions.append(reference.states(system.poles, late[::-1])[::-1][system.backward_delay :][: len(u)])
    return np.stack([part for x in directions for part in (x.real, x.imag)], axis=2)


def moments(system, sequences, steps):
    """Means over the steps given for each sequence, in the layout of `Moments`."""
    layout = system.layout
    gram = cross = power = 0
    for u, counted in zip(sequences, steps, strict=True):
        z = features(system, u)
        for k in counted:
            spread = layout.spread(z[k])
            own = u[k][None] if system.channel is None else u[k][:, None]
            gram = gram + np.einsum("gsa,gtb->gsatb", spread, spread)
            cross = cross + np.einsum("gsa,gq->gsaq", spread, own)
            power = power + own**2
    count = sum(map(len, steps))
    return gram / count, cross / count, power / count


def refit_on_data(plan, net, batches, sequences=SEQUENCES, **options):
    """Re-fit a plan in sequence on as many sequences of data as `prune` would take."""
    systems = sp.read(net, adapter=options.get("adapter"))
    plan.check(systems)
    return refit.refit_in_sequence(plan, net, systems, take(batches, sequences), **options)


def refit_on_all_data(plan, net, batches, ridge):
    """Do the same with one ridge on all data: nothing is held out that could say how far to trust the fit."""

    def fit(on_whole, on_pruned, refittable):
        return tuple(seen.sample().fit(refittable, ridge) for seen, _ in (on_whole, on_pruned))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refit, "split", lambda batches, pairs: (batches, []))
        patch.setattr(refit, "_changes", fit)
        return refit_on_data(plan, net, batches)
