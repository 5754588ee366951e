# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""An InferenceDeployment: Deployment and Service, slices pod by pod, updates without a gap."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import (
    Part,
    WorkloadBuilder,
    a_deployment,
    a_gpu_node,
    a_kube_service,
    a_pod,
    a_service,
    a_slice,
    gpu,
    reported,
)
from fakes.deciding import decided, told
from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.scheduling.model.plan import ApplyDeployment, ApplyService, UngatePod


def _running(
    service: WorkloadBuilder, count: int, *, version: str = "0123456789ab"
) -> list[PodRecord]:
    return [
        a_pod(
            f"serve-{version[:3]}-{at}",
            owner=service.build(),
            rank=-1,
            stage=PodStage.RUNNING,
            node="node-1",
            template_hash=version,
        )
        for at in range(count)
    ]


def _node(pods: list[PodRecord], devices: int) -> Part:
    held = [a_slice(pod, device=gpu("node-1", at), percent=100) for at, pod in enumerate(pods)]
    seen = [reported(one, SlicePhase.ATTACHED) for one in held]
    return a_gpu_node(devices=devices, desired=held, observed=seen)


def _kept(service: WorkloadBuilder, surge: int = 1, unavailable: int = 0) -> list[Part]:
    record = service.build()
    return [
        a_deployment(record, surge=surge, unavailable=unavailable, ready=record.replicas),
        a_kube_service(record),
    ]


def test_a_deployment_and_a_service_of_its_name_are_made() -> None:
    service = a_service().replicas(2)
    found = decided(a_gpu_node(), service)
    deployment = found.one(ApplyDeployment)
    assert (deployment.name, deployment.replicas) == ("serve", 2)
    assert (deployment.max_surge, deployment.max_unavailable) == (1, 0)
    assert (found.one(ApplyService).name, found.one(ApplyService).headless) == ("serve", False)


def test_nothing_is_made_twice_and_drift_is_put_right() -> None:
    service = a_service().replicas(2)
    pods = _running(service, 2)
    parts = [_node(pods, 2), *pods, *_kept(service)]
    settled = told(service, *parts)
    assert not decided(settled, *parts).actions
    scaled = settled.replicas(1).with_(generation=2)
    assert decided(scaled, *parts).one(ApplyDeployment).replicas == 1
    drifted = a_deployment(service.build(), surge=3, unavailable=0, ready=2)
    assert decided(settled, *parts, drifted).one(ApplyDeployment).max_surge == 1


def test_without_a_port_there_is_nothing_to_serve() -> None:
    service = a_service().with_(has_port=False)
    found = decided(a_gpu_node(), service)
    assert not found.all(ApplyDeployment)
    assert found.condition(service, "Admitted").reason == Reason.NO_PORT


@pytest.mark.parametrize("kind", ["Deployment", "Service"])
def test_a_namesake_of_someone_else_is_a_conflict(kind: str) -> None:
    service = a_service()
    taken: Part = (
        replace(a_deployment(service.build()), owner_uid="")
        if kind == "Deployment"
        else replace(a_kube_service(service.build()), owner_uid="")
    )
    found = decided(a_gpu_node(), service, taken)
    assert not found.all(ApplyDeployment)
    assert not found.all(ApplyService)
    assert found.condition(service, "Admitted").reason == Reason.NAME_CONFLICT


def test_gated_pods_get_slices_as_they_appear_and_go_one_by_one() -> None:
    service = a_service().replicas(2)
    first, second = (a_pod(f"serve-{at}", owner=service.build(), rank=-1) for at in (1, 2))
    held = a_slice(first, device=gpu(), percent=100)
    node = a_gpu_node(desired=[held], observed=[reported(held)])
    found = decided(service, first, second, node, *_kept(service))
    assert [one.pod.name for one in found.all(UngatePod)] == ["serve-1"]
    assert found.places() == {"serve-1": [gpu()], "serve-2": [gpu("node-1", 1)]}


