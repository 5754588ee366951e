# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The ranks of a job joined: who arrives last at collectives, and why.

Takes summaries only. Ranks and nodes are what the operator knows; what a file says of them does not
count, so a forged one changes figures of its own job alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final

import numpy as np

from ullage.api.rank_traces import CollectiveKind, RankTrace, StepColumns, TimeBreakdown
from ullage.engines.tracing.alignment import ClockOffset, Passage, clock_offsets
from ullage.engines.tracing.findings import findings
from ullage.engines.tracing.intervals import Intervals
from ullage.engines.tracing.job_trace import (
    MAX_RANKS,
    ClockAlignment,
    DelayCause,
    JobTrace,
    Straggler,
    TracedRank,
)

MOST_JOINED: Final = 512
"""Most ranks of one job that are compared."""
LEAD_OF_ALL: Final = 0.6
"""Minimum share of a straggler in all waiting for a last rank."""
WORK_RATIO: Final = 1.1
"""Minimum ratio of its own work to that of the median rank: below it, being last is chance."""
LEAD_SHARE: Final = 0.05
"""Minimum share of their steps for which the others wait for it."""
ONE_CLOCK: Final = ClockOffset(0.0, 0.0, 0.0)
_SYMMETRIC: Final = ("all_", "reduce_scatter", "barrier")
"""Collectives that no rank leaves before the last has entered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTrace:
    """The trace of a rank, with the rank and the node that the operator knows."""

    rank: int
    node: str
    trace: RankTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Collectives of a rank that were compared, those that waited for it, and the waiting time."""

    compared: int = 0
    last: int = 0
    lead_micros: float = 0.0


@dataclass(frozen=True, slots=True)
class _Key:
    """The identity of a collective, equal in all of its ranks."""

    kind: CollectiveKind
    step: int
    ordinal: int
    of: int


def joined(ranks: Sequence[NodeTrace]) -> JobTrace:
    """The steps of all ranks together.

    Args:
        ranks: One trace of each rank, of the same steps.

    Raises:
        ValueError: there is none, or more than ``MOST_JOINED``, or a rank is there twice.
    """
    if not 0 < len(ranks) <= MOST_JOINED:
        raise ValueError(f"{len(ranks)} traces, from 1 to {MOST_JOINED} can be joined")
    ranks = sorted(ranks, key=lambda traced: traced.rank)
    twice = {a.rank for a, b in pairwise(ranks) if a.rank == b.rank}
    if twice:
        raise ValueError(f"rank {min(twice)} is there twice")
    collectives = matched(ranks)
    symmetric = [pair for pair in collectives if pair[0].kind.name.startswith(_SYMMETRIC)]
    nodes = list(dict.fromkeys(traced.node for traced in ranks))
    alignment = ClockAlignment.ONE_CLOCK
    offsets: Mapping[str, ClockOffset] | None = {nodes[0]: ONE_CLOCK}
    if len(nodes) > 1:
        offsets = clock_offsets([passages for _, passages in symmetric], nodes)
        alignment = ClockAlignment.UNALIGNED if offsets is None else ClockAlignment.ALIGNED
    offsets = offsets or {}
    arrivals = _arrivals(symmetric, offsets)
    straggler = _straggler(ranks, arrivals)
    views = tuple(_view(traced, arrivals, offsets) for traced in ranks)
    job = JobTrace(
        first_step=_first_step(ranks),
        steps=min(len(traced.trace.steps) for traced in ranks),
        step=_sum([traced.trace.step for traced in ranks]),
        alignment=alignment,
        clock_uncertainty_micros=round(
            max((offset.uncertainty for offset in offsets.values()), default=0.0)
        ),
        collectives=len(collectives),
        straggler=straggler,
        ranks=_listed(views, straggler),
        ranks_left_out=max(0, len(views) - MAX_RANKS),
    )
    return findings(job, [traced.trace for traced in ranks])


def matched(ranks: Sequence[NodeTrace]) -> list[tuple[_Key, tuple[Passage, ...]]]:
    """Collectives that every rank of their group has, in order."""
    numbered = all(traced.trace.first_step for traced in ranks)
    by_key: dict[_Key, list[Passage]] = defaultdict(list)
    members: dict[CollectiveKind, set[int]] = defaultdict(set)
    for traced in ranks:
        trace, columns = traced.trace, traced.trace.collectives
        first = trace.first_step if numbered else 0
        rows = zip(
            columns.kind,
            columns.step,
            columns.ordinal,
            columns.of,
            columns.starts_micros,
            columns.spans_micros,
            strict=True,
        )
        for kind, step, ordinal, of, start, span in rows:
            key = _Key(columns.kinds[kind], first + step, ordinal, of)
            begun = float(trace.start_micros + start)
            by_key[key].append(Passage(traced.rank, traced.node, begun, begun + span))
            members[key.kind].add(traced.rank)
    whole = [
        (key, tuple(passages))
        for key, passages in by_key.items()
        if len(passages) == (len(members[key.kind]) if key.kind.group else len(ranks)) > 1
    ]
    return sorted(whole, key=lambda pair: (pair[0].step, pair[1][0].start, pair[0].ordinal))


