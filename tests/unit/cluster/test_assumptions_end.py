# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What was sent counts at once, and counts no longer than it must."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import NOW, a_slice
from builders_raw import raw_gpu_node, raw_job, raw_node, raw_pod
from ullage.api.reasons import Reason
from ullage.api.slices import DesiredSlice
from ullage.app.effects import effect_of
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.cache.refusals import Refusals
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.pod_shape import NodeAffinity
from ullage.cluster.records.snapshot import RefusedWrite
from ullage.cluster.records.status import WorkloadStatus
from ullage.cluster.values import streams
from ullage.scheduling.model.plan import (
    ApplyGPUNode,
    CreatePod,
    DeletePod,
    DeleteWorkload,
    Emit,
    EvictPod,
    SetStatus,
    UngatePod,
)

JOB = ObjectRef(kind="TrainingJob", namespace="default", name="train", uid="uid-train")
POD = ObjectRef(kind="Pod", namespace="default", name="train-0", uid="uid-train-0")
EPOCH = 7


@pytest.fixture
def state() -> ClusterState:
    state = ClusterState(effect_of)
    state.upsert(streams.NODES, raw_node(), NOW)
    state.upsert(streams.TRAINING_JOBS, raw_job(), NOW)
    state.upsert(streams.PODS, raw_pod(), NOW)
    state.upsert(streams.GPU_NODES, raw_gpu_node(), NOW)
    return state


def apply(*slices: DesiredSlice, name: str = "node-1", epoch: int = EPOCH) -> ApplyGPUNode:
    return ApplyGPUNode(
        name=name,
        uid="",
        node_uid="",
        epoch=epoch,
        slices=slices,
        reason=Reason.PLACED,
        text="",
    )


UNGATE = UngatePod(
    pod=POD,
    owner=JOB,
    node="node-1",
    gate_index=0,
    affinity=NodeAffinity(),
    epoch=EPOCH,
    reason=Reason.PLACED,
    text="",
)
DELETE = DeletePod(pod=POD, owner=JOB, epoch=EPOCH, reason=Reason.SUSPENDED, text="")
EVICT = EvictPod(pod=POD, owner=JOB, epoch=EPOCH, reason=Reason.PREEMPTED, text="")
CREATE = CreatePod(
    owner=JOB,
    name="train-1",
    rank=1,
    template_hash="h",
    epoch=EPOCH,
    reason=Reason.PLACED,
    text="",
)


def status(phase: str, **fields: object) -> SetStatus:
    return SetStatus(
        owner=JOB,
        resource_version="10",
        status=replace(WorkloadStatus(phase=phase), **fields),  # type: ignore[arg-type]
        epoch=EPOCH,
        reason=Reason.PLACED,
        text="",
    )


def test_slices_on_their_way_count_and_are_dropped_when_seen(state: ClusterState) -> None:
    late, early = a_slice("uid-b"), a_slice("uid-a")
    state.assume([apply(late, early)], NOW + 1)
    node = state.freeze(NOW + 1).gpu_nodes["node-1"]
    assert node.desired == (early, late)
    assert set(node.desired_since.values()) == {NOW + 1}
    assert state.assumed == 1
    unrelated = raw_gpu_node(heartbeat="2026-01-02T04:01:00Z")
    state.upsert(streams.GPU_NODES, unrelated, NOW + 2)
    assert state.freeze(NOW + 2).gpu_nodes["node-1"].desired == (early, late)
    woke = state.upsert(streams.GPU_NODES, raw_gpu_node(desired=[late, early]), NOW + 3)
    assert not woke, "the echo of our own write is no news"
    assert state.assumed == 0
    assert set(state.freeze(NOW + 3).gpu_nodes["node-1"].desired_since.values()) == {NOW + 1}


def test_the_write_of_a_newer_leader_ends_what_we_assumed(state: ClusterState) -> None:
    state.assume([apply(a_slice())], NOW)
    assert state.upsert(streams.GPU_NODES, raw_gpu_node(epoch=EPOCH + 1), NOW)
    assert state.freeze(NOW).gpu_nodes["node-1"].desired == ()


def test_a_gpu_node_that_was_only_asked_for_is_shown(state: ClusterState) -> None:
    state.assume([apply(name="node-2")], NOW)
    record = state.freeze(NOW).gpu_nodes["node-2"]
    assert (record.uid, record.epoch, record.devices) == ("", EPOCH, ())
    assert state.upsert(streams.GPU_NODES, raw_gpu_node("node-2"), NOW)
    assert state.assumed == 0


