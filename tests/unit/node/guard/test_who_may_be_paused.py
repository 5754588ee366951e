# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whom the guard may pause, for whom, and whom it names."""

from __future__ import annotations

import pytest

from fakes.guard_rig import VICTIM, a_tenant
from fakes.guard_story import NOISE, Story, reasons, some
from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage_node.model.guard import Freeze, GuardTenant, Tell


@pytest.mark.parametrize(
    "neighbour",
    [
        a_tenant("n", protected=True),
        a_tenant("n", gpus=("gpu-1",)),
        a_tenant("n", leaving=True),
        a_tenant("n", gang="g", gang_here=False),
        a_tenant("n", freeze_seconds=1.0),
    ],
    ids=["protected", "elsewhere", "leaving", "part of a gang", "probed often"],
)
def test_who_may_not_be_paused(neighbour: GuardTenant) -> None:
    story = Story(VICTIM, neighbour)
    assert not any(some(story.window(2.0), Freeze) for _ in range(6))
    assert story.machine.marks[VICTIM.key].phase is SlicePhase.VIOLATING


@pytest.mark.parametrize(
    ("neighbour", "why"),
    [
        (a_tenant("n", protected=True), "no best-effort neighbour on its device"),
        (a_tenant("n", leaving=True), "no best-effort neighbour on its device"),
        (a_tenant("n", gang="g", gang_here=False), "n is part of a gang that cannot be paused"),
        (a_tenant("n", freeze_seconds=1.0), "n may not stand still for as long as one window"),
    ],
)
def test_the_victims_owner_reads_why_no_one_is_paused(neighbour: GuardTenant, why: str) -> None:
    story = Story(VICTIM, neighbour)
    for _ in range(4):
        story.window(2.0, seconds=2.0)
    assert why in story.machine.marks[VICTIM.key].message


def test_a_tenant_on_probation_may_be_paused_though_it_has_an_objective() -> None:
    novel = a_tenant("novel", protected=True, probation=True)
    assert Story(VICTIM, novel).freeze().keys == (novel.key,)


@pytest.mark.parametrize(
    "victim", [a_tenant("victim"), a_tenant("victim", protected=True, probation=True)]
)
def test_no_one_is_paused_for_best_effort_or_probation(victim: GuardTenant) -> None:
    story = Story(victim, NOISE)
    assert not any(some(story.window(2.0), Freeze) for _ in range(6))


def test_a_tenant_alone_on_its_device_can_only_blame_itself() -> None:
    story = Story(VICTIM)
    story.window(2.0)
    assert reasons(story.window(2.0)) == [Reason.SELF_VIOLATING]
    assert story.window(2.0) == []


def test_a_gang_is_paused_whole() -> None:
    here, there = a_tenant("a", gang="g"), a_tenant("b", gang="g", gpus=("gpu-1",))
    story = Story(VICTIM, here, there)
    assert story.freeze().keys == (here.key, there.key)


def test_a_gang_with_a_protected_member_is_not_paused() -> None:
    here = a_tenant("a", gang="g")
    there = a_tenant("b", gang="g", gpus=("gpu-1",), protected=True)
    story = Story(VICTIM, here, there)
    assert not any(some(story.window(2.0), Freeze) for _ in range(4))


def test_the_least_important_neighbour_is_the_one_to_go() -> None:
    small = a_tenant("small", priority=1, percent=20)
    large = a_tenant("large", priority=1, percent=60)
    vital = a_tenant("vital", priority=5, percent=80)
    story = Story(VICTIM, small, large, vital)
    story.freeze()
    told = some(story.window(0.5), Tell)
    assert [one.key for one in told if one.reason is Reason.INTERFERING] == [large.key]
