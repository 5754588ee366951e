# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A job whose place is known gets its slices first, and its pod is created in that place."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from fakes.small_world import (
    Brain,
    Cluster,
    Mortal,
    converge,
    gated,
    given_twice,
    picture,
    products_decision,
)
from ullage import ports
from ullage.api.labels import ANNOTATION_RESERVATION
from ullage.api.slices import RESERVING_VERSION, WIRE_VERSION
from ullage.kube.client import K8sCluster

World = Callable[[], AbstractAsyncContextManager[tuple[Cluster, K8sCluster]]]
RESERVED = "reservation-"


def _brain(cluster: Cluster, port: K8sCluster, epoch: int = 1) -> Brain:
    return Brain(Mortal(port), cluster, epoch, products_decision)


def _pod(cluster: Cluster, name: str = "whole-0") -> dict[str, Any] | None:
    return cluster.server.get(ports.POD, name, "team")


def _slices(cluster: Cluster, pod: str = "whole-0") -> list[tuple[str, str]]:
    """Node and podUID of the slices of a pod."""
    return [
        (node["metadata"]["name"], piece["podUID"])
        for node in cluster.server.objects(ports.GPU_NODE)
        for piece in node["spec"].get("slices") or []
        if piece["podName"] == pod
    ]


async def _until_reserved(brain: Brain, cluster: Cluster) -> tuple[str, str]:
    """Cycle until slices of the job stand in a spec; no agent has answered to them."""
    for _ in range(10):
        await brain.cycle()
        if _slices(cluster):
            return _slices(cluster)[0]
        cluster.turn()
        cluster.wall.seconds += 1.0
    raise AssertionError("nothing was reserved")


async def test_slices_come_first_and_the_pod_has_no_gate(world: World) -> None:
    async with world() as (cluster, port):
        brain = _brain(cluster, port)
        node, reservation = await _until_reserved(brain, cluster)
        assert reservation.startswith(RESERVED)
        assert _pod(cluster) is None
        cluster.turn()
        await brain.cycle()
        pod = _pod(cluster)
        assert pod is not None
        assert not gated(pod)
        assert pod["metadata"]["annotations"][ANNOTATION_RESERVATION] == reservation
        await converge(brain, cluster)
        await brain.stop()
        pod = _pod(cluster)
        assert pod is not None
        assert (pod["spec"]["nodeName"], pod["status"]["phase"]) == (node, "Running")
        writes = [write for write in brain.port.done if write[2] in ("whole-0", node)]
        assert ("patch", "Pod", "whole-0") not in writes


async def test_no_pod_is_created_before_its_node_has_answered(world: World) -> None:
    async with world() as (cluster, port):
        brain = _brain(cluster, port)
        await _until_reserved(brain, cluster)
        for _ in range(5):
            await brain.cycle()
        assert _pod(cluster) is None
        await brain.stop()


async def test_the_next_write_of_the_node_stores_the_uid(world: World) -> None:
    async with world() as (cluster, port):
        brain = _brain(cluster, port)
        await converge(brain, cluster)
        ((node, _),) = _slices(cluster)
        share = {"minPercent": 10, "maxPercent": 10}
        gpu = {"mode": "Fractional", "count": 1, "share": share}
        whole = cluster.server.get(ports.TRAINING_JOB, "whole", "team")
        assert whole is not None
        for number in range(12):  # wherever there is room
            meta = {"name": f"small-{number}", "namespace": "team"}
            spec = {"replicas": 1, "gpu": gpu, "template": whole["spec"]["template"]}
            cluster.server.put(ports.TRAINING_JOB, {"metadata": meta, "spec": spec})
        cluster.heartbeat()
        await converge(brain, cluster)
        pod = _pod(cluster)
        assert pod is not None
        written = [
            one
            for one in cluster.server.objects(ports.GPU_NODE)
            if any(piece["podName"].startswith("small-") for piece in one["spec"]["slices"])
        ]
        assert written
        if node in {one["metadata"]["name"] for one in written}:
            assert _slices(cluster) == [(node, pod["metadata"]["uid"])]
        assert not given_twice(cluster.server)
        await brain.stop()


async def test_a_new_leader_creates_the_pod_of_a_reservation(world: World) -> None:
    async with world() as (cluster, port):
        first = _brain(cluster, port)
        _, reservation = await _until_reserved(first, cluster)
        await first.kill()
        cluster.turn()
        second = _brain(cluster, port, epoch=2)
        await converge(second, cluster)
        await second.stop()
        pod = _pod(cluster)
        assert pod is not None
        assert pod["metadata"]["annotations"][ANNOTATION_RESERVATION] == reservation
        assert picture(cluster.server)["restarts"]["whole"] == 0


async def test_a_pod_that_was_gated_before_an_upgrade_keeps_its_gate(world: World) -> None:
    async with world() as (cluster, port):
        cluster.contract = 1
        first = _brain(cluster, port)
        for _ in range(10):
            await first.cycle()
            if _pod(cluster) is not None:
                break
            cluster.turn()
        pod = _pod(cluster)
        assert pod is not None
        assert gated(pod)
        await first.kill()
        cluster.contract = 2
        second = _brain(cluster, port, epoch=2)
        await converge(second, cluster)
        await second.stop()
        after = _pod(cluster)
        assert after is not None
        assert after["metadata"]["uid"] == pod["metadata"]["uid"]
        assert picture(cluster.server)["gated"] == []


