# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Wishes that no empty cluster could meet get a reason and no pods."""

from __future__ import annotations

import pytest

from builders import (
    DEVICE_MEMORY_MIB,
    NOW,
    Part,
    WorkloadBuilder,
    a_device,
    a_device_profile,
    a_gpu_node,
    a_job,
    a_node,
    a_policy,
    a_service,
    a_shape,
    a_slice,
    gpu,
    reported,
)
from fakes.deciding import decided
from ullage.api.devices import GPUMode, Health
from ullage.api.reasons import Reason
from ullage.cluster.records.pod_shape import NodeAffinity, SelectorTerm, Taint
from ullage.scheduling.model.plan import ApplyDeployment, ApplyService, CreatePod

EMPTY_TERM = NodeAffinity(has_affinity=True, has_node_affinity=True, required=(SelectorTerm(),))


@pytest.mark.parametrize(
    ("job", "parts", "reason", "words"),
    [
        (a_job().on("h900"), [a_gpu_node()], Reason.UNKNOWN_ACCELERATOR, "known: emulated"),
        (
            a_job().on("h100"),
            [a_gpu_node(), a_device_profile("h100")],
            Reason.NO_NODE_MATCHES,
            "accelerators asked for",
        ),
        (a_job().gang(3), [a_gpu_node()], Reason.GANG_TOO_LARGE, "room for 2 of 3 members"),
        (a_job().exclusive(3), [a_gpu_node()], Reason.GANG_TOO_LARGE, "room for 0 of 1 members"),
        (
            a_job().gang(9).fractional(25),
            [a_gpu_node()],
            Reason.GANG_TOO_LARGE,
            "room for 8 of 9 members",
        ),
        (
            a_job().gang(3).fractional(25, 60).slowdown(2.0),
            [a_gpu_node(devices=1)],
            Reason.GANG_TOO_LARGE,
            "room for 2 of 3 members",
        ),
        (
            a_job().gang(2).fractional(10, memory_mib=9000),
            [a_gpu_node(devices=1)],
            Reason.GANG_TOO_LARGE,
            "room for 1 of 2 members",
        ),
        (
            a_job().fractional(10, memory_mib=DEVICE_MEMORY_MIB + 1),
            [a_gpu_node()],
            Reason.MEMORY_WOULD_OVERFLOW,
            f"{DEVICE_MEMORY_MIB} MiB in all",
        ),
        (
            a_job().fractional(1, 2),
            [a_gpu_node(), a_device_profile(context_overhead_mib=500)],
            Reason.MEMORY_WOULD_OVERFLOW,
            "does not hold a context",
        ),
        (
            a_job().fractional(50),
            [a_gpu_node(), a_policy(max_percent_sum=40)],
            Reason.PERCENT_LIMIT,
            "sum to 40 %",
        ),
        (
            a_job().fractional(30, 60).slowdown(1.3),
            [a_gpu_node()],
            Reason.PREDICTED_SLO_BREACH,
            "at 60 % it would run 1.67 times slower",
        ),
        (
            a_job().fractional(30),
            [a_gpu_node(devices=[a_device(modes=[GPUMode.EXCLUSIVE])])],
            Reason.MODE_UNSUPPORTED,
            "offers Fractional",
        ),
        (
            a_job().fractional(1, 60),
            [a_gpu_node(devices=[a_device(least_percent=3), a_device(gpu(), least_percent=2)])],
            Reason.SHARE_TOO_SMALL,
            "1 % is below the smallest share of the suitable devices, 2 %; to help: raise "
            "gpu.share.minPercent",
        ),
        (
            a_job().exclusive(2),
            [a_gpu_node(devices=[a_device(alone=True), a_device(gpu(index=1), alone=True)])],
            Reason.DEVICES_NOT_COMBINED,
            "a container can have one of the suitable devices, 2 are asked for",
        ),
        (
            a_job().shaped(a_shape(node_selector={"zone": "x"})),
            [a_gpu_node()],
            Reason.NO_NODE_MATCHES,
            "zone=x",
        ),
        (
            a_job(),
            [a_node(taints=[Taint(key="a", value="b", effect="NoSchedule")]), a_gpu_node()],
            Reason.NO_NODE_MATCHES,
            "a=b:NoSchedule is not tolerated",
        ),
        (
            a_job().shaped(a_shape(affinity=EMPTY_TERM)),
            [a_gpu_node()],
            Reason.NODE_AFFINITY_CONFLICT,
            "empty",
        ),
        (a_job(), [a_node(managed=False)], Reason.NO_NODE_MATCHES, "ullage.dev/node=true"),
        (a_job(), [a_gpu_node(devices=0)], Reason.NODE_UNHEALTHY, "reported a device yet"),
    ],
)
def test_the_reason_is_said_and_no_pod_is_created(
    job: WorkloadBuilder, parts: list[Part], reason: Reason, words: str
) -> None:
    found = decided(*parts, job)
    assert not found.all(CreatePod)
    assert not found.all(ApplyService)
    assert found.decision(job).reason is reason
    assert words in found.decision(job).message
    admitted = found.condition(job, "Admitted")
    assert (admitted.status, admitted.reason) == ("False", reason)
    assert found.events() == [(reason.value, found.decision(job).message)]


