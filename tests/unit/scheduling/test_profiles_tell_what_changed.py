# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A profile's Events: a change of what it means, and never another window."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import NOW
from ullage.api.contract import Reason
from ullage.api.reasons import ConditionType
from ullage.cluster.records.profile import ProfileRecord, ProfileStatus
from ullage.cluster.records.snapshot import ObjectRef
from ullage.cluster.records.status import Condition
from ullage.scheduling.learning.events import profile_news
from ullage.scheduling.model.plan import SetProfile


def fresh(status: str, reason: Reason, message: str = "") -> Condition:
    return Condition(
        type=ConditionType.FRESH, status=status, reason=reason, message=message, since=NOW
    )


CONFLICT = Condition(
    type=ConditionType.CONFLICTING,
    status="True",
    reason=Reason.DECLARED_DIFFERS,
    message="declared 9, measured 5",
    since=NOW,
)
GOOD = fresh("True", Reason.MEASURED)
ODD = fresh("False", Reason.DRIFTED, "times are not what they were")


def news(before: tuple[Condition, ...], after: tuple[Condition, ...]) -> list[tuple[Reason, bool]]:
    status = ProfileStatus(conditions=before)
    profile = ProfileRecord(
        namespace="default", name="p", workload_class="p", uid="u", status=status
    )
    write = SetProfile(
        target=ObjectRef(kind="WorkloadProfile", namespace="default", name="p", uid="u"),
        status=replace(status, conditions=after, updated=NOW),
        epoch=3,
        reason=Reason.MEASURED,
        text="",
    )
    return [(one.reason, one.warning) for one in profile_news(profile, write)]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ((), (GOOD,), []),
        ((GOOD,), (GOOD,), []),
        ((GOOD,), (replace(GOOD, message="other words"),), []),
        ((GOOD,), (ODD,), [(Reason.PROFILE_UPDATED, True)]),
        ((ODD,), (GOOD,), [(Reason.PROFILE_UPDATED, False)]),
        ((GOOD,), (CONFLICT, GOOD), [(Reason.PROFILE_CONFLICT, True)]),
        ((CONFLICT, GOOD), (CONFLICT, GOOD), []),
        ((CONFLICT, GOOD), (GOOD,), []),
    ],
)
def test_an_event_for_each_change_of_meaning(
    before: tuple[Condition, ...],
    after: tuple[Condition, ...],
    told: list[tuple[Reason, bool]],
) -> None:
    assert news(before, after) == told
