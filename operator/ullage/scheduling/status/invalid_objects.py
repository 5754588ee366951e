# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Condition ``Invalid`` of policies, profiles and pools whose newest version cannot be read."""

from __future__ import annotations

from ullage.api.contract import Reason
from ullage.api.reasons import ConditionType
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.snapshot import Snapshot, Unread
from ullage.cluster.records.status import Condition
from ullage.scheduling.model.conditions import Said, merged
from ullage.scheduling.model.plan import SetConditions

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
