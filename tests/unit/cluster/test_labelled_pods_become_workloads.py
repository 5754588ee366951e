# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pods that admission prepared are workloads of the cycle: each alone, or the pods of a gang."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from builders_raw import (
    owner_reference,
    raw_adopted_pod,
    raw_foreign_pod,
    raw_job,
    raw_pod,
    raw_pod_group,
)
from ullage.api.adoption import KEYS, AdoptionKey
from ullage.api.devices import GPUMode
from ullage.api.gpurequest import GPURequest, LaneMemory, Share
from ullage.api.reasons import ConditionType, Reason
from ullage.api.rebalancing import StragglerPolicy
from ullage.app.effects import effect_of
from ullage.app.foreign_pods import REPORTED_AT_ONCE, ForeignPodReporter
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.codecs.pod_status import (
    MOST_BYTES,
    kept_in_pods,
    pod_conditions,
    read_pod_status,
    scheduling_annotation,
)
from ullage.cluster.records.status import (
    Condition,
    DecisionRecord,
    Exclusion,
    RefusalLine,
    SchedulingState,
    WorkloadStatus,
)
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.cluster.values import streams
from ullage.kube.manifests.applied import status_body
from ullage.scheduling.model.plan import TellPod

Raw = dict[str, Any]


def a_state(*pods: Raw) -> ClusterState:
    state = ClusterState(effect_of)
    state.replace(streams.PODS, list(pods), 0.0)
    return state


def workloads(*pods: Raw) -> dict[str, WorkloadRecord]:
    return dict(a_state(*pods).freeze(0.0).workloads)


def only(*pods: Raw) -> WorkloadRecord:
    (found,) = workloads(*pods).values()
    return found


def a_gang(*names: str, size: str = "2", namespace: str = "default", **more: Any) -> list[Raw]:
    keys = {"share": "30", "gang": "g"}
    return [
        raw_adopted_pod(name, namespace=namespace, keys=keys, notes={"gang-size": size}, **more)
        for name in names
    ]


def grouped(*names: str, **more: Any) -> list[Raw]:
    """Pods that name the PodGroup ``theirs``."""
    spec = {"schedulingGroup": {"podGroupName": "theirs"}}
    return [raw_adopted_pod(name, spec=spec, **more) for name in names]


def with_group(pods: list[Raw], *groups: Raw) -> ClusterState:
    state = a_state(*pods)
    state.replace(streams.POD_GROUPS, list(groups), 0.0)
    return state


