# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Every reason that can stop a device is found, counted and said with its numbers."""

from __future__ import annotations

from dataclasses import replace

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
    a_pod,
    a_policy,
    a_profile,
    a_slice,
    gpu,
    reported,
)
from fakes.deciding import Decided, decided
from ullage.api.devices import Backend, GPUMode, Health
from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.profile import SoloEntry
from ullage.cluster.records.status import Condition


def _running(
    name: str,
    percent: int,
    *,
    builder: WorkloadBuilder | None = None,
    memory_mib: int = 1000,
    devices: int = 1,
    **node: object,
) -> tuple[list[Part], GPUNodeRecord]:
    """A job that runs at this share on the first device of a node, and the node."""
    job = builder or a_job(name).fractional(percent)
    pod = a_pod(f"{name}-0", owner=job.build(), stage=PodStage.RUNNING, node="node-1")
    held = a_slice(pod, percent=percent, memory_mib=memory_mib)
    place = a_gpu_node(
        devices=devices,
        desired=[held],
        observed=[reported(held, SlicePhase.ATTACHED)],
        **node,  # type: ignore[arg-type]
    )
    return [job, pod], place


def _asked(newcomer: WorkloadBuilder, *parts: Part) -> Decided:
    return decided(*parts, newcomer, *newcomer.pods())


def _refused(newcomer: WorkloadBuilder, *parts: Part) -> tuple[Reason, str]:
    found = _asked(newcomer, *parts)
    assert newcomer.build().ref.name + "-0" not in found.places()
    decision = found.decision(newcomer)
    assert found.condition(newcomer, "Admitted").status == "False"
    return decision.reason, decision.message


def test_a_node_that_is_not_ready_takes_nothing() -> None:
    reason, message = _refused(a_job(), a_node(ready=False), a_gpu_node())
    assert (reason, "not Ready" in message) == (Reason.NODE_UNHEALTHY, True)


def test_an_agent_that_is_silent_for_three_periods_gets_nothing() -> None:
    assert _asked(a_job(), a_gpu_node(heartbeat=NOW - 180)).places()
    reason, message = _refused(a_job(), a_gpu_node(heartbeat=NOW - 181))
    assert (reason, "silent for 181 s" in message) == (Reason.NODE_UNHEALTHY, True)
    reason, message = _refused(a_job(), a_gpu_node(heartbeat=0.0))
    assert "not been heard yet" in message


def test_a_node_that_retires_or_cannot_bind_late_takes_nothing() -> None:
    reason, message = _refused(a_job(), a_gpu_node(retire=True))
    assert (reason, "retired" in message) == (Reason.NODE_LEAVES, True)
    late = Condition(type="LateBinding", status="False", reason="CDIUnavailable")
    reason, message = _refused(a_job(), replace(a_gpu_node(), conditions=(late,)))
    assert (reason, "CDIUnavailable" in message) == (Reason.NODE_UNHEALTHY, True)


def test_an_unhealthy_device_takes_nothing() -> None:
    reason, _ = _refused(a_job(), a_gpu_node(devices=[a_device(health=Health.UNHEALTHY)]))
    assert reason is Reason.DEVICE_UNHEALTHY


def test_a_device_gives_only_the_modes_it_offers() -> None:
    whole_only = a_gpu_node(devices=[a_device(modes=[GPUMode.EXCLUSIVE])])
    job = a_job().fractional(50)
    found = decided(whole_only, job)
    assert found.decision(job).reason is Reason.MODE_UNSUPPORTED
    assert _asked(a_job(), whole_only).places()


def test_a_whole_device_is_shared_with_no_one() -> None:
    tenant, node = _running("busy", 10)
    reason, message = _refused(a_job(), *tenant, node)
    assert (reason, "taken by default/busy (10 %)" in message) == (Reason.NO_CAPACITY, True)
    whole, node = _running("whole", 100, builder=a_job("whole"))
    roomy = a_policy(max_percent_sum=200)
    reason, _ = _refused(a_job().fractional(10), *whole, node, roomy)
    assert reason is Reason.NO_CAPACITY


def test_trust_domains_do_not_mix() -> None:
    tenant, node = _running("red", 30, builder=a_job("red").fractional(30).trusting("red"))
    policy = a_policy(trust_domains={"red": frozenset({"default"})})
    reason, message = _refused(a_job().fractional(30), *tenant, node, policy)
    assert reason is Reason.TRUST_DOMAIN
    assert "red" in message
    assert "namespace/default" in message


def test_contexts_are_counted() -> None:
    tenant, node = _running("busy", 10)
    one_place = replace(node, devices=(a_device(contexts=1),))
    reason, message = _refused(a_job().fractional(10), *tenant, one_place)
    assert (reason, "1 of 1 places" in message) == (Reason.CONTEXT_LIMIT, True)


def test_memory_and_what_contexts_cost_stay_inside_the_device() -> None:
    tenant, node = _running("busy", 10, memory_mib=10_000)
    fits = a_job().fractional(10, memory_mib=DEVICE_MEMORY_MIB - 10_000 - 1000)
    profile = a_device_profile(context_overhead_mib=500)
    assert _asked(fits, *tenant, node, profile).places()
    short = a_job().fractional(10, memory_mib=DEVICE_MEMORY_MIB - 10_000 - 999)
    reason, message = _refused(short, *tenant, node, profile)
    assert reason is Reason.MEMORY_WOULD_OVERFLOW
    assert "needs 5885 MiB with its context, 5884 of 16384 MiB are free" in message


def test_memory_in_proportion_is_the_share_less_the_context() -> None:
    job = a_job().fractional(50, 50)
    found = _asked(job, a_gpu_node(), a_device_profile(context_overhead_mib=500))
    assert found.slices()[0][1].memory_mib == DEVICE_MEMORY_MIB // 2 - 500


