# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Tells a SchedulingPolicy that binds nothing that it does not; never reads one for a decision."""

from __future__ import annotations

from ullage.api.contract import Reason
from ullage.api.reasons import ConditionType
from ullage.cluster.records.snapshot import ObjectRef, PolicyRecord, Snapshot
from ullage.cluster.records.status import Condition
from ullage.scheduling.model.plan import SetConditions

_TEXT = "only the SchedulingPolicy named default is in force; rename this one or delete it"


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
        message=_TEXT,
        since=now,
        observed_generation=policy.generation,
    )
    return SetConditions(
        target=ObjectRef(kind="SchedulingPolicy", namespace="", name=policy.name, uid=policy.uid),
        generation=policy.generation,
        conditions=(condition,),
        epoch=epoch,
        reason=Reason.INVALID_OBJECT,
        text=_TEXT,
    )