class TestSchedulingGroups:
    """Pods that name a PodGroup of Kubernetes start as its gang."""

    def test_pods_of_a_group_are_one_gang_of_at_least_its_fewest(self) -> None:
        state = with_group(grouped("a"), raw_pod_group(fewest=2))
        (unit,) = state.freeze(0.0).workloads.values()
        assert (unit.ref.name, unit.replicas, unit.invalid) == ("theirs", 2, "")
        for pod in grouped("b", "c"):
            state.upsert(streams.PODS, pod, 1.0)
        (unit,) = state.freeze(1.0).workloads.values()
        assert unit.replicas == 3, "all that are there start together"
        assert {one.pod.name for one in unit.adopted} == {"a", "b", "c"}
        assert not any(one.too_many for one in unit.adopted)
        assert {pod.owner for pod in state.freeze(1.0).pods.values()} == {unit.ref}

    def test_a_gang_that_has_started_waits_for_no_one(self) -> None:
        runs = grouped("a", gated=False, node="node-1", phase="Running")
        state = with_group([*runs, *grouped("b")], raw_pod_group(fewest=3))
        (unit,) = state.freeze(0.0).workloads.values()
        assert unit.replicas == 2
        done = grouped("c", gated=False, node="node-1", phase="Succeeded")
        state.upsert(streams.PODS, done[0], 1.0)
        (unit,) = state.freeze(1.0).workloads.values()
        assert unit.replicas == 3, "what has ended well counts, as for every gang"

    def test_a_group_that_is_no_gang_leaves_its_pods_alone(self) -> None:
        found = with_group(grouped("a", "b"), raw_pod_group(fewest=0)).freeze(0.0).workloads
        assert {unit.ref.name for unit in found.values()} == {"a", "b"}
        assert all(unit.replicas == 1 and not unit.invalid for unit in found.values())

    def test_a_pod_waits_for_its_group_and_follows_its_changes(self) -> None:
        state = a_state(*grouped("a", "b"))
        for unit in state.freeze(0.0).workloads.values():
            assert "there is no PodGroup theirs: create it" in unit.invalid
        for fewest, names in ((2, {"theirs"}), (0, {"a", "b"}), (2, {"theirs"})):
            state.upsert(streams.POD_GROUPS, raw_pod_group(fewest=fewest), 1.0)
            found = state.freeze(1.0).workloads.values()
            assert {unit.ref.name for unit in found} == names
            assert not any(unit.invalid for unit in found)
        state.upsert(streams.POD_GROUPS, raw_pod_group(fewest=4), 2.0)
        assert [unit.replicas for unit in state.freeze(2.0).workloads.values()] == [4]
        state.remove(streams.POD_GROUPS, raw_pod_group(), 3.0)
        assert all(unit.invalid for unit in state.freeze(3.0).workloads.values())
        for pod in grouped("a", "b"):
            state.remove(streams.PODS, pod, 4.0)
        assert not state.freeze(4.0).workloads

    def test_the_label_of_a_gang_counts_more(self) -> None:
        spec = {"schedulingGroup": {"podGroupName": "theirs"}}
        pods = a_gang("a", "b", spec=spec)
        (unit,) = with_group(pods, raw_pod_group(fewest=3)).freeze(0.0).workloads.values()
        assert (unit.ref.name, unit.replicas) == ("g", 2)

    def test_groups_of_other_namespaces_are_others(self) -> None:
        spec = {"schedulingGroup": {"podGroupName": "theirs"}}
        pods = [*grouped("a", "b"), raw_adopted_pod("c", namespace="other", spec=spec)]
        found = with_group(pods, raw_pod_group(fewest=2)).freeze(0.0).workloads.values()
        assert {(unit.ref.namespace, unit.ref.name) for unit in found} == {
            ("default", "theirs"),
            ("other", "c"),
        }

    def test_a_group_that_cannot_be_read_is_as_it_was(self) -> None:
        state = with_group(grouped("a", "b"), raw_pod_group(fewest=2))
        state.upsert(streams.POD_GROUPS, raw_pod_group(fewest=2**31 - 1), 1.0)
        assert "minCount" in state.projection_messages["podgroups"]
        assert [unit.replicas for unit in state.freeze(1.0).workloads.values()] == [2]


def told_again(state: ClusterState, raw: Raw, status: WorkloadStatus, unit: str) -> Raw:
    """The pod after the operator wrote its status; the state hears of it."""
    record = state.freeze(0.0).workloads[unit]
    (owner,) = [one.pod for one in record.adopted if one.pod.name == raw["metadata"]["name"]]
    action = TellPod(
        owner=owner, resource_version="", status=status, unit=unit, epoch=1,
        reason=Reason.PLACED, text="",
    )  # fmt: skip
    body = json.loads(json.dumps(status_body(action, "")))
    after = json.loads(json.dumps(raw))
    after["metadata"]["annotations"] |= body["metadata"]["annotations"]
    after["status"]["conditions"] = body["status"]["conditions"]
    state.upsert(streams.PODS, after, 1.0)
    return dict(after)


STATUS = WorkloadStatus(
    observed_generation=1,
    phase="Pending",
    decision=DecisionRecord(
        time=1000.0,
        epoch=3,
        inputs_hash="",
        chosen="",
        runner_up="",
        reason=Reason.NO_CAPACITY,
        message="no device has 30 % free",
        refusals=(RefusalLine(reason=Reason.PERCENT_LIMIT, devices=2, nearest="", message=""),),
        identity="abc",
    ),
    conditions=(
        Condition(
            type=ConditionType.ADMITTED,
            status="False",
            reason=Reason.NO_CAPACITY,
            message="no device has 30 % free",
            since=1000.0,
            observed_generation=1,
        ),
    ),
)


def test_a_pod_is_a_workload_of_its_own() -> None:
    found = only(raw_adopted_pod())
    assert found.kind is WorkloadKind.POD
    assert found.ref.uid == "uid-web-1"
    assert found.gpu == GPURequest(
        mode=GPUMode.FRACTIONAL, share=Share(min_percent=30, max_percent=60)
    )
    assert (found.replicas, found.invalid, found.checkpoint) == (1, "", False)
    assert found.shape.device_container == "main"
    assert found.trust_domain == "namespace/default"
    assert [one.pod.name for one in found.adopted] == ["web-1"]


