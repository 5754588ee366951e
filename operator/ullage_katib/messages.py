# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Searches as messages of Katib, and its answers as points.

Fields by Katib manager API v1beta1. Katib sends a service all trials that have not lost their
metrics, each with its metric, its parameters and its state.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from ullage.api.words import Goal
from ullage.cluster.values.names import trial_name
from ullage.engines.tuning.search_space import ChoiceParameter, IntRange, Parameter, as_text
from ullage.engines.tuning.suggestions import TrialOutcome
from ullage_katib.points import Assignments
from ullage_katib.proto import suggestion_pb2 as messages
from ullage_katib.search import KatibSearch, ReportedTrial

GOALS: Final = {Goal.MINIMIZE: messages.MINIMIZE, Goal.MAXIMIZE: messages.MAXIMIZE}
CONDITIONS: Final = {
    TrialOutcome.RUNNING: messages.TrialStatus.RUNNING,
    TrialOutcome.COMPLETE: messages.TrialStatus.SUCCEEDED,
    TrialOutcome.FAILED: messages.TrialStatus.FAILED,
}


class UnusableAnswer(Exception):
    """An unusable answer; the text has the problem."""


class UnsupportedAlgorithm(Exception):
    """The algorithm needs data that a TuningJob does not have; the text names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KatibAlgorithm:
    """An algorithm of Katib by its name, with its settings by theirs."""

    name: str
    settings: tuple[tuple[str, str], ...] = ()


def experiment_of(search: KatibSearch, algorithm: KatibAlgorithm) -> messages.Experiment:
    """A search as an Experiment."""
    terms = search.record.terms
    spec = messages.ExperimentSpec(
        objective=_objective(search),
        algorithm=messages.AlgorithmSpec(
            algorithm_name=algorithm.name,
            algorithm_settings=[
                messages.AlgorithmSetting(name=name, value=value)
                for name, value in algorithm.settings
            ],
        ),
        parallel_trial_count=search.record.parallelism,
        max_trial_count=terms.trials,
    )
    spec.parameter_specs.parameters.extend(
        _parameter(name, parameter) for name, parameter in terms.space.parameters.items()
    )
    return messages.Experiment(name=search.record.ref.name, spec=spec)


def request_of(
    search: KatibSearch, algorithm: KatibAlgorithm, trials: Sequence[ReportedTrial]
) -> messages.GetSuggestionsRequest:
    """The request for as many points as the search needs.

    Args:
        search: The search.
        algorithm: The algorithm.
        trials: Earlier trials to include.
    """
    return messages.GetSuggestionsRequest(
        experiment=experiment_of(search, algorithm),
        trials=[_trial(search, trial) for trial in trials],
        current_request_number=search.wanted,
        total_request_number=len(search.record.terms.stated) + search.wanted,
    )


def points_of(
    reply: messages.GetSuggestionsReply, asked: int, algorithm: KatibAlgorithm
) -> tuple[Assignments, ...]:
    """The points of an answer.

    Args:
        reply: The answer.
        asked: Number of requested points.
        algorithm: The algorithm of the request.

    Raises:
        UnsupportedAlgorithm: points have separate names or labels, or settings have changed.
        UnusableAnswer: there are more points than requested.
    """
    suggestions = reply.parameter_assignments
    if len(suggestions) > asked:
        raise UnusableAnswer(f"it suggests {len(suggestions)} points where {asked} were asked for")
    if any(suggestion.labels or suggestion.trial_name for suggestion in suggestions):
        raise UnsupportedAlgorithm(
            f"algorithm {algorithm.name} names or labels its trials, which a TuningJob does not "
            "keep"
        )
    changed = tuple((setting.name, setting.value) for setting in reply.algorithm.algorithm_settings)
    if changed and sorted(changed) != sorted(algorithm.settings):
        raise UnsupportedAlgorithm(
            f"algorithm {algorithm.name} keeps its state in its settings, which a TuningJob does "
            "not keep"
        )
    return tuple(
        tuple((a.name, a.value) for a in suggestion.assignments) for suggestion in suggestions
    )


def _objective(search: KatibSearch) -> messages.ObjectiveSpec:
    return messages.ObjectiveSpec(
        type=GOALS[search.record.terms.goal], objective_metric_name=search.record.metric
    )


def _trial(search: KatibSearch, reported: ReportedTrial) -> messages.Trial:
    trial = messages.Trial(
        name=trial_name(search.record.ref.name, reported.trial),
        spec=messages.TrialSpec(objective=_objective(search)),
        status=messages.TrialStatus(condition=CONDITIONS[reported.outcome]),
    )
    trial.spec.parameter_assignments.assignments.extend(
        messages.ParameterAssignment(name=name, value=text) for name, text in reported.texts
    )
    if reported.value is not None:
        trial.status.observation.metrics.add(name=search.record.metric, value=repr(reported.value))
    return trial


def _parameter(name: str, parameter: Parameter) -> messages.ParameterSpec:
    kind, space = _feasible(parameter)
    return messages.ParameterSpec(name=name, parameter_type=kind, feasible_space=space)


def _feasible(parameter: Parameter) -> tuple[messages.ParameterType, messages.FeasibleSpace]:
    """Type and values of a parameter."""
    if isinstance(parameter, ChoiceParameter):
        return _options(parameter)
    kind = messages.INT if isinstance(parameter, IntRange) else messages.DOUBLE
    return kind, messages.FeasibleSpace(
        min=as_text(parameter.low),
        max=as_text(parameter.high),
        distribution=messages.LOG_UNIFORM if parameter.log else messages.UNIFORM,
    )


def _options(choice: ChoiceParameter) -> tuple[messages.ParameterType, messages.FeasibleSpace]:
    """Options as a list, or as a range with steps where services interpret it alike.

    Some count steps from the minimum, others from 0, so a range that does not begin at a multiple
    of its step is sent as a list.
    """
    numbers = [Decimal(as_text(option)) for option in choice.options if _is_number(option)]
    if len(numbers) < len(choice.options):
        listed = [as_text(option) for option in choice.options]
        return messages.CATEGORICAL, messages.FeasibleSpace(list=listed)
    step = numbers[1] - numbers[0] if len(numbers) > 1 else Decimal(0)
    if not step or numbers[0] % step:
        listed = [as_text(option) for option in choice.options]
        return messages.DISCRETE, messages.FeasibleSpace(list=listed)
    whole = all(isinstance(option, int) for option in choice.options)
    return messages.INT if whole else messages.DOUBLE, messages.FeasibleSpace(
        min=as_text(choice.options[0]),
        max=as_text(choice.options[-1]),
        step=str(int(step)) if whole else as_text(float(step)),
        distribution=messages.UNIFORM,
    )


def _is_number(option: object) -> bool:
    return isinstance(option, (int, float)) and math.isfinite(option)
