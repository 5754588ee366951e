# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pickle

import pytest

from builders import NOW, a_device, a_slice, reported
from builders_raw import (
    raw_claim,
    raw_deployment,
    raw_device_profile,
    raw_foreign_pod,
    raw_gpu_node,
    raw_job,
    raw_kube_service,
    raw_namespace,
    raw_node,
    raw_pod,
    raw_pod_group,
    raw_policy,
    raw_pool,
    raw_profile,
    raw_profile_request,
    raw_service,
    raw_storage_class,
    raw_tuning_job,
    raw_volume,
)
from ullage.api.slices import SlicePhase
from ullage.app.effects import effect_of
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.values import streams

USES = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}


@pytest.fixture
def state() -> ClusterState:
    return ClusterState(effect_of)


def test_every_stream_reaches_its_place(state: ClusterState) -> None:
    everything = {
        streams.NODES: raw_node(),
        streams.PODS: raw_pod(spec=USES),
        streams.FOREIGN_PODS: raw_foreign_pod(),
        streams.TRAINING_JOBS: raw_job(),
        streams.INFERENCE_DEPLOYMENTS: raw_service(),
        streams.GPU_NODES: raw_gpu_node(),
        streams.WORKLOAD_PROFILES: raw_profile(),
        streams.DEVICE_PROFILES: raw_device_profile(),
        streams.SCHEDULING_POLICIES: raw_policy(roundSeconds=60),
        streams.CAPACITY_POOLS: raw_pool(),
        streams.TUNING_JOBS: raw_tuning_job(),
        streams.PROFILE_REQUESTS: raw_profile_request(),
        streams.DEPLOYMENTS: raw_deployment(),
        streams.SERVICES: raw_kube_service(),
        streams.NAMESPACES: raw_namespace(),
        streams.CLAIMS: raw_claim(volume="pv-1"),
        streams.VOLUMES: raw_volume(),
        streams.STORAGE_CLASSES: raw_storage_class(),
        streams.POD_GROUPS: raw_pod_group(),
    }
    for stream, item in everything.items():
        assert state.upsert(stream, item, 1.0), f"{stream.name} pokes"
    snapshot = state.freeze(2.0)
    assert set(snapshot.nodes) == {"node-1"}
    assert set(snapshot.pods) == {"uid-train-0"}
    assert set(snapshot.workloads) == {"uid-train", "uid-serve"}
    assert set(snapshot.gpu_nodes) == {"node-1"}
    assert snapshot.foreign_use["node-1"].cpu_milli == 1000
    assert set(snapshot.profiles) == {("default", "resnet")}
    assert set(snapshot.device_profiles) == {"emulated"}
    assert set(snapshot.pools) == {"spot-a"}
    assert set(snapshot.deployments) == {("default", "serve")}
    assert set(snapshot.services) == {("default", "serve")}
    assert set(snapshot.claims) == {("default", "data")}
    assert set(snapshot.namespaces) == {"default"}
    assert set(snapshot.pods_around) == {"node-1"}
    assert snapshot.policy.round_seconds == 60
    assert set(state.profile_requests()) == {("default", "traced")}
    assert set(state.counts().values()) == {1}
    assert pickle.loads(pickle.dumps(snapshot)) == snapshot
    for stream, item in everything.items():
        assert not state.upsert(stream, item, 3.0), f"{stream.name} is the same as before"
    version = state.version
    # claims and volumes matter while a pod uses them
    for stream, item in sorted(everything.items(), key=lambda pair: pair[0] is streams.PODS):
        assert state.remove(stream, item, 4.0), f"{stream.name} pokes when it goes"
    assert state.version > version
    empty = state.freeze(5.0)
    assert not empty.nodes
    assert not empty.pods
    assert not empty.workloads
    assert not empty.pools
    assert not empty.foreign_use
    assert empty.policy == PolicyRecord()


