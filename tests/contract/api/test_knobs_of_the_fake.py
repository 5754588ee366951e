# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What only the fake can do, and tests of other things rely on."""

from __future__ import annotations

import asyncio

import pytest

from contract.api.suite.world import a_job, a_pod
from fakes.apiserver import FakeApiServer, Rule, make_cluster
from ullage.kube.client import K8sCluster
from ullage.ports import (
    GPU_NODE,
    POD,
    TRAINING_JOB,
    Conflict,
    Forbidden,
    Gone,
    JsonObject,
    Selector,
    Unavailable,
)


def gpu_node(name: str, epoch: int = 1) -> dict[str, object]:
    return {"metadata": {"name": name}, "spec": {"epoch": epoch}}


async def bind(cluster: K8sCluster, name: str, node: str) -> JsonObject:
    """What kube-scheduler sends."""
    body = {"target": {"kind": "Node", "name": node}}
    path = f"/api/v1/namespaces/d/pods/{name}/binding"
    return await cluster._transport.write("POST", path, body)


async def test_writes_are_counted_by_verb_kind_subresource_and_status(
    api: FakeApiServer, cluster: K8sCluster
) -> None:
    await cluster.apply(GPU_NODE, "n", gpu_node("n"), manager="m")
    await cluster.apply(GPU_NODE, "n", {"status": {}}, manager="m", subresource="status")
    await cluster.json_patch(GPU_NODE, "n", [])
    with pytest.raises(Conflict):
        await cluster.create(GPU_NODE, gpu_node("n"))
    await cluster.get(GPU_NODE, "n")
    assert api.writes == {
        ("apply", "gpunodes", "", 201): 1,
        ("apply", "gpunodes", "status", 200): 1,
        ("patch", "gpunodes", "", 200): 1,
        ("create", "gpunodes", "", 409): 1,
    }
    assert api.write_count() == 3
    assert api.write_count("apply", "gpunodes") == 2


async def test_a_rate_of_conflicts_is_a_rate(api: FakeApiServer, cluster: K8sCluster) -> None:
    await cluster.apply(GPU_NODE, "n", gpu_node("n"), manager="m")
    api.fail(409, times=None, rate=0.3, verb="patch", plural="gpunodes")
    failed = 0
    for _ in range(200):
        try:
            await cluster.json_patch(GPU_NODE, "n", [])
        except Conflict:
            failed += 1
    assert 40 <= failed <= 80


async def test_failures_match_what_they_name(api: FakeApiServer, cluster: K8sCluster) -> None:
    await cluster.create(GPU_NODE, gpu_node("b"))
    api.fail(500, times=None, name="b")
    api.fail(500, times=None, subresource="status")
    await cluster.create(GPU_NODE, gpu_node("a"))
    with pytest.raises(Unavailable):
        await cluster.json_patch(GPU_NODE, "b", [])
    with pytest.raises(Unavailable):
        await cluster.apply(GPU_NODE, "a", {"status": {}}, manager="m", subresource="status")


async def test_a_bound_pod_takes_its_grace_to_go(api: FakeApiServer, cluster: K8sCluster) -> None:
    body = {**a_pod("p", gates=()), "metadata": {"name": "p", "namespace": "d"}}
    api.put(POD, {**body, "spec": {**body["spec"], "nodeName": "n"}})
    await cluster.delete(POD, "p", namespace="d")
    (leaving,) = api.objects(POD)
    assert leaving["metadata"]["deletionGracePeriodSeconds"] == 30
    await cluster.delete(POD, "p", namespace="d", grace_s=0)
    assert api.objects(POD) == []


async def test_a_finished_pod_goes_at_once(api: FakeApiServer, cluster: K8sCluster) -> None:
    body = {**a_pod("p", gates=()), "metadata": {"name": "p", "namespace": "d"}}
    api.put(POD, {**body, "spec": {"nodeName": "n"}, "status": {"phase": "Succeeded"}})
    await cluster.delete(POD, "p", namespace="d")
    assert api.objects(POD) == []


