# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A trust domain that a workload merely names lets it share with no one; the administrator does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import (
    WorkloadBuilder,
    a_device,
    a_gpu_node,
    a_job,
    a_policy,
    a_service,
    a_slice,
    reported,
)
from fakes.deciding import Decided, decided
from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.policy import PolicyRecord
from ullage.scheduling.model.plan import ApplyDeployment, CreatePod

Running = tuple[WorkloadBuilder, PodRecord, GPUNodeRecord]


def granted(*namespaces: str, name: str = "vision") -> PolicyRecord:
    return a_policy(trust_domains={name: frozenset(namespaces)})


def job(namespace: str, name: str = "train") -> WorkloadBuilder:
    return a_job(name, namespace).fractional(30).trusting("vision")


def running(namespace: str) -> Running:
    """A job of the namespace that runs on the only device, with a third of it."""
    there = job(namespace, "there").status(phase="Running")
    (pod,) = there.pods(stage=PodStage.RUNNING, node="node-1")
    held = a_slice(pod, percent=30)
    node = a_gpu_node(
        devices=[a_device()], desired=[held], observed=[reported(held, SlicePhase.ATTACHED)]
    )
    return there, pod, node


def refused(found: Decided, workload: WorkloadBuilder) -> tuple[Reason, str]:
    decision = found.decision(workload)
    return decision.reason, decision.message


@pytest.mark.parametrize(
    "policy",
    [a_policy(), granted("tenant-a"), granted("tenant-b", name="other"), granted("tenant")],
)
def test_a_domain_that_is_not_granted_is_refused_and_says_whom_to_ask(
    policy: PolicyRecord,
) -> None:
    newcomer = job("tenant-b")
    found = decided(a_gpu_node(), policy, newcomer)
    reason, message = refused(found, newcomer)
    assert reason is Reason.TRUST_DOMAIN_NOT_GRANTED
    assert "trustDomain vision is not granted to namespace tenant-b" in message
    assert "ask your administrator" in message
    assert not found.all(CreatePod)
    waiting = decided(a_gpu_node(), policy, newcomer, *newcomer.pods())
    assert refused(waiting, newcomer)[0] is Reason.TRUST_DOMAIN_NOT_GRANTED
    assert not waiting.slices()


def test_a_service_in_a_domain_that_is_not_granted_gets_no_deployment() -> None:
    service = a_service("serve", "tenant-b").fractional(30).trusting("vision")
    found = decided(a_gpu_node(), a_policy(), service)
    assert refused(found, service)[0] is Reason.TRUST_DOMAIN_NOT_GRANTED
    assert not found.all(ApplyDeployment)


@pytest.mark.parametrize("policy", [granted("tenant-a", "tenant-b"), granted("*")])
def test_namespaces_of_a_granted_domain_share_a_device(policy: PolicyRecord) -> None:
    there, pod, node = running("tenant-a")
    newcomer = job("tenant-b")
    found = decided(node, policy, there, pod, newcomer, *newcomer.pods())
    assert [one.pod_namespace for _, one in found.slices()] == ["tenant-a", "tenant-b"]


def test_the_own_namespace_needs_no_grant() -> None:
    newcomer = a_job("train", "tenant-b").fractional(30)
    found = decided(a_gpu_node(), a_policy(), newcomer, *newcomer.pods())
    assert found.places() == {"train-0": ["GPU-node-1-0"]}


def test_what_runs_without_a_grant_stays_and_shares_with_no_one() -> None:
    """The grant was taken back, or the domain was named before grants existed."""
    there, pod, node = running("tenant-b")
    newcomer = job("tenant-a")
    found = decided(node, granted("tenant-a"), there, pod, newcomer, *newcomer.pods())
    assert [one.pod_namespace for _, one in found.slices()] == ["tenant-b"]
    reason, message = refused(found, newcomer)
    assert reason is Reason.TRUST_DOMAIN
    assert "tenant-b" not in message, "the refusal names no other tenant"
    assert "a device is shared inside one trust domain" in message
    assert "wait for an empty device or one of your namespace" in message
    assert "your administrator can" in message
    assert not [one for one in found.actions if "Evict" in type(one).__name__]


def test_a_grant_lets_a_waiting_workload_in() -> None:
    newcomer = job("tenant-b")
    before = decided(a_gpu_node(), a_policy(), newcomer, *newcomer.pods())
    told = newcomer.with_(status=before.status(newcomer))
    after = decided(a_gpu_node(), granted("tenant-b"), told, *told.pods())
    assert after.places() == {"train-0": ["GPU-node-1-0"]}


def test_the_refusal_stays_the_same_while_nothing_changes() -> None:
    newcomer = job("tenant-b")
    first = decided(a_gpu_node(), a_policy(), newcomer)
    told = newcomer.with_(status=first.status(newcomer))
    again = decided(a_gpu_node(), a_policy(), told)
    assert replace(again.decision(told)) == first.decision(newcomer)
    assert not again.actions


def test_the_slice_of_a_pod_that_is_just_gone_is_told_as_that() -> None:
    _there, _pod, node = running("tenant-b")
    newcomer = job("tenant-a")
    found = decided(node, granted("tenant-a"), newcomer, *newcomer.pods())
    reason, message = refused(found, newcomer)
    assert "unknown" not in message
    assert "a pod that is just gone" in message, reason
