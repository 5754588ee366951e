# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Single actions against the server's rules: admission of gated pods, preconditions, ownership."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from builders_raw import raw_template
from fakes.small_world import Brain, Cluster, Mortal
from ullage import ports
from ullage.api.labels import MANAGER_OPERATOR
from ullage.api.reasons import Reason
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.pod import PodRecord
from ullage.cluster.records.snapshot import RefusedWrite, Snapshot
from ullage.cluster.records.status import Condition, QuotaStatus, TenantUsage, WorkloadStatus
from ullage.cluster.records.workload import WorkloadRecord
from ullage.kube.client import K8sCluster
from ullage.kube.errors import Refused
from ullage.ports import ApiError, Conflict, Invalid, NotFound, Throttled
from ullage.scheduling.model.plan import (
    Action,
    ApplyGPUNode,
    CreatePod,
    DeletePod,
    DeleteWorkload,
    Emit,
    EvictPod,
    SetConditions,
    SetQuotaStatus,
    SetStatus,
    UngatePod,
)

World = Callable[[], AbstractAsyncContextManager[tuple[Cluster, K8sCluster]]]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ZONE = {"key": "zone", "operator": "In", "values": ["a"]}
WHY: dict[str, Any] = {"epoch": 1, "reason": Reason.PLACED, "text": "because"}


@asynccontextmanager
async def a_brain(world: World) -> AsyncIterator[tuple[Brain, Cluster]]:
    async with world() as (cluster, port):
        brain = Brain(Mortal(port), cluster, 1, lambda *_: ())
        brain.look()
        yield brain, cluster
        await brain.stop()


def now(brain: Brain) -> Snapshot:
    brain.look()
    return brain.state.freeze(brain.wall.now())


def the_job(brain: Brain, name: str) -> WorkloadRecord:
    return next(w for w in now(brain).workloads.values() if w.ref.name == name)


def create(job: WorkloadRecord, rank: int = 0) -> CreatePod:
    name = f"{job.ref.name}-{rank}"
    return CreatePod(owner=job.ref, name=name, rank=rank, template_hash=job.template_hash, **WHY)


def ref(pod: PodRecord) -> ObjectRef:
    return ObjectRef(kind="Pod", namespace=pod.namespace, name=pod.name, uid=pod.uid)


def ungate(pod: PodRecord, node: str = "node-1") -> UngatePod:
    return UngatePod(
        pod=ref(pod),
        owner=pod.owner,
        node=node,
        gate_index=pod.gates.index("ullage.dev/placement"),
        affinity=pod.shape.affinity,
        **WHY,
    )


async def failure(brain: Brain, action: Action) -> ApiError | None:
    """The error that ends this action, if one does."""
    before = len(brain.failures)
    await brain.carry_out(action)
    return brain.failures[-1][1] if len(brain.failures) > before else None


async def a_pod(brain: Brain, cluster: Cluster, **spec: Any) -> PodRecord:
    """The gated pod of a job whose template has these fields."""
    template = raw_template(**spec)
    cluster.server.edit(ports.TRAINING_JOB, "whole", {"spec": {"template": template}}, "team")
    assert await failure(brain, create(the_job(brain, "whole"))) is None
    (pod,) = now(brain).pods.values()
    return pod


