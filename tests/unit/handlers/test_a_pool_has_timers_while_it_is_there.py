# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""kopf's timers of pools: begun with the pool, gone with it, in no one's way at the end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import kopf
import pytest

from builders_raw import raw_node, raw_pool
from fakes.clock import FakeClock
from fakes.pool_scaling import Replica, reference
from ullage.app.effects import effect_of
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.values import streams
from ullage.cluster.values.lives import FINALIZER, MOST_OF_NAMESPACE
from ullage.handlers import pools
from ullage.handlers.frame import Bridge, KopfFrame
from ullage.handlers.kinds import FOLLOWED
from ullage.handlers.mirror import Mirror
from ullage.handlers.pools import PoolScaling, is_launching
from ullage.ports import CAPACITY_POOL, JsonObject


async def reached(look: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not look():
            await asyncio.sleep(0.01)


class Calls:
    """What kopf calls; asking for a price never ends."""

    def __init__(self) -> None:
        self.scaled: Counter[str] = Counter()
        self.asking: set[str] = set()
        self.patches = 0

    async def scale(self, pool: ObjectRef) -> None:
        self.scaled[pool.name] += 1
        if pool.name == "bad":
            raise OverflowError("math range error")

    async def ask(self, pool: ObjectRef) -> None:
        self.asking.add(pool.name)
        try:
            await asyncio.Event().wait()
        finally:
            self.asking.discard(pool.name)

    def register(self, registry: kopf.OperatorRegistry, bridge: Bridge) -> None:
        pools.register(registry, bridge, cast(PoolScaling, self))

    async def send(self, *_: object) -> JsonObject:
        self.patches += 1
        return {}


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Mirror:
    monkeypatch.setattr(pools, "POOL_LOOK_S", 0.02)
    return Mirror({CAPACITY_POOL: is_launching}, FOLLOWED)


@asynccontextmanager
async def running(mirror: Mirror, calls: Calls) -> AsyncIterator[None]:
    frame = KopfFrame(mirror)
    task = asyncio.create_task(frame.run(calls.send, calls.register))
    try:
        yield
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert not frame.stuck


async def test_a_pool_that_is_gone_has_no_timer_and_a_bad_one_harms_no_other(
    mirror: Mirror,
) -> None:
    calls = Calls()
    for name in ("bad", "goes", "stays"):
        mirror.upsert(CAPACITY_POOL, raw_pool(name))
    async with running(mirror, calls):
        await reached(lambda: min(calls.scaled["goes"], calls.scaled["stays"]) > 2)
        await reached(lambda: calls.asking == {"bad", "goes", "stays"})
        mirror.remove(CAPACITY_POOL, raw_pool("goes"))
        await reached(lambda: calls.asking == {"bad", "stays"})
        ended, stays = calls.scaled["goes"], calls.scaled["stays"]
        await reached(lambda: calls.scaled["stays"] > stays + 5)
        assert calls.scaled["goes"] == ended
        assert calls.scaled["bad"] == 1, "it has a pause of its own"
        assert calls.patches == 0, "none is held back for its timers"
    assert calls.asking == set()


def test_pools_are_in_no_namespace_and_its_bound_is_none_of_theirs(mirror: Mirror) -> None:
    for number in range(MOST_OF_NAMESPACE + 1):
        mirror.upsert(CAPACITY_POOL, raw_pool(f"p-{number}"))
    assert len(mirror.listed(CAPACITY_POOL)) == MOST_OF_NAMESPACE + 1


@pytest.mark.parametrize(
    "status", [None, 7, {}, {"launching": 0}, {"launching": "3"}, {"launching": -1}, []]
)
def test_nothing_is_on_its_way_unless_a_number_says_so(status: object) -> None:
    assert not is_launching({"status": status})


def a_launch(replica: Replica) -> None:
    """A node of the pool that is not ready yet."""
    node = raw_node(ready=False)
    node["metadata"]["labels"]["pool"] = "spot-a"
    node["metadata"]["creationTimestamp"] = "2027-01-15T08:00:00Z"
    replica.state.upsert(streams.NODES, node, 0.0)


@pytest.fixture
def replica() -> Replica:
    state = ClusterState(effect_of)
    state.upsert(streams.CAPACITY_POOLS, raw_pool(), 0.0)
    return Replica(state, FakeClock())


def left(replica: Replica, pool: ObjectRef | None = None) -> str:
    return pools.left(replica.leader, pool or reference(), 0.0).text


def test_a_deleted_pool_waits_for_its_launch(replica: Replica) -> None:
    a_launch(replica)
    assert left(replica) == "1 instances on their way are"
    assert not left(replica, reference(uid="before")), "another pool of its name"
    node = raw_node()
    node["metadata"]["labels"]["pool"] = "spot-a"
    replica.state.upsert(streams.NODES, node, 0.0)
    replica.clock.advance(5.0)
    assert not left(replica)


def test_a_leader_that_has_seen_nothing_yet_believes_what_was_written(replica: Replica) -> None:
    replica.state.upsert(streams.CAPACITY_POOLS, raw_pool(status={"launching": 2}), 0.0)
    replica.synced = False
    assert left(replica)
    replica.synced = True
    assert not left(replica)


def test_a_deleted_pool_may_have_no_more() -> None:
    state = ClusterState(effect_of)
    body: dict[str, Any] = raw_pool(max=7)
    body["metadata"] |= {"deletionTimestamp": "2027-01-15T08:00:00Z", "finalizers": [FINALIZER]}
    state.upsert(streams.CAPACITY_POOLS, body, 0.0)
    assert state.freeze(0.0).pools["spot-a"].most == 0