def test_ready_means_as_many_ready_as_wanted() -> None:
    service = a_service().replicas(2)
    pods = _running(service, 2)
    parts = [_node(pods, 2), *_kept(service)]
    status = decided(service, *pods, *parts).status(service)
    assert (status.phase, status.replicas, status.ready_replicas) == ("Ready", 2, 2)
    assert status.endpoint == "serve.default.svc:80"
    assert "ullage.dev/owner=serve" in status.selector
    half = [pods[0], replace(pods[1], ready=False)]
    assert decided(service, *half, *parts).status(service).phase == "Degraded"
    none = [replace(one, ready=False) for one in pods]
    assert decided(service, *none, *parts).status(service).phase == "Pending"
    served = service.status(phase="Ready")
    assert decided(served, *none, *parts).status(served).phase == "Degraded"


def test_an_update_starts_first_where_a_slice_is_free() -> None:
    service = a_service().replicas(2)
    pods = _running(service, 2)
    update = service.with_(template_hash="fedcba987654", generation=2)
    kept = _kept(service, surge=0, unavailable=1)
    found = decided(update, *pods, _node(pods, 3), *kept)
    applied = found.one(ApplyDeployment)
    assert (applied.max_surge, applied.max_unavailable) == (1, 0)
    assert applied.template_hash == "fedcba987654"
    assert found.all(ApplyService), "ports may have changed with the template"


def test_an_update_stops_one_first_where_none_is_free() -> None:
    service = a_service().replicas(2)
    pods = _running(service, 2)
    update = service.with_(template_hash="fedcba987654", generation=2)
    found = decided(update, *pods, _node(pods, 2), *_kept(service))
    applied = found.one(ApplyDeployment)
    assert (applied.max_surge, applied.max_unavailable) == (0, 1)


def _mid_update(replicas: int, devices: int) -> tuple[WorkloadBuilder, list[Part]]:
    """An update with surge under way: the new pod is there and gated."""
    service = a_service().replicas(replicas)
    pods = _running(service, replicas)
    update = service.with_(template_hash="fedcba987654", generation=2)
    newcomer = a_pod("serve-new", owner=update.build(), rank=-1, template_hash="fedcba987654")
    deployment = a_deployment(update.build(), surge=1, unavailable=0, template_hash="fedcba987654")
    parts = [_node(pods, devices), *pods, newcomer, deployment, a_kube_service(update.build())]
    return update, parts


def test_an_update_whose_slice_was_taken_turns_to_stopping_first() -> None:
    update, parts = _mid_update(replicas=2, devices=2)
    applied = decided(update, *parts).one(ApplyDeployment)
    assert (applied.max_surge, applied.max_unavailable) == (0, 1)


def test_an_update_that_has_its_slice_goes_on_as_it_began() -> None:
    update, parts = _mid_update(replicas=2, devices=3)
    assert not decided(update, *parts).all(ApplyDeployment)


def test_a_single_replica_waits_for_room_and_says_so() -> None:
    update, parts = _mid_update(replicas=1, devices=1)
    found = decided(update, *parts)
    assert not found.all(ApplyDeployment)
    degraded = found.condition(update, "Degraded")
    assert (degraded.status, degraded.reason) == ("True", Reason.NO_ROOM_TO_SURGE)
    assert found.condition(update, "Admitted").status == "True", "the old one serves"
    assert found.status(update).phase == "Ready"
    assert "NoRoomToSurge" in [reason for reason, _ in found.events()]
    again = update.with_(status=found.status(update))
    assert not decided(again, *parts).actions


def test_scaling_up_without_room_does_not_touch_the_strategy() -> None:
    service = a_service().replicas(2)
    pods = _running(service, 1)
    newcomer = a_pod("serve-new", owner=service.build(), rank=-1)
    found = decided(service, *pods, newcomer, _node(pods, 1), *_kept(service))
    assert not found.all(ApplyDeployment)
    assert found.decision(service).reason is Reason.NO_CAPACITY
    assert found.status(service).phase == "Degraded"
