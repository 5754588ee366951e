# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Where a search stands, from the results that its status holds.

Everything follows from the spec and that list, in its order: a new process, or one that saw an
event twice, comes to the same trials.
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
    """The values that these texts stand for, of parameters that the space has."""
    found = dict(texts)
    stated = {
        name: value_of(parameter, found[name])
        for name, parameter in terms.space.parameters.items()
        if name in found
    }
    return {name: value for name, value in stated.items() if value is not None}


@dataclass(slots=True, kw_only=True)
class Search:
    """A search after a number of results.

    Attributes:
        due: Epoch that each trial is to reach which is not done yet.
        counted: Trials and epochs that have a result.
        parameters: Of each trial that has a result.
        results: That were taken, in order; one of the list that was not due is not among them.
    """

    terms: SearchTerms
    due: dict[int, int] = field(init=False, default_factory=dict)
    counted: set[tuple[int, int]] = field(init=False, default_factory=set)
    parameters: dict[int, Texts] = field(init=False, default_factory=dict)
    results: list[TrialResult] = field(init=False, default_factory=list)
    _observed: dict[int, ObservedTrial] = field(init=False, repr=False, default_factory=dict)
    _seen: int = field(init=False, repr=False, default=0)
    """Results that are among the observed ones."""
    _decider: SearchAlgorithm = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._decider = decider_of(self.terms)
        self.due = {one.trial: one.until_epoch for one in self._decider.first()}

    def take(self, result: TrialResult) -> bool:
        """Count a result; ``False`` and nothing where the trial is not to reach that epoch."""
        at = (result.trial, result.epoch)
        if self.due.get(result.trial) != result.epoch:
            return False
        del self.due[result.trial]
        self.counted.add(at)
        self.results.append(result)
        self.parameters.setdefault(result.trial, result.parameters)
        goes_on = self._decider.report(result.trial, result.epoch, result.value).runs
        self.due.update((one.trial, one.until_epoch) for one in goes_on)
        return True

    def take_all(self, results: Sequence[TrialResult]) -> Search:
        """Count results in order."""
        for result in results:
            self.take(result)
        return self

    def texts(self, trial: int) -> Texts | None:
        """Parameters of a trial: those that it had before, else those that are suggested now.

        ``None`` where a sampler beside decisions is to be asked.

        Args:
            trial: Number of the trial.
        """
        known = self.parameters.get(trial)
        if known:
            return known
        point = parameters_of(self.terms, trial)
        return None if point is None else texts_of(point)

    def request(self, trials: tuple[int, ...], running: Mapping[int, Texts]) -> SuggestionRequest:
        """What a sampler is asked.

        Args:
            trials: That want parameters.
            running: Parameters of trials that have no result yet.
        """
        return SuggestionRequest(
            space=self.terms.space,
            seed=self.terms.seed,
            trials=trials,
            observed=self._known(trials, running),
            maximise=self.terms.maximise,
        )

    @property
    def is_stated(self) -> bool:
        """A client outside states trials: their parameters stand in its list, in no result."""
        return self.terms.algorithm is TuningAlgorithm.EXTERNAL

    @property
    def refused(self) -> frozenset[int]:
        """Trials of a client that cannot run."""
        return frozenset(one.trial for one in self.terms.stated if one.refused)

    def _known(self, but: Sequence[int], running: Mapping[int, Texts]) -> tuple[ObservedTrial, ...]:
        """Trials that have parameters: those with results, then those that run."""
        others = tuple(
            ObservedTrial(trial=other, point=point_of(self.terms, texts))
            for other, texts in running.items()
            if other not in but and other not in self.parameters
        )
        return (*self._with_results().values(), *others)

    def _with_results(self) -> Mapping[int, ObservedTrial]:
        """Trials that have a result, by the last one that has a value."""
        for one in self.results[self._seen :]:
            before = self._observed.pop(one.trial, None)
            self._observed[one.trial] = self._observe(one, before)
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
        return sum(one.value is None for one in self.results)

    def rungs(self) -> tuple[HalvingRung, ...]:
        """Groups of trials that are compared with each other, as far as they have any."""
        rungs = [rung for family in families_of(self._decider) for rung in family if rung.members]
        return tuple(sorted(rungs, key=lambda rung: rung.complete)[:MOST_GROUPS])  # open ones first

    def paused(self) -> frozenset[int]:
        """Trials at the end of a rung that is not decided yet."""
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
        last = {one.trial: one for one in self.results}
        return frozenset(
            trial
            for trial, one in last.items()
            if trial not in self.due and one.value is not None and one.epoch < self.terms.max_epochs
        )

    def best(self, name: str) -> BestTrial | None:
        """The best value at the highest epoch that any trial has a value of; ties by number.

        Args:
            name: Of the TuningJob.
        """
        valued = [one for one in self.results if one.value is not None]
        if not valued:
            return None
        top = max(one.epoch for one in valued)
        sign = -1.0 if self.terms.maximise else 1.0
        best = min(
            (one for one in valued if one.epoch == top),
            key=lambda one: (sign * (one.value or 0.0), one.trial),
        )
        return BestTrial(
            name=trial_name(name, best.trial),
            trial=best.trial,
            epoch=best.epoch,
            value=best.value or 0.0,
            parameters=self.parameters[best.trial] or self.texts(best.trial) or (),
        )


def _paused(family: Sequence[HalvingRung], max_epochs: int) -> Iterator[int]:
    """Trials of a family that may go on once others report."""
    is_open = False
    for at, rung in enumerate(family):
        is_open = is_open or not rung.complete
        if is_open and rung.until_epoch < max_epochs:
            higher = family[at + 1].members if at + 1 < len(family) else ()
            yield from rung.values.keys() - set(higher)