def test_a_class_in_a_label_counts_before_one_in_an_annotation() -> None:
    keys, notes = {"share": "30", "class": "label"}, {"class": "note"}
    assert only(raw_adopted_pod(keys=keys, notes=notes)).workload_class == "label"
    assert only(raw_adopted_pod(keys={"share": "30"}, notes=notes)).workload_class == "note"


@pytest.mark.parametrize("slots", ["0", "2"])
def test_a_pod_with_other_slots_than_it_asks_for_is_refused(slots: str) -> None:
    found = only(raw_adopted_pod(slots=slots))
    assert f"has {slots} of ullage.dev/slot instead of 1" in found.invalid


def test_one_number_is_least_and_most() -> None:
    share = only(raw_adopted_pod(keys={"share": "40"})).gpu.share
    assert share == Share(min_percent=40, max_percent=40)


def test_keys_mean_what_the_fields_of_our_kinds_mean() -> None:
    found = only(
        raw_adopted_pod(
            keys={"devices": "2"},
            slots="2",
            notes={
                "latency-ms": "50", "percentile": "99.9", "metric": "app_seconds",
                "memory": "8Gi", "accelerators": "emulated,nvidia-a100", "class": "resnet",
                "tenant": "team-a", "trust-domain": "shared", "profile": "p", "checkpoint": "true",
            },
        )
    )  # fmt: skip
    assert found.invalid == ""
    assert found.gpu == GPURequest(count=2, memory_mib=8192)
    assert found.slo is not None
    assert (found.slo.latency_ms, found.slo.percentile, found.slo.metric) == (
        50, "99.9", "app_seconds",
    )  # fmt: skip
    assert found.accelerators == ("emulated", "nvidia-a100")
    assert (found.workload_class, found.tenant, found.trust_domain) == (
        "resnet", "team-a", "shared",
    )  # fmt: skip
    assert (found.profile_ref, found.checkpoint) == ("p", True)
    assert only(raw_adopted_pod(notes={"max-slowdown": "1.3"})).max_slowdown == 1.3


@pytest.mark.parametrize(
    ("label", "chosen"), [({}, None), ({"inject": "Auto"}, True), ({"inject": "Never"}, False)]
)
def test_a_label_brings_the_step_hook_or_keeps_it_away(
    label: dict[str, str], chosen: bool | None
) -> None:
    found = only(raw_adopted_pod(keys={"share": "30", **label}))
    assert (found.invalid, found.inject) == ("", chosen)


def test_an_annotation_is_the_policy_for_slow_ranks() -> None:
    assert only(raw_adopted_pod()).stragglers is None
    found = only(raw_adopted_pod(notes={"stragglers": "Rebalance"}))
    assert (found.invalid, found.stragglers) == ("", StragglerPolicy.REBALANCE)


def test_a_container_in_a_lane_keeps_one_part_and_steps_in_the_other() -> None:
    gpu = only(raw_adopted_pod(notes={"lane": "2Gi+6Gi"})).gpu
    assert gpu.lane == LaneMemory(persistent_mib=2048, ephemeral_mib=6144)
    assert (gpu.mode, gpu.memory_mib) == (GPUMode.FRACTIONAL, 8192)


def test_a_container_in_a_lane_may_be_suspended_where_its_pod_says_so() -> None:
    lane = only(raw_adopted_pod(notes={"lane": "2Gi+6Gi", "lane-switching": "Checkpoint"})).gpu.lane
    assert lane == LaneMemory(persistent_mib=2048, ephemeral_mib=6144, cooperative=False)
    assert (lane.kept_mib, lane.shared_mib) == (0, 8192)


@pytest.mark.parametrize(
    ("keys", "notes", "why"),
    [
        ({"share": "30"}, {"lane": "1Gi+1Gi", "memory": "2Gi"}, "a memory is stated, too"),
        ({"devices": "1"}, {"lane": "1Gi+1Gi"}, "no share is stated"),
    ],
)
def test_a_lane_belongs_to_a_share_and_says_its_memory_itself(
    keys: dict[str, str], notes: dict[str, str], why: str
) -> None:
    found = only(raw_adopted_pod(keys=keys, notes=notes))
    assert f"annotation ullage.dev/lane='1Gi+1Gi': {why}" in found.invalid


