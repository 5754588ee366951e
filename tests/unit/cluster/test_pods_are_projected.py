# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from builders_raw import CREATED_S, owner_reference, raw_foreign_pod, raw_pod
from ullage.api.labels import GATE, LABEL_LEAD, LABEL_ORDER, SLOT_RESOURCE
from ullage.cluster.codecs.objects import LINE_LIMIT, Sharer
from ullage.cluster.projection.pod import project_foreign, project_pod
from ullage.cluster.records.pod import PodRecord, PodStage


def pod(**fields: Any) -> PodRecord:
    return project_pod(raw_pod(**fields), 50.0, Sharer())[0]


def ended(name: str, code: int) -> dict[str, object]:
    return {"name": name, "state": {"terminated": {"exitCode": code}}}


def waits(name: str, reason: str, message: str = "") -> dict[str, object]:
    return {"name": name, "state": {"waiting": {"reason": reason, "message": message}}}


@pytest.mark.parametrize(
    ("fields", "stage"),
    [
        ({}, PodStage.GATED),
        ({"gated": False}, PodStage.UNSCHEDULED),
        ({"gated": False, "spec": {"schedulingGates": [{"name": "x/y"}]}}, PodStage.GATED),
        ({"gated": False, "node": "n"}, PodStage.BOUND),
        ({"gated": False, "node": "n", "phase": "Running"}, PodStage.RUNNING),
        ({"gated": False, "node": "n", "phase": "Succeeded"}, PodStage.SUCCEEDED),
        ({"gated": False, "node": "n", "phase": "Failed"}, PodStage.FAILED),
    ],
)
def test_the_stage_follows_gates_node_and_phase(fields: dict[str, Any], stage: PodStage) -> None:
    assert pod(**fields).stage is stage


def test_identity_rank_and_gates_are_read() -> None:
    record = pod(rank=3, spec={"schedulingGates": [{"name": "other/gate"}, {"name": GATE}]})
    assert record.gates == ("other/gate", GATE)
    assert record.rank == 3
    assert (record.uid, record.namespace, record.name) == ("uid-train-0", "default", "train-0")
    assert record.created == CREATED_S
    assert record.stage_since == 50.0
    assert record.shape.requests.extended == ((SLOT_RESOURCE, 1),)


def test_a_job_owns_a_pod_only_through_its_owner_reference() -> None:
    assert pod().owner.uid == "uid-train"
    assert pod(controller=owner_reference("TrainingJob", "train", "old")).owner.uid == "old"
    assert pod(controller=owner_reference("TrainingJob", "other")).owner.uid == ""
    assert pod(controller=owner_reference("ReplicaSet", "train-abc")).owner.uid == ""


OURS = owner_reference("TrainingJob", "train")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"controller": OURS | {"controller": False}}, "no controller owns it"),
        (
            {"controller": OURS | {"apiVersion": "example.com/v1"}},
            "its controller is TrainingJob.example.com train, not the TrainingJob train",
        ),
        ({"controller": OURS | {"kind": "Job"}}, "its controller is Job train"),
        ({"controller": OURS | {"uid": ""}}, "its controller has no uid"),
        ({"kind": "Job"}, "names no kind that has pods"),
        ({"name": "train-1"}, "its name is not the one"),
        ({"name": "other"}, "its name is not the one"),
        ({"rank": None}, "its name is not the one"),
        ({"name": "train-00", "rank": "00"}, "its name is not the one"),
        ({"name": "train-4096", "rank": 4096}, "its name is not the one"),
        ({"name": "train-" + "9" * 5000, "rank": "9" * 5000}, "its name is not the one"),
        ({"name": "train-lead"}, "its name is not the one"),
    ],
)
def test_a_pod_that_the_operator_cannot_have_made_says_why(
    fields: dict[str, Any], why: str
) -> None:
    record, claim = project_pod(raw_pod(**fields), 0.0, Sharer())
    assert why in claim.against
    assert record.owner.uid == ""


@pytest.mark.parametrize(
    ("name", "label", "value", "ours"),
    [
        ("train-lead", LABEL_LEAD, "true", True),
        ("train-0", LABEL_LEAD, "true", False),
        ("train-order-0", LABEL_ORDER, "spot", True),
        ("train-order-12", LABEL_ORDER, "spot", True),
        ("train-order-", LABEL_ORDER, "spot", False),
        ("train-order-x", LABEL_ORDER, "spot", False),
        ("train-0", LABEL_ORDER, "spot", False),
    ],
)
def test_leads_and_orders_bear_their_own_names(
    name: str, label: str, value: str, ours: bool
) -> None:
    raw = raw_pod(name)
    raw["metadata"]["labels"][label] = value
    assert (not project_pod(raw, 0.0, Sharer())[1].against) is ours


@pytest.mark.parametrize(
    ("controller", "serves"),
    [
        (owner_reference("ReplicaSet", "serve-abc12"), True),
        (owner_reference("ReplicaSet", "other-abc12"), False),
        (owner_reference("StatefulSet", "serve-abc12"), False),
        (owner_reference("ReplicaSet", "serve-abc12") | {"apiVersion": "ullage.dev/v1"}, False),
    ],
)
def test_labels_alone_make_no_replica(controller: dict[str, Any], serves: bool) -> None:
    raw = raw_pod("p", kind="InferenceDeployment", owner="serve", controller=controller)
    record, claim = project_pod(raw, 0.0, Sharer())
    assert claim.replica
    assert (not claim.against) is serves
    assert record.owner.uid == ""


