# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Trials requested by an external client in a TuningJob.

An invalid trial is reported alone; the others run.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from operator import attrgetter

from ullage.api.readers import WireError, quoted
from ullage.api.tuningjob import TrialSuggestion, TuningJobSpec
from ullage.engines.tuning.algorithms import StatedTrial
from ullage.engines.tuning.search_space import SearchSpace, value_of


def suggested_trials(spec: TuningJobSpec, space: SearchSpace) -> tuple[StatedTrial, ...]:
    """The trials, by number.

    Args:
        spec: Spec of the TuningJob.
        space: Space of the parameters.

    Raises:
        WireError: the list is longer than ``spec.trials``.
    """
    suggestions = spec.suggestions or ()
    if len(suggestions) > spec.trials:
        most = f"at most {spec.trials} (spec.trials)"
        raise WireError(f"suggestions: {len(suggestions)} trials, {most}")
    ordered = sorted(suggestions, key=attrgetter("trial"))
    return tuple(_trial(suggestion, space, spec.algorithm.max_epochs) for suggestion in ordered)


def _trial(suggestion: TrialSuggestion, space: SearchSpace, max_epochs: int) -> StatedTrial:
    trial, stated = suggestion.trial, suggestion.parameters
    epochs = suggestion.epochs or (max_epochs,)
    if refused := _refusal(epochs, stated, space, max_epochs):
        return StatedTrial(trial=trial, point={}, epochs=(max_epochs,), refused=refused)
    point = {
        name: value
        for name, parameter in space.parameters.items()
        if (value := value_of(parameter, str(stated[name]))) is not None
    }
    return StatedTrial(trial=trial, point=point, epochs=epochs)


def _refusal(
    epochs: tuple[int, ...], stated: Mapping[str, object], space: SearchSpace, max_epochs: int
) -> str:
    """Reason why the trial cannot run; "" = it can."""
    if any(a >= b for a, b in pairwise(epochs)):
        return "its epochs do not rise"
    if epochs[-1] > max_epochs:
        return f"epoch {epochs[-1]} is beyond algorithm.maxEpochs, {max_epochs}"
    unknown = sorted(stated.keys() - space.parameters.keys())
    missing = sorted(space.parameters.keys() - stated.keys())
    if unknown or missing:
        named = quoted((unknown or missing)[0])
        return f"it {'has' if unknown else 'lacks'} a parameter {named}"
    for name, parameter in space.parameters.items():
        value = stated[name]
        if not isinstance(value, str) or value_of(parameter, value) is None:
            return f"{name}: {quoted(str(value))} is not in the search space"
    return ""
