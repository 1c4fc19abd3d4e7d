"""What the layers of a model lose against those of the whole one, whatever was done to it: rounding, learning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..apply import read
from ..arrays import Real
from ..calibration.collect import collect_states
from ..core.moments import moment_bytes
from ..planning.certificates import Certificate, Change, certify_changes, change_between, energies_lost
from ..pruning import Pruning, refuse_beyond_memory

if TYPE_CHECKING:
    from ..models.classifier import Classifier


def energy_lost_by(work: Pruning[Classifier], small: Classifier) -> dict[str, float]:
    """Return what `certificates.energy_lost` does, for a model that no plan describes."""
    return _lost(work, _changes(work, small))


def certify_model(work: Pruning[Classifier], small: Classifier) -> dict[str, Certificate]:
    """Return what `certify` does, for a model that no plan describes."""
    changes = _changes(work, small)
    return certify_changes(work.systems, changes, {} if work.batches is None else _lost(work, changes))


def _changes(work: Pruning[Classifier], small: Classifier) -> dict[str, Change]:
    after = read(small, unstable=work.unstable)
    return {
        path: change_between(system, after[path], _D_change(work.model, small, path))
        for path, system in work.systems.items()
    }


def _lost(work: Pruning[Classifier], changes: Mapping[str, Change]) -> dict[str, float]:
    if work.batches is None:
        return energies_lost(changes)
    systems = {path: change.difference for path, change in changes.items()}
    refuse_beyond_memory(sum(map(moment_bytes, systems.values())))
    return energies_lost(changes, collect_states(work.model, systems, work.batches))


def _D_change(whole: Classifier, small: Classifier, path: str) -> Real:
    before, after = (model.get_parameter(f"{path}.D").detach().double().cpu().numpy() for model in (whole, small))
    change: Real = after - before
    return change
