# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Records device faults in the profile of the class that caused them.

The profile lists the newest faults by identity, and the time up to which all older ones are
counted. So deciding twice, or after a restart, counts nothing twice. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ullage.api.reasons import ConditionType, Reason
from ullage.api.times import rfc3339
from ullage.api.xids import xid_of
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.profile import MAX_CHARGED, ChargedFault, ProfileRecord, ProfileStatus
from ullage.cluster.records.status import Condition
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.model.conditions import DesiredCondition, merged
from ullage.scheduling.model.plan import Emit
from ullage.scheduling.model.view import Class, Isolation


def charged(
    profile: ProfileRecord,
    status: ProfileStatus,
    faults: Sequence[ChargedFault],
    isolation: Isolation | None,
    now: float,
) -> ProfileStatus:
    """A status that includes these faults; an equal one without a change.

    Args:
        profile: The profile of the status.
        status: The status so far.
        faults: Attributed faults that are not yet counted in a profile.
        isolation: Isolation of the class, ``None`` = it may share with others.
        now: The current time, seconds since the epoch.
    """
    listed = sorted([*status.recent_faults, *faults], key=lambda fault: (fault.at_s, fault.id))
    left_out, kept = listed[:-MAX_CHARGED], listed[-MAX_CHARGED:]
    counted_to = max((fault.at_s for fault in left_out), default=0.0)
    return replace(
        status,
        faults=status.faults + len(faults),
        faults_counted_to=max(status.faults_counted_to, counted_to),
        recent_faults=tuple(kept),
        conditions=_conditions(profile, status, isolation, now),
    )


def _conditions(
    profile: ProfileRecord, status: ProfileStatus, isolation: Isolation | None, now: float
) -> tuple[Condition, ...]:
    kind, desired = ConditionType.ISOLATED, list[DesiredCondition]()
    if isolation is not None:
        text = isolation_text(isolation)
        desired.append(DesiredCondition(kind, True, Reason.CLASS_FAULTED, text, follows=True))
    before = tuple(condition for condition in status.conditions if condition.type == kind)
    after = merged(before, desired, whole_second(now), profile.generation)
    if after is before:
        return status.conditions
    others = (condition for condition in status.conditions if condition.type != kind)
    return tuple(sorted((*others, *after), key=lambda condition: condition.type))


def isolation_text(isolation: Isolation) -> str:
    """The newest fault, and the end of the isolation."""
    newest = isolation.newest
    more = f", the last of {isolation.faults} faults" if isolation.faults > 1 else ""
    return (
        f"{newest.pod} faulted {newest.node}/{newest.gpu} at {rfc3339(newest.at_s)}: "
        f"{xid_of(newest.xid).text}{more}; until {rfc3339(isolation.until)} the class shares "
        "devices with itself alone, on trial"
    )


def isolation_news(
    isolated: Mapping[Class, Isolation], workloads: Iterable[WorkloadRecord], epoch: int
) -> list[Emit]:
    """Events for the workloads of newly charged classes."""
    return [
        Emit(
            target=workload.ref,
            warning=True,
            epoch=epoch,
            reason=Reason.CLASS_FAULTED,
            text=isolation_text(isolation),
        )
        for workload in workloads
        if (isolation := isolated.get((workload.ref.namespace, workload.workload_class)))
    ]
