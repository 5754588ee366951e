# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Claims about the steps of a workload, from the records of its ranks and from its last trace."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Final

from ullage.api.rebalancing import StragglerPolicy
from ullage.api.slices import ObservedRank
from ullage.cluster.records.status import WorkloadStatus
from ullage.cluster.records.trace import LastTrace
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.engines.efficiency.step_rules import (
    RankSteps,
    StepClaim,
    StepsBehind,
    rank_claims,
    trace_claims,
    without_repeats,
)
from ullage.engines.stragglers.detector import RankTimes, SlowCause, find_stragglers
from ullage.scheduling.times import TRACE_AGE_MOST_S

_CAUSES: Final = {
    SlowCause.COMPUTE: "mostly to compute",
    SlowCause.THROTTLED: "stopped at its CPU limit",
    SlowCause.NEIGHBOUR: "mostly to compute beside others",
    SlowCause.DATA: "mostly for its data",
    SlowCause.LINK: "mostly to communicate",
}


def claims_of(
    workload: WorkloadRecord,
    status: WorkloadStatus,
    ranks: Sequence[ObservedRank],
    traces: Mapping[tuple[str, str], LastTrace],
    now: float,
) -> tuple[StepClaim, ...]:
    """What the ranks and the last trace of a job say of its steps; ranks first, they are newer.

    Args:
        workload: The workload; services have no steps.
        status: Its status, with the placement that the ranks are of.
        ranks: Ranks of all its containers; none where one of them reports none.
        traces: Newest traces by namespace and name of the TrainingJob.
        now: Seconds since the epoch.
    """
    if workload.kind is not WorkloadKind.TRAINING_JOB and not workload.adopted:
        return ()
    of_ranks = _of_ranks(workload, ranks) if ranks else ()
    trace = traces.get((workload.ref.namespace, workload.ref.name))
    if trace is None or workload.kind is not WorkloadKind.TRAINING_JOB:
        return of_ranks
    pods = {part.key.pod_uid for part in status.placement}
    if pods.isdisjoint(trace.pods) or now - trace.ended > TRACE_AGE_MOST_S:
        return of_ranks
    window = f" (steps {trace.first_step}-{trace.first_step + trace.steps - 1})"
    where = f"trace {trace.name}{window if trace.first_step else ''}"
    of_trace = trace_claims(
        trace.steps,
        where,
        ((each.reason, each.share_percent, each.message) for each in trace.findings),
    )
    return without_repeats(of_ranks, of_trace)


def _of_ranks(workload: WorkloadRecord, ranks: Sequence[ObservedRank]) -> tuple[StepClaim, ...]:
    steps = [
        RankSteps(
            rank=rank.rank,
            steps=rank.steps,
            step_micros=rank.step_micros,
            data_wait_micros=rank.data_wait_micros,
            throttled_percent=rank.throttled_percent,
        )
        for rank in ranks
    ]
    return rank_claims(steps, _behind(ranks) if _may_be_slow(workload, ranks) else None)


def _may_be_slow(workload: WorkloadRecord, ranks: Sequence[ObservedRank]) -> bool:
    """True if a slow rank costs the others time: batches are even, and someone wants to know."""
    if workload.stragglers is StragglerPolicy.DISABLED or len(ranks) < 2:
        return False
    return all(rank.batch == rank.even_batch for rank in ranks)


def _behind(ranks: Sequence[ObservedRank]) -> StepsBehind | None:
    """The slowest rank, where one is slow."""
    times = [
        RankTimes(
            compute=rank.compute_micros,
            data=rank.data_wait_micros,
            throttled_percent=rank.throttled_percent,
        )
        for rank in ranks
    ]
    stragglers = find_stragglers(times).stragglers
    if not stragglers:
        return None
    slowest = stragglers[0]
    others = [each.own for at, each in enumerate(times) if at != slowest.at and each.own > 0]
    if not others:
        return None
    return StepsBehind(
        rank=ranks[slowest.at].rank,
        ratio=slowest.ratio,
        lost_micros=max(0.0, times[slowest.at].own - statistics.median(others)),
        step_micros=ranks[slowest.at].step_micros,
        cause=_CAUSES[slowest.cause],
    )
