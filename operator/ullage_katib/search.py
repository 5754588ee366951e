# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A TuningJob as presented to its suggestion service.

Everything follows from the object, so a restarted process continues where the last one ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ullage.api.readers import JsonObject, WireError, objects, section
from ullage.api.reasons import Standing, standing_of
from ullage.api.words import TuningAlgorithm
from ullage.cluster.projection.tuning import MOST_TRIALS, project_tuning_job
from ullage.cluster.records.tuning import TrialResult, TuningRecord
from ullage.engines.tuning.search_space import Point
from ullage.engines.tuning.suggestions import TrialOutcome, size
from ullage.ports import JsonPatch
from ullage.scheduling.model.phases import OVER
from ullage.scheduling.tuning.search import Search, Texts


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedTrial:
    """A suggested trial as presented to the service.

    Attributes:
        texts: Its parameters exactly as suggested: services identify trials by them.
        value: Its metric, if it is complete.
    """

    trial: int
    texts: Texts
    outcome: TrialOutcome
    value: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KatibSearch:
    """A TuningJob with the algorithm External, and its trials by number.

    Attributes:
        trials: Those shown to the service.
        running: Number of unfinished trials.
        has_list: True when ``spec.suggestions`` exists, even if empty.
    """

    record: TuningRecord
    trials: tuple[ReportedTrial, ...]
    running: int
    has_list: bool

    @property
    def over(self) -> bool:
        """True if it accepts no more trials."""
        ended = self.record.status.phase in OVER or self.record.deleting
        return ended or not self.record.terms.more_to_come

    @property
    def room(self) -> int:
        """Total number of further trials that it may have."""
        return max(0, self.record.terms.trials - len(self.record.terms.stated))

    @property
    def wanted(self) -> int:
        """Number of further trials that may run now."""
        return max(0, min(self.room, self.record.parallelism - self.running))

    @property
    def results(self) -> int:
        """Number of results."""
        return len(self.record.status.results)

    @property
    def points(self) -> tuple[Point, ...]:
        """Suggested points, without those refused by the operator."""
        return tuple(trial.point for trial in self.record.terms.stated if not trial.refused)

    @property
    def used_up(self) -> bool:
        """True if every point of the space was suggested."""
        there_are = size(self.record.terms.space)
        known = {tuple(sorted(point.items())) for point in self.points}
        return there_are is not None and len(known) >= there_are


def read_search(raw: JsonObject) -> KatibSearch:
    """Read a TuningJob.

    Raises:
        WireError: it cannot be read, or its algorithm is not External.
    """
    record = project_tuning_job(raw)
    if record.terms.algorithm is not TuningAlgorithm.EXTERNAL:
        raise WireError(
            f"spec.algorithm.ref: {record.terms.algorithm} chooses parameters itself; a suggestion "
            "service needs External"
        )
    search = Search(terms=record.terms).take_all(record.status.results)
    spec = section(raw, "spec")
    stated = {
        int(str(entry["trial"])): section(entry, "parameters")
        for entry in objects(spec, "suggestions")
    }
    return KatibSearch(
        record=record,
        trials=tuple(_reported(record, stated, search)),
        running=len(search.due),
        has_list=spec.get("suggestions") is not None,
    )


def _reported(
    record: TuningRecord, stated: Mapping[int, JsonObject], search: Search
) -> Iterable[ReportedTrial]:
    last = {result.trial: result for result in search.results}
    for trial in record.terms.stated:
        outcome, value = _outcome(last.get(trial.trial), is_due=trial.trial in search.due)
        if not trial.refused and outcome is not None:
            texts = tuple(sorted((name, str(text)) for name, text in stated[trial.trial].items()))
            yield ReportedTrial(trial=trial.trial, texts=texts, outcome=outcome, value=value)


def _outcome(
    result: TrialResult | None, *, is_due: bool
) -> tuple[TrialOutcome | None, float | None]:
    """End of a trial, and its value; ``None`` = nothing usable for a service."""
    if is_due or result is None:
        return TrialOutcome.RUNNING, None
    if result.value is not None:
        return TrialOutcome.COMPLETE, result.value
    # as Katib does with a trial whose metrics are unavailable
    without = Standing.NO_METRIC in standing_of(result.reason)
    return (None if without else TrialOutcome.FAILED), None


def suggestions_patch(search: KatibSearch, points: Sequence[Texts]) -> JsonPatch:
    """Add trials to a TuningJob whose spec is still the one that was read.

    Args:
        search: The search, with room for them.
        points: Their parameters.
    """
    steps: list[Mapping[str, object]] = [*_unchanged(search)]
    if not search.has_list:
        steps.append({"op": "add", "path": "/spec/suggestions", "value": []})
    steps += [
        {
            "op": "add",
            "path": "/spec/suggestions/-",
            "value": {"trial": trial, "parameters": dict(point)},
        }
        for trial, point in zip(_free_numbers(search, len(points)), points, strict=True)
    ]
    return steps


def end_patch(search: KatibSearch) -> JsonPatch:
    """Mark the end of the suggestions."""
    return [*_unchanged(search), {"op": "add", "path": "/spec/suggestionsEnded", "value": True}]


def _unchanged(search: KatibSearch) -> JsonPatch:
    """The generation changes only with the spec, so results do not conflict."""
    return [
        {"op": "test", "path": "/metadata/uid", "value": search.record.ref.uid},
        {"op": "test", "path": "/metadata/generation", "value": search.record.generation},
    ]


def _free_numbers(search: KatibSearch, count: int) -> tuple[int, ...]:
    """Numbers above all others, because a service may recognise a removed trial by its name.

    When numbers run out, those of removed trials are reused.
    """
    used = {trial.trial for trial in search.record.terms.stated}
    first = max(used, default=-1) + 1
    above = list(range(first, MOST_TRIALS))
    below = [trial for trial in range(min(first, MOST_TRIALS)) if trial not in used]
    return tuple((above + below)[:count])
