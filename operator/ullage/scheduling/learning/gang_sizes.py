# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Other numbers of members than a job has: which are worth a look, and how fast each would be.

A speed at another number is always called an estimate: it follows from a law, no one measured it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.engines.devicechoice.intervals import Interval
from ullage.engines.devicechoice.memory import Evidence, MemoryVerdict, Verdict
from ullage.engines.devicechoice.offers import Priced, Source, StepForecast
from ullage.scheduling.model.gang_speed import speed

MOST_NUMBERS: Final = 12
"""Numbers of members that are looked at; of wider bounds a geometric series."""
MOST_ADVISED: Final = 8
"""Devices up to which other numbers are told to a job that does not change its own (our choice)."""
_SPREAD: Final = 0.97
"""What a doubling may gain or lose against the law: from no loss at all to twice the loss."""
_SUREST: Final = 0.5
"""Confidence of an estimate without any error; that of a measured speed begins there."""


def numbers_of(job: WorkloadRecord, there: int) -> tuple[int, ...]:
    """Numbers of members to look at beside the job's own, ascending.

    Of an elastic job those within its bounds. Of others powers of two, no further than an eighth
    and the double of its own, which is known to work, or ``MOST_ADVISED`` devices.

    Args:
        job: the job.
        there: most members that the cluster has devices of one type for.
    """
    own, bounds = job.replicas, job.elasticity
    if bounds is not None:
        found = _series(bounds.min_replicas, max(bounds.min_replicas, bounds.within(there)))
    else:
        most = min(there, max(2 * own, MOST_ADVISED // max(1, job.gpu.count)))
        found = {2**at for at in range(most.bit_length()) if own <= 2**at * 8 and 2**at <= most}
    return tuple(sorted(found - {own}))


def _series(least: int, most: int) -> set[int]:
    """All of a few numbers, else a geometric series with both ends."""
    if most - least < MOST_NUMBERS:
        return set(range(least, most + 1))
    ratio = math.log(most / least) / (MOST_NUMBERS - 1)
    return {round(least * math.exp(ratio * at)) for at in range(MOST_NUMBERS)}


def doublings(own: int, other: int) -> float:
    """How many doublings or halvings lie between two numbers."""
    return abs(math.log2(other / own))


def forecast_at(known: StepForecast, own: int, other: int) -> StepForecast:
    """The step of ``other`` members that each do as much in it as a member of ``own`` does.

    Such a step takes longer the more there are: n members are n * .97^log2(n) times as fast as
    one (source: ``speed``). Bounds reach from a loss of nothing to twice that loss (derived).
    """
    if known.step is None:
        return replace(known, source=Source.ESTIMATED)
    longer = speed(own) / own / (speed(other) / other)
    wide = _SPREAD ** -doublings(own, other)
    step = known.step.times(longer)
    wider = Interval(value_s=step.value_s, low_s=step.low_s / wide, high_s=step.high_s * wide)
    return replace(known, step=wider, source=Source.ESTIMATED)


def memory_at(known: MemoryVerdict, own: int, other: int) -> MemoryVerdict:
    """The memory of one of ``other`` members that divide one global batch.

    With fewer members each holds a larger part of the batch: at most as much more memory as there
    are fewer of them (derived). Where that bound does not fit, no one knows.
    """
    if other >= own or known.verdict is not Verdict.FITS or known.need_bytes is None:
        return known
    need = known.need_bytes * own / other
    if need > known.device_bytes:
        return replace(known, verdict=Verdict.UNKNOWN, evidence=Evidence.NONE, need_bytes=None)
    return replace(known, evidence=Evidence.ESTIMATE, need_bytes=need)


def confidence_at(known: float, own: int, other: int) -> float:
    """Confidence of a speed at another number, from that of the speed itself."""
    if own == other:
        return known
    return float(min(known, _SUREST) * _SPREAD ** doublings(own, other))


def best_of_each_type(rows: Sequence[Priced]) -> tuple[Priced, ...]:
    """One row of every type: the first that can be taken, else advice, else what is nearest.

    Args:
        rows: by rank.
    """
    found: dict[str, Priced] = {}
    for row in rows:
        held = found.get(row.offer.accelerator)
        if held is None or _distance(row) < _distance(held):
            found[row.offer.accelerator] = row
    return tuple(found.values())


def _distance(row: Priced) -> tuple[int, bool, float]:
    """What keeps a row from being taken; of those that cannot be had, the quickest is nearest."""
    if row.infeasible is None:
        return int(row.hold is not None), False, 0.0
    seconds = math.inf if row.total is None else row.total.value_s
    there = row.offer.available
    return 2, not there, seconds if there else float(row.offer.gpus)
