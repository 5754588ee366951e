# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A TuningJob for ``kubectl ullage tuning``: states and results of its trials.

States of trials are those of the operator's decisions, replayed from the results. Pure, apart from
:func:`look_for`: records in, rows, JSON and CSV out.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import yaml

from ullage.api.labels import LABEL_TUNING
from ullage.api.reasons import Reason
from ullage.cli.forms import TrialOutput as Output
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.codecs.status import tuning_status_to_wire
from ullage.cluster.projection.tuning import project_tuning_job
from ullage.cluster.records.tuning import TrialResult, TuningRecord
from ullage.cluster.records.workload import TrialOf, WorkloadRecord
from ullage.cluster.values.names import trial_name
from ullage.cluster.values.streams import TRAINING_JOBS, TUNING_JOBS, Stream
from ullage.ports import ClusterPort, JsonObject, Selector
from ullage.scheduling.model.phases import OVER, Phase
from ullage.scheduling.tuning.search import Search, Texts


class TrialState(StrEnum):
    """State of a trial."""

    RUNNING = "Running"
    WAITING = "Waiting"
    PAUSED = "Paused"
    COMPLETE = "Complete"
    STOPPED = "Stopped"
    FAILED = "Failed"


ORDER: Final = tuple(TrialState)
"""Order of trials: running, pending, ended."""
_ENDED: Final = ("Succeeded", "Failed")
"""Final phases of a TuningJob."""
FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""First characters of a spreadsheet formula."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRow:
    """A started trial.

    Attributes:
        curve: Values by epoch: its results, and further reports of its programs.
        epoch: The last epoch with a result, 0 without one.
        target: The epoch of its training, or the last one reached.
        reason: Reason of its state.
        job: The TrainingJob that runs it now.
    """

    name: str
    trial: int
    parameters: Texts
    curve: tuple[tuple[int, float], ...]
    epoch: int
    target: int
    state: TrialState
    reason: str = ""
    job: WorkloadRecord | None = None

    @property
    def value(self) -> float | None:
        """The last value."""
        return self.curve[-1][1] if self.curve else None

    @property
    def width(self) -> str:
        """Its share of a device, or its number of devices."""
        status = self.job.status if self.job else None
        if status is None or not status.placement:
            return ""
        return f"{status.sharing.percent}%" if status.sharing else f"{status.gpus} whole"

    @property
    def nodes(self) -> str:
        """Nodes on which it runs."""
        return self.job.status.nodes if self.job else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningView:
    """A TuningJob and its started trials, in display order."""

    record: TuningRecord
    trials: tuple[TrialRow, ...]


async def look_for(
    cluster: ClusterPort, namespace: str, name: str, now: float
) -> TuningView | None:
    """A TuningJob and its trials; ``None`` = there is none of this name.

    Raises:
        WireError: the TuningJob cannot be read; the text has the problem and the place.
        ApiError: the API server refused or did not answer.
    """
    jobs = await _listed(
        cluster, TUNING_JOBS, Selector(namespace=namespace, fields=f"metadata.name={name}")
    )
    if not jobs:
        return None
    record = project_tuning_job(jobs[0])
    state = ClusterState(lambda _: None)  # no assumptions here
    selector = Selector(namespace=namespace, labels=f"{LABEL_TUNING}={name}")
    state.replace(TRAINING_JOBS, await _listed(cluster, TRAINING_JOBS, selector), now)
    return view(record, state.freeze(now).workloads.values())


async def _listed(cluster: ClusterPort, stream: Stream, selector: Selector) -> list[JsonObject]:
    return [item async for page in cluster.list_paged(stream.kind, selector) for item in page.items]


