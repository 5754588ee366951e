# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""TuningJobs as the API shows them, with the trials that a client outside asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from itertools import pairwise
from typing import Final, TypeVar

from ullage.api.devices import GPUMode
from ullage.api.readers import JsonObject, WireError, bounded, flag, objects, quoted, section, text
from ullage.api.tuningjob import read_trial_template
from ullage.api.words import Goal, ParameterType, TuningAlgorithm
from ullage.cluster.codecs.objects import read_meta, strings, within
from ullage.cluster.codecs.status import tuning_status_from_wire
from ullage.cluster.projection.pod_template import canonical_json
from ullage.cluster.projection.spec import read_gpu, with_lane
from ullage.cluster.projection.template import (
    check_depth,
    check_lengths,
    check_size,
    check_template,
)
from ullage.cluster.records.snapshot import ObjectRef, WorkloadKind
from ullage.cluster.records.tuning import TRIAL_POOL, TrialPool, TuningRecord
from ullage.cluster.values.lives import ORPHAN, finalizers_of
from ullage.engines.tuning.algorithms import SearchTerms, StatedTrial, trials_of
from ullage.engines.tuning.search_space import (
    MOST_OPTIONS,
    ChoiceParameter,
    FloatRange,
    IntRange,
    Parameter,
    Point,
    SearchSpace,
    SearchSpaceError,
    Value,
    value_of,
)

KIND: Final = "TuningJob"
MOST_TRIALS: Final = 1_000
MOST_EPOCHS: Final = 999_999
MOST_SUGGESTIONS: Final = 1_000
MOST_REPORTED_EPOCHS: Final = 16
"""Epochs at which one trial reports."""
MOST_PARAMETERS: Final = 32
_NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,36}[a-z0-9])?")
_PARAMETER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")
_METRIC_NAME: Final = re.compile(r"[A-Za-z_][-A-Za-z0-9_./]{0,62}")
_NUMBER: Final = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?([eE][-+]?[0-9]{1,3})?")
_WHOLE: Final = re.compile(r"-?[0-9]{1,15}")
_LONGEST_VALUE: Final = 32
Word = TypeVar("Word", bound=StrEnum)


def project_tuning_job(raw: JsonObject) -> TuningRecord:
    """Read a TuningJob.

    Raises:
        WireError: a field that is needed is missing or malformed, or there is nothing to search.
    """
    meta = read_meta(raw)
    if not _NAME.fullmatch(meta.name):
        raise WireError(
            f"metadata.name: {quoted(meta.name)} must have at most 38 lower-case letters, digits "
            "and dashes and begin with a letter"
        )
    with within("status"):
        status = tuning_status_from_wire(section(raw, "status"))
    with within("spec"):
        spec = section(raw, "spec")
        return TuningRecord(
            ref=ObjectRef(kind=KIND, namespace=meta.namespace, name=meta.name, uid=meta.uid),
            generation=meta.generation,
            resource_version=meta.resource_version,
            deleting=meta.deleting,
            orphans=ORPHAN in finalizers_of(raw),
            terms=_terms(spec),
            metric=_metric(spec),
            parallelism=bounded(spec, "parallelism", 1, 256, 8),
            max_failed_trials=bounded(spec, "maxFailedTrials", 0, MOST_TRIALS, 10),
            trial_template=_trial_template(spec),
            pool=_pool(spec),
            status=status,
        )


def _terms(spec: JsonObject) -> SearchTerms:
    with within("algorithm"):
        raw = section(spec, "algorithm")
        ref = _one_of(TuningAlgorithm, raw, "ref")
        least, most = (
            bounded(raw, "minEpochs", 1, MOST_EPOCHS, 1),
            bounded(raw, "maxEpochs", 1, MOST_EPOCHS),
        )
        if least > most:
            raise WireError(f"minEpochs: {least} is above maxEpochs, {most}")
        seed = bounded(raw, "seed", 0, 2**31 - 1, 0)
        eta = bounded(raw, "reductionFactor", 2, 16, 3)
        points = bounded(raw, "pointsPerRange", 1, 1000, 3)
    space = _space(spec)
    trials = bounded(spec, "trials", 1, MOST_TRIALS)
    if trials * len(space.parameters) > 8_000:
        raise WireError(
            f"trials: {trials} trials of {len(space.parameters)} parameters are above 8000 values"
        )
    with within("objective"):
        goal = _one_of(Goal, section(spec, "objective"), "goal")
    external = ref is TuningAlgorithm.EXTERNAL
    terms = SearchTerms(
        algorithm=ref,
        space=space,
        trials=trials,
        goal=goal,
        seed=seed,
        max_epochs=most,
        min_epochs=least,
        eta=eta,
        points_per_range=points,
        stated=read_suggestions(spec, space, trials, most) if external else (),
        more_to_come=external and not flag(spec, "suggestionsEnded"),
    )
    try:
        trials_of(terms)
    except SearchSpaceError as error:
        raise WireError(f"searchSpace: {error}") from error
    return terms


