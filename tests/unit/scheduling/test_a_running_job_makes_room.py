# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A job that may be resized starts again with less where that lets a newcomer in, if worth it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from builders import (
    DEVICE_MEMORY_MIB,
    MODEL,
    NOW,
    Part,
    WorkloadBuilder,
    a_gpu_node,
    a_job,
    a_pod,
    a_policy,
    a_profile,
    a_service,
    a_slice,
    reported,
)
from fakes.deciding import Decided, decided
from ullage.api.reasons import Reason
from ullage.api.sharing import SharingRules
from ullage.api.slices import DesiredSlice, ObservedSlice, SlicePhase
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.profile import SoloEntry
from ullage.cluster.records.status import MadeRoom
from ullage.scheduling.model.plan import EvictPod
from ullage.scheduling.times import AGREEMENT_HOLD_S

HALF = a_profile("half", SoloEntry(device=MODEL, share=100, sm_util=0.5))
"""Uses half of a device at most: two of them lose nothing by sharing one."""
ALL = a_profile("all", SoloEntry(device=MODEL, share=100, sm_util=1.0))
OLD = (
    a_job("old")
    .fractional(20, 100)
    .checkpointed()
    .profile("half")
    .aged(2 * AGREEMENT_HOLD_S)
    .with_(sharing=SharingRules(resizable=True))
    .status(phase="Running", observed_generation=1)
)
NEW = a_job("new").fractional(20, 100).profile("half").aged(10)

Edit = Callable[[DesiredSlice], DesiredSlice]
See = Callable[[ObservedSlice], ObservedSlice]


def _parts(
    old: WorkloadBuilder = OLD,
    *,
    percent: int = 100,
    since: float = NOW - 2 * AGREEMENT_HOLD_S,
    wanted: Edit = lambda one: one,
    seen: See = lambda one: one,
    priority: int = 0,
) -> list[Part]:
    """The old job runs on the only device."""
    pod = a_pod(
        "old-0",
        owner=old.build(),
        stage=PodStage.RUNNING,
        node="node-1",
        since=since,
        priority=priority,
    )
    held = wanted(a_slice(pod, percent=percent, memory_mib=1000))
    report = seen(reported(held, SlicePhase.ATTACHED))
    return [a_gpu_node(devices=1, desired=[held], observed=[report]), pod, HALF, ALL, a_policy()]


def _found(
    old: WorkloadBuilder = OLD,
    *parts: Part,
    new: WorkloadBuilder = NEW,
    pods: tuple[PodRecord, ...] | None = None,
    at: float = NOW,
) -> Decided:
    waiting = new.pods() if pods is None else pods
    return decided(*(parts or _parts(old)), old, new, *waiting, at=at)


def _made(found: Decided) -> MadeRoom | None:
    return found.status(OLD).made_room


def test_it_keeps_the_share_at_which_the_device_is_worth_most_and_is_told_for_whom() -> None:
    found = _found()
    made = _made(found)
    assert made == MadeRoom(
        time=NOW,
        percent=50,
        node="node-1",
        gpu="GPU-node-1-0",
        beneficiary="default/new",
        beneficiary_uid="uid-default-new",
    )
    status = found.status(OLD)
    assert (status.phase, status.restarts) == ("Restarting", 0)
    told = found.condition(OLD, "Admitted")
    assert told.reason == Reason.MADE_ROOM
    assert "makes room for default/new on node-1/GPU-node-1-0" in told.message
    assert "at 50 % instead of 100 %" in told.message
    assert Reason.MADE_ROOM in [reason for reason, _ in found.events()]
    assert found.decision(OLD).reason is Reason.MADE_ROOM
    assert "restarting default/old at 50 % instead of 100 %" in found.decision(NEW).message
    assert found.all(EvictPod) == []


def test_its_pod_goes_once_the_status_says_what_it_was_left() -> None:
    old = OLD.with_(status=_found().status(OLD))
    found = _found(old)
    evicted = found.one(EvictPod)
    assert (evicted.pod.name, evicted.reason) == ("old-0", Reason.MADE_ROOM)
    assert "about to become free" in found.decision(NEW).message
    assert _made(found) == old.build().status.made_room


def _gone(old: WorkloadBuilder) -> Decided:
    """Its pod is gone, the next is not there yet; the newcomer waits."""
    return _found(old, a_gpu_node(devices=1), HALF, ALL, a_policy())


def test_while_it_is_away_the_newcomer_gets_no_more_than_was_meant_for_it() -> None:
    found = _gone(OLD.with_(status=_found().status(OLD)))
    ((_, one),) = found.slices()
    assert (one.pod_name, one.percent) == ("new-0", 50)


def test_it_comes_back_first_and_takes_no_more_than_it_was_left() -> None:
    old = OLD.with_(status=replace(_found().status(OLD), phase="Pending"))
    late = old.with_(created=NOW)
    found = _found(late, a_gpu_node(devices=1), HALF, ALL, a_policy(), *late.pods())
    shares = {one.pod_name: one.percent for _, one in found.slices()}
    assert shares == {"old-0": 50, "new-0": 50}


@pytest.mark.parametrize("end", ["time", "beneficiary"])
def test_what_was_agreed_ends_by_itself_and_when_no_one_is_there_for_it(end: str) -> None:
    old = OLD.with_(status=replace(_found().status(OLD), phase="Pending"))
    at = NOW + AGREEMENT_HOLD_S if end == "time" else NOW
    others: list[Part] = [NEW] if end == "time" else []
    empty = a_gpu_node(devices=1, heartbeat=at)
    found = decided(old, *others, empty, HALF, ALL, a_policy(), *old.pods(), at=at)
    assert [one.percent for _, one in found.slices()] == [100]


