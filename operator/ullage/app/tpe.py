# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Points by a tree-structured Parzen estimator: Optuna's.

A study is built from the history in a request and discarded after the answer, so another process
suggests the same. Only this module imports the library. Source: Bergstra et al., NIPS 2011; the
multivariate form with a constant liar for running trials is Optuna's default.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, TrialState

from ullage.engines.tuning.search_space import ChoiceParameter, IntRange, Parameter, Point, Value
from ullage.engines.tuning.suggestions import (
    ObservedTrial,
    SuggestionRequest,
    TrialOutcome,
    at_random,
    observed_values,
)

STARTUP_TRIALS: Final = 10
"""Minimum of informative trials before the estimator draws; Optuna's own number."""


class ParzenSampler:
    """Draws points for one request; the study has the observations of the request."""

    def __init__(self, request: SuggestionRequest) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study = optuna.create_study(
            direction="maximize" if request.maximise else "minimize", study_name="tuning"
        )
        self._parameters = request.space.parameters
        self._distributions = {
            name: _distribution(item) for name, item in request.space.parameters.items()
        }
        self._added: set[int] = set()

    def __call__(self, request: SuggestionRequest, trial: int, attempt: int) -> Point:
        """The point of a trial; random with too few informative trials."""
        if observed_values(request.observed) < STARTUP_TRIALS:
            return at_random(request, trial, attempt)
        self._add(request)
        seed = np.random.SeedSequence((request.seed, trial, attempt)).generate_state(1)
        self._study.sampler = optuna.samplers.TPESampler(
            seed=int(seed[0]), n_startup_trials=STARTUP_TRIALS, constant_liar=True
        )
        asked = self._study.ask(self._distributions)
        self._study.tell(asked, state=TrialState.FAIL)  # a draw gives no information
        return {
            name: _outside(parameter, asked.params[name])
            for name, parameter in self._parameters.items()
        }

    def _add(self, request: SuggestionRequest) -> None:
        """Add observed trials that are missing in the study, by number."""
        for observed in sorted(request.observed, key=lambda seen: seen.trial):
            if observed.trial not in self._added:
                self._added.add(observed.trial)
                frozen = self._frozen(observed)
                if frozen is not None:
                    self._study.add_trial(frozen)

    def _frozen(self, observed: ObservedTrial) -> FrozenTrial | None:
        """A trial as an Optuna record; ``None`` for an uninformative one."""
        inside = {
            name: _inside(parameter, observed.point.get(name))
            for name, parameter in self._parameters.items()
        }
        params = {name: value for name, value in inside.items() if value is not None}
        if len(params) < len(inside) or observed.outcome is TrialOutcome.FAILED:
            return None
        if observed.outcome is TrialOutcome.RUNNING:
            return self._trial(TrialState.RUNNING, params)
        if observed.value is None:
            return None
        if observed.outcome is TrialOutcome.STOPPED:
            values = {observed.epoch: observed.value}
            return self._trial(TrialState.PRUNED, params, intermediate_values=values)
        return self._trial(TrialState.COMPLETE, params, value=observed.value)

    def _trial(
        self,
        state: TrialState,
        params: dict[str, Value],
        *,
        value: float | None = None,
        intermediate_values: dict[int, float] | None = None,
    ) -> FrozenTrial:
        return optuna.create_trial(
            state=state,
            value=value,
            params=params,
            distributions=self._distributions,
            intermediate_values=intermediate_values,
        )


def _distribution(parameter: Parameter) -> BaseDistribution:
    """Options are encoded by index: to Optuna 1, 1.0 and true would be one option."""
    if isinstance(parameter, ChoiceParameter):
        return CategoricalDistribution(tuple(range(len(parameter.options))))
    if isinstance(parameter, IntRange):
        return IntDistribution(parameter.low, parameter.high, log=parameter.log)
    return FloatDistribution(parameter.low, parameter.high, log=parameter.log)


def _inside(parameter: Parameter, value: Value | None) -> Value | None:
    """A value encoded for the study; ``None`` where the space does not have it."""
    if isinstance(parameter, ChoiceParameter):
        options = enumerate(parameter.options)
        return next(
            (at for at, option in options if (type(option), option) == (type(value), value)), None
        )
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(parameter, IntRange) and not isinstance(value, int):
        return None
    return value if parameter.low <= value <= parameter.high else None


def _outside(parameter: Parameter, value: int | float) -> Value:
    """A value decoded for trials."""
    return parameter.options[int(value)] if isinstance(parameter, ChoiceParameter) else value
