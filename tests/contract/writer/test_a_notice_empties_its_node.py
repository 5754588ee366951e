# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""From ``GPUNode.status.interruption`` to the API: taint, evictions, Events, and back.

Picture, decision and writer are the product's own; the server is the fake with the real one's
rules.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from builders_raw import raw_template
from fakes.apiserver import FakeApiServer, make_cluster
from fakes.mortal import Mortal
from fakes.small_world import Brain, Cluster, Wall, converge, products_decision
from ullage import ports
from ullage.cli import drain
from ullage.cluster.projection.notice import TAINT_KEY
from ullage.scheduling.model.plan import EvictPod, TaintNode

Json = dict[str, Any]
OTHERS = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
OURS = {"key": TAINT_KEY, "value": "Terminate", "effect": "NoSchedule"}
Running = Callable[[], AbstractAsyncContextManager[tuple[Brain, Cluster, Mortal]]]


@asynccontextmanager
async def _running() -> AsyncIterator[tuple[Brain, Cluster, Mortal]]:
    """One job that saves its work, running on one of two nodes."""
    wall = Wall()
    async with FakeApiServer(wall=wall.now) as server, make_cluster(server.url) as port:
        cluster = Cluster(server, wall)
        for name in ("node-1", "node-2"):
            cluster.add_node(name)
        server.put(ports.TRAINING_JOB, _job())
        mortal = Mortal(port)
        brain = Brain(mortal, cluster, 1, products_decision)
        try:
            await converge(brain, cluster)
            yield brain, cluster, mortal
        finally:
            await brain.kill()


def _job() -> Json:
    spec = {
        "replicas": 1,
        "gpu": {"mode": "Exclusive", "count": 1},
        "checkpoint": {"graceSeconds": 120},
        "template": raw_template(),
    }
    return {"metadata": {"name": "train", "namespace": "team"}, "spec": spec}


@pytest.fixture
def running() -> Running:
    return _running


def pod_of(cluster: Cluster) -> Json:
    pod = cluster.server.get(ports.POD, "train-0", "team")
    assert pod is not None
    return pod


def taints_of(cluster: Cluster, name: str) -> list[Json]:
    node = cluster.server.get(ports.NODE, name)
    assert node is not None
    taints: list[Json] = node.get("spec", {}).get("taints") or []
    return taints


def say(cluster: Cluster, name: str, notice: Json | None) -> None:
    """The agent's word."""
    node = cluster.server.get(ports.GPU_NODE, name)
    assert node is not None
    status = {key: value for key, value in node["status"].items() if key != "interruption"}
    if notice is not None:
        status["interruption"] = notice
    cluster.server.put(ports.GPU_NODE, node | {"status": status})


def in_two_minutes(cluster: Cluster) -> Json:
    moment = datetime.fromtimestamp(cluster.wall.now() + 120, UTC)
    return {
        "kind": "Terminate",
        "deadline": moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "source": "EC2",
    }


async def test_a_notice_taints_the_node_and_evicts_in_the_next_cycle(running: Running) -> None:
    async with running() as (brain, cluster, _):
        where = pod_of(cluster)["spec"]["nodeName"]
        node = cluster.server.get(ports.NODE, where)
        assert node is not None
        cluster.server.put(ports.NODE, node | {"spec": {"taints": [OTHERS]}})
        say(cluster, where, in_two_minutes(cluster))
        brain.actions.clear()
        await brain.cycle()
        assert [one.node.name for one in brain.actions if isinstance(one, TaintNode)] == [where]
        assert [one.pod.name for one in brain.actions if isinstance(one, EvictPod)] == ["train-0"]
        assert taints_of(cluster, where) == [OTHERS, OURS]
        leaving = pod_of(cluster)["metadata"]
        assert leaving["deletionTimestamp"]
        # two minutes less the margin; the job's own two minutes would outlive the machine
        assert leaving["deletionGracePeriodSeconds"] == 115
        events = {one["reason"] for one in cluster.server.objects(ports.EVENT)}
        assert {"EvictionNotice", "SpotInterrupted"} <= events


async def test_the_job_goes_on_elsewhere_and_no_restart_is_counted(running: Running) -> None:
    async with running() as (brain, cluster, _):
        where = pod_of(cluster)["spec"]["nodeName"]
        say(cluster, where, in_two_minutes(cluster))
        await brain.cycle()
        cluster.server.remove(ports.POD, "train-0", "team")
        await converge(brain, cluster)
        assert pod_of(cluster)["spec"]["nodeName"] != where
        job = cluster.server.get(ports.TRAINING_JOB, "train", "team")
        assert job is not None
        assert job["status"]["phase"] == "Running"
        assert job["status"].get("restarts", 0) == 0


async def test_a_withdrawn_notice_lifts_our_taint_and_no_other(running: Running) -> None:
    async with running() as (brain, cluster, mortal):
        where = pod_of(cluster)["spec"]["nodeName"]
        free = "node-1" if where == "node-2" else "node-2"
        node = cluster.server.get(ports.NODE, free)
        assert node is not None
        cluster.server.put(ports.NODE, node | {"spec": {"taints": [OTHERS]}})
        say(cluster, free, in_two_minutes(cluster))
        await brain.cycle()
        assert taints_of(cluster, free) == [OTHERS, OURS]
        before = len(mortal.done)
        await brain.cycle()
        assert mortal.done[before:] == []  # a notice that stands is no news
        say(cluster, free, None)
        await brain.cycle()
        assert taints_of(cluster, free) == [OTHERS]
        assert "deletionTimestamp" not in pod_of(cluster)["metadata"]


