# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``sharing.resizable``: an edited share comes by a restart, or its owner is told; never lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import (
    NOW,
    Part,
    WorkloadBuilder,
    a_deployment,
    a_gpu_node,
    a_job,
    a_kube_service,
    a_pod,
    a_service,
    a_slice,
    gpu,
    reported,
)
from fakes.deciding import Decided, decided, told
from ullage.api.reasons import Reason
from ullage.api.sharing import SharingRules
from ullage.api.slices import SlicePhase
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.workload import WorkloadKind
from ullage.scheduling.model.plan import ApplyDeployment, EvictPod

RESTART = SharingRules(resizable=True)
JOB = a_job().fractional(20, 40).checkpointed().with_(sharing=RESTART).status(phase="Running")
SERVICE = a_service().fractional(20, 40)
NAMES = "abc"


def _parts(work: WorkloadBuilder, *, devices: int = 1, taken: int = 0) -> list[Part]:
    """Its pods run at 40 % and 1000 MiB, one a device; someone may have a part of the first."""
    record = work.build()
    gang = record.kind is WorkloadKind.TRAINING_JOB
    pods = [
        a_pod(
            f"{record.ref.name}-{at if gang else NAMES[at]}",
            owner=record,
            stage=PodStage.RUNNING,
            node="node-1",
            since=NOW - 300,
        )
        for at in range(record.replicas)
    ]
    held = [
        a_slice(pod, device=gpu("node-1", at % devices), percent=40, memory_mib=1000)
        for at, pod in enumerate(pods)
    ]
    more: list[Part] = [*pods]
    if not gang:
        more += [
            a_deployment(record, surge=1, unavailable=0, ready=record.replicas),
            a_kube_service(record),
        ]
    if taken:
        busy = a_job("busy").fractional(taken, taken).status(phase="Running")
        other = a_pod("busy-0", owner=busy.build(), stage=PodStage.RUNNING, node="node-1")
        held.append(a_slice(other, percent=taken, memory_mib=1000))
        more += [busy, other]
    seen = [reported(one, SlicePhase.ATTACHED) for one in held]
    return [a_gpu_node(devices=devices, desired=held, observed=seen), *more]


def _edited(work: WorkloadBuilder, least: int, most: int, **more: int) -> WorkloadBuilder:
    return work.fractional(least, most, **more).with_(generation=2)


def _evicted(found: Decided) -> list[str]:
    return [one.pod.name for one in found.all(EvictPod)]


def _deployed(found: Decided) -> int | None:
    applied = found.all(ApplyDeployment)
    return applied[0].replicas if applied else None


@pytest.mark.parametrize(
    ("least", "most", "memory_mib"), [(50, 80, 0), (10, 30, 0), (20, 40, 2000)]
)
def test_a_job_starts_again_at_its_checkpoint_with_what_it_may_have_now(
    least: int, most: int, memory_mib: int
) -> None:
    parts = _parts(JOB)
    job = _edited(told(JOB, *parts), least, most, memory_mib=memory_mib)
    found = decided(job, *parts)
    status = found.status(job)
    assert (status.phase, status.restarts) == ("Restarting", 0)
    admitted = found.condition(job, "Admitted")
    assert admitted.reason == Reason.RESIZING
    assert "train-0 has 40 % and 1000 MiB, spec.gpu asks for" in admitted.message
    leaving = decided(job.with_(status=status), *parts)
    assert _evicted(leaving) == ["train-0"]
    assert leaving.one(EvictPod).reason is Reason.RESIZING
    empty = a_gpu_node(devices=1)
    gone = job.with_(status=leaving.status(job))
    gone = gone.with_(status=decided(gone, empty).status(gone))
    ((_, again),) = decided(gone, *gone.pods(), empty).slices()
    assert least <= again.percent <= most
    assert not memory_mib or again.memory_mib == memory_mib


def test_what_still_fits_goes_on() -> None:
    parts = _parts(JOB)
    job = _edited(told(JOB, *parts), 30, 100)
    found = decided(job, *parts)
    assert found.status(job).phase == "Running"
    assert found.status(job).condition("Degraded") is None


