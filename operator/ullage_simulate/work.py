# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""One running job: progress, the cost of starting, the loss when it is interrupted."""

from __future__ import annotations

from dataclasses import dataclass

from ullage_simulate.outcome import JobOutcome
from ullage_simulate.trace import Fleet, JobTraceError, TraceJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Costs of stopping, starting and failing.

    Attributes:
        restart_s: Seconds of every start, including the first, in which devices do no work.
        every_s: Seconds of work between two checkpoints; 0 = only when asked to stop.
        saves_on_stop: It saves when asked to stop; else it loses unsaved work.
    """

    restart_s: float = 0.0
    every_s: float = 0.0
    saves_on_stop: bool = True

    def __post_init__(self) -> None:
        if self.restart_s < 0 or self.every_s < 0:
            raise JobTraceError("a restart and the time between checkpoints cost 0 s or more")


@dataclass(slots=True)
class JobWork:
    """A job between arrival and end.

    Attributes:
        job: The job in the trace.
        order: Place in the order of arrival.
        base: Steps/s on the whole cluster for one device of its gang.
        parts: Devices of the cluster over its gang.
        left: Steps still to do.
        kind: Type it runs on; empty while it waits.
        partners: Jobs on its devices, itself included.
        speed: Steps/s now.
        since_s: Time up to which its progress is booked.
        ready_s: Time of the first step of this start.
        turn: Number of its starts and changes of speed; older ends are void.
    """

    job: TraceJob
    order: int
    base: float
    parts: float
    left: float
    kind: str = ""
    partners: int = 1
    speed: float = 0.0
    since_s: float = 0.0
    ready_s: float = 0.0
    turn: int = 0
    start_s: float = -1.0
    isolated_s: float = 0.0
    device_s: float = 0.0
    lost_device_s: float = 0.0
    stops: int = 0
    failures: int = 0

    @property
    def end_s(self) -> float:
        """Time of its end without further changes."""
        return max(self.since_s, self.ready_s) + self.left / self.speed

    def book(self, now: float, crowd: int) -> None:
        """Book progress until now; ``crowd`` is the number of jobs in the cluster."""
        if not self.kind:
            return
        worked = now - max(self.since_s, self.ready_s)
        if worked > 0:
            self._add(worked * self.speed, crowd)
        self.device_s += (now - self.since_s) * self.job.gang / self.partners
        self.since_s = now

    def begin(self, kind: str, speed: float, now: float, restart_s: float) -> None:
        """Start on devices."""
        self.kind, self.speed = kind, speed
        self.since_s, self.ready_s = now, now + restart_s
        self.turn += 1
        if self.start_s < 0:
            self.start_s = now

    def unsaved_s(self, now: float, costs: Costs) -> float:
        """Seconds of work since the last checkpoint of this start."""
        worked = max(0.0, now - self.ready_s)
        return worked % costs.every_s if costs.every_s > 0 else worked

    def tear(self, now: float, crowd: int, lost_s: float) -> None:
        """Leave the devices; this much of the latest work is to be repeated."""
        self.book(now, crowd)
        back = min(lost_s * self.speed, self.job.steps - self.left)
        if back > 0:
            self._add(-back, crowd)
            self.lost_device_s += back / self.speed * self.job.gang
        self.kind, self.speed, self.partners = "", 0.0, 1
        self.turn += 1

    def outcome(self, now: float) -> JobOutcome:
        """Outcome of the job at its end."""
        return JobOutcome(
            name=self.job.name,
            kind=self.job.kind,
            gang=self.job.gang,
            arrival_s=self.job.arrival_s,
            start_s=self.start_s,
            end_s=now,
            isolated_s=self.isolated_s,
            device_s=self.device_s,
            lost_device_s=self.lost_device_s,
            stops=self.stops,
            failures=self.failures,
        )

    def _add(self, steps: float, crowd: int) -> None:
        self.left -= steps
        self.isolated_s += steps * max(crowd, self.parts) / self.base


def begun(job: TraceJob, order: int, fleet: Fleet) -> JobWork:
    """A job that just arrived.

    An equal part of the cluster is devices / jobs of each type, at most one whole gang.
    """
    whole = sum(job.speeds[kind] * size for kind, size in fleet.devices.items())
    return JobWork(
        job=job,
        order=order,
        base=whole / job.gang,
        parts=fleet.total / job.gang,
        left=float(job.steps),
    )
