# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Where there is room for a job without pods, its slices are decided first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from builders import NOW, WorkloadBuilder, a_gpu_node, a_job, a_pod, a_snapshot, reported
from builders_raw import raw_template
from ullage.api.reasons import Reason
from ullage.api.slices import RESERVING_VERSION
from ullage.api.trainingjob import CostAim
from ullage.cluster.projection.planned import planned_pod
from ullage.cluster.projection.workload import project_workload
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.snapshot import RefusedWrite, Snapshot
from ullage.cluster.records.workload import WorkloadKind
from ullage.cluster.values.reservations import is_reservation, reservation_id
from ullage.scheduling.cycle.decide import decide
from ullage.scheduling.cycle.diff import diff
from ullage.scheduling.model.plan import (
    Action,
    CreatePod,
    CreateReservedPod,
    DecideSettings,
    DeletePod,
    Emit,
    EvictPod,
)

SETTINGS = DecideSettings(epoch=1, reserve_first=True)


def a_node(name: str = "node-1", *, devices: int = 2, contract: int = RESERVING_VERSION) -> Any:
    return replace(a_gpu_node(name, devices=devices), contract=contract)


def plain(name: str = "train") -> WorkloadBuilder:
    return a_job(name).with_(plain=True)


def actions_of(snapshot: Snapshot) -> tuple[Action, ...]:
    return diff(decide(snapshot, NOW, SETTINGS), snapshot)


def reserved(snapshot: Snapshot) -> dict[str, list[str]]:
    """Pods with reserved slices, by node."""
    plan = decide(snapshot, NOW, SETTINGS)
    return {
        node: [part.pod_name for part in slices if is_reservation(part.key.pod_uid)]
        for node, slices in plan.slices.items()
    }


def created(snapshot: Snapshot) -> list[str]:
    return [one.name for one in actions_of(snapshot) if isinstance(one, CreatePod)]


def test_a_job_gets_slices_and_no_pod_yet() -> None:
    snapshot = a_snapshot(a_node(), plain())
    assert reserved(snapshot) == {"node-1": ["train-0"]}
    assert created(snapshot) == []


def test_a_gang_gets_all_of_its_slices_or_gated_pods() -> None:
    fits, too_large = plain("fits").gang(2), plain("large").gang(3)
    snapshot = a_snapshot(a_node("node-1"), a_node("node-2", devices=1), fits)
    assert sum(map(len, reserved(snapshot).values())) == 2
    snapshot = a_snapshot(a_node("node-1"), too_large, a_job("other"))
    assert reserved(snapshot) == {"node-1": []}


def test_those_without_room_are_created_with_a_gate() -> None:
    snapshot = a_snapshot(a_node(devices=1), plain("first"), plain("second"))
    assert sum(map(len, reserved(snapshot).values())) == 1
    (pod,) = created(snapshot)
    assert pod in ("first-0", "second-0")


@pytest.mark.parametrize(
    "job",
    [
        a_job("train"),
        plain().elastic(1, 2),
        plain().with_(cost=CostAim(objective="CostPerWork")),
    ],
    ids=["rules-of-its-own", "elastic", "types-not-compared"],
)
def test_others_keep_their_gate(job: WorkloadBuilder) -> None:
    snapshot = a_snapshot(a_node(), job)
    assert reserved(snapshot) == {"node-1": []}
    assert created(snapshot)


def test_agents_that_know_no_reservations_get_none() -> None:
    old = a_node("node-1", contract=RESERVING_VERSION - 1)
    snapshot = a_snapshot(old, plain())
    assert reserved(snapshot) == {"node-1": []}
    assert created(snapshot) == ["train-0"]
    snapshot = a_snapshot(old, a_node("node-2"), plain())
    assert reserved(snapshot) == {"node-1": [], "node-2": ["train-0"]}


def test_pods_that_wait_for_the_device_come_first() -> None:
    waiting = a_job("waits")
    pod = a_pod("waits-0", owner=waiting.build())
    snapshot = a_snapshot(a_node(devices=1), waiting, pod, plain())
    assert reserved(snapshot) == {"node-1": []}
    assert created(snapshot) == ["train-0"]


def test_a_refused_create_is_repeated_with_a_gate() -> None:
    refused = RefusedWrite(reason=Reason.CREATE_REFUSED, message="exceeded quota")
    job = plain()
    snapshot = a_snapshot(
        a_node(), job, refused_writes={("Pod", job.build().ref.namespace, "train-0"): refused}
    )
    assert reserved(snapshot) == {"node-1": []}
    assert created(snapshot) == []


def with_planned(node: GPUNodeRecord, job: WorkloadBuilder) -> Snapshot:
    """The job with a reservation on the node, which the node acknowledged."""
    record = job.build()
    reservation = reservation_id(record.ref.uid, record.template_hash, "train-0", NOW)
    plan = decide(a_snapshot(node, job), NOW, SETTINGS)
    (wanted,) = plan.slices[node.name]
    wanted = replace(wanted, key=replace(wanted.key, pod_uid=reservation))
    held = replace(
        node, desired=(wanted,), observed=(reported(wanted),), desired_since={wanted.key: NOW}
    )
    return a_snapshot(held, job, planned_pod(record, 0, reservation, NOW))


def test_a_reserved_pod_is_created_on_its_node() -> None:
    snapshot = with_planned(a_node(), plain())
    (pod,) = [one for one in actions_of(snapshot) if isinstance(one, CreatePod)]
    assert isinstance(pod, CreateReservedPod)
    assert (pod.name, pod.node, is_reservation(pod.reservation)) == ("train-0", "node-1", True)


def test_what_does_not_exist_is_neither_deleted_nor_evicted() -> None:
    for change in ({"suspend": True}, {"deleting": True}):
        snapshot = with_planned(a_node(), plain())
        (job,) = snapshot.workloads.values()
        snapshot = replace(snapshot, workloads={job.ref.uid: replace(job, **change)})  # type: ignore[arg-type]
        actions = actions_of(snapshot)
        assert not [one for one in actions if isinstance(one, (DeletePod, EvictPod, CreatePod))]
        assert decide(snapshot, NOW, SETTINGS).slices["node-1"] == ()


def test_the_place_of_a_job_that_did_not_wait_is_no_event() -> None:
    snapshot = a_snapshot(a_node(), plain())
    assert not [one for one in actions_of(snapshot) if isinstance(one, Emit)]


def _project(template: dict[str, Any]) -> bool:
    metadata = {"name": "train", "namespace": "team", "uid": "uid", "generation": 1}
    raw = {"metadata": metadata, "spec": {"template": template}}
    record, _ = project_workload(WorkloadKind.TRAINING_JOB, raw, None, lambda value: value)
    assert record.invalid == ""
    return record.plain


def test_a_template_is_plain_if_no_one_else_has_a_say() -> None:
    assert _project(raw_template())
    assert _project(raw_template(labels={"team": "a"}))
    assert not _project(raw_template(labels={"kueue.x-k8s.io/queue-name": "user"}))


@pytest.mark.parametrize(
    "field",
    [
        {"priorityClassName": "high"},
        {"runtimeClassName": "gvisor"},
        {"schedulerName": "other"},
        {"schedulingGates": [{"name": "example.com/wait"}]},
        {"affinity": {"nodeAffinity": {}, "podAntiAffinity": {}}},
        {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
        {
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "zone",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"a": "b"}},
                }
            ]
        },
    ],
)
def test_a_template_with_such_a_field_is_not_plain(field: dict[str, Any]) -> None:
    template = raw_template()
    template["spec"] |= field
    assert not _project(template)