def _one_of(words: type[Word], raw: JsonObject, field: str) -> Word:
    word = text(raw, field)
    try:
        return words(word)
    except ValueError:
        raise WireError(f"{field}: {quoted(word)} is none of {', '.join(words)}") from None


def _metric(spec: JsonObject) -> str:
    with within("objective"):
        name = text(section(spec, "objective"), "metric")
        if not _METRIC_NAME.fullmatch(name):
            raise WireError(f"metric: {quoted(name)} is no name of a metric")
        return name


def _space(spec: JsonObject) -> SearchSpace:
    entries = objects(spec, "searchSpace")
    if len(entries) > MOST_PARAMETERS:
        raise WireError(f"searchSpace: {len(entries)} parameters, at most {MOST_PARAMETERS}")
    parameters: dict[str, Parameter] = {}
    with within("searchSpace"):
        for raw in entries:
            name = text(raw, "name")
            if not _PARAMETER.fullmatch(name):
                raise WireError(f"name: {quoted(name)} is no name of a parameter")
            if name in parameters:
                raise WireError(f"name: {quoted(name)} is there twice")
            parameters[name] = _parameter(name, raw)
    try:
        return SearchSpace(parameters=parameters)
    except SearchSpaceError as error:
        raise WireError(f"searchSpace: {error}") from error


def _parameter(name: str, raw: JsonObject) -> Parameter:
    try:
        with within(name):
            kind = _one_of(ParameterType, raw, "type")
            if kind is ParameterType.CATEGORICAL:
                return ChoiceParameter(options=_values(raw))
            return _range(raw, whole=kind is ParameterType.INT)
    except SearchSpaceError as error:
        raise WireError(f"{name}: {error}") from error


def _values(raw: JsonObject) -> tuple[str, ...]:
    values = strings(raw, "values")
    if any(raw.get(field) is not None for field in ("min", "max", "step")):
        raise WireError("type: Categorical has values, and neither min, max nor step")
    if len(values) > 100 or not all(0 < len(value) <= _LONGEST_VALUE for value in values):
        raise WireError(f"values: at most 100 texts of 1 to {_LONGEST_VALUE} characters")
    return values


def _range(raw: JsonObject, *, whole: bool) -> Parameter:
    if raw.get("values") is not None:
        raise WireError("values: belongs to type Categorical, and to no other")
    low, high = _number(raw, "min", whole=whole), _number(raw, "max", whole=whole)
    log = flag(raw, "log")
    if raw.get("step") is not None:
        step = _number(raw, "step", whole=whole)
        if log or step <= 0:
            raise WireError("step: must be above 0, and is not for a range with log")
        return _stepped(low, high, step, whole=whole)
    if whole:
        return IntRange(low=int(low), high=int(high), log=log)
    return FloatRange(low=float(low), high=float(high), log=log)


def _stepped(low: Decimal, high: Decimal, step: Decimal, *, whole: bool) -> ChoiceParameter:
    """The values of a range with steps, in decimal arithmetic: 0.1, 0.2, 0.3."""
    if high < low:
        raise WireError(f"min: {low} is above max, {high}")
    if (high - low) / step >= MOST_OPTIONS:
        raise WireError(f"step: makes more than {MOST_OPTIONS} values")
    count = int((high - low) / step) + 1
    values = [low + at * step for at in range(count)]
    options = tuple(int(value) if whole else float(value) for value in values)
    return ChoiceParameter(options=tuple(dict.fromkeys(options)))


def _number(raw: JsonObject, field: str, *, whole: bool) -> Decimal:
    value = raw.get(field)
    if value is None:
        raise WireError(f"{field}: missing")
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise WireError(f"{field}: expected a whole number, or a number in quotes")
    if isinstance(value, int) and value.bit_length() > 60:
        raise WireError(f"{field}: has more than 15 digits")
    digits = str(value)
    if not (_WHOLE if whole else _NUMBER).fullmatch(digits):
        kind = "whole number of at most 15 digits" if whole else "number such as 1e-4"
        raise WireError(f"{field}: {quoted(digits)} is no {kind}")
    try:
        return Decimal(digits)
    except InvalidOperation as error:
        raise WireError(f"{field}: {quoted(digits)} is no number") from error


