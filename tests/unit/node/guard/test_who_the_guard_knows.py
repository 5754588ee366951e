# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""From the agent's book, readings and pods to tenants: whoever is not known well is left alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from ullage.api.observations import LatencyObjective
from ullage.api.slices import DesiredSlice, SliceKey, SlicePhase
from ullage_node.guard.gather import subjects, tenants
from ullage_node.model.devices import Attachment, AttachState, ContainerKey, StepProgress
from ullage_node.model.guard import GuardTenant
from ullage_node.model.slices import HeldSlice, Pod
from ullage_node.model.standstill import Standstill, read_standstill
from ullage_node.slices.desired import read_pod

PART = DesiredSlice(
    key=SliceKey(pod_uid="uid-1", container="main"),
    pod_namespace="team",
    pod_name="trainer",
    gpu="gpu-0",
    percent=40,
    memory_mib=1000,
    epoch=3,
    protected=True,
    workload_class="resnet",
    max_slowdown_percent=130,
)
HELD = HeldSlice(desired=PART, phase=SlicePhase.ATTACHED, seen=True)
KEY = ContainerKey(pod_uid="uid-1", container="main")
SEEN = {KEY: Attachment(state=AttachState.ENFORCED, pids=(4711,))}
POD = Pod(uid="uid-1", namespace="team", name="trainer", phase="Running")


def known(
    held: HeldSlice = HELD,
    seen: Mapping[ContainerKey, Attachment] = SEEN,
    pod: Pod | None = POD,
) -> tuple[GuardTenant, ...]:
    return tenants([held], seen, {pod.uid: pod} if pod else {})


def test_a_running_container_is_a_tenant() -> None:
    (tenant,) = known()
    assert (tenant.key, tenant.name, tenant.pids) == (KEY, "team/trainer", (4711,))
    assert (tenant.protected, tenant.best_effort, tenant.leaving) == (True, False, False)
    assert tenant.freeze_seconds == 10.0


@pytest.mark.parametrize("phase", [SlicePhase.RESERVED, SlicePhase.REFUSED, SlicePhase.PREPARED])
def test_what_does_not_run_is_none(phase: SlicePhase) -> None:
    assert known(replace(HELD, phase=phase)) == ()


def test_a_container_without_processes_cannot_be_found() -> None:
    assert known(seen={}) == ()
    assert known(seen={KEY: Attachment(state=AttachState.ENFORCED)}) == ()


def test_a_slice_that_only_an_earlier_agent_reported_is_left_alone() -> None:
    assert known(replace(HELD, desired=replace(PART, pod_name="", pod_namespace=""))) == ()


@pytest.mark.parametrize(
    ("held", "pod"),
    [
        (HELD, None),
        (HELD, replace(POD, deleting=True)),
        (replace(HELD, in_spec=False), POD),
    ],
    ids=["pod never seen", "being deleted", "not wanted any more"],
)
def test_who_goes_or_is_not_known_is_not_paused(held: HeldSlice, pod: Pod | None) -> None:
    (tenant,) = known(held, pod=pod)
    assert tenant.leaving


def test_a_container_outside_its_limits_is_a_neighbour_all_the_same() -> None:
    (tenant,) = known(replace(HELD, phase=SlicePhase.FAILED))
    assert tenant.key == KEY


def test_a_container_on_several_devices_is_one_tenant() -> None:
    second = replace(
        HELD,
        desired=replace(PART, key=replace(PART.key, index=1), gpu="gpu-1"),
    )
    (tenant,) = tenants([second, HELD], SEEN, {POD.uid: POD})
    assert tenant.gpus == ("gpu-0", "gpu-1")


def a_gang(members: int, here: int) -> tuple[GuardTenant, ...]:
    bears = Standstill(gang="TrainingJob/team/big", members=members)
    held, seen, pods = [], {}, {}
    for rank in range(here):
        uid = f"uid-{rank}"
        desired = replace(PART, key=SliceKey(pod_uid=uid, container="main"), pod_name=f"big-{rank}")
        held.append(replace(HELD, desired=desired))
        seen[ContainerKey(pod_uid=uid, container="main")] = SEEN[KEY]
        pods[uid] = replace(POD, uid=uid, name=f"big-{rank}", standstill=bears)
    return tenants(held, seen, pods)


def test_a_gang_is_here_when_all_of_it_is() -> None:
    assert [one.gang_here for one in a_gang(3, 3)] == [True] * 3
    assert [one.gang_here for one in a_gang(3, 2)] == [False] * 2