@pytest.mark.parametrize("reason", ["UnexpectedAdmissionError", "OutOfcpu", "OutOfullage.dev/slot"])
def test_a_lost_admission_race_is_no_failure_of_the_job(reason: str) -> None:
    record = pod(gated=False, node="n", phase="Failed", status={"reason": reason})
    assert record.lost_race
    assert record.disrupted
    assert record.exit_code is None


def test_other_failures_are_no_lost_race() -> None:
    record = pod(gated=False, node="n", phase="Failed", status={"reason": "DeadlineExceeded"})
    assert not record.lost_race
    assert not record.disrupted


def test_a_disruption_target_is_disrupted() -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    assert pod(phase="Failed", status={"conditions": [condition]}).disrupted


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ({"containerStatuses": [ended("main", 3), ended("log", 7)]}, 3),
        ({"containerStatuses": [ended("log", 7), ended("main", 0)]}, 7),
        ({"containerStatuses": [ended("main", 0)]}, 0),
        ({"initContainerStatuses": [ended("init", 5)]}, 5),
        ({"containerStatuses": [{"name": "main", "state": {"running": {}}}]}, None),
        ({}, None),
    ],
)
def test_the_exit_code_is_the_device_containers_or_the_first_failure(
    status: dict[str, object], code: int | None
) -> None:
    assert pod(gated=False, phase="Failed", status=status).exit_code == code


def test_why_the_device_container_waits() -> None:
    record = pod(
        status={"containerStatuses": [waits("main", "CreateContainerConfigError", "Draining: x")]}
    )
    assert (record.waiting_reason, record.waiting_message) == (
        "CreateContainerConfigError",
        "Draining: x",
    )


def test_while_init_containers_run_their_reason_counts() -> None:
    status = {
        "containerStatuses": [waits("main", "PodInitializing")],
        "initContainerStatuses": [waits("fetch", "ImagePullBackOff", "no such image")],
    }
    assert pod(status=status).waiting_reason == "ImagePullBackOff"


def test_foreign_texts_are_cut() -> None:
    record = pod(status={"containerStatuses": [waits("main", "X", "y" * 5000)]})
    assert len(record.waiting_message) == 1024


def test_the_schedulers_message_counts_but_not_that_the_pod_is_gated() -> None:
    def scheduled(reason: str) -> dict[str, object]:
        condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": "m"}
        return {"conditions": [condition]}

    assert pod(gated=False, status=scheduled("Unschedulable")).scheduling_message == "m"
    assert pod(status=scheduled("SchedulingGated")).scheduling_message == ""


def test_equal_pods_share_shape_and_owner() -> None:
    share = Sharer()
    one, _ = project_pod(raw_pod("train-0"), 0.0, share)
    two, _ = project_pod(raw_pod("train-1", rank=1), 0.0, share)
    assert one.shape is two.shape
    assert one.owner is two.owner


def test_foreign_pods_count_only_while_they_are_bound_and_alive() -> None:
    share = Sharer()
    uid, use = project_foreign(raw_foreign_pod(cpu="2"), share)
    assert uid == "uid-web"
    assert use is not None
    assert (use.node, use.requests.cpu_milli, use.requests.pods) == ("node-1", 2000, 1)
    assert project_foreign(raw_foreign_pod(phase="Succeeded"), share)[1] is None
    assert project_foreign(raw_foreign_pod(node=""), share)[1] is None


def failed(**terminated: object) -> PodRecord:
    """A failed pod whose device container left this."""
    container = {"name": "main", "restartCount": 3, "state": {"terminated": terminated}}
    return pod(gated=False, node="n", phase="Failed", status={"containerStatuses": [container]})


@pytest.mark.parametrize(
    ("terminated", "text"),
    [
        ({"exitCode": 1, "reason": "Error"}, "exit code 1"),
        ({"exitCode": 137, "reason": "OOMKilled"}, "exit code 137 (OOMKilled)"),
        (
            {"exitCode": 1, "reason": "Error", "message": "epoch 3\nValueError:  bad shape\n\n"},
            "exit code 1: ValueError: bad shape",
        ),
        ({"exitCode": 2, "message": "\x1b[31mred\x1b[0m"}, "exit code 2: ?[31mred?[0m"),
    ],
)
def test_a_failed_pod_says_how_it_ended(terminated: dict[str, object], text: str) -> None:
    record = failed(**terminated)
    assert record.how_it_ended == text
    assert record.container_restarts == 3


def test_a_container_that_was_started_again_says_how_it_ended_before() -> None:
    ended_before = {"exitCode": 137, "reason": "OOMKilled", "message": ""}
    container = {
        "name": "main",
        "restartCount": 4,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}},
        "lastState": {"terminated": ended_before},
    }
    record = pod(gated=False, node="n", phase="Running", status={"containerStatuses": [container]})
    assert (record.last_end, record.container_restarts) == ("exit code 137 (OOMKilled)", 4)
    assert record.exit_code is None


def test_a_long_last_line_is_cut() -> None:
    assert len(failed(exitCode=1, message="x" * 100_000).last_line) == LINE_LIMIT


def test_a_pod_that_kubelet_ended_says_its_word() -> None:
    said = {"reason": "Evicted", "message": "The node was low on resource: memory."}
    record = pod(gated=False, node="n", phase="Failed", status=said)
    assert record.how_it_ended == ("no exit code (Evicted): The node was low on resource: memory.")
