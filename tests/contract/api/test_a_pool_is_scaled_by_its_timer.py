# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Each pool is looked after by itself on the leader, and ends when nothing of it is on its way."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import pytest

from builders_raw import raw_node, raw_pool, raw_template
from fakes.apiserver import FakeApiServer, make_cluster
from fakes.leading import leading, standing_by, until
from fakes.provisioner import is_order
from ullage.app.uninstall import release
from ullage.cluster.records.pool import PoolRecord, PoolStatus
from ullage.cluster.values.lives import FINALIZER
from ullage.handlers import pool_watch
from ullage.handlers.pool_watch import PoolWatch
from ullage.ports import CAPACITY_POOL, EVENT, NODE, POD, TRAINING_JOB

Json = dict[str, Any]


@pytest.fixture(autouse=True)
def _short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    for where in ("pools.POOL_LOOK_S", "ends.END_LOOK_S", "pool_watch.POOL_LOOK_S"):
        monkeypatch.setattr(f"ullage.handlers.{where}", 0.1)
    monkeypatch.setattr("ullage.handlers.pool_watch.POOL_LOOK_SHARED_S", 0.05)


def pool(api: FakeApiServer, name: str = "spot-a") -> Json | None:
    return api.get(CAPACITY_POOL, name)


def status(api: FakeApiServer, name: str = "spot-a") -> Json:
    held = pool(api, name)
    return (held or {}).get("status") or {}


def finalizers(api: FakeApiServer, name: str = "spot-a") -> list[str] | None:
    held = pool(api, name)
    return held["metadata"].get("finalizers", []) if held is not None else None


def orders(api: FakeApiServer) -> list[Json]:
    return [pod for pod in api.objects(POD) if is_order(pod)]


def a_job(name: str = "train", replicas: int = 2) -> Json:
    spec = {
        "replicas": replicas,
        "gpu": {"mode": "Exclusive", "count": 1},
        "checkpoint": {"graceSeconds": 30},
        "work": {"steps": 1000},
        "cost": {"objective": "CostPerWork"},
        "template": raw_template(),
    }
    return {"metadata": {"name": name, "namespace": "team"}, "spec": spec}


def events(api: FakeApiServer) -> set[str]:
    return {event["reason"] for event in api.objects(EVENT)}


async def delete(api: FakeApiServer, name: str = "spot-a") -> None:
    async with make_cluster(api.url) as cluster:
        await cluster.delete(CAPACITY_POOL, name)


async def test_a_static_pool_gets_price_and_hazard_and_no_finalizer(api: FakeApiServer) -> None:
    api.put(CAPACITY_POOL, raw_pool())
    async with leading(api) as operator:
        await until(lambda: status(api).get("price") == "0.95")
        assert status(api)["hazardPerHour"] == "0.01"
        seen = operator.replica.state.freeze(0.0).pools["spot-a"].status
        assert seen.price == 0.95
        assert finalizers(api) == []
        assert api.write_count("patch", CAPACITY_POOL.plural) == 0
        await delete(api)
        await until(lambda: pool(api) is None)


async def test_a_pool_with_requests_out_is_held_and_ends_after_them(api: FakeApiServer) -> None:
    api.put(CAPACITY_POOL, raw_pool())
    api.put(TRAINING_JOB, a_job())
    async with leading(api) as operator:
        await until(lambda: len(orders(api)) == 2)
        await until(lambda: finalizers(api) == [FINALIZER])
        await until(lambda: status(api).get("launching") == 2)
        coming = raw_node(ready=False)
        coming["metadata"]["labels"]["pool"] = "spot-a"
        coming["metadata"]["creationTimestamp"] = api.timestamp()
        api.put(NODE, coming)
        await until(lambda: "node-1" in operator.replica.state.freeze(0.0).nodes)
        await delete(api)
        await until(lambda: "PoolEnds" in events(api))
        await until(lambda: not orders(api))
        assert pool(api), "a machine is on its way"
        api.remove(NODE, "node-1")
        await until(lambda: pool(api) is None)


