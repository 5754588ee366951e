# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What owners are told once of the division of time, beside what every change of place tells."""

from __future__ import annotations

from ullage.api.reasons import Reason
from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.cluster.records.status import WorkloadStatus
from ullage.scheduling.model.plan import Emit
from ullage.scheduling.timeslicing.messages import GUESSED, dropped_text, estimate_text


def turn_news(workload: WorkloadRecord, status: WorkloadStatus, epoch: int) -> tuple[Emit, ...]:
    """Events for a job whose part rests on a guess from now on, or whose deadline is not kept."""
    before, now = workload.status.allocation, status.allocation
    if now is None:
        return ()
    found: list[Emit] = []
    if now.source in GUESSED and (before is None or before.source not in GUESSED):
        found.append(_emit(workload, epoch, Reason.ESTIMATE_USED, estimate_text(now)))
    late = before.dropped if before is not None else None
    if now.dropped is not None and (late is None or late.cause != now.dropped.cause):
        found.append(_emit(workload, epoch, Reason.SLO_INFEASIBLE, dropped_text(now.dropped)))
    return tuple(found)


def _emit(workload: WorkloadRecord, epoch: int, reason: Reason, text: str) -> Emit:
    return Emit(
        target=workload.ref,
        warning=reason is Reason.SLO_INFEASIBLE,
        epoch=epoch,
        reason=reason,
        text=text,
    )
