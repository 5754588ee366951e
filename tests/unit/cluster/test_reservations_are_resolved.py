# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A snapshot shows reserved slices under the uid of their pod, or a planned pod for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import a_gpu_node, a_job, a_pod
from ullage.api.slices import DesiredSlice, ObservedSlice, SliceKey, SlicePhase
from ullage.cluster.cache.reservations import Reservations
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.workload import WorkloadRecord
from ullage.cluster.values.reservations import reservation_id

JOB = replace(a_job("train").record, plain=True)
ID = reservation_id(JOB.ref.uid, JOB.template_hash, "train-0", 1_767_323_045.25)
WANTED = DesiredSlice(
    key=SliceKey(pod_uid=ID, container="main"),
    pod_namespace="default",
    pod_name="train-0",
    gpu="gpu",
    percent=100,
    memory_mib=1000,
    epoch=1,
)
SEEN = ObservedSlice(
    key=WANTED.key,
    phase=SlicePhase.RESERVED,
    gpu="gpu",
    percent=100,
    memory_mib=1000,
    epoch=1,
)
NODE = a_gpu_node("node-1", desired=(WANTED,), observed=(SEEN,))
NODES = {"node-1": NODE, "node-2": a_gpu_node("node-2")}


def planned(reservations: Reservations, job: WorkloadRecord | None = JOB) -> list[PodRecord]:
    """Planned pods where one job exists."""

    def job_of(namespace: str, name: str) -> WorkloadRecord | None:
        named = job is not None and (namespace, name) == (job.ref.namespace, job.ref.name)
        return job if named else None

    return list(reservations.planned(job_of).values())


def the_pod(**change: object) -> PodRecord:
    pod = a_pod("train-0", owner=JOB, uid="uid-1", stage=PodStage.BOUND, node="node-1")
    return replace(pod, **{"gates": (), "reservation": ID, **change})  # type: ignore[arg-type]


def test_an_open_reservation_is_a_planned_pod() -> None:
    reservations = Reservations()
    assert reservations.shown(NODES) is NODES
    (pod,) = planned(reservations)
    assert (pod.uid, pod.name, pod.rank, pod.planned) == (ID, "train-0", 0, True)
    assert pod.owner == JOB.ref
    reservations.shown(NODES)
    assert planned(reservations)[0] is pod, "the same object while nothing changes"


def test_a_taken_one_has_the_uid_in_spec_and_status() -> None:
    reservations = Reservations()
    reservations.put(the_pod())
    shown = reservations.shown(NODES)
    node = shown["node-1"]
    assert [part.key.pod_uid for part in (*node.desired, *node.observed)] == ["uid-1", "uid-1"]
    assert [key.pod_uid for key in node.desired_since] == ["uid-1"]
    assert shown["node-2"] is NODES["node-2"]
    assert reservations.shown(NODES)["node-1"] is node, "the same object while nothing changes"
    assert planned(reservations) == []


def test_the_report_on_the_pod_itself_counts() -> None:
    own = replace(SEEN, key=replace(SEEN.key, pod_uid="uid-1"), phase=SlicePhase.ATTACHED)
    reservations = Reservations()
    reservations.put(the_pod())
    node = reservations.shown({"node-1": replace(NODE, observed=(SEEN, own))})["node-1"]
    assert node.observed == (own,)


def test_what_a_pod_took_is_not_open_again_when_it_is_gone() -> None:
    reservations = Reservations()
    reservations.put(the_pod())
    reservations.shown(NODES)
    reservations.drop(the_pod())
    assert reservations.shown(NODES) is NODES
    assert planned(reservations) == []


def test_a_pod_of_the_name_that_took_nothing_leaves_no_room_for_a_planned_one() -> None:
    reservations = Reservations()
    reservations.put(the_pod(reservation=""))
    reservations.shown(NODES)
    assert planned(reservations) == []


@pytest.mark.parametrize("change", [{"namespace": "other"}, {"name": "train-1"}])
def test_no_other_pod_takes_it(change: dict[str, str]) -> None:
    reservations = Reservations()
    reservations.put(the_pod(**change))
    assert reservations.shown(NODES) is NODES


@pytest.mark.parametrize(
    "job",
    [
        None,
        replace(JOB, template_hash="edited"),
        replace(JOB, ref=replace(JOB.ref, uid="another")),
        replace(JOB, status=replace(JOB.status, phase="Running")),
        replace(JOB, status=replace(JOB.status, phase="Failed")),
        replace(JOB, replicas=0),
    ],
    ids=["gone", "edited", "another", "runs", "ended", "smaller"],
)
def test_only_its_job_has_a_planned_pod(job: WorkloadRecord | None) -> None:
    reservations = Reservations()
    reservations.shown(NODES)
    assert planned(reservations, job) == []


@pytest.mark.parametrize(
    "change",
    [
        {"pod_name": "train-1"},
        {"pod_name": "train-00"},
        {"pod_name": "train-" + "9" * 400},
        {"pod_name": "train-\N{SUPERSCRIPT TWO}"},
        {"pod_name": "train"},
        {"pod_name": ""},
        {"pod_namespace": "other"},
        {"key": SliceKey(pod_uid="reservation-", container="main")},
        {"key": SliceKey(pod_uid="reservation-" + "f" * 20 + "-0", container="main")},
        {"key": SliceKey(pod_uid=ID + "0", container="main")},
    ],
)
def test_a_wild_or_forged_slice_is_no_reservation(change: dict[str, object]) -> None:
    wild = replace(WANTED, **change)  # type: ignore[arg-type]
    reservations = Reservations()
    reservations.shown({"node-1": a_gpu_node("node-1", desired=(wild,))})
    assert planned(reservations) == []
