# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of estimated speeds and of chosen types: error and regret.

Errors are counted once, when a class is first measured on a type; regret is of running jobs.
Bounded; it never decides anything. Labels are types of devices and sources of speeds, never a job.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ullage.cluster.records.profile import ProfileRecord, Source
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.process.metric_families import gauge
from ullage.scheduling.learning.device_prices import prices_of
from ullage.scheduling.learning.throughput import Throughput, Throughputs, speeds
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.plan import Action, SetProfile

WINDOW: Final = 200
"""Recent classes of a type and source over which the error is averaged."""
MAKESPAN: Final = "Makespan"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFigures:
    """Figures of choices."""

    errors: Mapping[tuple[str, str], float] = gauge(
        "ullage_device_prediction_abs_error_ratio",
        "Mean relative error of speeds that were estimated or declared for a type, against the"
        " first measurement there; recent classes.",
        "accelerator",
        "source",
    )
    regrets: Mapping[str, float] = gauge(
        "ullage_device_choice_regret_ratio",
        "What running jobs with spec.cost pay for a step (or how long it takes, where time is"
        " their aim) on the type they hold, over the best type that was measured; 1 = the best.",
        "accelerator",
    )


class SpeedErrors:
    """Estimated or declared speeds against the measurements that replaced them."""

    def __init__(self) -> None:
        """Nothing was measured yet."""
        self._errors: dict[tuple[str, str], deque[float]] = {}

    def look(self, snapshot: Snapshot, actions: Sequence[Action]) -> None:
        """Record the classes written by one decision."""
        for action in actions:
            if isinstance(action, SetProfile):
                before = snapshot.profiles.get((action.target.namespace, action.target.name))
                if before is not None:
                    self._compare(before, action.status.throughput)

    def errors(self) -> dict[tuple[str, str], float]:
        """Mean error by (accelerator, source)."""
        return {key: sum(recent) / len(recent) for key, recent in self._errors.items()}

    def _compare(self, before: ProfileRecord, after: Iterable[Throughput]) -> None:
        measured = {row.device for row in before.status.solo}
        measured |= {
            entry.accelerator
            for entry in before.status.throughput
            if entry.source is Source.MEASURED
        }
        first = [
            entry
            for entry in after
            if entry.source is Source.MEASURED
            and entry.steps_per_second > 0
            and entry.accelerator not in measured
        ]
        if not first:
            return
        predicted = speeds(before)
        for entry in first:
            prediction = predicted.get(entry.accelerator)
            if prediction is not None:
                recent = self._errors.setdefault(
                    (entry.accelerator, prediction.source.value), deque(maxlen=WINDOW)
                )
                recent.append(abs(prediction.steps_per_second / entry.steps_per_second - 1.0))


def device_figures(snapshot: Snapshot, speed_errors: SpeedErrors) -> DeviceFigures:
    """The current figures."""
    return DeviceFigures(errors=speed_errors.errors(), regrets=regrets(snapshot))


def regrets(snapshot: Snapshot) -> dict[str, float]:
    """Mean regret of the running jobs with ``spec.cost``, by the accelerator that they hold.

    Counts jobs whose class was measured on its type and on another type that it may use.
    """
    running = [
        job
        for job in snapshot.workloads.values()
        if job.cost is not None
        and job.kind is WorkloadKind.TRAINING_JOB
        and job.status.phase == Phase.RUNNING
    ]
    if not running:
        return {}
    models = {
        device.uuid: device.model for node in snapshot.gpu_nodes.values() for device in node.devices
    }
    known, prices = Throughputs(snapshot), prices_of(snapshot)
    by_kind: dict[str, list[float]] = defaultdict(list)
    for job in running:
        kinds = {models.get(placed.gpu, "") for placed in job.status.placement}
        if len(kinds) != 1:
            continue
        held = kinds.pop()
        value = _regret(job, held, known.of(job), prices)
        if value is not None:
            by_kind[held].append(value)
    return {kind: sum(values) / len(values) for kind, values in by_kind.items()}


def _regret(
    job: WorkloadRecord, held: str, known: Mapping[str, Throughput], prices: Mapping[str, float]
) -> float | None:
    """Price (or time) of a step in place, over the minimum of the measured types."""
    by_time = job.cost is not None and job.cost.objective == MAKESPAN
    worth = {
        kind: (1.0 if by_time else prices[kind]) / speed.steps_per_second
        for kind, speed in known.items()
        if speed.source is Source.MEASURED
        and speed.steps_per_second > 0
        and (by_time or prices.get(kind, 0.0) > 0)
        and (not job.accelerators or kind in job.accelerators)
    }
    if held not in worth or len(worth) < 2:
        return None
    return worth[held] / min(worth.values())
