# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Tells a policy that binds nothing, and an object that cannot be read, that it is so."""

from __future__ import annotations

from typing import Final

from ullage.api.reasons import ConditionType, Reason
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.snapshot import ObjectRef, PolicyRecord, Snapshot, Unread
from ullage.cluster.records.status import Condition
from ullage.scheduling.model.conditions import Said, merged
from ullage.scheduling.model.plan import SetConditions

ONLY_DEFAULT: Final = (
    "only the SchedulingPolicy named default is in force; rename this one or delete it"
)


def void_policies(snapshot: Snapshot, now: float, epoch: int) -> list[SetConditions]:
    """Condition ``Invalid`` for every policy with another name that does not bear it yet."""
    return [_void(policy, now, epoch) for policy in snapshot.idle_policies if not _is_told(policy)]


def _is_told(policy: PolicyRecord) -> bool:
    return any(c.type == ConditionType.INVALID and c.status == "True" for c in policy.conditions)


def _void(policy: PolicyRecord, now: float, epoch: int) -> SetConditions:
    condition = Condition(
        type=ConditionType.INVALID,
        status="True",
        reason=Reason.INVALID_OBJECT,
        message=ONLY_DEFAULT,
        since=now,
        observed_generation=policy.generation,
    )
    return SetConditions(
        target=ObjectRef(kind="SchedulingPolicy", namespace="", name=policy.name, uid=policy.uid),
        generation=policy.generation,
        conditions=(condition,),
        epoch=epoch,
        reason=Reason.INVALID_OBJECT,
        text=ONLY_DEFAULT,
    )


_AGAIN = "it can be read again"


def unread_news(snapshot: Snapshot, now: float, epoch: int) -> list[SetConditions]:
    """What is said, or taken back, of each object for which that is news."""
    found = []
    for one in snapshot.unread:
        before = () if one.told is None else (one.told,)
        after = _conditions(one, before, whole_second(now))
        if after is not before:
            found.append(_news(one, after, epoch))
    return found


def _conditions(unread: Unread, before: tuple[Condition, ...], now: float) -> tuple[Condition, ...]:
    if not unread.text:
        return ()
    said = Said(ConditionType.INVALID, True, Reason.INVALID_OBJECT, unread.text, follows=True)
    return merged(before, [said], now, unread.generation)


def _news(one: Unread, conditions: tuple[Condition, ...], epoch: int) -> SetConditions:
    return SetConditions(
        target=one.ref,
        generation=one.generation,
        conditions=conditions,
        reading=True,
        epoch=epoch,
        reason=Reason.INVALID_OBJECT,
        text=one.text or _AGAIN,
    )