def _pool(spec: JsonObject) -> TrialPool | None:
    """``spec.resources``; then the template asks for no part of a device of its own."""
    if spec.get("resources") is None:
        return None
    with within("resources"):
        pool = TRIAL_POOL.read(section(spec, "resources"))
        if pool.max_devices > pool.devices:
            raise WireError(f"maxDevices: {pool.max_devices} is above devices, {pool.devices}")
    with within("trialTemplate"):
        gpu = read_gpu(section(spec, "trialTemplate"))
    if gpu.mode is not GPUMode.EXCLUSIVE or gpu.count != 1:
        raise WireError("trialTemplate.gpu: leave out mode, count, share and lane with resources")
    return pool


def _trial_template(spec: JsonObject) -> str:
    with within("trialTemplate"):
        trial_spec = section(spec, "trialTemplate")
        template = section(trial_spec, "template")
        check_lengths(template, "template")
        check_depth(trial_spec, "template")
        made = canonical_json(trial_spec)
        check_size(made, "trialTemplate")
        if not template:
            raise WireError("template: missing; give the template of the pod")
        with within("template"):
            check_template(WorkloadKind.TRAINING_JOB, template)
    trial = read_trial_template(trial_spec)
    with_lane(trial.gpu, "trialTemplate.gpu")
    return made


def read_suggestions(
    spec: JsonObject, space: SearchSpace, trials: int, max_epochs: int
) -> tuple[StatedTrial, ...]:
    """The suggested trials, by number; what is wrong with one is said of it alone.

    Args:
        spec: Of the TuningJob.
        space: That parameters are taken from.
        trials: Most trials that there may be.
        max_epochs: The last epoch of a trial.

    Raises:
        WireError: the list is malformed, too long, or a number is there twice.
    """
    with within("suggestions"):
        entries = objects(spec, "suggestions")
        if len(entries) > trials:
            raise WireError(f"{len(entries)} trials, at most {trials} (spec.trials)")
        by_number: dict[int, StatedTrial] = {}
        for raw in entries:
            trial = bounded(raw, "trial", 0, MOST_SUGGESTIONS - 1)
            if trial in by_number:
                raise WireError(f"trial: {trial} is there twice")
            with within(str(trial)):
                by_number[trial] = _trial(trial, raw, space, max_epochs)
    return tuple(by_number[trial] for trial in sorted(by_number))


def _trial(trial: int, raw: JsonObject, space: SearchSpace, max_epochs: int) -> StatedTrial:
    epochs = _epochs(raw, max_epochs)
    parameters = section(raw, "parameters")
    refused = _refusal(epochs, parameters, space, max_epochs)
    if refused:
        return StatedTrial(trial=trial, point={}, epochs=(max_epochs,), refused=refused)
    return StatedTrial(trial=trial, point=_point(parameters, space), epochs=epochs)


def _epochs(raw: JsonObject, max_epochs: int) -> tuple[int, ...]:
    epochs = raw.get("epochs")
    if epochs is None:
        return (max_epochs,)
    if not isinstance(epochs, list) or not 0 < len(epochs) <= MOST_REPORTED_EPOCHS:
        raise WireError(f"epochs: 1 to {MOST_REPORTED_EPOCHS} numbers")
    return tuple(bounded({"epochs": epoch}, "epochs", 1, 999_999) for epoch in epochs)


def _refusal(
    epochs: tuple[int, ...], parameters: JsonObject, space: SearchSpace, max_epochs: int
) -> str:
    """Reason why the trial cannot run; "" = it can."""
    if any(a >= b for a, b in pairwise(epochs)):
        return "its epochs do not rise"
    if epochs[-1] > max_epochs:
        return f"epoch {epochs[-1]} is beyond algorithm.maxEpochs, {max_epochs}"
    unknown = sorted(parameters.keys() - space.parameters.keys())
    missing = sorted(space.parameters.keys() - parameters.keys())
    if unknown or missing:
        named = quoted((unknown or missing)[0])
        return f"it {'has' if unknown else 'lacks'} a parameter {named}"
    for name, parameter in space.parameters.items():
        value = parameters[name]
        if not isinstance(value, str) or value_of(parameter, value) is None:
            return f"{name}: {quoted(str(value))} is not in the search space"
    return ""


def _point(parameters: Mapping[str, object], space: SearchSpace) -> Point:
    point: dict[str, Value] = {}
    for name, parameter in space.parameters.items():
        value = value_of(parameter, str(parameters[name]))
        if value is not None:
            point[name] = value
    return point