def test_the_class_is_that_of_image_and_command_as_of_our_kinds() -> None:
    job = raw_job()
    template = job["spec"]["template"]["spec"]["containers"][0]
    pod = raw_adopted_pod()
    pod["spec"]["containers"][0]["image"] = template["image"]
    state = a_state(pod)
    state.replace(streams.TRAINING_JOBS, [job], 0.0)
    classes = {one.workload_class for one in state.freeze(0.0).workloads.values()}
    assert len(classes) == 1


def test_another_container_gets_the_device_where_the_pod_says_so() -> None:
    pod = raw_adopted_pod(notes={"container": "side"})
    main = pod["spec"]["containers"][0]
    side = json.loads(json.dumps(main)) | {"name": "side"}
    main["resources"] = {}
    pod["spec"]["containers"].append(side)
    found = only(pod)
    assert (found.invalid, found.shape.device_container) == ("", "side")
    (record,) = a_state(pod).freeze(0.0).pods.values()
    assert record.shape.device_container == "side"


WRONG = {
    "share": ("", "0", "101", "60-30", "007", "x", "1-2-3", "٣٠"),
    "devices": ("0", "17", "-1", "9" * 400, "x"),
    "gang-size": ("0", "4097", "x", ""),
    "max-slowdown": ("0.9", "x", "nan", "1e400"),
    "latency-ms": ("0", "3600001", "x", "9" * 5000),
    "percentile": ("100", "0", "x"),
    "metric": ("a b", "x" * 300),
    "memory": ("0", "1", "-1Gi", "1e3", "x", "9" * 100 + "Pi"),
    "lane": (
        "",
        "+",
        "1Gi",
        "1Gi+",
        "+1Gi",
        "0+1Gi",
        "1Gi+1e3",
        "1Gi+1Gi+1Gi",
        "9" * 100 + "Gi+1Gi",
    ),
    "lane-switching": ("Checkpoint", "", "checkpoint", "x" * 10_000),
    "accelerators": ("A", ",", "a" * 70, ",".join("abcdefghijklmnopqrstuvwxyz")),
    "class": ("a b", "x" * 64, "\n"),
    "tenant": ("x" * 254,),
    "trust-domain": ("namespace/other", "a b", "x" * 64),
    "profile": ("x" * 254,),
    "checkpoint": ("yes", ""),
    "container": ("nobody", "", "x" * 10_000),
    "inject": ("auto", "", "true", "x" * 63),
    "stragglers": ("rebalance", "", "true", "x" * 10_000),
}


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in WRONG.items() for value in values]
)
def test_a_wrong_value_makes_its_pod_wait_and_says_what_to_write(key: str, value: str) -> None:
    labels, notes = {"share": "30"}, {}
    if key == "inject":
        labels[key] = value
    elif KEYS[AdoptionKey(key)].is_label:
        labels = {key: value}
    else:
        notes = {key: value}
    if key == "gang-size":
        labels["gang"] = "g"
    if key in ("percentile", "metric"):
        notes["latency-ms"] = "50"
    good = raw_adopted_pod("good")
    found = workloads(raw_adopted_pod("bad", keys=labels, notes=notes), good)
    bad = next(one for uid, one in found.items() if uid != "uid-good")
    assert f"ullage.dev/{key}" in bad.invalid
    assert KEYS[AdoptionKey(key)].remedy in bad.invalid
    assert len(bad.invalid) < 1_000
    assert bad.shape.device_container == ""
    assert found["uid-good"].invalid == ""


def test_objectives_exclude_one_another_and_need_their_latency() -> None:
    for notes in (
        {"max-slowdown": "1.3", "latency-ms": "50"},
        {"percentile": "99"},
        {"metric": "app_seconds"},
        {"gang-size": "2"},
    ):
        assert only(raw_adopted_pod(notes=notes)).invalid, notes
    assert only(raw_adopted_pod(keys={"share": "30", "gang": "g"})).invalid
    assert only(raw_adopted_pod(keys={"share": "30", "devices": "1"})).invalid


def test_what_admission_did_not_prepare_is_refused() -> None:
    assert "0 of ullage.dev/slot instead of 1" in only(raw_adopted_pod(slots="0")).invalid
    assert "instead of 2" in only(raw_adopted_pod(keys={"devices": "2"})).invalid
    assert "without the gate" in only(raw_adopted_pod(gated=False)).invalid


