# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Records of ranks and traces with one known antipattern or none, for ``bench.efficiency``.

Every job has ranks and a trace; what is not planted is drawn up to just below what is bad. The
trace is judged by the operator's own findings, the ranks by its own detector.
"""

from __future__ import annotations

import random
from typing import Final

from ullage.api.rank_traces import (
    CriticalPath,
    RankTrace,
    StepColumns,
    TimeBreakdown,
    TraceCounters,
)
from ullage.api.slices import ObservedRank
from ullage.api.words import EfficiencyRule as Rule
from ullage.cluster.records.status import WorkloadStatus
from ullage.cluster.records.trace import LastTrace
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.efficiency.step_rules import StepClaim
from ullage.engines.tracing.findings import findings
from ullage.engines.tracing.job_trace import ClockAlignment, JobTrace
from ullage.scheduling.accounting.step_evidence import claims_of

STEPS: Final = 5
STEP_MICROS: Final = 100_000
OPERATIONS: Final = 2_000
RANKS: Final = 4
OF_STEPS: Final = (
    Rule.WAITS_FOR_DATA,
    Rule.CPU_THROTTLED,
    Rule.SLOW_RANK,
    Rule.EXPOSED_COMMUNICATION,
    Rule.SHORT_KERNELS,
    Rule.SYNCHRONISES_OFTEN,
    Rule.ALLOCATES_IN_STEPS,
    Rule.PAGEABLE_COPIES,
)
"""Antipatterns that are planted in ranks and traces."""


def drawn_loss(planted: Rule | None, draw: random.Random) -> float:
    """Part of each step that the antipattern costs."""
    match planted:
        case Rule.CPU_THROTTLED:
            return draw.uniform(0.22, 0.6)
        case Rule.WAITS_FOR_DATA | Rule.PAGEABLE_COPIES | Rule.SYNCHRONISES_OFTEN:
            return draw.uniform(0.12, 0.4)
        case Rule.EXPOSED_COMMUNICATION | Rule.SHORT_KERNELS | Rule.SLOW_RANK:
            return draw.uniform(0.24, 0.5)
        case _:
            return 0.0


def ranks_of(planted: Rule | None, loss: float, draw: random.Random) -> tuple[ObservedRank, ...]:
    """Records of the ranks of a job."""
    slow = draw.randrange(RANKS)
    own = STEP_MICROS * draw.uniform(0.6, 0.75)
    ranks: list[ObservedRank] = []
    for number in range(RANKS):
        data = STEP_MICROS * draw.uniform(0.0, 0.08)
        stopped = draw.randrange(12)
        compute = own * draw.uniform(0.97, 1.03)
        if planted is Rule.WAITS_FOR_DATA:
            data = STEP_MICROS * loss * draw.uniform(0.98, 1.02)
        if planted is Rule.CPU_THROTTLED:
            stopped = int(loss * 100)
        if planted is Rule.SLOW_RANK:
            compute = STEP_MICROS * (0.9 if number == slow else 0.9 - loss)
            data = 0.0
        ranks.append(
            ObservedRank(
                rank=number,
                steps=draw.randrange(500, 100_000),
                step_micros=STEP_MICROS,
                compute_micros=int(compute),
                data_wait_micros=int(data),
                throttled_percent=stopped,
            )
        )
    return tuple(ranks)


def trace_of(planted: Rule | None, loss: float, draw: random.Random) -> LastTrace:
    """The last trace of a job, with the findings that the operator stores."""
    span = STEPS * STEP_MICROS
    shares = {
        "data_wait": draw.uniform(0.0, 0.08),
        "communication": draw.uniform(0.0, 0.18),
        "copies": draw.uniform(0.0, 0.04),
        "idle": draw.uniform(0.0, 0.18),
    }
    short, waits = draw.uniform(0.0, 0.45), draw.uniform(0.0, 0.09)
    synchronised, pageable = draw.uniform(0.0, 0.02), draw.uniform(0.0, 0.045)
    allocations = draw.randrange(STEPS)
    match planted:
        case Rule.WAITS_FOR_DATA:
            shares["data_wait"] = loss
        case Rule.EXPOSED_COMMUNICATION:
            shares["communication"] = loss
        case Rule.SHORT_KERNELS:
            shares["idle"], short = loss, draw.uniform(0.55, 0.95)
        case Rule.SYNCHRONISES_OFTEN:
            shares["idle"], synchronised, waits = loss, loss, draw.uniform(0.12, 0.5)
        case Rule.ALLOCATES_IN_STEPS:
            allocations = draw.randrange(STEPS, 500)
        case Rule.PAGEABLE_COPIES:
            shares["copies"], pageable = loss, loss
        case _:
            pass
    parts = {f"{name}_micros": int(share * span) for name, share in shares.items()}
    step = TimeBreakdown(span_micros=span, compute_micros=span - sum(parts.values()), **parts)
    zeros, each = (0,) * STEPS, (STEP_MICROS,) * STEPS
    trace = RankTrace(
        start_micros=1,
        step=step,
        critical_path=CriticalPath(host_micros=int(span * draw.uniform(0.0, 0.4))),
        steps=StepColumns(
            starts_micros=tuple(range(0, span, STEP_MICROS)),
            spans_micros=each,
            compute_micros=zeros,
            communication_micros=zeros,
            copies_micros=zeros,
            data_wait_micros=zeros,
        ),
        counters=TraceCounters(
            kernels=OPERATIONS,
            short_kernels=int(short * OPERATIONS),
            operations=OPERATIONS,
            synchronisations=int(waits * OPERATIONS),
            synchronisation_micros=int(synchronised * span),
            scalar_reads=int(waits * OPERATIONS / 2),
            allocations=allocations,
            pageable_micros=int(pageable * span),
        ),
    )
    job = JobTrace(steps=STEPS, step=step, alignment=ClockAlignment.ONE_CLOCK)
    return LastTrace(
        name="trace",
        ended=0.0,
        pods=("job",),
        first_step=1,
        steps=STEPS,
        findings=findings(job, [trace]).findings,
    )


def claims_drawn(
    planted: Rule | None, loss: float, job: WorkloadRecord, draw: random.Random
) -> tuple[StepClaim, ...]:
    """What ranks and trace of a job say, as the operator reads them.

    Args:
        planted: Its antipattern; ``None`` = none.
        loss: Part of each step that it costs.
        job: The job, placed.
        draw: Source of the figures.
    """
    status: WorkloadStatus = job.status
    ranks = ranks_of(planted, loss, draw)
    traces = {(job.ref.namespace, job.ref.name): trace_of(planted, loss, draw)}
    return claims_of(job, status, ranks, traces, 0.0)
