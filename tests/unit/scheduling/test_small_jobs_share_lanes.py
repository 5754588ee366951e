# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import builders
from builders import WorkloadBuilder, a_gpu_node, a_job, a_node, a_policy, a_service, a_snapshot
from fakes.deciding import Decided, decided, decided_on
from ullage.api.lanes import IterationPolicy
from ullage.api.slices import DesiredSlice
from ullage.cluster.records.pod import PodStage
from ullage.scheduling.model.plan import ApplyGPUNode

GIB = 1024


def small(number: int, *, least: int = 50, most: int = 50) -> WorkloadBuilder:
    """Keeps 1 GiB, a step takes 8 of the device's 16."""
    return a_job(f"small-{number:02d}").fractional(least, most).in_lanes(GIB, 8 * GIB)


def placed(*jobs: WorkloadBuilder, devices: int = 1, **policy: object) -> Decided:
    pods = [pod for job in jobs for pod in job.pods()]
    node = a_gpu_node("node-1", devices=devices)
    return decided(a_policy(**policy), a_node(slots=64), node, *jobs, *pods)


def lanes_of(found: Decided) -> list[int]:
    return [one.lane for _, one in found.slices()]


def promised_mib(slices: Sequence[DesiredSlice]) -> int:
    sizes = {one.lane: 0 for one in slices}
    for one in slices:
        sizes[one.lane] = max(sizes[one.lane], one.ephemeral_mib)
    return sum(one.persistent_mib for one in slices) + sum(sizes.values())


def test_jobs_that_fit_side_by_side_by_their_peaks_only_one_at_a_time_share_a_lane() -> None:
    found = placed(*[small(number) for number in range(6)])
    parts = [one for _, one in found.slices()]
    assert len(parts) == 6
    assert {one.lane for one in parts} == {1}
    assert {one.percent for one in parts} == {50}
    assert promised_mib(parts) == 14 * GIB


def test_without_lanes_the_same_device_holds_one() -> None:
    jobs = [a_job(f"plain-{number}").fractional(50, 50, memory_mib=9 * GIB) for number in range(6)]
    assert len(placed(*jobs).slices()) == 1


def test_a_job_opens_a_lane_where_memory_and_shares_leave_room_for_one() -> None:
    jobs = [
        a_job(f"tiny-{number}").fractional(50, 50).in_lanes(GIB, 2 * GIB) for number in range(4)
    ]
    assert sorted(lanes_of(placed(*jobs))) == [1, 1, 2, 2]


def test_who_joins_a_lane_takes_its_share() -> None:
    first, second = small(0, least=60, most=60), small(1, least=10, most=100)
    found = placed(first.priority(1), second)
    assert [one.percent for _, one in found.slices()] == [60, 60]
    assert lanes_of(found) == [1, 1]


def test_a_lane_whose_share_does_not_suit_is_not_joined() -> None:
    found = placed(small(0, least=60, most=60).priority(1), small(1, least=30, most=40))
    assert len(found.slices()) == 1
    text = found.decision("small-01").message
    assert "MiB" in text


def test_a_larger_step_enlarges_the_lane_while_memory_lasts() -> None:
    large = a_job("large").fractional(50, 50).in_lanes(GIB, 12 * GIB)
    found = placed(small(0).priority(1), large)
    assert lanes_of(found) == [1, 1]
    assert promised_mib([one for _, one in found.slices()]) == 14 * GIB
    huge = a_job("large").fractional(50, 50).in_lanes(3 * GIB, 13 * GIB)
    assert len(placed(small(0).priority(1), huge).slices()) == 1


def test_an_objective_has_a_lane_of_its_own() -> None:
    found = placed(small(0).slowdown(3.0).priority(1), small(1), small(2))
    slices = {one.pod_name: one for _, one in found.slices()}
    assert slices["small-00-0"].lane == 0, "its memory is counted whole"
    assert len(slices) == 1, "9 GiB beside 9 GiB do not fit 16"


def test_members_of_a_gang_wait_for_one_another_and_never_for_a_lane() -> None:
    gang = a_job("gang").gang(2).fractional(30, 30).in_lanes(GIB, 3 * GIB)
    assert lanes_of(placed(gang)) == [0, 0]