@pytest.mark.parametrize(
    "old",
    [
        OLD.with_(sharing=SharingRules(resizable=False)),
        OLD.with_(checkpoint=False),
        OLD.fractional(90, 100),
        OLD.fractional(100, 100),
        OLD.with_(suspend=True),
    ],
    ids=["not resizable", "no checkpoint", "needs most", "needs all", "stops"],
)
def test_who_is_not_asked(old: WorkloadBuilder) -> None:
    found = _found(old, *_parts(old))
    assert _made(found) is None


def test_no_one_is_asked_where_the_device_gains_nothing() -> None:
    old = OLD.profile("all")
    assert _made(_found(old, *_parts(old), new=NEW.profile("all"))) is None
    assert _made(_found(old, *_parts(old))) is not None


@pytest.mark.parametrize(
    "new",
    [
        NEW.exclusive(),
        NEW.priority(-1),
        NEW.profile("all").with_(sharing=SharingRules(allow=False)),
        NEW.trusting("others"),
        NEW.fractional(90, 100),
    ],
    ids=["whole device", "lower priority", "alone", "not trusted", "needs too much"],
)
def test_for_whom_no_one_is_asked(new: WorkloadBuilder) -> None:
    pods = tuple(replace(pod, priority=new.build().priority) for pod in new.pods())
    assert _made(_found(new=new, pods=pods)) is None


def test_no_one_is_asked_twice_in_ten_minutes_nor_in_its_first_ten() -> None:
    young = _parts(since=NOW - AGREEMENT_HOLD_S + 1)
    assert _made(_found(OLD, *young)) is None
    before = _made(_found())
    assert before is not None
    lately = OLD.status(made_room=replace(before, time=NOW - AGREEMENT_HOLD_S + 1))
    assert _made(_found(lately, *_parts(lately))) == lately.build().status.made_room
    long_ago = OLD.status(made_room=replace(before, time=NOW - AGREEMENT_HOLD_S))
    assert _made(_found(long_ago, *_parts(long_ago))) == before


@pytest.mark.parametrize(
    ("wanted", "seen"),
    [
        (lambda one: replace(one, probation=True), lambda one: one),
        (lambda one: one, lambda one: replace(one, phase=SlicePhase.VIOLATING)),
        (lambda one: one, lambda one: replace(one, phase=SlicePhase.FROZEN)),
        (lambda one: one, lambda one: replace(one, phase=SlicePhase.PREPARED)),
        (lambda one: one, lambda one: replace(one, reason=Reason.INTERFERING.value)),
    ],
    ids=["on trial", "violating", "frozen", "starting", "blamed"],
)
def test_who_is_disturbed_already_is_left_alone(wanted: Edit, seen: See) -> None:
    assert _made(_found(OLD, *_parts(wanted=wanted, seen=seen))) is None


def test_a_restart_that_loses_more_than_the_newcomer_brings_is_not_made() -> None:
    fresh = _parts(seen=lambda one: replace(one, checkpoint_age_s=60))
    assert _made(_found(OLD, *fresh)) is not None
    stale = _parts(seen=lambda one: replace(one, checkpoint_age_s=int(AGREEMENT_HOLD_S)))
    assert _made(_found(OLD, *stale)) is None


def test_no_one_is_left_less_memory_than_it_uses() -> None:
    whole = DEVICE_MEMORY_MIB
    most = _parts(seen=lambda one: replace(one, memory_used_mib=whole * 6 // 10))
    made = _made(_found(OLD, *most))
    assert made is not None
    assert made.percent > 60
    full = _parts(seen=lambda one: replace(one, memory_used_mib=whole))
    assert _made(_found(OLD, *full)) is None


def test_every_objective_is_kept() -> None:
    slow = OLD.slowdown(1.5)
    fits = _made(_found(slow, *_parts(slow)))
    assert fits is not None
    assert fits.percent >= 34  # half a device at a third of it is 1.5 times slower
    big = NEW.fractional(70, 100)
    assert _made(_found(slow, *_parts(slow), new=big)) is None
    assert _made(_found(new=big)) is not None


def test_an_important_newcomer_rather_takes_a_part_than_sends_someone_away() -> None:
    new = NEW.priority(5)
    pods = tuple(replace(pod, priority=5) for pod in new.pods())
    found = _found(new=new, pods=pods)
    assert _made(found) is not None
    assert found.condition(OLD, "Admitted").reason == Reason.MADE_ROOM


def test_a_service_is_let_in_too() -> None:
    new = a_service("new").fractional(20, 50).profile("half")
    pod = a_pod("new-a", owner=new.build())
    assert _made(_found(new=new, pods=(pod,))) is not None


def test_the_first_newcomer_gets_the_room_and_no_one_else_is_asked_for_it() -> None:
    other = a_job("other").fractional(20, 100).profile("half").aged(5)
    found = decided(*_parts(), OLD, NEW, *NEW.pods(), other, *other.pods())
    made = _made(found)
    assert made is not None
    assert made.beneficiary == "default/new"
    assert "restarting" not in found.decision(other).message


def test_where_jobs_take_turns_the_turns_make_room() -> None:
    parts = [*_parts()[:-1], a_policy(objective="MaxMinFairness")]
    assert _made(_found(OLD, *parts)) is None