def test_a_snapshot_never_changes_and_shares_what_stays(state: ClusterState) -> None:
    state.upsert(streams.NODES, raw_node(), 0.0)
    state.upsert(streams.PODS, raw_pod(), 0.0)
    first = state.freeze(1.0)
    state.upsert(streams.PODS, raw_pod("train-1", rank=1), 2.0)
    second = state.freeze(3.0)
    assert set(first.pods) == {"uid-train-0"}
    assert len(second.pods) == 2
    assert second.nodes is first.nodes
    assert second.version > first.version


def test_nothing_changed_gives_the_same_picture_at_a_later_time(state: ClusterState) -> None:
    state.upsert(streams.NODES, raw_node(), 0.0)
    first, second = state.freeze(1.0), state.freeze(2.0)
    assert second.version == first.version
    assert second.nodes is first.nodes
    assert (first.taken_at, second.taken_at) == (1.0, 2.0)


def test_a_relist_removes_what_is_gone(state: ClusterState) -> None:
    state.replace(streams.PODS, [raw_pod("train-0"), raw_pod("train-1", rank=1)], 0.0)
    assert state.replace(streams.PODS, [raw_pod("train-1", rank=1)], 1.0)
    assert set(state.freeze(2.0).pods) == {"uid-train-1"}
    assert not state.replace(streams.PODS, [raw_pod("train-1", rank=1)], 3.0)


def test_a_heartbeat_is_kept_and_wakes_no_one(state: ClusterState) -> None:
    state.upsert(streams.GPU_NODES, raw_gpu_node(devices=[a_device()]), NOW)
    before = state.freeze(NOW)
    later = raw_gpu_node(devices=[a_device()], heartbeat="2026-01-02T04:01:00Z")
    assert not state.upsert(streams.GPU_NODES, later, NOW + 62)
    after = state.freeze(NOW + 62)
    assert after.version > before.version
    assert after.gpu_nodes["node-1"].heartbeat == NOW + 62


def test_a_phase_of_a_slice_wakes(state: ClusterState) -> None:
    piece = a_slice()
    state.upsert(streams.GPU_NODES, raw_gpu_node(desired=[piece]), 0.0)
    reserved = raw_gpu_node(desired=[piece], observed=[reported(piece, SlicePhase.RESERVED)])
    assert state.upsert(streams.GPU_NODES, reserved, 1.0)


def test_changes_of_other_peoples_nodes_wake_no_one(state: ClusterState) -> None:
    assert not state.upsert(streams.NODES, raw_node("theirs", managed=False), 0.0)
    assert not state.upsert(streams.FOREIGN_PODS, raw_foreign_pod(node="theirs"), 0.0)
    assert state.freeze(0.0).foreign_use == {}
    assert state.upsert(streams.NODES, raw_node("theirs", managed=True), 1.0)
    assert state.freeze(1.0).foreign_use["theirs"].pods == 1


def test_a_foreign_pod_that_ended_gives_its_room_back(state: ClusterState) -> None:
    state.upsert(streams.NODES, raw_node(), 0.0)
    state.upsert(streams.FOREIGN_PODS, raw_foreign_pod("a", cpu="3"), 0.0)
    state.upsert(streams.FOREIGN_PODS, raw_foreign_pod("b", cpu="2"), 0.0)
    assert state.freeze(0.0).foreign_use["node-1"].cpu_milli == 5000
    assert state.upsert(streams.FOREIGN_PODS, raw_foreign_pod("a", phase="Failed"), 1.0)
    assert state.freeze(1.0).foreign_use["node-1"].cpu_milli == 2000
    state.remove(streams.FOREIGN_PODS, raw_foreign_pod("b"), 2.0)
    assert state.freeze(2.0).foreign_use == {}


def test_the_stage_is_counted_from_when_it_was_first_seen(state: ClusterState) -> None:
    state.upsert(streams.PODS, raw_pod(), 10.0)
    state.upsert(streams.PODS, raw_pod(meta={"resourceVersion": "11"}), 20.0)
    assert state.freeze(20.0).pods["uid-train-0"].stage_since == 10.0
    state.upsert(streams.PODS, raw_pod(gated=False), 30.0)
    record = state.freeze(30.0).pods["uid-train-0"]
    assert (record.stage, record.stage_since) == (PodStage.UNSCHEDULED, 30.0)


