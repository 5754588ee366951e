# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A profile's Events: a change of what it means, and never another window."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import NOW
from ullage.api.reasons import ConditionType, Reason
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.profile import ProfileRecord, ProfileStatus
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import Condition
from ullage.scheduling.cycle.diff import diff
from ullage.scheduling.learning.loop import profile_news
from ullage.scheduling.model.plan import Emit, Plan, SetProfile


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


@pytest.mark.parametrize(("name", "goes_out"), [("p", True), ("gone", False)])
def test_an_event_of_a_profile_that_is_there_goes_out(name: str, goes_out: bool) -> None:
    profile = ProfileRecord(namespace="default", name="p", workload_class="p", uid="u")
    event = Emit(
        target=ObjectRef(kind="WorkloadProfile", namespace="default", name=name, uid="u"),
        warning=True,
        epoch=3,
        reason=Reason.PROFILE_CONFLICT,
        text="declared 9, measured 5",
    )
    snapshot = Snapshot(version=1, taken_at=NOW, profiles={("default", "p"): profile})
    plan = Plan(version=1, epoch=3, inputs_hash="", events=(event,))
    assert diff(plan, snapshot) == ((event,) if goes_out else ())