@pytest.mark.parametrize("step", ["requests out", "held", "deleted"])
async def test_whatever_the_last_leader_came_to_the_next_goes_on(
    api: FakeApiServer, step: str
) -> None:
    api.put(CAPACITY_POOL, raw_pool())
    api.put(TRAINING_JOB, a_job())
    async with leading(api):
        await until(lambda: orders(api))
        if step != "requests out":
            await until(lambda: finalizers(api) == [FINALIZER])
    if step == "deleted":
        await delete(api)
        assert finalizers(api) == [FINALIZER], "it waits for a leader"
    async with leading(api, "b"):
        if step != "deleted":
            await until(lambda: finalizers(api) == [FINALIZER])
            await delete(api)
        await until(lambda: pool(api) is None and not orders(api))


async def test_a_pool_is_let_go_by_an_uninstall(api: FakeApiServer) -> None:
    api.put(CAPACITY_POOL, raw_pool())
    api.put(TRAINING_JOB, a_job())
    async with leading(api):
        await until(lambda: finalizers(api) == [FINALIZER])
    await delete(api)
    async with make_cluster(api.url) as cluster:
        assert await release(cluster) == ["capacitypools /spot-a"]
    assert pool(api) is None


def a_node(name: str, **spec: object) -> Json:
    body = raw_node(name, spec=spec)
    body["metadata"]["labels"]["pool"] = "spot-a"
    return body


async def test_the_next_leader_knows_what_was_wanted_gone(api: FakeApiServer) -> None:
    body = raw_pool()
    api.put(CAPACITY_POOL, body)
    for name in ("node-1", "node-2"):
        api.put(NODE, a_node(name))
    async with AsyncExitStack() as others, standing_by(api, "b") as heir:
        leader = await others.enter_async_context(standing_by(api, "a"))
        await until(lambda: leader.lease.held or heir.lease.held)
        if heir.lease.held:
            leader, heir = heir, leader
        watch, uid = heir.replica.pool_watch, body["metadata"]["uid"]
        await until(lambda: status(api).get("nodes") == 2)
        api.put(NODE, a_node("node-1", unschedulable=True))
        await until(lambda: any(node.leaving for node in watch._watch.instances.values()))
        leader.stop()
        await until(lambda: not leader.lease.held)
        api.remove(NODE, "node-1")
        await until(lambda: heir.lease.held and watch.known[uid].nodes == 1)
        assert watch.known[uid].loss_events == 0
        blind = PoolWatch(heir.replica.state, synced=lambda: True, clock=heir.replica.clock)
        blind.look()
        assert blind.known[uid].loss_events == 1, "who did not watch takes it for a loss"


async def test_a_pool_that_cannot_be_looked_at_harms_no_other(
    api: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = pool_watch.observed

    def observed(pool: PoolRecord, *rest: Any) -> PoolStatus:
        if pool.name == "bad":
            raise OverflowError("math range error")
        return really(pool, *rest)

    monkeypatch.setattr(pool_watch, "observed", observed)
    monkeypatch.setattr("ullage.handlers.pools.POOL_RETRY_S", 0.1)
    wild = raw_pool("wild", max=-7, nodeSelector={})
    for body in (raw_pool("bad"), wild, raw_pool("well")):
        api.put(CAPACITY_POOL, body)
    async with leading(api) as operator:
        await until(lambda: status(api, "well").get("price") == "0.95")
        await until(lambda: status(api, "bad").get("conditions"))
        (condition,) = status(api, "bad")["conditions"]
        assert condition["reason"] == "DecisionFailed"
        failures = operator.replica.pool_watch.failures
        await until(lambda: operator.replica.pool_watch.failures > failures)
        monkeypatch.undo()
        await until(lambda: status(api, "bad").get("price") == "0.95")


@pytest.mark.parametrize("deleted", ["yesterday", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"])
async def test_a_pool_that_says_nonsense_ends_all_the_same(
    api: FakeApiServer, deleted: str
) -> None:
    odd = raw_pool(status={"launching": 3})
    odd["metadata"] |= {"deletionTimestamp": deleted, "finalizers": [FINALIZER]}
    api.put(CAPACITY_POOL, odd)
    async with leading(api):
        await until(lambda: pool(api) is None)


async def test_a_pool_with_many_finalizers_is_scaled_and_gets_none(api: FakeApiServer) -> None:
    crowded = raw_pool(status={"launching": 3})
    crowded["metadata"]["finalizers"] = [f"example.com/{number}" for number in range(33)]
    api.put(CAPACITY_POOL, crowded)
    async with leading(api):
        await until(lambda: status(api).get("price") == "0.95")
        assert api.write_count("patch", CAPACITY_POOL.plural) == 0