def test_without_room_a_job_goes_on_with_what_it_has_and_says_so() -> None:
    parts = _parts(JOB, taken=50)
    job = _edited(told(JOB, *parts), 60, 80)
    found = decided(job, *parts)
    assert found.status(job).phase == "Running"
    bad = found.condition(job, "Degraded")
    assert (bad.status, bad.reason) == ("True", Reason.RESIZE_PENDING)
    assert "60 to 80 %" in bad.message
    assert Reason.RESIZE_PENDING in [reason for reason, _ in found.events()]
    shown = job.with_(status=found.status(job))
    assert decided(shown, *_parts(JOB)).status(shown).phase == "Restarting"


def test_a_gang_starts_again_as_a_whole() -> None:
    gang = JOB.gang(2)
    parts = _parts(gang, devices=2)
    job = _edited(told(gang, *parts), 50, 80)
    job = job.with_(status=decided(job, *parts).status(job))
    assert sorted(_evicted(decided(job, *parts))) == ["train-0", "train-1"]


def test_a_service_that_may_not_be_restarted_keeps_its_share_and_says_so() -> None:
    parts = _parts(SERVICE, devices=2)
    service = _edited(told(SERVICE, *parts), 60, 80)
    found = decided(service, *parts)
    assert (_evicted(found), _deployed(found)) == ([], None)
    bad = found.condition(service, "Degraded")
    assert bad.reason == Reason.RESIZE_PENDING
    assert "sharing.resizable: Never" in bad.message
    assert found.status(service).phase == "Ready"
    back = service.fractional(20, 40).with_(status=found.status(service), generation=3)
    assert decided(back, *parts).status(back).condition("Degraded") is None


def test_a_replica_gets_its_new_share_beside_the_old_one() -> None:
    parts = _parts(SERVICE, devices=2)
    service = _edited(told(SERVICE, *parts), 60, 80).with_(sharing=RESTART)
    found = decided(service, *parts)
    assert (_evicted(found), _deployed(found)) == ([], 2)
    assert found.condition(service, "Degraded").reason == Reason.RESIZE_PENDING
    assert "replaced one after the other" in found.condition(service, "Degraded").message
    new = a_pod("serve-b", owner=service.build())
    larger = [replace(parts[2], replicas=2)]  # type: ignore[type-var]
    placed = decided(service, *parts, *larger, new)
    share = next(one.percent for _, one in placed.slices() if one.pod_name == "serve-b")
    assert 60 <= share <= 80
    up = a_pod("serve-b", owner=service.build(), stage=PodStage.RUNNING, node="node-1")
    held = a_slice(up, device=gpu("node-1", 1), percent=share, memory_mib=1000)
    node = parts[0]
    both = replace(  # type: ignore[type-var]
        node,
        desired=(*node.desired, held),  # type: ignore[union-attr]
        observed=(*node.observed, reported(held, SlicePhase.ATTACHED)),  # type: ignore[union-attr]
    )
    after = decided(service, both, *parts[1:], *larger, up)
    assert _evicted(after) == ["serve-a"]
    assert after.one(EvictPod).reason is Reason.RESIZING


def test_the_only_replica_is_not_stopped_for_want_of_room() -> None:
    parts = _parts(SERVICE)
    service = _edited(told(SERVICE, *parts), 70, 80).with_(sharing=RESTART)
    found = decided(service, *parts)
    assert (_evicted(found), _deployed(found)) == ([], None)
    assert "until there is room" in found.condition(service, "Degraded").message


def test_one_of_several_frees_its_own_room() -> None:
    two = SERVICE.replicas(2)
    parts = _parts(two, devices=2)
    service = _edited(told(two, *parts), 70, 80).with_(sharing=RESTART)
    found = decided(service, *parts)
    assert _evicted(found) == ["serve-a"]


def test_whole_devices_instead_of_a_share_come_the_same_way() -> None:
    parts = _parts(SERVICE, devices=2)
    whole = told(SERVICE, *parts).exclusive().with_(generation=2)
    bad = decided(whole, *parts).condition(whole, "Degraded")
    assert bad.reason == Reason.RESIZE_PENDING
    assert "whole devices" in bad.message
    assert _deployed(decided(whole.with_(sharing=RESTART), *parts)) == 2