async def test_a_taint_that_came_meanwhile_is_not_lost(running: Running) -> None:
    async with running() as (brain, cluster, _):
        where = pod_of(cluster)["spec"]["nodeName"]
        say(cluster, where, in_two_minutes(cluster))
        await brain.cycle()
        later = cluster.server.get(ports.NODE, where)
        assert later is not None
        spec = {"taints": [*taints_of(cluster, where), OTHERS]}
        cluster.server.put(ports.NODE, later | {"spec": spec})
        say(cluster, where, None)
        await brain.cycle()
        assert taints_of(cluster, where) == [OTHERS]


async def test_another_ones_taint_is_a_notice_too(running: Running) -> None:
    async with running() as (brain, cluster, _):
        where = pod_of(cluster)["spec"]["nodeName"]
        node = cluster.server.get(ports.NODE, where)
        assert node is not None
        theirs = {"key": "aws-node-termination-handler/spot-itn", "effect": "NoSchedule"}
        cluster.server.put(ports.NODE, node | {"spec": {"taints": [theirs]}})
        await brain.cycle()
        assert pod_of(cluster)["metadata"]["deletionTimestamp"]
        assert taints_of(cluster, where) == [theirs, OURS]


async def test_a_node_that_karpenter_may_still_keep_is_not_emptied(running: Running) -> None:
    async with running() as (brain, cluster, _):
        where = pod_of(cluster)["spec"]["nodeName"]
        node = cluster.server.get(ports.NODE, where)
        assert node is not None
        theirs = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
        cluster.server.put(ports.NODE, node | {"spec": {"taints": [theirs]}})
        await brain.cycle()
        assert "deletionTimestamp" not in pod_of(cluster)["metadata"]
        assert taints_of(cluster, where) == [theirs]
        later = cluster.server.get(ports.NODE, where)
        assert later is not None
        # what karpenter's finalizer holds while the node is drained
        held = {
            "deletionTimestamp": cluster.wall.stamp(),
            "finalizers": ["karpenter.sh/termination"],
        }
        cluster.server.put(ports.NODE, later | {"metadata": later["metadata"] | held})
        await brain.cycle()
        assert pod_of(cluster)["metadata"]["deletionTimestamp"]
        assert taints_of(cluster, where) == [theirs, OURS]


async def test_a_replica_is_evicted_only_when_its_replacement_serves() -> None:
    """So a disruption budget of as many as there are replicas is kept."""
    wall = Wall()
    async with FakeApiServer(wall=wall.now) as server, make_cluster(server.url) as port:
        cluster = Cluster(server, wall)
        for name in ("node-1", "node-2"):
            cluster.add_node(name)
        spec = {
            "replicas": 1,
            "gpu": {"mode": "Exclusive", "count": 1},
            "template": raw_template(container="server", ports=(8080,)),
        }
        server.put(
            ports.INFERENCE_DEPLOYMENT,
            {"metadata": {"name": "serve", "namespace": "team"}, "spec": spec},
        )
        brain = Brain(Mortal(port), cluster, 1, products_decision)
        try:
            await converge(brain, cluster)
            (first,) = server.objects(ports.POD)
            say(cluster, first["spec"]["nodeName"], in_two_minutes(cluster))
            brain.actions.clear()
            serving: list[Json] = []
            while not any(isinstance(one, EvictPod) for one in brain.actions):
                assert cluster.wall.now() < 1_767_323_045.0 + 90
                serving = [
                    pod for pod in server.objects(ports.POD) if pod["status"]["phase"] == "Running"
                ]
                await brain.cycle()
                cluster.turn()
                cluster.wall.seconds += 1.0
            (gone,) = (one for one in brain.actions if isinstance(one, EvictPod))
            assert gone.pod.name == first["metadata"]["name"]
            assert len(serving) == 2
            assert len({pod["spec"]["nodeName"] for pod in serving}) == 2
        finally:
            await brain.kill()


async def test_people_drain_a_node_and_give_it_back(running: Running) -> None:
    async with running() as (brain, cluster, mortal):
        where = pod_of(cluster)["spec"]["nodeName"]
        free = "node-1" if where == "node-2" else "node-2"
        assert (await drain.left_on(mortal, where)).pods == ("team/train-0",)
        assert await drain.mark(mortal, where, drain=True)
        assert not await drain.mark(mortal, where, drain=True)
        await brain.cycle()
        assert OURS in taints_of(cluster, where)
        assert pod_of(cluster)["metadata"]["deletionTimestamp"]
        events = {one["message"] for one in cluster.server.objects(ports.EVENT)}
        assert any("the node is being drained (taint ullage.dev/drain)" in one for one in events)
        cluster.server.remove(ports.POD, "train-0", "team")
        await converge(brain, cluster)
        assert pod_of(cluster)["spec"]["nodeName"] == free
        left = await drain.left_on(mortal, where)
        assert left.text(where) == f"{where} holds no slice any more"
        assert await drain.mark(mortal, where, drain=False)
        await converge(brain, cluster)
        assert taints_of(cluster, where) == []
        assert pod_of(cluster)["spec"]["nodeName"] == free


async def test_a_drain_waits_its_turn_among_other_writers_of_a_node(running: Running) -> None:
    async with running() as (_, cluster, mortal):
        held = cluster.server.get(ports.NODE, "node-1")
        assert held is not None
        cluster.server.put(ports.NODE, held | {"spec": {"taints": [OTHERS]}})
        assert await drain.mark(mortal, "node-1", drain=True)
        assert [one["key"] for one in taints_of(cluster, "node-1")] == [
            OTHERS["key"],
            "ullage.dev/drain",
        ]
        assert not await drain.has_agent(mortal, "node-9")
        with pytest.raises(ports.NotFound):
            await drain.mark(mortal, "node-9", drain=True)