def test_pods_of_a_gang_are_one_workload_in_their_own_namespace() -> None:
    pods = [*a_gang("a-0", "b-0"), *a_gang("c-0", namespace="other")]
    found = workloads(*pods)
    assert set(found) == {"gang/default/g", "gang/other/g"}
    gang = found["gang/default/g"]
    assert gang.replicas == 2
    assert [one.pod.name for one in gang.adopted] == ["a-0", "b-0"]
    owners = {pod.name: pod.owner.uid for pod in a_state(*pods).freeze(0.0).pods.values()}
    assert owners == {"a-0": "gang/default/g", "b-0": "gang/default/g", "c-0": "gang/other/g"}


def test_pods_of_a_gang_that_disagree_wait_and_name_one_another() -> None:
    (first, second) = a_gang("a-0", "b-0")
    second["metadata"]["labels"]["ullage.dev/share"] = "40"
    found = only(first, second)
    assert "a-0 and b-0 of one gang ask for different things" in found.invalid


def test_one_wrong_pod_holds_its_gang_and_is_named() -> None:
    (first, second) = a_gang("a-0", "b-0")
    second["metadata"]["annotations"]["ullage.dev/memory"] = "x"
    assert only(first, second).invalid.startswith("b-0: annotation ullage.dev/memory='x'")


def test_a_pod_that_ended_is_no_workload_any_more() -> None:
    state = a_state(raw_adopted_pod())
    assert state.freeze(0.0).workloads
    state.upsert(streams.PODS, raw_adopted_pod(gated=False, node="n", phase="Succeeded"), 1.0)
    assert not state.freeze(1.0).workloads


def test_a_deleted_pod_takes_its_workload_along() -> None:
    first, second = a_gang("a-0", "b-0")
    state = a_state(first, second)
    state.remove(streams.PODS, first, 1.0)
    (gang,) = state.freeze(1.0).workloads.values()
    assert [one.pod.name for one in gang.adopted] == ["b-0"]
    state.remove(streams.PODS, second, 1.0)
    assert not state.freeze(2.0).workloads


def test_the_status_stands_in_the_pod_and_reads_back() -> None:
    raw = raw_adopted_pod()
    state = a_state(raw)
    after = told_again(state, raw, STATUS, "uid-web-1")
    assert after["status"]["conditions"][0]["type"] == "ullage.dev/Admitted"
    assert "observedGeneration" not in after["status"]["conditions"][0]
    (found,) = state.freeze(2.0).workloads.values()
    assert found.status == STATUS == kept_in_pods(STATUS)
    assert found.adopted[0].is_current


def test_the_echo_of_our_own_word_is_no_news() -> None:
    raw = raw_adopted_pod()
    state = a_state(raw)
    state.freeze(0.0)
    after = json.loads(json.dumps(raw))
    after["metadata"]["annotations"]["ullage.dev/scheduling"] = scheduling_annotation(STATUS)
    assert not state.upsert(streams.PODS, after, 1.0)
    (found,) = state.freeze(2.0).workloads.values()
    assert found.status.phase == "Pending"


def test_a_gang_whose_pods_tell_different_things_counts_as_not_told() -> None:
    first, second = a_gang("a-0", "b-0")
    state = a_state(first, second)
    told_again(state, first, STATUS, "gang/default/g")
    gang = state.freeze(2.0).workloads["gang/default/g"]
    assert gang.status.observed_generation == 0
    assert gang.status.decision == STATUS.decision
    assert [one.is_current for one in gang.adopted] == [True, False]
    told_again(state, second, STATUS, "gang/default/g")
    gang = state.freeze(3.0).workloads["gang/default/g"]
    assert gang.status.observed_generation == 1


def test_what_is_remembered_fits_a_kibibyte_however_much_it_is() -> None:
    exclusions = tuple(
        Exclusion(
            reason=Reason.RESERVATION_REFUSED,
            node=f"{'n' * 200}-{number}",
            gpu="g" * 200,
            since=1.0,
            until=2.0,
            message="m" * 1000,
        )
        for number in range(8)
    )
    full = WorkloadStatus(
        observed_generation=1,
        phase="Pending",
        scheduling=SchedulingState(exclusions=exclusions, preemptions=3, preempted_at=7.0),
    )
    written = scheduling_annotation(full)
    assert len(written) <= MOST_BYTES
    kept = kept_in_pods(full)
    assert kept.scheduling.exclusions[-1].node == exclusions[-1].node
    assert kept.scheduling.preemptions == 3
    assert kept_in_pods(kept) == kept


