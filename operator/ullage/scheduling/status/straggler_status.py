# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The condition on a slow rank of a running job.

It changes only with the rank, its pod or the cause, each after it has held for a while, and has no
figures: those change with every report of a node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.api.reasons import ConditionType, Reason, reason_of
from ullage.cluster.records.straggler import StragglerRecord
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.engines.stragglers.detector import SlowCause
from ullage.scheduling.model.conditions import DesiredCondition
from ullage.scheduling.model.view import View

REASONS: Final[Mapping[SlowCause, Reason]] = {
    SlowCause.COMPUTE: Reason.RANK_COMPUTES_LONGER,
    SlowCause.THROTTLED: Reason.RANK_THROTTLED,
    SlowCause.NEIGHBOUR: Reason.RANK_BESIDE_NEIGHBOURS,
    SlowCause.DATA: Reason.RANK_WAITS_FOR_DATA,
    SlowCause.LINK: Reason.RANK_COMMUNICATES_LONGER,
}
_TYPE: Final = ConditionType.STRAGGLER_PRESENT


def straggler_of(view: View, workload: WorkloadRecord) -> StragglerRecord | None:
    """The slow rank of a job; ``None`` = there is none, or it is not known."""
    return (view.snapshot.stragglers or {}).get(workload.ref.uid)


def straggler_condition(view: View, workload: WorkloadRecord) -> DesiredCondition | None:
    """The condition of a running job; ``None`` = it has none.

    Until this process knows the slow ranks the condition stays as another one left it.

    Args:
        view: The cycle's snapshot.
        workload: A workload that runs; pods of other controllers have Events alone.
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
    return DesiredCondition(_TYPE, True, REASONS[slow.cause], message, follows=True)


def shows_no_straggler(view: View, workload: WorkloadRecord) -> bool:
    """True when a job has no slow rank and its status names none."""
    return straggler_of(view, workload) is None and workload.status.condition(_TYPE) is None