def test_an_nvidia_context_costs_half_a_gib_until_it_is_known() -> None:
    device = a_device(backend=Backend.EXCLUSIVE)
    found = _asked(a_job(), a_gpu_node(devices=[device]))
    assert found.slices()[0][1].memory_mib == DEVICE_MEMORY_MIB - 512


def test_the_sum_of_shares_stays_within_the_policy() -> None:
    tenant, node = _running("busy", 80)
    reason, message = _refused(a_job().fractional(30), *tenant, node)
    assert reason is Reason.PERCENT_LIMIT
    assert "needs 30 %, 20 % are free beside default/busy (80 %)" in message
    roomy = a_policy(max_percent_sum=150)
    found = _asked(a_job().fractional(30, 60), *tenant, node, roomy)
    assert {one.percent for _, one in found.slices()} == {80, 60}


def test_the_newcomers_own_objective_is_predicted() -> None:
    tenant, node = _running("busy", 50)
    job = a_job().fractional(20, 50).slowdown(1.5)
    roomy = a_policy(max_percent_sum=100)
    found = decided(*tenant, node, roomy, job, *job.pods())
    assert found.decision(job).reason is Reason.PREDICTED_SLO_BREACH


def test_a_protected_neighbour_is_not_slowed_beyond_its_objective() -> None:
    calm = a_job("calm").fractional(60).slowdown(1.7)
    tenant, node = _running("calm", 60, builder=calm)
    roomy = a_policy(max_percent_sum=150)
    reason, message = _refused(a_job().fractional(60), *tenant, node, roomy)
    assert reason is Reason.PREDICTED_SLO_BREACH
    assert (
        "default/calm would run 2.00 times slower than alone, its objective allows 1.7" in message
    )
    smaller = a_job().fractional(20, 60)
    found = _asked(smaller, *tenant, node, roomy)
    share = next(one.percent for _, one in found.slices() if one.pod_name == "train-0")
    assert share == 42


def test_a_profile_that_uses_little_makes_room_under_an_objective() -> None:
    light = a_profile("light", SoloEntry(device="emulated", share=100, sm_util=0.3))
    job = a_job().fractional(30, 40).slowdown(1.2)
    assert decided(a_gpu_node(), job).decision(job).reason is Reason.PREDICTED_SLO_BREACH
    assert _asked(job.profile("light"), a_gpu_node(), light).places()


def test_the_row_nearest_to_the_whole_device_counts() -> None:
    rows = [
        SoloEntry(device="emulated", share=50, sm_util=0.9),
        SoloEntry(device="emulated", share=100, sm_util=0.5),
        SoloEntry(device="other", share=100, sm_util=0.1),
    ]
    job = a_job().fractional(50, 50).profile("p")
    found = _asked(job, a_gpu_node(), a_profile("p", *rows))
    sharing = found.status(job).sharing
    assert sharing is not None
    assert sharing.predicted == "1.00"


def test_all_reasons_are_counted_each_device_once_nearest_first() -> None:
    tenant, node = _running("busy", 80, devices=2)
    sick = replace(a_device(gpu("node-1", 1), health=Health.UNHEALTHY))
    node = replace(node, devices=(a_device(gpu("node-1", 0)), sick))
    away = a_gpu_node("node-2", devices=3, heartbeat=NOW - 999)
    job = a_job().fractional(30)
    found = _asked(job, *tenant, node, away)
    lines = found.decision(job).refusals
    assert [(one.reason, one.devices) for one in lines] == [
        (Reason.PERCENT_LIMIT, 1),
        (Reason.DEVICE_UNHEALTHY, 1),
        (Reason.NODE_UNHEALTHY, 3),
    ]
    assert lines[0].nearest == "node-1/GPU-node-1-0"
    assert found.decision(job).message.startswith("needs 30-100 % of one GPU; nearest is node-1/")
    assert "to help:" in found.decision(job).message


def test_the_device_that_misses_by_least_is_the_nearest() -> None:
    parts: list[Part] = []
    for index, percent in enumerate((95, 75, 85)):
        name, node = f"busy{index}", f"node-{index}"
        job = a_job(name).fractional(percent)
        pod = a_pod(f"{name}-0", owner=job.build(), stage=PodStage.RUNNING, node=node)
        held = a_slice(pod, device=gpu(node), percent=percent, memory_mib=100)
        parts += [job, pod, a_gpu_node(node, devices=1, desired=[held], observed=[reported(held)])]
    job = a_job().fractional(30)
    lines = _asked(job, *parts).decision(job).refusals
    assert [(one.devices, one.nearest) for one in lines] == [(3, "node-1/GPU-node-1-0")]


def test_devices_of_other_accelerators_are_named() -> None:
    h100 = a_gpu_node("node-2", devices=1, model="h100")
    tenant, node = _running("busy", 80)
    job = a_job().fractional(30).on("emulated")
    lines = _asked(job, *tenant, node, h100).decision(job).refusals
    assert [(one.reason, one.devices) for one in lines] == [
        (Reason.PERCENT_LIMIT, 1),
        (Reason.NO_NODE_MATCHES, 1),
    ]
    assert "h100 is not among the allowed" in lines[1].message


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_full_cluster_says_how_many_members_would_fit(replicas: int) -> None:
    tenant, node = _running("busy", 100, builder=a_job("busy"), devices=3)
    job = a_job().gang(3).with_(replicas=replicas)
    found = _asked(job, *tenant, node)
    if replicas == 1:
        assert found.places()["train-0"]
    else:
        assert "(room for 2 of 3 members)" in found.decision(job).message