@pytest.mark.parametrize(
    "wild",
    ["", "{", "[]", "null", "[" * 1000, '{"phase": 7}', '{"phase": "Pending"', "x" * 5_000,
     '{"decision": {"reason": "OfAnotherVersion"}}', '{"scheduling": {"exclusions": 7}}'],
)  # fmt: skip
def test_a_memory_that_cannot_be_read_is_none(wild: str) -> None:
    raw = raw_adopted_pod(notes={"scheduling": wild})
    found = only(raw)
    assert found.invalid == ""
    assert found.status.decision is None
    assert not found.status.scheduling.exclusions


def test_a_memory_longer_than_any_of_ours_is_none() -> None:
    memory = scheduling_annotation(STATUS)
    ours = {"ullage.dev/scheduling": memory.ljust(MOST_BYTES)}
    assert read_pod_status(ours, {}).phase == "Pending"
    longer = {"ullage.dev/scheduling": memory.ljust(MOST_BYTES + 1)}
    assert read_pod_status(longer, {}) == WorkloadStatus()


def test_conditions_of_kubelet_and_of_others_are_not_ours_and_not_repeated() -> None:
    memory = {"ullage.dev/scheduling": scheduling_annotation(STATUS)}
    foreign = {
        "type": "Degraded",
        "status": "True",
        "reason": "SomeoneElse",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    read = read_pod_status(memory, {"conditions": [foreign, *pod_conditions(STATUS)]})
    assert read.condition(ConditionType.DEGRADED) is None
    ready = replace(STATUS.conditions[0], type=ConditionType.READY)
    both = replace(STATUS, conditions=(*STATUS.conditions, ready))
    assert [one["type"] for one in pod_conditions(both)] == ["ullage.dev/Admitted"]


def test_wild_conditions_of_a_pod_harm_no_one() -> None:
    memory = {"ullage.dev/scheduling": scheduling_annotation(STATUS)}
    for wild in (7, [7], [{"type": 7}], [{"type": "ullage.dev/Admitted"}], [{}]):
        read_pod_status(memory, {"conditions": wild})
    shown = pod_conditions(STATUS)
    foreign = {"type": "Ready", "status": "True"}
    assert read_pod_status(memory, {"conditions": [foreign, *shown]}) == STATUS


def test_a_pod_of_kind_pod_without_a_label_is_foreign() -> None:
    state = a_state(raw_adopted_pod(keys={}))
    assert not state.freeze(0.0).workloads
    (found,) = state.foreign_pods().values()
    assert "no label of it asks for a device" in found.why


def test_no_one_joins_the_workload_of_another_pod() -> None:
    victim = raw_adopted_pod("victim", namespace="tenant-a")
    forged = raw_pod(
        "train-0",
        namespace="tenant-b",
        controller=owner_reference("TrainingJob", "train", "uid-victim"),
        meta={"uid": "uid-forged"},
    )
    for pods in ((victim, forged), (forged, victim)):
        state = ClusterState(effect_of)
        for pod in pods:
            state.upsert(streams.PODS, pod, 0.0)
        snapshot = state.freeze(0.0)
        assert set(snapshot.pods) == {"uid-victim"}
        assert set(state.foreign_pods()) == {"uid-forged"}


def labelled(name: str) -> Raw:
    raw = raw_foreign_pod(name)
    raw["metadata"]["labels"] = {"ullage.dev/share": "30"}
    return raw


def test_a_labelled_pod_that_admission_missed_gets_one_event_and_is_left_alone() -> None:
    state = ClusterState(effect_of)
    state.replace(streams.FOREIGN_PODS, [labelled("missed"), raw_foreign_pod("plain")], 0.0)
    reporter = ForeignPodReporter()
    (event,) = reporter.unprepared(state.unprepared_pods(), 1)
    assert (event.target.name, event.reason) == ("missed", Reason.NOT_ADOPTED)
    assert not reporter.unprepared(state.unprepared_pods(), 1)
    assert not state.freeze(0.0).workloads
    state.replace(streams.FOREIGN_PODS, [], 1.0)
    assert not state.unprepared_pods()


def test_many_that_admission_missed_are_told_in_portions() -> None:
    state = ClusterState(effect_of)
    state.replace(streams.FOREIGN_PODS, [labelled(f"p{n}") for n in range(250)], 0.0)
    reporter = ForeignPodReporter()
    told = [len(reporter.unprepared(state.unprepared_pods(), 1)) for _ in range(4)]
    assert told == [REPORTED_AT_ONCE, REPORTED_AT_ONCE, 50, 0]


@pytest.mark.parametrize("length", [0, 10, 999, 1_000, 5_000])
@pytest.mark.parametrize("reason", [Reason.PLACED, Reason.NO_CAPACITY])
def test_what_pods_keep_of_a_status_is_what_reads_back(length: int, reason: Reason) -> None:
    assert STATUS.decision is not None
    said = replace(STATUS.conditions[0], reason=reason, message="m" * length)
    ready = replace(said, type=ConditionType.READY, observed_generation=7)
    full = replace(
        STATUS,
        observed_generation=7,
        restarts=3,
        nodes="n",
        decision=replace(STATUS.decision, reason=reason, chosen="c", runner_up="r"),
        conditions=(ready, replace(said, observed_generation=7)),
    )
    kept = kept_in_pods(full)
    memory = {"ullage.dev/scheduling": scheduling_annotation(full)}
    assert kept == read_pod_status(memory, {"conditions": pod_conditions(full)})
    assert kept_in_pods(kept) is kept or length >= 1_000


def test_the_youngest_gated_pods_beyond_the_size_are_too_many() -> None:
    first, second, third = a_gang("a-0", "b-0", "c-0")
    first["metadata"]["creationTimestamp"] = "2026-01-02T09:00:00Z"  # the youngest
    found = only(first, second, third)
    assert [(one.pod.name, one.too_many) for one in found.adopted] == [
        ("b-0", False), ("c-0", False), ("a-0", True),
    ]  # fmt: skip
    first["spec"] |= {"nodeName": "node-1", "schedulingGates": []}
    found = only(first, second, third)
    assert [one.pod.name for one in found.adopted if one.too_many] == ["c-0"]


FAILED = replace(
    STATUS,
    scheduling=SchedulingState(
        exclusions=(
            Exclusion(
                reason=Reason.STUCK_NOT_STARTED,
                node="node-1",
                gpu="GPU-1",
                since=1.0,
                until=0.0,
                message="it did not start",
            ),
        )
    ),
)


def excluded(state: ClusterState, uid: str) -> list[str]:
    found = state.freeze(9.0).workloads[uid].status.scheduling.exclusions
    return [one.gpu for one in found]


@pytest.mark.parametrize("gone", ["deleted", "leaving", "failed"])
def test_a_successor_leaves_out_the_devices_that_failed_its_predecessor(gone: str) -> None:
    web = owner_reference("ReplicaSet", "web")
    state = a_state(raw_adopted_pod("first", controller=web))
    after = told_again(state, raw_adopted_pod("first", controller=web), FAILED, "uid-first")
    state.freeze(2.0)
    if gone == "deleted":
        state.remove(streams.PODS, after, 3.0)
    elif gone == "failed":
        after["status"]["phase"] = "Failed"
        state.upsert(streams.PODS, after, 3.0)
    else:
        after["metadata"]["deletionTimestamp"] = "2026-01-02T09:00:00Z"
        state.upsert(streams.PODS, after, 3.0)
    state.upsert(streams.PODS, raw_adopted_pod("second", controller=web), 4.0)
    assert excluded(state, "uid-second") == ["GPU-1"]
    api = owner_reference("ReplicaSet", "api")
    for name, more in (("other", api), ("bare", None)):
        state.upsert(streams.PODS, raw_adopted_pod(name, controller=more), 5.0)
        assert excluded(state, f"uid-{name}") == []
    forged = raw_adopted_pod("forged", namespace="tenant-b", controller=web)
    state.upsert(streams.PODS, forged, 6.0)
    assert excluded(state, "uid-forged") == []
    another = raw_adopted_pod("class", controller=web, notes={"class": "another"})
    state.upsert(streams.PODS, another, 6.0)
    assert excluded(state, "uid-class") == []