def view(record: TuningRecord, workloads: Iterable[WorkloadRecord]) -> TuningView:
    """A TuningJob with its trials.

    Args:
        record: The TuningJob.
        workloads: TrainingJobs, among them those that run its trials.
    """
    runs: dict[int, list[tuple[TrialOf, WorkloadRecord]]] = {}
    for workload in workloads:
        if workload.trial is not None and workload.trial.tuning_uid == record.ref.uid:
            runs.setdefault(workload.trial.trial, []).append((workload.trial, workload))
    search = Search(terms=record.terms).take_all(record.status.results)
    results: dict[int, list[TrialResult]] = {}
    for result in search.results:
        results.setdefault(result.trial, []).append(result)
    seen = _Seen(record=record, search=search, paused=search.paused())
    rows = [
        _row(seen, trial, results.get(trial, []), runs.get(trial, []))
        for trial in {*results, *runs}
    ]
    sign = -1.0 if record.terms.maximise else 1.0

    def rank(row: TrialRow) -> tuple[int, int, float, int]:
        value = math.inf if row.value is None else sign * row.value
        return (ORDER.index(row.state), -row.epoch, value, row.trial)

    return TuningView(record=record, trials=tuple(sorted(rows, key=rank)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A search after all of its results."""

    record: TuningRecord
    search: Search
    paused: frozenset[int]


def _row(
    seen: _Seen,
    trial: int,
    results: Sequence[TrialResult],
    runs: Sequence[tuple[TrialOf, WorkloadRecord]],
) -> TrialRow:
    due = None if seen.record.status.phase in _ENDED else seen.search.due.get(trial)
    job = next((run for of, run in runs if of.until_epoch == due), None)
    last = max(results, key=lambda result: result.epoch, default=None)
    epoch = last.epoch if last else 0
    state, reason = _state(seen, trial, last, due, job)
    values = {result.epoch: result.value for _, run in runs for result in run.status.metrics}
    values |= {result.epoch: result.value for result in results}
    stated = [seen.search.parameters.get(trial, ()), *(of.parameters for of, _ in runs)]
    if seen.search.is_stated:
        stated.append(seen.search.texts(trial) or ())
    return TrialRow(
        name=trial_name(seen.record.ref.name, trial),
        trial=trial,
        parameters=next((parameters for parameters in stated if parameters), ()),
        curve=tuple((at, value) for at, value in sorted(values.items()) if value is not None),
        epoch=epoch,
        target=due or epoch,
        state=state,
        reason=reason,
        job=job,
    )


def _state(
    seen: _Seen,
    trial: int,
    last: TrialResult | None,
    due: int | None,
    job: WorkloadRecord | None,
) -> tuple[TrialState, str]:
    """The state of a trial, and its known reason."""
    if due is not None:
        if job is None:
            resizes = seen.record.status.resizes
            resized = any((resize.trial, resize.epoch) == (trial, due) for resize in resizes)
            return TrialState.WAITING, Reason.TRIAL_RESIZED.value if resized else ""
        decision = job.status.decision
        runs = job.status.phase == Phase.RUNNING or job.status.phase in OVER
        return (TrialState.RUNNING if runs else TrialState.WAITING), (
            decision.reason.value if decision else ""
        )
    if last is None:
        return TrialState.STOPPED, ""
    if last.value is None:
        return TrialState.FAILED, last.reason.value if last.reason else ""
    if trial in seen.paused:
        return TrialState.PAUSED, ""
    whole = last.epoch >= seen.record.terms.max_epochs
    return (TrialState.COMPLETE if whole else TrialState.STOPPED), ""


# -- for scripts ---------------------------------------------------------------------------------


def for_scripts(view: TuningView, output: Output) -> str:
    """The view as text for scripts.

    Raises:
        ValueError: the form is a table.
    """
    if output is Output.JSON:
        return json.dumps(_body(view), indent=2, allow_nan=False) + "\n"
    if output is Output.YAML:
        return yaml.safe_dump(_body(view), sort_keys=False, allow_unicode=True)
    if output is Output.CSV:
        return to_csv(view)
    raise ValueError("a table is no text for scripts")


def _body(view: TuningView) -> dict[str, object]:
    ref = view.record.ref
    return {
        "kind": ref.kind,
        "metadata": {"namespace": ref.namespace, "name": ref.name, "uid": ref.uid},
        "status": tuning_status_to_wire(view.record.status),
        "trials": [
            {
                "trial": row.trial,
                "name": row.name,
                "parameters": dict(row.parameters),
                "epoch": row.epoch,
                "untilEpoch": row.target,
                "value": row.value,
                "state": row.state.value,
                "reason": row.reason,
                "share": row.width,
                "nodes": row.nodes,
                "curve": [{"epoch": at, "value": value} for at, value in row.curve],
            }
            for row in view.trials
        ],
    }


def to_csv(view: TuningView) -> str:
    """One line for each trial and epoch with a value, and one for each trial without any.

    Parameters are columns with the prefix ``params_``, as in Optuna's data frames. A text that a
    spreadsheet would read as a formula is prefixed with an apostrophe.
    """
    names = list(view.record.terms.space.parameters)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["trial", "epoch", "value", "state", "reason", *(f"params_{n}" for n in names)])
    for row in sorted(view.trials, key=lambda row: row.trial):
        stated = dict(row.parameters)
        values = [_cell(stated.get(name, "")) for name in names]
        for epoch, value in row.curve or ((row.epoch, None),):
            shown = "" if value is None else repr(value)
            writer.writerow([row.trial, epoch, shown, row.state, row.reason, *values])
    return text.getvalue()


def _cell(text: str) -> str:
    return f"'{text}" if text[:1] in FORMULA and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