def test_replicas_of_a_service_may_share_a_lane() -> None:
    service = a_service("serve").fractional(50, 50).in_lanes(GIB, 8 * GIB).gang(2)
    owner = service.build()
    pods = [replace(builders.a_pod(f"serve-{name}", owner=owner), rank=-1) for name in ("a", "b")]
    found = decided(a_policy(), a_gpu_node("node-1"), service, builders.a_deployment(owner), *pods)
    assert lanes_of(found) == [1, 1]


def test_what_was_assigned_stands_in_the_next_decision() -> None:
    jobs = [small(number) for number in range(3)]
    first = placed(*jobs)
    slices = [one for _, one in first.slices()]
    pods = [pod for job in jobs for pod in job.pods(PodStage.RUNNING, node="node-1")]
    seen = [builders.reported(one) for one in slices]
    node = a_gpu_node("node-1", desired=slices, observed=seen)
    late = small(9)
    snapshot = a_snapshot(a_policy(), node, *jobs, *pods, late, *late.pods())
    found = decided_on(snapshot)
    assert [one for _, one in found.slices()][:3] == slices
    assert lanes_of(found) == [1, 1, 1, 1]


def test_a_running_objective_counts_against_all_lanes_and_keeps_its_share() -> None:
    keeps = a_job("keeps").fractional(50, 50, memory_mib=2 * GIB).slowdown(4.0).priority(9)
    found = placed(keeps, *[small(number) for number in range(4)])
    slices = [one for _, one in found.slices()]
    assert [one.lane for one in slices] == [0, 1, 1, 1, 1]


def test_nodes_with_lanes_hear_whose_step_is_next_and_others_do_not() -> None:
    lanes = placed(small(0), lane_policy=IterationPolicy.SRTF)
    assert lanes.one(ApplyGPUNode).lane_policy is IterationPolicy.SRTF
    plain = placed(a_job("plain").fractional(50, 50), lane_policy=IterationPolicy.SRTF)
    assert plain.one(ApplyGPUNode).lane_policy is IterationPolicy.FAIR


def test_a_node_hears_how_many_steps_the_work_of_a_lane_has() -> None:
    jobs = [small(0).with_(work_steps=300), a_job("plain").fractional(10, 10).with_(work_steps=300)]
    assert {one.work_steps for _, one in placed(*jobs).slices() if one.lane} == {300}
    assert {one.work_steps for _, one in placed(*jobs).slices() if not one.lane} == {0}


def test_another_policy_reaches_a_node_whose_slices_stay() -> None:
    job = small(0)
    slices = [one for _, one in placed(job).slices()]
    node = a_gpu_node("node-1", desired=slices, observed=[builders.reported(one) for one in slices])
    pods = job.pods(PodStage.RUNNING, node="node-1")
    policy = a_policy(lane_policy=IterationPolicy.RR)
    found = decided(policy, node, job, *pods).one(ApplyGPUNode)
    assert found.lane_policy is IterationPolicy.RR
    assert found.text.endswith("lanes take turns by RR")
    told = replace(node, lane_policy=IterationPolicy.RR)
    assert not decided(policy, told, job, *pods).all(ApplyGPUNode)


def test_twenty_small_jobs_on_two_devices_wait_only_for_places() -> None:
    lanes = placed(*[small(number, least=60, most=100) for number in range(20)], devices=2)
    slices = [one for _, one in lanes.slices()]
    assert len(slices) == 16, "a device takes 8 containers"
    assert {one.percent for one in slices} == {99}
    for device in (builders.gpu("node-1", 0), builders.gpu("node-1", 1)):
        here = [one for one in slices if one.gpu == device]
        assert {one.lane for one in here} == {1}
        assert promised_mib(here) <= builders.DEVICE_MEMORY_MIB
    waits = lanes.decision("small-19")
    assert waits.reason == "ContextLimit"
    packed = [
        a_job(f"plain-{number:02d}").fractional(60, 100, memory_mib=9 * GIB) for number in range(20)
    ]
    assert len(placed(*packed, devices=2).slices()) == 2


def test_the_learned_rule_asks_of_a_lane_as_of_one_tenant() -> None:
    found = placed(*[small(number, least=60, most=100) for number in range(5)], learned=True)
    assert lanes_of(found) == [1] * 5
    assert not any(one.probation for _, one in found.slices())