def _arrivals(
    collectives: Sequence[tuple[_Key, tuple[Passage, ...]]], offsets: Mapping[str, ClockOffset]
) -> dict[int, Arrivals]:
    """The last rank to arrive; without offsets, the rank that waits least.

    What the others wait is the union of the waits of the median rank: buckets of gradients overlap.
    """
    compared: dict[int, int] = defaultdict(int)
    last: dict[int, int] = defaultdict(int)
    waits: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for _, passages in collectives:
        order = sorted(passages, key=lambda passage: (_entered(passage, offsets), passage.rank))
        latest, before, usual = order[-1], order[-2], order[(len(order) - 1) // 2]
        doubt = 0.0
        if offsets and latest.node != before.node:
            doubt = offsets[latest.node].spread + offsets[before.node].spread
        for passage in passages:
            compared[passage.rank] += 1
        arrived = _entered(latest, offsets)
        if arrived - _entered(before, offsets) > doubt:
            last[latest.rank] += 1
            waited = arrived - _entered(usual, offsets)
            begun = usual.start - offsets.get(usual.node, ONE_CLOCK).micros
            waits[latest.rank].append((begun, begun + waited))
    return {
        rank: Arrivals(compared=count, last=last[rank], lead_micros=_length(waits[rank]))
        for rank, count in compared.items()
    }


def _length(stretches: Sequence[tuple[float, float]]) -> float:
    edges = np.array(stretches).reshape(-1, 2)
    return Intervals.union(edges[:, 0], edges[:, 1]).length


def _entered(passage: Passage, offsets: Mapping[str, ClockOffset]) -> float:
    if not offsets:
        return passage.start - passage.end
    return passage.start - offsets[passage.node].micros


def _straggler(ranks: Sequence[NodeTrace], arrivals: Mapping[int, Arrivals]) -> Straggler | None:
    """The rank that the others wait for, where they do so markedly."""
    if len(ranks) < 2 or not arrivals:
        return None
    rank, worst = max(
        arrivals.items(), key=lambda item: (item[1].lead_micros, item[1].last, -item[0])
    )
    span = median(traced.trace.step.span_micros for traced in ranks)
    waits = sum(each.lead_micros for each in arrivals.values())
    if worst.lead_micros < max(LEAD_OF_ALL * waits, LEAD_SHARE * span, 1):
        return None
    own = next(traced.trace for traced in ranks if traced.rank == rank)
    others = [traced.trace for traced in ranks if traced.rank != rank]
    cause, delay = _cause(own, others)
    work, usual = _work(own), median(_work(traced.trace) for traced in ranks)
    if work < WORK_RATIO * usual:
        return None
    return Straggler(
        rank=rank,
        cause=cause,
        arrives_last=worst.last,
        collectives=worst.compared,
        delay_micros=max(0, round(delay)),
        slowdown_percent=round(min(100 * work / usual, 1e5)) if usual else 100,
    )


def _cause(own: RankTrace, others: Sequence[RankTrace]) -> tuple[DelayCause, float]:
    """The part of a step in which a rank exceeds the median of the others most."""
    mine, theirs = _parts(own.steps), [_parts(trace.steps) for trace in others]
    excess = {cause: mine[cause] - median(parts[cause] for parts in theirs) for cause in DelayCause}
    cause = max(excess, key=lambda cause: excess[cause])
    return cause, excess[cause]


def _parts(steps: StepColumns) -> dict[DelayCause, float]:
    """Mean microseconds a step by cause."""
    count = max(1, len(steps))
    spans = sum(steps.spans_micros)
    compute, copies = sum(steps.compute_micros), sum(steps.copies_micros)
    waits = sum(steps.data_wait_micros)
    rest = spans - compute - copies - waits - sum(steps.communication_micros)
    return {
        DelayCause.INPUT: waits / count,
        DelayCause.COMPUTE: compute / count,
        DelayCause.COPIES: copies / count,
        DelayCause.HOST: max(0, rest) / count,
    }


def _work(trace: RankTrace) -> float:
    """Microseconds of a step that a rank does not wait for others."""
    span, exposed = trace.step.span_micros, trace.step.communication_micros
    return max(0, span - exposed) / max(1, len(trace.steps))


def _view(
    traced: NodeTrace, arrivals: Mapping[int, Arrivals], offsets: Mapping[str, ClockOffset]
) -> TracedRank:
    own = arrivals.get(traced.rank, Arrivals())
    offset = offsets.get(traced.node, ONE_CLOCK)
    return TracedRank(
        rank=traced.rank,
        node=traced.node,
        step=traced.trace.step,
        critical_path=traced.trace.critical_path,
        arrives_last=own.last,
        lead_micros=round(own.lead_micros),
        clock_offset_micros=round(offset.micros),
        clock_uncertainty_micros=round(offset.uncertainty),
    )


def _listed(views: Sequence[TracedRank], straggler: Straggler | None) -> tuple[TracedRank, ...]:
    """The ranks that a status has room for: those that others wait for most."""
    if len(views) <= MAX_RANKS:
        return tuple(views)
    slowest = sorted(views, key=lambda view: (-view.lead_micros, view.rank))
    if straggler is not None:
        slowest.sort(key=lambda view: view.rank != straggler.rank)
    return tuple(sorted(slowest[:MAX_RANKS], key=lambda view: view.rank))


def _first_step(ranks: Sequence[NodeTrace]) -> int:
    stated = {traced.trace.first_step for traced in ranks}
    return max(stated) if 0 not in stated else 0


def _sum(parts: Sequence[TimeBreakdown]) -> TimeBreakdown:
    return TimeBreakdown(
        span_micros=sum(part.span_micros for part in parts),
        compute_micros=sum(part.compute_micros for part in parts),
        communication_micros=sum(part.communication_micros for part in parts),
        copies_micros=sum(part.copies_micros for part in parts),
        data_wait_micros=sum(part.data_wait_micros for part in parts),
        idle_micros=sum(part.idle_micros for part in parts),
        overlapped_micros=sum(part.overlapped_micros for part in parts),
    )
