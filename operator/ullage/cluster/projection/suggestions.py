# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Trials that a client outside asks for in a TuningJob.

What is wrong with one trial is said of it alone; the others run.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Final

from ullage.api.readers import JsonObject, WireError, bounded, objects, quoted, section
from ullage.cluster.codecs.objects import within
from ullage.engines.tuning.algorithms import StatedTrial
from ullage.engines.tuning.search_space import Point, SearchSpace, Value, value_of

MOST_SUGGESTIONS: Final = 1_000
MOST_EPOCHS: Final = 16
"""At which one trial reports."""


def read_suggestions(
    spec: JsonObject, space: SearchSpace, trials: int, max_epochs: int
) -> tuple[StatedTrial, ...]:
    """The trials, by number.

    Args:
        spec: Of the TuningJob.
        space: That parameters are taken from.
        trials: How many there may be.
        max_epochs: The last epoch of a trial.

    Raises:
        WireError: the list is malformed, too long, or a number is there twice.
    """
    with within("suggestions"):
        stated = objects(spec, "suggestions")
        if len(stated) > trials:
            raise WireError(f"{len(stated)} trials, at most {trials} (spec.trials)")
        found: dict[int, StatedTrial] = {}
        for raw in stated:
            trial = bounded(raw, "trial", 0, MOST_SUGGESTIONS - 1)
            if trial in found:
                raise WireError(f"trial: {trial} is there twice")
            with within(str(trial)):
                found[trial] = _trial(trial, raw, space, max_epochs)
    return tuple(found[trial] for trial in sorted(found))


def _trial(trial: int, raw: JsonObject, space: SearchSpace, max_epochs: int) -> StatedTrial:
    epochs = _epochs(raw, max_epochs)
    stated = section(raw, "parameters")
    refused = _refusal(epochs, stated, space, max_epochs)
    if refused:
        return StatedTrial(trial=trial, point={}, epochs=(max_epochs,), refused=refused)
    return StatedTrial(trial=trial, point=_point(stated, space), epochs=epochs)


def _epochs(raw: JsonObject, max_epochs: int) -> tuple[int, ...]:
    stated = raw.get("epochs")
    if stated is None:
        return (max_epochs,)
    if not isinstance(stated, list) or not 0 < len(stated) <= MOST_EPOCHS:
        raise WireError(f"epochs: 1 to {MOST_EPOCHS} numbers")
    return tuple(bounded({"epochs": one}, "epochs", 1, 999_999) for one in stated)


def _refusal(
    epochs: tuple[int, ...], stated: JsonObject, space: SearchSpace, max_epochs: int
) -> str:
    """Why the trial cannot run; "" = it can."""
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
        said = stated[name]
        if not isinstance(said, str) or value_of(parameter, said) is None:
            return f"{name}: {quoted(str(said))} is not in the search space"
    return ""


def _point(stated: Mapping[str, object], space: SearchSpace) -> Point:
    found: dict[str, Value] = {}
    for name, parameter in space.parameters.items():
        value = value_of(parameter, str(stated[name]))
        if value is not None:
            found[name] = value
    return found