def test_an_ungated_pod_has_no_gate_any_more(state: ClusterState) -> None:
    state.assume([UNGATE], NOW + 5)
    record = state.freeze(NOW + 5).pods[POD.uid]
    assert record.gates == ()
    assert (record.stage, record.stage_since) == (PodStage.UNSCHEDULED, NOW + 5)
    assert not state.upsert(streams.PODS, raw_pod(gated=False), NOW + 6)
    assert state.freeze(NOW + 6).pods[POD.uid].stage_since == NOW + 5
    assert state.assumed == 0


@pytest.mark.parametrize("action", [DELETE, EVICT])
def test_a_deleted_or_evicted_pod_is_leaving(
    state: ClusterState, action: DeletePod | EvictPod
) -> None:
    state.assume([action], NOW)
    assert state.freeze(NOW).pods[POD.uid].deleting
    going = raw_pod(meta={"deletionTimestamp": "2026-01-02T03:04:05Z"})
    assert not state.upsert(streams.PODS, going, NOW)
    assert state.assumed == 0
    state.assume([action], NOW)
    state.remove(streams.PODS, raw_pod(), NOW)
    assert state.assumed == 0


def test_a_pod_that_was_asked_for_is_creating_until_it_appears(state: ClusterState) -> None:
    state.assume([CREATE], NOW)
    assert state.freeze(NOW).creating == {("default", "train-1")}
    assert state.upsert(streams.PODS, raw_pod("train-1", rank=1), NOW)
    assert state.freeze(NOW).creating == frozenset()


def test_a_status_on_its_way_is_compared_as_it_will_be_stored(state: ClusterState) -> None:
    wanted = status("Running", start_time=1000.7)
    state.assume([wanted], NOW)
    shown = state.freeze(NOW).workloads[JOB.uid].status
    assert (shown.phase, shown.start_time) == ("Running", 1000.0)
    stored = {"phase": "Running", "startTime": "1970-01-01T00:16:40Z"}
    seen = raw_job(status=stored, meta={"resourceVersion": "11"})
    assert not state.upsert(streams.TRAINING_JOBS, seen, NOW), "our own write is no news"
    assert state.assumed == 0
    assert state.freeze(NOW).workloads[JOB.uid].resource_version == "11"


def test_a_change_of_the_spec_wakes_while_a_status_is_on_its_way(state: ClusterState) -> None:
    state.assume([status("Running")], NOW)
    assert state.upsert(streams.TRAINING_JOBS, raw_job(replicas=2), NOW)
    assert state.freeze(NOW).workloads[JOB.uid].status.phase == "Running"


def test_a_deleted_workload_is_leaving(state: ClusterState) -> None:
    state.assume([DeleteWorkload(owner=JOB, epoch=1, reason=Reason.COMPLETED, text="")], NOW)
    assert state.freeze(NOW).workloads[JOB.uid].deleting
    state.remove(streams.TRAINING_JOBS, raw_job(), NOW)
    assert state.assumed == 0


def test_a_failed_write_is_forgotten_but_not_a_newer_one(state: ClusterState) -> None:
    first, second = apply(a_slice("uid-a")), apply(a_slice("uid-b"))
    state.assume([first], NOW)
    state.assume([second], NOW)
    state.forget(first)
    assert state.freeze(NOW).gpu_nodes["node-1"].desired == second.slices
    state.forget(second)
    assert state.freeze(NOW).gpu_nodes["node-1"].desired == ()
    state.forget(second)
    assert state.assumed == 0


def test_what_is_never_seen_expires(state: ClusterState) -> None:
    state.assume([apply(a_slice()), UNGATE, CREATE], NOW)
    assert state.expire(NOW + 29.9) == 0
    assert state.expire(NOW + 30) == 3
    snapshot = state.freeze(NOW + 30)
    assert snapshot.gpu_nodes["node-1"].desired == ()
    assert snapshot.pods[POD.uid].stage is PodStage.GATED
    assert snapshot.creating == frozenset()


def test_events_and_unknown_actions_change_nothing(state: ClusterState) -> None:
    version = state.version
    emit = Emit(target=JOB, warning=False, epoch=1, reason=Reason.PLACED, text="")
    state.assume([emit], NOW)
    state.forget(emit)
    assert state.version == version


def test_assumptions_about_objects_that_are_gone_are_not_shown(state: ClusterState) -> None:
    state.remove(streams.PODS, raw_pod(), NOW)
    state.assume([UNGATE], NOW)
    assert POD.uid not in state.freeze(NOW).pods


def because(message: str) -> RefusedWrite:
    return RefusedWrite(reason=Reason.CREATE_REFUSED, message=message)


