# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads jobs that share a device from a file of the user."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ullage.engines.lanes.records import JobDemand
from ullage.engines.lanes.simulator import LaneJob
from ullage_simulate.table import TableRow, header_of, opened, rows
from ullage_simulate.times import STEP_DEFAULT_S
from ullage_simulate.trace import JobTraceError

MOST_JOBS: Final = 10_000
MOST_STEPS: Final = 50_000
"""Maximum steps of all jobs together; beyond, several steps are merged."""
PERSISTENT_PART: Final = 0.15
"""Assumed fraction of a peak, where a table has only peaks."""
_MEASURED: Final = frozenset({"workload", "solo_duration_s", "memory_mb", "iterations"})
_MIB: Final = "MiB, as 4096"
_SECONDS: Final = "seconds, as 12.5"


def lane_jobs(path: Path, most: int = 0) -> tuple[tuple[LaneJob, ...], tuple[str, ...]]:
    """Jobs of a file in its order, and notes on what it lacks.

    Args:
        path: A table with ``arrival_s``, ``persistent_mib``, ``ephemeral_mib`` and ``duration_s``,
            or Salus's table of solo runs.
        most: The first jobs only; 0 = all.

    Raises:
        TraceError: it cannot be read, or has another form; the text names line and column.
    """
    text = opened(path)
    measured = set(header_of(text)) >= _MEASURED
    jobs: list[LaneJob] = []
    names: set[str] = set()
    for row in rows(str(path), text):
        if most and len(jobs) == most:
            break
        if len(jobs) == MOST_JOBS:
            raise JobTraceError(f"{path}: more than {MOST_JOBS:,} jobs: take a part with --jobs")
        job = _measured(row, len(jobs)) if measured else _own(row, len(jobs))
        if job.name in names:
            raise row.wrong("name", "is the name of two jobs: rename one")
        names.add(job.name)
        jobs.append(job)
    if not jobs:
        raise JobTraceError(f"{path}: no jobs")
    notes = []
    if measured:
        notes.append(
            f"the table has peaks alone: {PERSISTENT_PART:.0%} of each is taken as persistent, "
            "and all jobs come at once"
        )
    joined = -(-sum(job.steps for job in jobs) // MOST_STEPS)
    if joined > 1:
        jobs = [_coarse(job, joined) for job in jobs]
        notes.append(f"{joined} steps are played as one")
    return tuple(jobs), tuple(notes)


def _own(row: TableRow, at: int) -> LaneJob:
    lasts_s = row.number("duration_s", _SECONDS, least=1e-3)
    step_s = row.number("step_s", _SECONDS, least=1e-6, default=min(STEP_DEFAULT_S, lasts_s))
    duty = row.number("duty", "a part of time, as 0.3", least=1e-3, default=1.0)
    if duty > 1:
        raise row.wrong("duty", "is more than all of its time: write a part, as 0.3")
    demand = JobDemand(
        name=row.text("name") or f"job-{at}",
        persistent_mib=row.whole("persistent_mib", _MIB, least=0),
        ephemeral_mib=row.whole("ephemeral_mib", _MIB, least=0),
        duty=duty,
        step_s=step_s,
        total_s=lasts_s,
    )
    steps = max(1, round(lasts_s / step_s))
    arrival_s = row.number("arrival_s", _SECONDS)
    return LaneJob(demand=demand, arrival_s=arrival_s, steps=steps, step_s=lasts_s / steps)


def _measured(row: TableRow, at: int) -> LaneJob:
    peak_mib = row.number("memory_mb", "MB, as 3709.6", least=1.0)
    lasts_s = row.number("solo_duration_s", _SECONDS, least=1e-3)
    steps = row.whole("iterations", "a number of steps, as 565")
    persistent = int(PERSISTENT_PART * peak_mib)
    demand = JobDemand(
        name=f"{row.text('workload')[:60]}-{at}",
        persistent_mib=persistent,
        ephemeral_mib=int(peak_mib) - persistent,
        step_s=lasts_s / steps,
        total_s=lasts_s,
    )
    return LaneJob(demand=demand, arrival_s=0.0, steps=steps, step_s=lasts_s / steps)


def _coarse(job: LaneJob, joined: int) -> LaneJob:
    """The same job in longer steps, by a factor."""
    steps = max(1, job.steps // joined)
    return LaneJob(
        demand=job.demand,
        arrival_s=job.arrival_s,
        steps=steps,
        step_s=job.step_s * job.steps / steps,
    )