def test_a_slice_is_wanted_since_it_was_first_seen_as_it_is(state: ClusterState) -> None:
    piece = a_slice(percent=50)
    state.upsert(streams.GPU_NODES, raw_gpu_node(desired=[piece]), 10.0)
    state.upsert(streams.GPU_NODES, raw_gpu_node(desired=[piece]), 20.0)
    assert state.freeze(20.0).gpu_nodes["node-1"].desired_since == {piece.key: 10.0}
    changed = a_slice(percent=40)
    state.upsert(streams.GPU_NODES, raw_gpu_node(desired=[changed]), 30.0)
    assert state.freeze(30.0).gpu_nodes["node-1"].desired_since == {piece.key: 30.0}


@pytest.mark.parametrize("service_first", [True, False])
def test_replicas_find_their_service_whichever_comes_first(
    state: ClusterState, service_first: bool
) -> None:
    pod = raw_pod("serve-abc12-x", kind="InferenceDeployment", owner="serve", rank=None)
    events = [(streams.INFERENCE_DEPLOYMENTS, raw_service()), (streams.PODS, pod)]
    for stream, item in events if service_first else reversed(events):
        state.upsert(stream, item, 0.0)
    assert state.freeze(0.0).pods["uid-serve-abc12-x"].owner.uid == "uid-serve"
    state.remove(streams.INFERENCE_DEPLOYMENTS, raw_service(), 1.0)
    assert state.freeze(1.0).pods["uid-serve-abc12-x"].owner.uid == ""
    again = raw_service(meta={"uid": "uid-second"})
    state.upsert(streams.INFERENCE_DEPLOYMENTS, again, 2.0)
    assert state.freeze(2.0).pods["uid-serve-abc12-x"].owner.uid == "uid-second"


def test_the_end_of_a_namesake_does_not_touch_its_successor(state: ClusterState) -> None:
    pod = raw_pod("serve-abc12-x", kind="InferenceDeployment", owner="serve", rank=None)
    state.upsert(streams.PODS, pod, 0.0)
    state.upsert(streams.INFERENCE_DEPLOYMENTS, raw_service(), 0.0)
    state.upsert(streams.INFERENCE_DEPLOYMENTS, raw_service(meta={"uid": "new"}), 1.0)
    state.remove(streams.INFERENCE_DEPLOYMENTS, raw_service(), 2.0)
    assert state.freeze(2.0).pods["uid-serve-abc12-x"].owner.uid == "new"
    state.upsert(streams.GPU_NODES, raw_gpu_node(uid="new"), 3.0)
    assert not state.remove(streams.GPU_NODES, raw_gpu_node(uid="old"), 4.0)
    assert "node-1" in state.freeze(4.0).gpu_nodes


def test_an_unreadable_object_keeps_its_last_good_record_and_is_counted(
    state: ClusterState,
) -> None:
    state.upsert(streams.NODES, raw_node(), 0.0)
    broken = raw_node(allocatable={"cpu": "lots"})
    assert not state.upsert(streams.NODES, broken, 1.0)
    assert not state.replace(streams.NODES, [broken], 2.0)
    assert state.freeze(2.0).nodes["node-1"].allocatable.cpu_milli == 8000
    assert state.projection_errors["nodes"] == 2
    assert "lots" in state.projection_messages["nodes"]
    state.upsert(streams.NODES, {"metadata": {}}, 3.0)
    assert state.projection_errors["nodes"] == 3


def test_an_unreadable_workload_says_so_and_wakes(state: ClusterState) -> None:
    state.upsert(streams.TRAINING_JOBS, raw_job(replicas=3), 0.0)
    broken = raw_job(gpu={"mode": "Half"}, meta={"generation": 2})
    assert state.upsert(streams.TRAINING_JOBS, broken, 1.0)
    record = state.freeze(1.0).workloads["uid-train"]
    assert record.replicas == 3
    assert "Half" in record.invalid
    assert state.projection_errors["trainingjobs"] == 1
    assert state.blueprint("uid-train") is not None


