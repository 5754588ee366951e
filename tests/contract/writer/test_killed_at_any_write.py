# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The operator may die at any write; the next life ends where the first would have ended.

Picture and writer are the product's own; the server is the fake with the real one's rules; nodes
and controllers are played by ``small_world``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from fakes.small_world import (
    Brain,
    Cluster,
    Decision,
    Mortal,
    converge,
    given_twice,
    live,
    picture,
    products_decision,
)
from ullage import ports
from ullage.api.slices import RESERVING_VERSION, WIRE_VERSION
from ullage.kube.client import K8sCluster

World = Callable[[], AbstractAsyncContextManager[tuple[Cluster, K8sCluster]]]


@pytest.fixture(params=[WIRE_VERSION, 1], ids=["reserving", "older-agents"])
def contract(request: pytest.FixtureRequest) -> int:
    """What the agents understand: with older ones every pod begins with a gate."""
    chosen: int = request.param
    return chosen


@pytest.fixture
def world(world: World, contract: int) -> World:
    @asynccontextmanager
    async def with_agents() -> AsyncIterator[tuple[Cluster, K8sCluster]]:
        async with world() as (cluster, port):
            cluster.contract = contract
            yield cluster, port

    return with_agents


async def test_one_life_places_everything(world: World, decision: Decision) -> None:
    async with world() as (cluster, port):
        await live(cluster, port, epoch=1, decision=decision)
        seen = picture(cluster.server)
    assert seen["gated"] == []
    assert seen["pods"] == [
        ("gang-0", "Running"),
        ("gang-1", "Running"),
        ("serve-abc12-0", "Running"),
        ("whole-0", "Running"),
    ]
    assert seen["phases"] == {"gang": "Running", "whole": "Running", "serve": "Ready"}
    assert seen["placed"] == {"gang": 2, "whole": 1, "serve": 1}
    assert seen["services"] == ["gang-workers", "serve"]


@pytest.mark.slow
@pytest.mark.parametrize("sent", [False, True], ids=["before-sending", "before-the-answer"])
async def test_whenever_it_dies_the_next_life_converges(
    world: World, decision: Decision, sent: bool
) -> None:
    """Cut before an answer, the server stands as before the next write: each takes every second."""
    async with world() as (cluster, port):
        writes = len((await live(cluster, port, epoch=1, decision=decision)).done)
        expected = picture(cluster.server)
    assert writes > 10
    for cut in range(0, writes, 2):
        async with world() as (cluster, port):
            how = {"decision": decision, "writes": cut, "sent": sent}
            first = await live(cluster, port, epoch=1, **how)  # type: ignore[arg-type]
            assert first.died.is_set()
            assert not given_twice(cluster.server)
            await live(cluster, port, epoch=2, decision=decision)
            assert picture(cluster.server) == expected, f"killed at {first.done[-1]}"
            assert not given_twice(cluster.server)


async def test_a_life_of_two_writes_at_a_time_gets_there_too(
    world: World, decision: Decision
) -> None:
    async with world() as (cluster, port):
        await live(cluster, port, epoch=1, decision=decision)
        expected = picture(cluster.server)
    async with world() as (cluster, port):
        for epoch in range(1, 100):
            sent = epoch % 2 == 0
            mortal = await live(cluster, port, epoch=epoch, decision=decision, writes=2, sent=sent)
            if not mortal.died.is_set():
                break
        assert picture(cluster.server) == expected
        assert not given_twice(cluster.server)


async def test_nothing_is_written_once_everything_stands(world: World, decision: Decision) -> None:
    async with world() as (cluster, port):
        mortal = Mortal(port)
        brain = Brain(mortal, cluster, 1, decision)
        await converge(brain, cluster)
        before = len(mortal.done)
        for _ in range(20):
            cluster.wall.seconds += 30.0
            cluster.heartbeat()
            await brain.cycle()
        assert mortal.done[before:] == []
        await brain.stop()


@pytest.mark.slow
async def test_a_new_leader_changes_nothing_that_stands(world: World, decision: Decision) -> None:
    async with world() as (cluster, port):
        await live(cluster, port, epoch=1, decision=decision)
        cluster.heartbeat()
        second = await live(cluster, port, epoch=2, decision=decision)
        assert second.done == []


async def test_a_leader_that_was_overtaken_stops(world: World, decision: Decision) -> None:
    async with world() as (cluster, port):
        await live(cluster, port, epoch=5, decision=decision)
        cluster.server.remove(ports.POD, "whole-0", "team")
        mortal = Mortal(port)
        stale = Brain(mortal, cluster, 4, decision)
        before = cluster.server.get(ports.GPU_NODE, "node-2")
        for _ in range(6):
            await stale.cycle()
            cluster.turn()
        assert stale.lost == 1
        after = cluster.server.get(ports.GPU_NODE, "node-2")
        assert before is not None
        assert after is not None
        assert after["spec"] == before["spec"], "no stale write was accepted"
        await stale.stop()


async def test_each_pod_is_created_once_and_ungated_once_if_at_all(
    world: World, decision: Decision, contract: int
) -> None:
    async with world() as (cluster, port):
        mortal = await live(cluster, port, epoch=1, decision=decision)
    verbs = Counter((verb, kind) for verb, kind, _ in mortal.done)
    assert verbs["create", "Pod"] == 3
    reserved = contract >= RESERVING_VERSION and decision is products_decision
    # the replica's pod, which its Deployment creates, has a gate in any case
    assert verbs["patch", "Pod"] == (1 if reserved else 4)
