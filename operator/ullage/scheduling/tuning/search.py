# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""State of a search, computed from the results in its status.

It depends only on the spec and the order of the results, so that a new process computes the same
trials.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ullage.api.words import TuningAlgorithm
from ullage.cluster.records.tuning import MOST_GROUPS, BestTrial, TrialResult
from ullage.cluster.values.names import trial_name
from ullage.engines.tuning.algorithms import SearchTerms, decider_of, parameters_of
from ullage.engines.tuning.rungs import HalvingRung, SearchAlgorithm, families_of
from ullage.engines.tuning.search_space import Point, as_text, value_of
from ullage.engines.tuning.suggestions import ObservedTrial, SuggestionRequest, TrialOutcome

Texts = tuple[tuple[str, str], ...]
"""Parameters as texts, by name."""


def texts_of(point: Point) -> Texts:
    """Parameters as texts, by name."""
    return tuple(sorted((name, as_text(value)) for name, value in point.items()))


def point_of(terms: SearchTerms, texts: Texts) -> Point:
    """The values of parameters in the search space, parsed from texts."""
    values = dict(texts)
    parsed = {
        name: value_of(parameter, values[name])
        for name, parameter in terms.space.parameters.items()
        if name in values
    }
    return {name: value for name, value in parsed.items() if value is not None}


@dataclass(slots=True, kw_only=True)
class Search:
    """A search after a number of results.

    Attributes:
        due: Epoch to reach, by trial.
        counted: Trials and epochs with a result.
        parameters: Parameters of trials with a result, by trial.
        results: Counted results in order, without those that were not due.
    """

    terms: SearchTerms
    due: dict[int, int] = field(init=False, default_factory=dict)
    counted: set[tuple[int, int]] = field(init=False, default_factory=set)
    parameters: dict[int, Texts] = field(init=False, default_factory=dict)
    results: list[TrialResult] = field(init=False, default_factory=list)
    _observed: dict[int, ObservedTrial] = field(init=False, repr=False, default_factory=dict)
    _seen: int = field(init=False, repr=False, default=0)
    """Number of results that are in ``_observed``."""
    _decider: SearchAlgorithm = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._decider = decider_of(self.terms)
        self.due = {run.trial: run.until_epoch for run in self._decider.first()}

    def take(self, result: TrialResult) -> bool:
        """Count a result; returns ``False`` when the trial is not due for that epoch."""
        at = (result.trial, result.epoch)
        if self.due.get(result.trial) != result.epoch:
            return False
        del self.due[result.trial]
        self.counted.add(at)
        self.results.append(result)
        self.parameters.setdefault(result.trial, result.parameters)
        goes_on = self._decider.report(result.trial, result.epoch, result.value).runs
        self.due.update((run.trial, run.until_epoch) for run in goes_on)
        return True

    def take_all(self, results: Sequence[TrialResult]) -> Search:
        """Count results in order."""
        for result in results:
            self.take(result)
        return self

    def texts(self, trial: int) -> Texts | None:
        """Parameters of a trial: those of its results, else new ones.

        ``None`` = an external sampler has to suggest them.

        Args:
            trial: Number of the trial.
        """
        parameters = self.parameters.get(trial)
        if parameters:
            return parameters
        point = parameters_of(self.terms, trial)
        return None if point is None else texts_of(point)

    def request(self, trials: tuple[int, ...], running: Mapping[int, Texts]) -> SuggestionRequest:
        """Build the request to a sampler.

        Args:
            trials: Trials without parameters.
            running: Parameters of trials without a result.
        """
        others = tuple(
            ObservedTrial(trial=other, point=point_of(self.terms, texts))
            for other, texts in running.items()
            if other not in trials and other not in self.parameters
        )
        return SuggestionRequest(
            space=self.terms.space,
            seed=self.terms.seed,
            trials=trials,
            observed=(*self._with_results().values(), *others),
            maximise=self.terms.maximise,
        )

    @property
    def is_stated(self) -> bool:
        """True when an external client lists the trials with their parameters."""
        return self.terms.algorithm is TuningAlgorithm.EXTERNAL

    @property
    def refused(self) -> frozenset[int]:
        """Trials of an external client that cannot run."""
        return frozenset(trial.trial for trial in self.terms.stated if trial.refused)

    def _with_results(self) -> Mapping[int, ObservedTrial]:
        """Trials with a result, with their last value."""
        for result in self.results[self._seen :]:
            before = self._observed.pop(result.trial, None)
            self._observed[result.trial] = self._observe(result, before)
        self._seen = len(self.results)
        return self._observed

    def _observe(self, result: TrialResult, before: ObservedTrial | None) -> ObservedTrial:
        outcome = TrialOutcome.FAILED
        epoch, value = (before.epoch, before.value) if before is not None else (0, None)
        if result.value is not None:
            at_the_end = result.epoch == self.terms.max_epochs
            outcome = TrialOutcome.COMPLETE if at_the_end else TrialOutcome.STOPPED
            epoch, value = result.epoch, result.value
        return ObservedTrial(
            trial=result.trial,
            point=point_of(self.terms, self.parameters[result.trial]),
            outcome=outcome,
            epoch=epoch,
            value=value,
        )

    @property
    def failed(self) -> int:
        """Trials that ended without a value."""
        return sum(result.value is None for result in self.results)

    def rungs(self) -> tuple[HalvingRung, ...]:
        """Groups of trials that are compared with each other, without empty ones."""
        rungs = [rung for family in families_of(self._decider) for rung in family if rung.members]
        return tuple(sorted(rungs, key=lambda rung: rung.complete)[:MOST_GROUPS])  # open ones first

    def paused(self) -> frozenset[int]:
        """Trials at the end of an undecided rung."""
        if self.is_stated:
            return self._may_be_prolonged()
        return frozenset(
            trial
            for family in families_of(self._decider)
            for trial in _paused(family, self.terms.max_epochs)
        )

    def _may_be_prolonged(self) -> frozenset[int]:
        """Trials to which a client may still add an epoch."""
        if not self.terms.more_to_come:
            return frozenset()
        last = {result.trial: result for result in self.results}
        return frozenset(
            trial
            for trial, result in last.items()
            if trial not in self.due
            and result.value is not None
            and result.epoch < self.terms.max_epochs
        )

    def best(self, name: str) -> BestTrial | None:
        """The best value at the highest epoch that has any; the lowest number wins a tie.

        Args:
            name: Name of the TuningJob.
        """
        valued = [result for result in self.results if result.value is not None]
        if not valued:
            return None
        top = max(result.epoch for result in valued)
        sign = -1.0 if self.terms.maximise else 1.0
        best = min(
            (result for result in valued if result.epoch == top),
            key=lambda result: (sign * (result.value or 0.0), result.trial),
        )
        return BestTrial(
            name=trial_name(name, best.trial),
            trial=best.trial,
            epoch=best.epoch,
            value=best.value or 0.0,
            parameters=self.parameters[best.trial] or self.texts(best.trial) or (),
        )


def _paused(family: Sequence[HalvingRung], max_epochs: int) -> Iterator[int]:
    """Trials of a family that may continue once others report."""
    is_open = False
    for at, rung in enumerate(family):
        is_open = is_open or not rung.complete
        if is_open and rung.until_epoch < max_epochs:
            higher = family[at + 1].members if at + 1 < len(family) else ()
            yield from rung.values.keys() - set(higher)