def test_only_the_default_policy_binds(state: ClusterState) -> None:
    assert state.upsert(streams.SCHEDULING_POLICIES, raw_policy("other", roundSeconds=1), 0.0)
    assert state.freeze(0.0).policy == PolicyRecord()
    assert [policy.name for policy in state.freeze(0.0).idle_policies] == ["other"]


def test_the_highest_epoch_is_that_of_any_node_or_slice(state: ClusterState) -> None:
    assert state.highest_epoch() == 0
    state.upsert(streams.GPU_NODES, raw_gpu_node(epoch=3), 0.0)
    state.upsert(
        streams.GPU_NODES, raw_gpu_node("node-2", epoch=9, desired=[a_slice(epoch=4)]), 0.0
    )
    assert state.highest_epoch() == 9


def test_the_writer_finds_templates_and_identities(state: ClusterState) -> None:
    state.upsert(streams.TRAINING_JOBS, raw_job(), 0.0)
    state.upsert(streams.DEPLOYMENTS, raw_deployment(), 0.0)
    state.upsert(streams.GPU_NODES, raw_gpu_node(generation=5), 0.0)
    found = state.blueprint("uid-train")
    assert found is not None
    assert found.template() == raw_job()["spec"]["template"]
    assert state.blueprint("no one") is None
    deployment = state.seen("Deployment", "default", "serve")
    assert deployment is not None
    assert (deployment.uid, deployment.owner_uid) == ("uid-serve", "uid-serve")
    node = state.seen("GPUNode", "", "node-1")
    assert node is not None
    assert node.generation == 5
    state.remove(streams.DEPLOYMENTS, raw_deployment(), 1.0)
    assert state.seen("Deployment", "default", "serve") is None


class TestRefusalsOfNodes:
    PIECE = a_slice("uid-train-0", device="GPU-x")

    def see(self, state: ClusterState, now: float, *phases: SlicePhase, epoch: int = 7) -> None:
        observed = [reported(self.PIECE, phase, epoch=epoch) for phase in phases]
        state.upsert(streams.GPU_NODES, raw_gpu_node(observed=observed), now)

    def times(self, state: ClusterState, now: float) -> tuple[float, ...]:
        return state.freeze(now).node_refusals.get(("uid-train-0", "GPU-x"), ())

    def test_each_refusal_is_counted_once(self, state: ClusterState) -> None:
        self.see(state, 1.0, SlicePhase.REFUSED)
        self.see(state, 2.0, SlicePhase.REFUSED)
        assert self.times(state, 2.0) == (1.0,)
        self.see(state, 3.0)
        self.see(state, 4.0, SlicePhase.RESERVED)
        self.see(state, 5.0, SlicePhase.REFUSED)
        self.see(state, 6.0, SlicePhase.REFUSED, epoch=8)
        assert self.times(state, 6.0) == (1.0, 5.0, 6.0)

    def test_the_name_of_a_pod_is_remembered_when_the_pod_is_gone(
        self, state: ClusterState
    ) -> None:
        name = (self.PIECE.pod_namespace, self.PIECE.pod_name)
        refused = [reported(self.PIECE, SlicePhase.REFUSED)]
        raw = raw_gpu_node(desired=[self.PIECE], observed=refused)
        state.upsert(streams.GPU_NODES, raw, 1.0)
        state.upsert(streams.PODS, raw_pod(), 1.0)
        state.remove(streams.PODS, raw_pod(), 2.0)
        assert state.freeze(2.0).refused_starts == {name: (1.0,)}
        state.expire(1202.0)
        assert state.freeze(1202.0).refused_starts == {}

    def test_they_end_with_the_pod_or_with_time(self, state: ClusterState) -> None:
        self.see(state, 1.0, SlicePhase.REFUSED)
        state.upsert(streams.PODS, raw_pod(), 1.0)
        state.remove(streams.PODS, raw_pod(), 2.0)
        assert self.times(state, 2.0) == ()
        self.see(state, 3.0)
        self.see(state, 4.0, SlicePhase.REFUSED)
        state.expire(1203.0)
        assert self.times(state, 1203.0) == (4.0,)
        state.expire(1204.0)
        assert self.times(state, 1204.0) == ()
