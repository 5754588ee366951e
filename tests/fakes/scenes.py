# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Clusters with one workload of namespace one, ``BAD``, beside work of two other namespaces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from builders import (
    Part,
    WorkloadBuilder,
    a_deployment,
    a_gpu_node,
    a_job,
    a_kube_service,
    a_node,
    a_pod,
    a_policy,
    a_service,
    a_slice,
    a_snapshot,
    gpu,
    reported,
)
from fakes.deciding import SETTINGS
from fakes.toy_pools import a_pool, aim
from ullage.api.slices import SlicePhase
from ullage.cluster.records.pod import PodStage
from ullage.scheduling.model.plan import DecideSettings

BAD = "uid-one-bad"
ORDERS = replace(SETTINGS, orders=True)


def bad_job() -> WorkloadBuilder:
    return a_job("bad", "one")


def others() -> tuple[Part, ...]:
    """Work of two other namespaces, in the queue."""
    third = a_job("third", "three").fractional(30, 60).priority(3)
    return third, *third.pods(), a_job("other", "two").checkpointed()


def running(job: WorkloadBuilder, percent: int) -> tuple[Part, ...]:
    """A job of one member that runs on the first device."""
    told = job.status(phase="Running", replicas=1)
    pod = told.pods(PodStage.RUNNING, node="node-1")[0]
    pod = replace(pod, world_size=1 if told.build().elasticity else 0)
    held = a_slice(pod, device=gpu("node-1"), percent=percent, memory_mib=4096)
    seen = reported(held, SlicePhase.ATTACHED)
    return told, pod, a_gpu_node("node-1", desired=[held], observed=[seen])


def _scenes() -> Iterator[tuple[str, tuple[Part, ...], DecideSettings]]:
    node = a_gpu_node("node-1")
    share = bad_job().fractional(20, 50).slowdown(1.5)
    for policy in (a_policy(), a_policy(learned=True), a_policy(objective="MaxMinFairness")):
        named = f"{policy.objective}-{'learned' if policy.risk.predictor == 'Learned' else 'sum'}"
        yield f"waits-{named}", (policy, node, share, *share.pods(), *others()), SETTINGS
        runs = running(bad_job().checkpointed().fractional(40, 40), 40)
        yield f"runs-{named}", (policy, *runs, *others()), SETTINGS
    for in_place in (False, True):
        gang = bad_job().elastic(1, 3, in_place=in_place)
        yield f"elastic-{in_place}", (gang, *gang.pods(), node, *others()), SETTINGS
        yield f"elastic-{in_place}-runs", (*running(gang, 100), *others()), SETTINGS
    service = a_service("bad", "one")
    pod = replace(a_pod("bad-x", owner=service.build()), rank=-1, namespace="one")
    there = (a_deployment(service.build()), a_kube_service(service.build()), pod)
    yield "service", (service, node, *others()), SETTINGS
    yield "service-deployed", (service, *there, node, *others()), SETTINGS
    bought = bad_job().with_(cost=aim(), work_steps=1000)
    place = replace(a_node("node-1"), labels={**a_node("node-1").labels, "pool": "spot-a"})
    yield "cost", (a_pool(), bought, *bought.pods(), place, node, *others()), ORDERS


SCENES = {name: (a_snapshot(*parts), settings) for name, parts, settings in _scenes()}
