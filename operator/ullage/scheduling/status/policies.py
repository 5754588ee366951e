# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Condition ``Invalid`` of policies that are not in force and of objects that cannot be read."""

from __future__ import annotations

from typing import Final

from ullage.api.reasons import ConditionType, Reason
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import Condition
from ullage.scheduling.model.conditions import DesiredCondition, merged
from ullage.scheduling.model.plan import SetConditions

ONLY_DEFAULT: Final = (
    "only the SchedulingPolicy named default is in force; rename this one or delete it"
)


def void_policies(snapshot: Snapshot, now: float, epoch: int) -> list[SetConditions]:
    """Condition ``Invalid`` for every policy with another name that does not have it yet."""
    return [
        _void(policy, now, epoch)
        for policy in snapshot.idle_policies
        if not any(
            condition.type == ConditionType.INVALID and condition.status == "True"
            for condition in policy.conditions
        )
    ]


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


def unread_news(snapshot: Snapshot, now: float, epoch: int) -> list[SetConditions]:
    """Set or remove condition ``Invalid`` of objects for which that changed."""
    news: list[SetConditions] = []
    for unread in snapshot.unread:
        before = () if unread.condition is None else (unread.condition,)
        after: tuple[Condition, ...] = ()
        if unread.text:
            invalid = DesiredCondition(
                ConditionType.INVALID, True, Reason.INVALID_OBJECT, unread.text, follows=True
            )
            after = merged(before, [invalid], whole_second(now), unread.generation)
        if after is not before:
            news.append(
                SetConditions(
                    target=unread.ref,
                    generation=unread.generation,
                    conditions=after,
                    reading=True,
                    epoch=epoch,
                    reason=Reason.INVALID_OBJECT,
                    text=unread.text or "it can be read again",
                )
            )
    return news
