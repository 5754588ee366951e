# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""TuningJobs from the API."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from ullage.api.readers import JsonObject, WireError, quoted, section
from ullage.api.tuningjob import MOST_TRIALS as MOST_TRIALS
from ullage.api.tuningjob import Parameter, TuningJobSpec, read_tuning_spec
from ullage.api.words import ParameterType, TuningAlgorithm
from ullage.cluster.codecs.objects import read_meta, within
from ullage.cluster.codecs.status import tuning_status_from_wire
from ullage.cluster.projection.pod_template import canonical_json
from ullage.cluster.projection.spec import with_lane
from ullage.cluster.projection.suggestions import suggested_trials
from ullage.cluster.projection.template import (
    check_declared,
    check_depth,
    check_size,
    check_template,
)
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.tuning import TuningRecord
from ullage.cluster.records.workload import WorkloadKind
from ullage.cluster.values.lives import ORPHAN, finalizers_of
from ullage.engines.tuning.algorithms import SearchTerms, trials_of
from ullage.engines.tuning.search_space import (
    MOST_OPTIONS,
    ChoiceParameter,
    FloatRange,
    IntRange,
    SearchSpace,
    SearchSpaceError,
    SpaceProblem,
)
from ullage.engines.tuning.search_space import Parameter as Domain

KIND: Final = "TuningJob"
_NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,36}[a-z0-9])?")


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
    stated = section(raw, "spec")
    spec = read_tuning_spec(stated)
    with within("spec"):
        with_lane(spec.trial_template.gpu, "trialTemplate.gpu")
        return TuningRecord(
            ref=ObjectRef(kind=KIND, namespace=meta.namespace, name=meta.name, uid=meta.uid),
            generation=meta.generation,
            resource_version=meta.resource_version,
            deleting=meta.deleting,
            orphans=ORPHAN in finalizers_of(raw),
            terms=_terms(spec),
            metric=spec.objective.metric,
            parallelism=spec.parallelism,
            max_failed_trials=spec.max_failed_trials,
            trial_template=_trial_template(section(stated, "trialTemplate")),
            pool=spec.resources,
            status=status,
        )


def _terms(spec: TuningJobSpec) -> SearchTerms:
    algorithm = spec.algorithm
    external = algorithm.ref is TuningAlgorithm.EXTERNAL
    space = _space(spec)
    terms = SearchTerms(
        algorithm=algorithm.ref,
        space=space,
        trials=spec.trials,
        goal=spec.objective.goal,
        seed=algorithm.seed,
        max_epochs=algorithm.max_epochs,
        min_epochs=algorithm.min_epochs,
        eta=algorithm.reduction_factor,
        points_per_range=algorithm.points_per_range,
        stated=suggested_trials(spec, space) if external else (),
        more_to_come=external and not spec.suggestions_ended,
    )
    try:
        trials_of(terms)
    except SearchSpaceError as error:
        raise WireError(f"searchSpace: {error}") from error
    return terms


def _space(spec: TuningJobSpec) -> SearchSpace:
    parameters: dict[str, Domain] = {}
    for index, parameter in enumerate(spec.search_space):
        try:
            parameters[parameter.name] = _domain(parameter)
        except SearchSpaceError as error:
            raise WireError(f"searchSpace[{index}]: {error} ({parameter.name})") from error
    return SearchSpace(parameters=parameters)


def _domain(parameter: Parameter) -> Domain:
    """The valid values of a parameter.

    Raises:
        SearchSpaceError: there are none or too many, or one is there twice.
    """
    if parameter.min is None or parameter.max is None:
        return ChoiceParameter(options=parameter.values or ())
    whole = parameter.type is ParameterType.INT
    if parameter.step is not None:
        return _stepped(parameter.min, parameter.max, parameter.step, whole=whole)
    if whole:
        return IntRange(low=int(parameter.min), high=int(parameter.max), log=parameter.log)
    return FloatRange(low=float(parameter.min), high=float(parameter.max), log=parameter.log)


def _stepped(low: str, high: str, step: str, *, whole: bool) -> ChoiceParameter:
    """The values of a range with steps, in decimal arithmetic: 0.1, 0.2, 0.3."""
    first, last, distance = Decimal(low), Decimal(high), Decimal(step)
    if (last - first) / distance >= MOST_OPTIONS:
        raise SearchSpaceError(
            SpaceProblem.TOO_MANY_OPTIONS, f"step {step} makes more than {MOST_OPTIONS} values"
        )
    values = [first + at * distance for at in range(int((last - first) / distance) + 1)]
    options = tuple(int(value) if whole else float(value) for value in values)
    return ChoiceParameter(options=tuple(dict.fromkeys(options)))


def _trial_template(stated: JsonObject) -> str:
    """The template of a trial as canonical JSON, fields of newer versions included."""
    with within("trialTemplate"):
        template = section(stated, "template")
        check_declared(WorkloadKind.TRAINING_JOB, template)
        check_depth(stated, "template")
        template_json = canonical_json(stated)
        check_size(template_json, "trialTemplate")
        if not template:
            raise WireError("template: missing; give the template of the pod")
        with within("template"):
            check_template(template)
    return template_json
