# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Two tenants with objectives break each other's: one gives way at a time, or the owner is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import (
    EPOCH,
    NOW,
    Part,
    WorkloadBuilder,
    a_gpu_node,
    a_job,
    a_pod,
    a_service,
    a_slice,
    gpu,
    reported,
)
from fakes.deciding import Decided, decided, told
from ullage.api.reasons import Reason
from ullage.api.sharing import SharingRules
from ullage.api.slices import DesiredSlice, ObservedSlice, SlicePhase
from ullage.cluster.records.pod import PodStage
from ullage.scheduling.model.plan import EvictPod
from ullage.scheduling.times import NEIGHBOURS_SETTLE_S

ABOVE = {"phase": SlicePhase.VIOLATING, "reason": Reason.ABOVE_OBJECTIVE.value, "windows": 6}


def tenant(name: str, namespace: str = "default", **fields: object) -> WorkloadBuilder:
    job = a_job(name, namespace).fractional(20, 50).slowdown(3).status(phase="Running")
    return job.with_(**fields)


def held(job: WorkloadBuilder, since: float, **fields: object) -> tuple[Part, DesiredSlice]:
    record = job.build()
    pod = a_pod(
        f"{record.ref.name}-0", owner=record, stage=PodStage.RUNNING, node="node-1", since=since
    )
    wanted = a_slice(pod, percent=50, memory_mib=1000, epoch=EPOCH - 2)
    said = {"protected": True, "max_slowdown_percent": 300} | fields
    return pod, replace(wanted, **said)  # type: ignore[arg-type]


def seen(wanted: DesiredSlice, **fields: object) -> ObservedSlice:
    return replace(reported(wanted, SlicePhase.ATTACHED), **fields)  # type: ignore[arg-type]


def pair(
    old: WorkloadBuilder,
    new: WorkloadBuilder,
    *,
    devices: int = 1,
    age: float = 2 * NEIGHBOURS_SETTLE_S,
    above: tuple[dict[str, object], dict[str, object]] = (ABOVE, {}),
    fields: tuple[dict[str, object], dict[str, object]] = ({}, {}),
) -> list[Part]:
    """Both on one device, at one half each; the old one's objective is broken."""
    first_pod, first = held(old, NOW - 2000, **fields[0])
    second_pod, second = held(new, NOW - age, **fields[1])
    node = a_gpu_node(
        devices=devices,
        desired=[first, second],
        observed=[seen(first, **above[0]), seen(second, **above[1])],
        desired_since=NOW - 3000,
    )
    return [old, first_pod, new, second_pod, replace(node, heartbeat=NOW)]


def leaving(found: Decided, *names: str) -> list[str]:
    return [name for name in names if found.status(name).phase == "Restarting"]


SAVES = {"checkpoint": True}


def test_the_newest_that_finds_another_place_moves() -> None:
    parts = pair(tenant("old", **SAVES), tenant("new", **SAVES), devices=2)
    found = decided(*parts)
    assert leaving(found, "old", "new") == ["new"]
    condition = found.condition("new", "Admitted")
    assert condition.reason == Reason.OBJECTIVES_CONFLICT
    assert "the objective of default/old is broken beside default/new" in condition.message
    exclusion = found.status("new").scheduling.exclusions[0]
    assert exclusion.reason is Reason.OBJECTIVES_CONFLICT
    assert exclusion.until == NOW + 300.0


def test_who_cannot_save_its_work_stays_and_the_older_one_moves() -> None:
    found = decided(*pair(tenant("old", **SAVES), tenant("new"), devices=2))
    assert leaving(found, "old", "new") == ["old"]


def test_a_device_is_given_time_to_settle_first() -> None:
    parts = pair(
        tenant("old", **SAVES), tenant("new", **SAVES), devices=2, age=NEIGHBOURS_SETTLE_S - 10
    )
    found = decided(*parts)
    assert leaving(found, "old", "new") == []
    assert 0 < found.plan.wake_at <= NOW + 10


def test_after_one_gave_way_the_rest_is_given_time_too() -> None:
    parts = pair(tenant("old", **SAVES), tenant("new", **SAVES), devices=2)
    gone = told(tenant("third", **SAVES), *pair(tenant("x"), tenant("third", **SAVES), devices=2))
    assert gone.build().status.scheduling.exclusions
    assert leaving(decided(*parts, gone), "old", "new") == []


