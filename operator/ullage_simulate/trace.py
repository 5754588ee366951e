# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Input of a simulation: jobs with arrivals, and the changes made to fit them.

Nothing is decided here; a change made to a job to fit a cluster is reported, never silent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

WHOLE: Final = 1000
"""Thousandths of a device in a whole one."""


class JobTraceError(ValueError):
    """A trace, a table or a cluster that cannot be simulated; the text has the correction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """One job of a trace, with its speeds.

    Attributes:
        name: Unique.
        gang: Devices that all its workers hold together.
        milli: Thousandths of each of these devices in use; less than 1,000 with a gang of 1.
        steps: Work.
        arrival_s: Seconds from the start of the trace.
        speeds: Steps/s of the whole gang on each type; 0 = it cannot run there.
        kind: Type of work; equal kinds have equal speeds and equal neighbours' tables.
        checkpointable: It saves its work on a signal; others are never preempted.
        weight: Of its fair share.
        tenant: Its tenant; empty for the unnamed one.
        priority: Larger goes first where priorities count.
        deadline_s: Seconds from arrival to its deadline, if any.
    """

    name: str
    gang: int
    steps: int
    arrival_s: float
    speeds: Mapping[str, float]
    kind: str = ""
    checkpointable: bool = True
    weight: float = 1.0
    tenant: str = ""
    priority: int = 0
    deadline_s: float | None = None
    milli: int = WHOLE


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTrace:
    """Jobs in order of arrival.

    Attributes:
        name: Human-readable name.
        jobs: By arrival, then in the order of the source.
        notes: Values that were drawn, capped or left out on reading, one sentence each.
    """

    name: str
    jobs: tuple[TraceJob, ...]
    notes: tuple[str, ...] = ()

    def first(self, count: int) -> JobTrace:
        """The first jobs only; 0 = all of them."""
        if not 0 < count < len(self.jobs):
            return self
        return replace(self, jobs=self.jobs[:count])


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The devices of a cluster.

    Attributes:
        devices: Number of devices of each type, in the order used by a plain queue.
        per_node: Maximum devices of one node.
        prices: Dollars per hour of one device; types without a price are free.
        parts: Parts per device; ``devices`` and ``prices`` are of parts.
    """

    devices: Mapping[str, int]
    per_node: int = 8
    prices: Mapping[str, float] = field(default_factory=dict)
    parts: int = 1

    def __post_init__(self) -> None:
        if not self.devices or not all(count > 0 for count in self.devices.values()):
            raise JobTraceError("a cluster has at least one device of each type it names")
        if self.per_node < 1:
            raise JobTraceError(f"a node has at least one device, not {self.per_node}")

    @property
    def total(self) -> int:
        """Devices of all types."""
        return sum(self.devices.values())


def in_order(name: str, jobs: Sequence[TraceJob], notes: Sequence[str] = ()) -> JobTrace:
    """A trace from jobs in any order; time starts with the first arrival.

    Raises:
        TraceError: there is no job, two have the same name, or a figure is invalid.
    """
    if not jobs:
        raise JobTraceError(f"{name}: no job is left to run; {' '.join(notes)}".rstrip("; "))
    twice = [job for job, count in Counter(job.name for job in jobs).items() if count > 1]
    if twice:
        raise JobTraceError(f"{name}: two jobs are called {twice[0]}")
    wrong = [job for job in jobs if job.steps <= 0 or job.gang < 1 or job.weight <= 0]
    if wrong:
        raise JobTraceError(f"{name}: {wrong[0].name}: steps, gang and weight are above 0")
    start = min(job.arrival_s for job in jobs)
    ordered = sorted(jobs, key=lambda job: job.arrival_s)
    return JobTrace(
        name=name,
        jobs=tuple(replace(job, arrival_s=job.arrival_s - start) for job in ordered),
        notes=tuple(note for note in notes if note),
    )


def fitted(trace: JobTrace, fleet: Fleet) -> JobTrace:
    """The jobs that some type of the cluster can run, with the speeds of its types only.

    Raises:
        TraceError: the trace has no type of this cluster, or no job fits.
    """
    known = {kind for job in trace.jobs for kind in job.speeds}
    strange = [kind for kind in fleet.devices if kind not in known]
    if strange:
        raise JobTraceError(
            f"{trace.name}: nothing is known of speeds on {', '.join(strange)}; "
            f"it has {', '.join(sorted(known))}: change --cluster or give --speeds"
        )
    jobs, large = [], 0
    for job in trace.jobs:
        speeds = {
            kind: job.speeds.get(kind, 0.0) if job.gang <= size else 0.0
            for kind, size in fleet.devices.items()
        }
        if any(speed > 0 for speed in speeds.values()):
            jobs.append(replace(job, speeds=speeds))
        else:
            large += 1
    note = f"{large} jobs fit no type of this cluster and were left out." if large else ""
    return in_order(trace.name, jobs, (*trace.notes, note))


def in_parts(trace: JobTrace, fleet: Fleet) -> tuple[JobTrace, Fleet]:
    """Jobs and devices in thousandths of a device, where a job uses a part of one.

    Parts fill a type regardless of device boundaries: two parts of .6 take 1.2 devices.
    """
    if all(job.milli == WHOLE for job in trace.jobs):
        return trace, fleet
    jobs = tuple(replace(job, gang=job.gang * job.milli, milli=WHOLE) for job in trace.jobs)
    return replace(trace, jobs=jobs), replace(
        fleet,
        devices={kind: count * WHOLE for kind, count in fleet.devices.items()},
        prices={kind: price / WHOLE for kind, price in fleet.prices.items()},
        parts=WHOLE,
    )