@pytest.mark.parametrize(
    ("patience", "seconds"), [((), 10.0), ((("main", 6.0),), 3.0), ((("other", 6.0),), 10.0)]
)
def test_half_of_a_probes_patience_is_the_limit(
    patience: tuple[tuple[str, float], ...], seconds: float
) -> None:
    pod = replace(POD, standstill=Standstill(patience=patience))
    (tenant,) = known(pod=pod)
    assert tenant.freeze_seconds == seconds


def test_who_has_an_objective_is_watched() -> None:
    made = {KEY: StepProgress(solo_step_micros=900)}
    (subject,) = subjects([HELD], made)
    assert (subject.max_slowdown_percent, subject.solo_micros) == (130, 900)
    decided = replace(HELD, desired=replace(PART, solo_step_micros=700))
    assert subjects([decided], made)[0].solo_micros == 900
    assert subjects([decided], {})[0].solo_micros == 700
    serving = replace(PART, max_slowdown_percent=0, slo=LatencyObjective(latency_ms=40))
    assert len(subjects([replace(HELD, desired=serving)], made)) == 1
    nothing = replace(HELD, desired=replace(PART, max_slowdown_percent=0))
    assert subjects([nothing], made) == ()


# -- what a pod says of itself -------------------------------------------------------------------


def a_pod(container: dict[str, object], **labels: str) -> dict[str, object]:
    return {
        "metadata": {
            "uid": "uid-1",
            "name": "big-1",
            "namespace": "team",
            "labels": {f"ullage.dev/{name}": value for name, value in labels.items()},
        },
        "spec": {"containers": [{"name": "main"} | container]},
        "status": {"phase": "Running"},
    }


@pytest.mark.parametrize(
    ("probes", "seconds"),
    [
        ({}, None),
        ({"readinessProbe": {"periodSeconds": 1}}, None),
        ({"livenessProbe": {}}, 30.0),
        ({"livenessProbe": {"periodSeconds": 5, "failureThreshold": 2}}, 10.0),
        ({"livenessProbe": {"periodSeconds": 0, "failureThreshold": 0}}, 1.0),
        ({"livenessProbe": {"periodSeconds": 9}, "startupProbe": {"periodSeconds": 1}}, 3.0),
    ],
)
def test_probes_by_which_kubelet_kills_bound_a_pause(
    probes: dict[str, object], seconds: float | None
) -> None:
    assert read_standstill(a_pod(probes)).patience_of("main") == seconds


def test_members_that_wait_for_one_another_are_a_gang() -> None:
    world = {"env": [{"name": "WORLD_SIZE", "value": "4"}, {"name": "X", "valueFrom": {}}]}
    read = read_standstill(a_pod(world, owner="big", kind="TrainingJob", rank="1"))
    assert (read.gang, read.members) == ("TrainingJob/team/big", 4)
    elastic = {"env": [{"name": "PET_NNODES", "value": "2:8"}]}
    read = read_standstill(a_pod(elastic, owner="big", kind="TrainingJob", rank="0"))
    assert (read.gang, read.members) == ("TrainingJob/team/big", 8)
    alone = {"env": [{"name": "WORLD_SIZE", "value": "1"}]}
    assert read_standstill(a_pod(alone, owner="small", rank="0")).gang == ""


def test_replicas_of_a_service_do_not_wait_for_one_another() -> None:
    assert read_standstill(a_pod({}, owner="web", kind="InferenceDeployment")).gang == ""


def test_a_rank_that_does_not_say_how_many_they_are_is_never_whole() -> None:
    read = read_standstill(a_pod({}, owner="big", rank="1"))
    assert read.gang == "rank/team/big"
    assert read.members > 1


def test_namesakes_of_two_namespaces_are_no_gang() -> None:
    pods = [a_pod({}, owner="big", rank="1") for _ in range(2)]
    pods[1]["metadata"] = {**pods[1]["metadata"], "namespace": "other"}  # type: ignore[dict-item]
    one, two = (read_standstill(pod).gang for pod in pods)
    assert one != two


def test_it_comes_with_the_pod() -> None:
    pod = read_pod(a_pod({"livenessProbe": {"periodSeconds": 2}}))
    assert pod.standstill.patience_of("main") == 6.0


def test_a_pod_of_nonsense_is_read_and_never_paused() -> None:
    pod = read_pod(a_pod({"livenessProbe": {"periodSeconds": "often"}}))
    (tenant,) = known(pod=pod)
    assert tenant.gang
    assert not tenant.gang_here