class TestRefusals:
    KEY = ("Pod", "default", "train-1")

    def refuse(self, state: ClusterState, now: float, text: str = "exceeded quota") -> None:
        state.refuse(self.KEY, because(text), now=now, owner_uid=JOB.uid)

    def test_a_long_text_is_cut(self, state: ClusterState) -> None:
        self.refuse(state, NOW, "x" * 4000)
        assert state.freeze(NOW).refused_writes == {self.KEY: because("x" * 1024)}

    def test_what_is_refused_to_others_is_not_looked_at(self) -> None:
        refusals = Refusals()
        for number in range(3):
            refusals.refuse(
                ("Pod", "default", f"p-{number}"),
                because("no"),
                NOW,
                owner_uid="other",
                generation=1,
            )
        assert not refusals.owner_changed(JOB.uid, None)
        assert len(refusals.shown()) == 3
        assert refusals.owner_changed("other", None)
        assert not refusals.shown()

    def test_a_refused_create_shows_the_apis_text(self, state: ClusterState) -> None:
        self.refuse(state, NOW)
        assert state.freeze(NOW).refused_writes == {self.KEY: because("exceeded quota")}
        assert state.next_retry() == NOW + 10

    def test_the_wait_doubles_up_to_five_minutes(self, state: ClusterState) -> None:
        now, waits = NOW, []
        for _ in range(7):
            self.refuse(state, now)
            retry = state.next_retry()
            assert retry is not None
            waits.append(retry - now)
            now = retry
            state.expire(now)
            assert state.freeze(now).refused_writes == {}
        assert waits == [10, 20, 40, 80, 160, 300, 300]

    def test_a_new_generation_of_the_owner_is_tried_at_once(self, state: ClusterState) -> None:
        self.refuse(state, NOW)
        same = raw_job(meta={"resourceVersion": "12"})
        state.upsert(streams.TRAINING_JOBS, same, NOW)
        assert state.freeze(NOW).refused_writes
        assert state.upsert(streams.TRAINING_JOBS, raw_job(meta={"generation": 2}), NOW)
        assert not state.freeze(NOW).refused_writes
        self.refuse(state, NOW)
        assert state.next_retry() == NOW + 10

    def test_a_leadership_that_ends_leaves_nothing_of_them(self, state: ClusterState) -> None:
        self.refuse(state, NOW)
        state.end_term()
        assert not state.freeze(NOW).refused_writes
        assert state.upsert(streams.TRAINING_JOBS, raw_job(meta={"generation": 2}), NOW)
        state.remove(streams.TRAINING_JOBS, raw_job(), NOW)

    def test_the_pods_appearance_settles_it(self, state: ClusterState) -> None:
        self.refuse(state, NOW)
        state.upsert(streams.PODS, raw_pod("train-1", rank=1), NOW)
        assert not state.freeze(NOW).refused_writes

    def test_someone_elses_pod_of_that_name_settles_nothing(self, state: ClusterState) -> None:
        self.refuse(state, NOW, "held")
        state.upsert(streams.PODS, raw_pod("train-1", owner="other", rank=1), NOW)
        assert state.freeze(NOW).refused_writes == {self.KEY: because("held")}

    def test_the_owners_end_settles_it(self, state: ClusterState) -> None:
        self.refuse(state, NOW)
        state.remove(streams.TRAINING_JOBS, raw_job(), NOW)
        assert not state.freeze(NOW).refused_writes

    def test_long_idle_refusals_are_forgotten(self, state: ClusterState) -> None:
        self.refuse(state, NOW)
        state.expire(NOW + 10)
        state.expire(NOW + 700)
        self.refuse(state, NOW + 700)
        assert state.next_retry() == NOW + 710


def test_what_is_assumed_gives_the_very_same_record_until_it_changes(state: ClusterState) -> None:
    state.assume([UNGATE], NOW)
    first = state.freeze(NOW).pods[POD.uid]
    state.upsert(streams.NODES, raw_node("node-2"), NOW)
    later = state.freeze(NOW + 1)
    assert later.pods[POD.uid] is first
    state.assume([DeletePod(pod=POD, owner=JOB, epoch=EPOCH, reason=Reason.PLACED, text="")], NOW)
    assert state.freeze(NOW + 2).pods[POD.uid].deleting


def test_nothing_expires_while_the_api_server_lags(state: ClusterState) -> None:
    state.assume([UNGATE], NOW)
    assert state.expire(NOW + 100, backpressure_ended_at=NOW + 90) == 0
    assert state.expire(NOW + 120, backpressure_ended_at=NOW + 90) == 1
    state.assume([UNGATE], NOW)
    assert state.expire(NOW + 300, backpressure_ended_at=NOW + 299) == 1