def test_a_share_is_given_where_the_node_can_enforce_it() -> None:
    """The device that the share would fill best cannot hold it, the other can."""
    fine, coarse = gpu(index=0), gpu(index=1)
    taken = a_slice("uid-other-0", device=coarse, percent=98)
    devices = [a_device(fine), a_device(coarse, least_percent=2)]
    found = decided(
        a_gpu_node(devices=devices, desired=[taken], observed=[reported(taken)]),
        a_job().fractional(1),
    )
    assert found.all(CreatePod)
    assert found.decision(a_job()).reason is not Reason.SHARE_TOO_SMALL


def test_what_passes_by_itself_does_not_stand_in_the_way_of_creating() -> None:
    taken = a_slice("uid-other-0", percent=100)
    sick = a_gpu_node(
        devices=[a_device(health=Health.UNHEALTHY)],
        desired=[taken],
        observed=[reported(taken)],
        heartbeat=NOW - 9999,
    )
    found = decided(a_node(unschedulable=True, ready=False, slots=0), sick, a_job())
    assert [one.name for one in found.all(CreatePod)] == ["train-0"]


def test_a_gang_that_fits_exactly_is_created() -> None:
    found = decided(a_gpu_node(), a_job().gang(2))
    assert [one.name for one in found.all(CreatePod)] == ["train-0", "train-1"]


def test_a_service_is_feasible_when_one_replica_is() -> None:
    service = a_service().replicas(50)
    assert decided(a_gpu_node(), service).all(ApplyDeployment)
    unknown = a_service().on("h900")
    found = decided(a_gpu_node(), unknown)
    assert not found.all(ApplyDeployment)
    assert found.decision(unknown).reason is Reason.UNKNOWN_ACCELERATOR


def test_it_is_created_once_the_cluster_has_grown() -> None:
    job = a_job().gang(3)
    refused = decided(a_gpu_node(), job)
    job = job.with_(status=refused.status(job))
    found = decided(a_gpu_node(), a_gpu_node("node-2"), job)
    assert len(found.all(CreatePod)) == 3


def test_waiting_pods_are_told_when_the_cluster_shrank_below_them() -> None:
    job = a_job().gang(3)
    found = decided(a_gpu_node(), job, *job.pods())
    assert found.decision(job).reason is Reason.GANG_TOO_LARGE


def test_gangs_of_thousands_that_can_never_run_keep_nothing_from_those_behind_them() -> None:
    huge = [a_job(f"huge-{at}", "tenant-a").gang(4096).aged(60) for at in range(3)]
    small = a_job("small", "tenant-b").aged(10)
    found = decided(a_gpu_node(), *huge, small)
    assert [one.name for one in found.all(CreatePod)] == ["small-0"]
    assert {found.decision(one).reason for one in huge} == {Reason.GANG_TOO_LARGE}
