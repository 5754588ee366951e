# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The condition on a slow rank of a running job.

It changes only with the rank, its pod or the cause, each after it has held for a while, and has no
figures: those change with every report of a node.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ullage.api.reasons import ConditionType, Reason, Standing, reason_of
from ullage.cluster.records.status import Replacement, WorkloadStatus
from ullage.cluster.records.straggler import StragglerRecord
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.scheduling.lifecycle.slow_members import REASONS
from ullage.scheduling.model.conditions import DesiredCondition
from ullage.scheduling.model.plan import Emit
from ullage.scheduling.model.view import View

_TYPE: Final = ConditionType.STRAGGLER_PRESENT
_NOT_REPLACED: Final = "; not replaced: "


def straggler_of(view: View, workload: WorkloadRecord) -> StragglerRecord | None:
    """The slow rank of a job; ``None`` = there is none, or it is not known."""
    return (view.snapshot.stragglers or {}).get(workload.ref.uid)


def straggler_condition(view: View, workload: WorkloadRecord, kept: str) -> DesiredCondition | None:
    """The condition of a running job; ``None`` = it has none.

    Until this process knows the slow ranks the condition stays as another one left it.

    Args:
        view: The cycle's snapshot.
        workload: A workload that runs; pods of other controllers have Events alone.
        kept: The cause for which the rank's member is not replaced; empty = it is not due, or is.
    """
    if workload.kind is not WorkloadKind.TRAINING_JOB:
        return None
    if view.snapshot.stragglers is None:
        before = workload.status.condition(_TYPE)
        reason = reason_of(before.reason) if before is not None else None
        if before is None or reason is None:
            return None
        return DesiredCondition(_TYPE, True, reason, before.message)
    slow = straggler_of(view, workload)
    if slow is None:
        return None
    message = f"rank {slow.rank} in {slow.pod} on {slow.node}"
    message += f"{_NOT_REPLACED}{kept}" if kept else ""
    return DesiredCondition(_TYPE, True, REASONS[slow.cause], message, follows=True)


def shows_no_straggler(view: View, workload: WorkloadRecord) -> bool:
    """True when a job has no slow rank and its status names none."""
    return straggler_of(view, workload) is None and workload.status.condition(_TYPE) is None


def straggler_news(
    view: View, workload: WorkloadRecord, status: WorkloadStatus, kept: str
) -> Iterator[Emit]:
    """Events on members that leave for their slowness, that are there again, and that stay.

    Args:
        view: The cycle's snapshot.
        workload: The workload, with its previous status.
        status: Its next status.
        kept: As of :func:`straggler_condition`.
    """
    before = workload.status
    replacements = status.scheduling.replacements
    if replacements:
        newest = replacements[-1]
        if replacements != before.scheduling.replacements:
            yield _event(view, workload, Reason.STRAGGLER_REPLACED, newest.message)
        place = _place_of(status, newest)
        if place and place != newest.node and not _place_of(before, newest):
            text = f"{newest.pod} is on {place} instead of {newest.node} ({newest.reason})"
            yield _event(view, workload, Reason.STRAGGLER_REPLACED, text)
    shown, earlier = status.condition(_TYPE), before.condition(_TYPE)
    if kept and shown is not None and (earlier is None or earlier.message != shown.message):
        yield _event(view, workload, Reason.STRAGGLER_KEPT, shown.message)


def _place_of(status: WorkloadStatus, replacement: Replacement) -> str:
    """Node of the replaced pod's successor; empty = it has none."""
    return next((part.node for part in status.placement if part.pod == replacement.pod), "")


def _event(view: View, workload: WorkloadRecord, reason: Reason, text: str) -> Emit:
    return Emit(
        target=workload.ref,
        warning=Standing.GOOD not in reason.standing,
        epoch=view.settings.epoch,
        reason=reason,
        text=text,
    )