def node_affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"affinity": {}},
        {"affinity": {"podAntiAffinity": {}}},
        {"affinity": {"nodeAffinity": {}}},
        {"affinity": node_affinity({"matchExpressions": [ZONE]})},
        {"affinity": node_affinity({"matchExpressions": [ZONE]}, {"matchExpressions": [ZONE]})},
        {
            "affinity": node_affinity(
                {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["x"]}]}
            )
        },
        {"schedulingGates": [{"name": "other.io/gate"}]},
    ],
    ids=["none", "empty", "pods-only", "no-terms", "one-term", "two-terms", "fields", "two-gates"],
)
async def test_every_affinity_is_narrowed_to_the_node(world: World, spec: dict[str, Any]) -> None:
    async with a_brain(world) as (brain, cluster):
        pod = await a_pod(brain, cluster, **spec)
        assert await failure(brain, ungate(pod)) is None
        stored = cluster.server.get(ports.POD, "whole-0", "team")
        assert stored is not None
        terms = stored["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
        pin = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
        assert all(pin in term["matchFields"] for term in terms)
        gates = [gate["name"] for gate in stored["spec"].get("schedulingGates") or []]
        assert gates == (["other.io/gate"] if "schedulingGates" in spec else [])


async def test_a_pod_that_changed_since_it_was_seen_is_not_ungated(world: World) -> None:
    async with a_brain(world) as (brain, cluster):
        pod = await a_pod(brain, cluster)
        assert await failure(brain, ungate(pod)) is None
        assert isinstance(await failure(brain, ungate(pod, "node-2")), Invalid)
        namesake = replace(pod, uid="another")
        assert isinstance(await failure(brain, ungate(namesake)), Invalid)


async def test_creating_twice_is_creating_once(world: World) -> None:
    async with a_brain(world) as (brain, cluster):
        job = the_job(brain, "gang")
        assert await failure(brain, create(job)) is None
        assert await failure(brain, create(job)) is None
        assert len(cluster.server.objects(ports.POD)) == 1


async def test_deleting_takes_only_the_pod_that_was_meant(world: World) -> None:
    async with a_brain(world) as (brain, cluster):
        pod = await a_pod(brain, cluster)
        other = replace(ref(pod), uid="another")
        error = await failure(brain, DeletePod(pod=other, owner=pod.owner, **WHY))
        assert isinstance(error, Conflict)
        assert await failure(brain, DeletePod(pod=ref(pod), owner=pod.owner, **WHY)) is None
        gone = await failure(brain, DeletePod(pod=ref(pod), owner=pod.owner, **WHY))
        assert isinstance(gone, NotFound)


async def test_an_eviction_honours_the_budget(world: World) -> None:
    async with a_brain(world) as (brain, cluster):
        pod = await a_pod(brain, cluster)
        cluster.server.faults.eviction_budget = 0
        error = await failure(brain, EvictPod(pod=ref(pod), owner=pod.owner, **WHY))
        assert isinstance(error, Throttled)
        assert cluster.server.get(ports.POD, "whole-0", "team") is not None


async def test_a_pod_that_the_api_refuses_is_the_users_to_see(world: World) -> None:
    async with a_brain(world) as (brain, cluster):
        cluster.server.fail(403, verb="create", plural="pods", message="exceeded quota: gpus")
        error = await failure(brain, create(the_job(brain, "whole")))
        assert isinstance(error, Refused)
        assert "exceeded quota" in error.message
        refused = RefusedWrite(reason=Reason.CREATE_REFUSED, message=error.message)
        assert now(brain).refused_writes == {("Pod", "team", "whole-0"): refused}


async def test_a_status_is_owned_by_us_and_tied_to_its_version(world: World) -> None:
    async with a_brain(world) as (brain, cluster):
        job = the_job(brain, "whole")

        def status(phase: str, version: str) -> SetStatus:
            wanted = WorkloadStatus(phase=phase, restarts=1)
            return SetStatus(owner=job.ref, resource_version=version, status=wanted, **WHY)

        assert await failure(brain, status("Pending", job.resource_version)) is None
        assert await failure(brain, status("Running", job.resource_version)) is None
        stored = cluster.server.get(ports.TRAINING_JOB, "whole", "team")
        assert stored is not None
        assert stored["status"] == {"phase": "Running", "restarts": 1}
        managers = {entry["manager"] for entry in stored["metadata"]["managedFields"]}
        assert MANAGER_OPERATOR in managers
        cluster.server.edit(ports.TRAINING_JOB, "whole", {"spec": {"suspend": True}}, "team")
        stale = await failure(brain, status("Failed", job.resource_version))
        assert isinstance(stale, Conflict)


async def test_a_field_left_out_is_a_field_given_up(world: World) -> None:
    async with a_brain(world) as (brain, cluster):
        for nodes in ("node-1", ""):
            job = the_job(brain, "whole")
            wanted = WorkloadStatus(phase="Pending", nodes=nodes)
            action = SetStatus(
                owner=job.ref, resource_version=job.resource_version, status=wanted, **WHY
            )
            assert await failure(brain, action) is None
        stored = cluster.server.get(ports.TRAINING_JOB, "whole", "team")
        assert stored is not None
        assert "nodes" not in stored["status"]


def gpu_node(uid: str = "", **changes: Any) -> ApplyGPUNode:
    return replace(
        ApplyGPUNode(name="node-1", uid=uid, node_uid="uid-of-node", slices=(), **WHY), **changes
    )


async def test_a_gpu_node_that_is_gone_is_not_made_again_by_an_old_write(world: World) -> None:
    async with a_brain(world) as (brain, cluster):
        assert isinstance(await failure(brain, gpu_node("uid-of-old")), Conflict)
        assert cluster.server.objects(ports.GPU_NODE) == []
        assert await failure(brain, gpu_node()) is None
        assert await failure(brain, gpu_node("uid-of-old", epoch=2)) is not None
        assert brain.lost == 0
        (stored,) = cluster.server.objects(ports.GPU_NODE)
        assert stored["spec"]["epoch"] == 1


async def test_retiring_a_node_is_not_taken_back(world: World) -> None:
    async with a_brain(world) as (brain, cluster):
        assert await failure(brain, gpu_node()) is None
        cluster.server.edit(ports.GPU_NODE, "node-1", {"spec": {"retire": True}})
        brain.look()
        assert await failure(brain, gpu_node(epoch=2)) is None
        (stored,) = cluster.server.objects(ports.GPU_NODE)
        assert stored["spec"]["retire"] is True
        assert stored["spec"]["epoch"] == 2


async def test_conditions_events_and_deletions_arrive(world: World) -> None:
    async with a_brain(world) as (brain, cluster):
        cluster.server.put(ports.SCHEDULING_POLICY, {"metadata": {"name": "default"}, "spec": {}})
        policy = cluster.server.get(ports.SCHEDULING_POLICY, "default")
        assert policy is not None
        target = ObjectRef(
            kind="SchedulingPolicy", namespace="", name="default", uid=policy["metadata"]["uid"]
        )
        slow = Condition(type="SolverDegraded", status="True", reason="SolverTimeout")
        action = SetConditions(target=target, generation=1, conditions=(slow,), **WHY)
        assert await failure(brain, action) is None
        assert now(brain).policy.conditions == (slow,)
        await brain.carry_out(
            Emit(target=target, warning=True, epoch=1, reason=Reason.SOLVER_TIMEOUT, text="late")
        )
        job = the_job(brain, "whole").ref
        await brain.carry_out(
            Emit(target=job, warning=False, epoch=1, reason=Reason.PLACED, text="there")
        )
        events = cluster.server.objects(ports.EVENT)
        assert {e["metadata"]["namespace"]: e["message"] for e in events} == {
            "default": "late",
            "team": "there",
        }
        assert await failure(brain, DeleteWorkload(owner=job, **WHY)) is None
        assert cluster.server.get(ports.TRAINING_JOB, "whole", "team") is None


async def test_quota_is_told_beside_conditions_and_taken_back_alone(world: World) -> None:
    async with a_brain(world) as (brain, cluster):
        cluster.server.put(ports.SCHEDULING_POLICY, {"metadata": {"name": "default"}, "spec": {}})
        policy = cluster.server.get(ports.SCHEDULING_POLICY, "default")
        assert policy is not None
        target = ObjectRef(
            kind="SchedulingPolicy", namespace="", name="default", uid=policy["metadata"]["uid"]
        )
        slow = Condition(type="SolverDegraded", status="True", reason="SolverTimeout")
        conditions = SetConditions(target=target, generation=1, conditions=(slow,), **WHY)
        usage = TenantUsage(
            tenant="a", accelerator="a100", nominal_quota=100, used=150, borrowed=50, available=0
        )
        told = QuotaStatus(time=1000.0, borrowing_tenants=1, usage=(usage,))
        for action in (conditions, SetQuotaStatus(target=target, status=told, **WHY), conditions):
            assert await failure(brain, action) is None
        assert now(brain).policy.quota_status == told
        assert now(brain).policy.conditions == (slow,)
        assert await failure(brain, SetQuotaStatus(target=target, status=None, **WHY)) is None
        assert now(brain).policy.quota_status is None
        assert now(brain).policy.conditions == (slow,)
