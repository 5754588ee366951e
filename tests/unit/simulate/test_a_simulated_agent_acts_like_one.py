# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The world of a simulation does with what the operator writes what agents and kubelet would."""

from __future__ import annotations

import pytest

from builders import EPOCH, NOW, a_gpu_node, a_job, a_pod, a_slice, a_snapshot, gpu, reported
from ullage.api.devices import Health
from ullage.api.reasons import Reason
from ullage.api.slices import DesiredSlice, SlicePhase
from ullage.cluster.records.pod import PodStage
from ullage.scheduling.model.plan import ApplyGPUNode
from ullage_simulate.world import World

JOB = a_job().gang(2).build()
RUNS = a_pod("train-0", owner=JOB, stage=PodStage.RUNNING, node="node-1")
WAITS = a_pod("train-1", owner=JOB, stage=PodStage.GATED)
STARTED = a_slice(RUNS, device=gpu("node-1", 0), percent=60)
PLANNED = a_slice(WAITS, device=gpu("node-1", 1), percent=40)


@pytest.fixture
def world() -> World:
    seen = [reported(STARTED, SlicePhase.ATTACHED), reported(PLANNED, SlicePhase.RESERVED)]
    node = a_gpu_node("node-1", devices=2, desired=[STARTED, PLANNED], observed=seen)
    return World(base=a_snapshot(JOB, RUNS, WAITS, node), now=NOW, start_s=30.0)


def write(world: World, *slices: DesiredSlice, node: str = "node-1") -> None:
    world.apply(
        [
            ApplyGPUNode(
                name=node,
                uid="uid",
                node_uid="uid",
                epoch=EPOCH,
                slices=slices,
                reason=Reason.PLACED,
                text="",
            )
        ]
    )


def phases(world: World, node: str = "node-1") -> dict[str, SlicePhase]:
    return {part.key.pod_uid: part.phase for part in world.gpu_nodes[node].observed}


def test_what_has_started_stays_until_its_pod_is_gone(world: World) -> None:
    write(world)
    assert phases(world) == {RUNS.uid: SlicePhase.ATTACHED}
    world.remove_pod(RUNS.uid)
    assert phases(world) == {}
    assert world.gone == [JOB.ref.uid]
    write(world)
    assert phases(world) == {}


def test_what_is_planned_is_reserved_and_what_is_no_more_is_let_go(world: World) -> None:
    write(world, STARTED, PLANNED)
    assert phases(world) == {RUNS.uid: SlicePhase.ATTACHED, WAITS.uid: SlicePhase.RESERVED}
    write(world, STARTED)
    assert phases(world) == {RUNS.uid: SlicePhase.ATTACHED}


def test_a_node_without_an_object_gets_one(world: World) -> None:
    elsewhere = a_slice(WAITS, device=gpu("node-2", 0), percent=40)
    write(world, elsewhere, node="node-2")
    assert phases(world, "node-2") == {WAITS.uid: SlicePhase.RESERVED}
    assert world.gpu_nodes["node-2"].desired == (elsewhere,)


def test_a_job_is_bound_when_all_its_pods_are_on_nodes(world: World) -> None:
    assert not world.bound(JOB.ref.uid)
    world.pods[WAITS.uid] = a_pod("train-1", owner=JOB, stage=PodStage.RUNNING, node="node-1")
    assert world.bound(JOB.ref.uid)
    world.remove_pod(WAITS.uid)
    assert not world.bound(JOB.ref.uid)


def test_steps_are_reported_of_the_jobs_own_slices(world: World) -> None:
    other = a_job("other").build()
    assert [seen.key for _, seen in world.slices(JOB.ref.uid)] == [STARTED.key, PLANNED.key]
    assert world.slices(other.ref.uid) == []
    world.report_steps(JOB.ref.uid, 70, 0.25, saved_s=9)
    for seen in world.gpu_nodes["node-1"].observed:
        assert (seen.steps, seen.step_micros, seen.checkpoint_age_s) == (70, 250_000, 9)
    world.report_steps(other.ref.uid, 99, 1.0)
    assert {seen.steps for seen in world.gpu_nodes["node-1"].observed} == {70}


def test_a_device_fails_alone_and_comes_back(world: World) -> None:
    first, second = (device.uuid for device in world.gpu_nodes["node-1"].devices)
    world.set_health("node-1", second, Health.UNHEALTHY)
    health = {device.uuid: device.health for device in world.gpu_nodes["node-1"].devices}
    assert health == {first: Health.HEALTHY, second: Health.UNHEALTHY}
    world.set_health("node-1", second, Health.HEALTHY)
    assert {one.health for one in world.gpu_nodes["node-1"].devices} == {Health.HEALTHY}


def test_a_job_that_ends_or_is_lost_leaves_its_devices(world: World) -> None:
    world.finish(JOB.ref.uid)
    assert {pod.stage for pod in world.members(JOB.ref.uid)} == {PodStage.SUCCEEDED}
    assert phases(world) == {WAITS.uid: SlicePhase.RESERVED}


def test_pods_of_a_failed_device_were_disrupted(world: World) -> None:
    world.lose(JOB.ref.uid)
    runs, waits = world.pods[RUNS.uid], world.pods[WAITS.uid]
    assert (runs.stage, runs.disrupted) == (PodStage.FAILED, True)
    assert (waits.stage, waits.disrupted) == (PodStage.GATED, False)


def test_a_snapshot_is_newer_each_time_and_every_agent_has_just_reported(world: World) -> None:
    first = world.snapshot()
    world.now += 60
    second = world.snapshot()
    assert second.version == first.version + 1
    assert second.taken_at == NOW + 60
    assert {node.heartbeat for node in second.gpu_nodes.values()} == {NOW + 60}


def test_nothing_starts_where_nothing_was_bound(world: World) -> None:
    assert world.next_start() == float("inf")