@pytest.mark.parametrize(
    ("above", "fields"),
    [
        (({}, {}), ({}, {})),
        ((ABOVE | {"reason": Reason.SELF_VIOLATING.value}, {}), ({}, {})),
        ((ABOVE, {}), ({"alert_only": True}, {})),
        ((ABOVE, {}), ({}, {"protected": False})),
    ],
)
def test_what_is_no_conflict_moves_no_one(
    above: tuple[dict[str, object], dict[str, object]],
    fields: tuple[dict[str, object], dict[str, object]],
) -> None:
    alert = SharingRules(freeze_neighbours=False) if fields[0] else SharingRules()
    new = tenant("new", **SAVES) if not fields[1] else tenant("new", max_slowdown=None, **SAVES)
    old = tenant("old", sharing=alert, **SAVES)
    found = decided(*pair(old, new, devices=2, above=above, fields=fields))
    assert leaving(found, "old", "new") == []


def test_without_another_place_a_resizable_one_gets_a_smaller_share() -> None:
    new = tenant("new", sharing=SharingRules(resizable=True), **SAVES)
    found = decided(*pair(tenant("old", **SAVES), new, age=2000))
    assert leaving(found, "old", "new") == ["new"]
    room = found.status("new").made_room
    assert room is not None
    assert (room.percent, room.beneficiary) == (40, "default/old")
    assert not found.status("new").scheduling.exclusions


def test_else_the_least_important_goes_and_waits() -> None:
    old, new = tenant("old", **SAVES), tenant("new", **SAVES)
    found = decided(*pair(old, new))
    assert leaving(found, "old", "new") == ["new"]
    assert "least important" in found.condition("new", "Admitted").message


def test_no_one_more_important_goes_for_the_sake_of_another() -> None:
    old, new = tenant("old"), tenant("new", priority=100, **SAVES)
    parts = pair(old, new)
    parts[3] = replace(parts[3], priority=100)  # type: ignore[type-var]
    found = decided(*parts)
    assert leaving(found, "old", "new") == []
    assert found.condition("old", "Degraded").reason == Reason.OBJECTIVES_CONFLICT


def test_no_stranger_of_equal_priority_is_stopped() -> None:
    new = tenant("new", namespace="theirs", **SAVES)
    found = decided(*pair(tenant("old"), new))
    assert found.condition("old", "Degraded").reason == Reason.OBJECTIVES_CONFLICT
    assert found.plan.statuses[new.build().ref.uid].phase == "Running"


def test_where_no_one_can_give_way_the_owner_is_told_and_nothing_is_written_again() -> None:
    old, new = tenant("old"), tenant("new")
    parts = pair(old, new)
    found = decided(*parts)
    assert leaving(found, "old", "new") == []
    condition = found.condition("old", "Degraded")
    assert condition.reason == Reason.OBJECTIVES_CONFLICT
    assert "no one there can move" in condition.message
    assert ("ObjectivesConflict", condition.message) in found.events()
    again = decided(told(old, *parts), *parts[1:])
    assert "ObjectivesConflict" not in [reason for reason, _ in again.events()]
    calm = pair(told(old, *parts), new, above=({}, {}))
    assert decided(*calm).status("old").condition("Degraded") is None


def test_a_replica_leaves_only_beside_its_replacement() -> None:
    service = a_service("web").fractional(20, 50).slowdown(3).status(phase="Running")
    parts = pair(tenant("old"), service, devices=2)
    found = decided(*parts)
    assert not found.all(EvictPod)
    assert leaving(found, "old") == []
    assert "another place" not in str(found.events())


def test_one_device_gives_one_way_at_a_time() -> None:
    parts = pair(tenant("old", **SAVES), tenant("new", **SAVES), devices=2, above=(ABOVE, ABOVE))
    found = decided(*parts)
    assert leaving(found, "old", "new") == ["new"]
    assert "by each other" in found.condition("new", "Admitted").message


def test_two_conflicts_do_not_move_to_one_place_at_once() -> None:
    parts, desired, observed = list[Part](), list[DesiredSlice](), list[ObservedSlice]()
    for number in range(2):
        for name, fields in ((f"old-{number}", ABOVE), (f"new-{number}", {})):
            job = tenant(name, **SAVES)
            pod, wanted = held(job, NOW - 2 * NEIGHBOURS_SETTLE_S)
            wanted = replace(wanted, gpu=gpu(number))
            parts += [job, pod]
            desired.append(wanted)
            observed.append(seen(wanted, **fields))
    node = a_gpu_node(devices=3, desired=desired, observed=observed, desired_since=NOW - 3000)
    found = decided(*parts, replace(node, heartbeat=NOW))
    going = leaving(found, "old-0", "new-0", "old-1", "new-1")
    assert len(going) == 1
    assert NOW < found.plan.wake_at <= NOW + 1