async def test_a_gated_pod_is_not_bound(api: FakeApiServer, cluster: K8sCluster) -> None:
    await cluster.create(POD, a_pod("p"), namespace="d")
    with pytest.raises(Conflict, match="schedulingGates"):
        await bind(cluster, "p", "n")
    gate = {"op": "remove", "path": "/spec/schedulingGates/0"}
    await cluster.json_patch(POD, "p", [gate], namespace="d")
    await bind(cluster, "p", "n")
    assert api.objects(POD)[0]["spec"]["nodeName"] == "n"


async def test_what_two_own_lives_as_long_as_one(api: FakeApiServer) -> None:
    refs = []
    for name in ("a", "b"):
        job = a_job(name)
        job["metadata"]["namespace"] = "d"
        stored = api.put(TRAINING_JOB, job)
        refs.append({"kind": "TrainingJob", "name": name, "uid": stored["metadata"]["uid"]})
    pod = a_pod("p")
    pod["metadata"] |= {"namespace": "d", "ownerReferences": refs}
    api.put(POD, pod)
    api.remove(TRAINING_JOB, "a", "d")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(api.objects(POD)) == 1
    api.remove(TRAINING_JOB, "b", "d")
    async with asyncio.timeout(60):
        while api.objects(POD):
            await asyncio.sleep(0)


async def test_a_skewed_clock_shows_in_time_stamps(cluster: K8sCluster) -> None:
    async with FakeApiServer(wall=lambda: 1_000_000_000.0) as api, make_cluster(api.url) as there:
        first = await there.create(GPU_NODE, gpu_node("a"))
        api.faults.clock_skew_s = 3600.0
        second = await there.create(GPU_NODE, gpu_node("b"))
    stamps = [made["metadata"]["creationTimestamp"] for made in (first, second)]  # type: ignore[index]
    assert stamps == ["2001-09-09T01:46:40Z", "2001-09-09T02:46:40Z"]


async def test_a_restart_keeps_objects_and_address_and_may_lose_history(
    api: FakeApiServer, cluster: K8sCluster
) -> None:
    before, url = api.version, api.url
    await cluster.create(GPU_NODE, gpu_node("a"))
    await api.restart(lose_history=False)
    assert api.url == url
    stream = cluster.watch(GPU_NODE, Selector(), resource_version=str(before), timeout_s=5)
    assert (await anext(stream)).type == "ADDED"
    await stream.aclose()
    await api.restart()
    with pytest.raises(Gone):
        await anext(cluster.watch(GPU_NODE, Selector(), resource_version=str(before), timeout_s=5))
    assert (await cluster.get(GPU_NODE, "a"))["kind"] == "GPUNode"


async def test_only_what_the_rules_allow_is_allowed(
    api: FakeApiServer, cluster: K8sCluster
) -> None:
    api.access.allow_only(
        [
            Rule(group="ullage.dev", resource="gpunodes", verbs=("patch", "get")),
            Rule(group="", resource="pods", verbs=("*",), namespace="d"),
        ]
    )
    with pytest.raises(Forbidden, match='cannot create resource "gpunodes"'):
        await cluster.apply(GPU_NODE, "n", gpu_node("n"), manager="m")
    api.put(GPU_NODE, gpu_node("n"))
    await cluster.apply(GPU_NODE, "n", gpu_node("n", epoch=2), manager="m")
    with pytest.raises(Forbidden, match='"gpunodes/status"'):
        await cluster.apply(GPU_NODE, "n", {"status": {}}, manager="m", subresource="status")
    await cluster.create(POD, a_pod("p"), namespace="d")
    with pytest.raises(Forbidden, match='in the namespace "e"'):
        await cluster.create(POD, a_pod("p"), namespace="e")
    with pytest.raises(Forbidden, match="at the cluster scope"):
        await anext(cluster.list_paged(POD, Selector()))