async def test_a_lost_node_gives_the_job_another_place(world: World) -> None:
    async with world() as (cluster, port):
        brain = _brain(cluster, port)
        node, _ = await _until_reserved(brain, cluster)
        cluster.add_node("node-3")
        cluster.server.remove(ports.NODE, node)
        cluster.server.remove(ports.GPU_NODE, node)
        await converge(brain, cluster)
        await brain.stop()
        ((other, _),) = _slices(cluster)
        assert other != node
        pod = _pod(cluster)
        assert pod is not None
        assert pod["spec"]["nodeName"] == other


async def test_a_deleted_job_leaves_no_reservation(world: World) -> None:
    async with world() as (cluster, port):
        brain = _brain(cluster, port)
        await _until_reserved(brain, cluster)
        cluster.server.remove(ports.TRAINING_JOB, "whole", "team")
        await converge(brain, cluster)
        await brain.stop()
        assert _slices(cluster) == []
        assert _pod(cluster) is None


async def test_an_edited_job_gets_a_new_reservation(world: World) -> None:
    async with world() as (cluster, port):
        brain = _brain(cluster, port)
        _, reservation = await _until_reserved(brain, cluster)
        job = cluster.server.get(ports.TRAINING_JOB, "whole", "team")
        assert job is not None
        job["spec"]["template"]["spec"]["containers"][0]["image"] = "example/other:2"
        job["metadata"]["generation"] += 1
        cluster.server.put(ports.TRAINING_JOB, job)
        await converge(brain, cluster)
        await brain.stop()
        pod = _pod(cluster)
        assert pod is not None
        assert pod["spec"]["containers"][0]["image"] == "example/other:2"
        assert pod["metadata"].get("annotations", {}).get(ANNOTATION_RESERVATION) != reservation
        assert len(_slices(cluster)) == 1


@pytest.mark.parametrize("contract", [1, WIRE_VERSION])
async def test_a_pod_that_is_gone_takes_its_reservation_with_it(
    world: World, contract: int
) -> None:
    """Whatever the agents understand, a lost pod is told and created again in the same way."""
    async with world() as (cluster, port):
        cluster.contract = contract
        brain = _brain(cluster, port)
        await converge(brain, cluster)
        ((_, before),) = _slices(cluster)
        assert before.startswith(RESERVED) is (contract >= RESERVING_VERSION)
        cluster.server.remove(ports.POD, "whole-0", "team")
        phases = set()
        for _ in range(20):
            cluster.wall.seconds += 10.0
            cluster.heartbeat()
            await brain.cycle()
            cluster.turn()
            phases.add(picture(cluster.server)["phases"]["whole"])
        await brain.stop()
        assert phases >= {"Pending", "Reserving", "Running"}
        assert all(uid != before for _, uid in _slices(cluster))
        seen = picture(cluster.server)
        assert ("whole-0", "Running") in seen["pods"]
        assert seen["restarts"]["whole"] == 0


async def test_all_members_of_a_gang_are_created_together(world: World) -> None:
    async with world() as (cluster, port):
        brain = _brain(cluster, port)
        await _until_reserved(brain, cluster)
        assert len(_slices(cluster, "gang-0")) == len(_slices(cluster, "gang-1")) == 1
        assert _pod(cluster, "gang-0") is _pod(cluster, "gang-1") is None
        cluster.turn()
        await brain.cycle()
        pods = [_pod(cluster, "gang-0"), _pod(cluster, "gang-1")]
        assert [pod is not None and not gated(pod) for pod in pods] == [True, True]
        assert cluster.server.get(ports.SERVICE, "gang-workers", "team") is not None
        await converge(brain, cluster)
        await brain.stop()
        assert picture(cluster.server)["phases"]["gang"] == "Running"


@pytest.mark.parametrize("refused", ["whole-0", "gang-1"])
async def test_a_refused_pod_keeps_no_device_and_the_next_start_is_gated(
    world: World, refused: str
) -> None:
    """A quota may refuse a pod when its place is reserved: whoever fits meanwhile gets it."""
    job = refused.rpartition("-")[0]
    async with world() as (cluster, port):
        brain = _brain(cluster, port)
        failure = cluster.server.faults.fail(
            403,
            verb="create",
            plural="pods",
            name=refused,
            times=None,
            reason="Forbidden",
            message="exceeded quota",
        )
        shown = set()
        for _ in range(8):
            await brain.cycle()
            cluster.turn()
            cluster.wall.seconds += 1.0
            kept = cluster.server.get(ports.TRAINING_JOB, job, "team") or {}
            conditions = (kept.get("status") or {}).get("conditions", [])
            shown |= {one["reason"] for one in conditions if one["type"] == "Admitted"}
        assert "CreateRefused" in shown
        assert _slices(cluster, refused) == []
        failure.times = 0
        for _ in range(30):
            cluster.wall.seconds += 10.0
            cluster.heartbeat()
            await brain.cycle()
            cluster.turn()
            for pod in cluster.server.objects(ports.POD):
                if pod["metadata"].get("deletionTimestamp"):  # kubelet stopped it
                    cluster.server.remove(ports.POD, pod["metadata"]["name"], "team")
        await brain.stop()
        seen = picture(cluster.server)
        assert (seen["phases"][job], seen["restarts"][job]) == ("Running", 0)
        again = _pod(cluster, refused)
        assert again is not None
        assert ANNOTATION_RESERVATION not in again["metadata"].get("annotations", {})
        assert not given_twice(cluster.server)
