# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What is known of pools reaches decisions at once and the API only when it matters."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from builders_raw import raw_pool
from fakes.clock import FakeClock
from fakes.pool_scaling import Replica
from fakes.pool_watch import HOUR_S, START_S, a_member, a_pool
from ullage.app.effects import effect_of
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.codecs.status import pool_as_stored
from ullage.cluster.records.node import NodeRecord
from ullage.cluster.records.pool import PoolRecord, PoolStatus
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.values import streams
from ullage.engines.capacity.price import PriceRecord, Quote
from ullage.kube.manifests.applied import pool_status_body
from ullage.scheduling.capacity.pool_status import PriceNews, write_of

NODES = tuple(a_member(name) for name in "abcd")


class House:
    """An API that keeps what is written, and one replica."""

    def __init__(self) -> None:
        self.pool = a_pool()
        self.clock = FakeClock(START_S)
        self.nodes: tuple[NodeRecord, ...] = ()
        self.replica = Replica(self, self.clock)
        self.price: PriceRecord | None = None
        self.told: dict[str, PoolStatus] = {}
        self.lossy = False
        self.written = 0

    def pools_written(self) -> dict[str, PoolRecord]:
        return {self.pool.name: self.pool}

    def freeze(self, now: float) -> Snapshot:
        return Snapshot(version=1, taken_at=now, nodes={n.name: n for n in self.nodes})

    def set_pool(self, uid: str, status: PoolStatus) -> bool:
        self.told[uid] = status
        return True

    async def look(self, *nodes: NodeRecord, after_s: float = 0.0, is_leader: bool = True) -> int:
        """Let time pass and look; how many statuses were written."""
        self.clock.advance(after_s)
        self.nodes = nodes
        if not is_leader:
            self.replica.watch.look()
            return 0
        news = {self.pool.uid: PriceNews(record=self.price)} if self.price else {}
        self.replica.quotes.of = news
        writes = await self.replica.scale()
        for write in writes:
            self.written += 1
            assert write.target.uid == self.pool.uid
            if not self.lossy:
                self.pool = replace(self.pool, status=write.status)
        return len(writes)

    def quote(self, price: float) -> None:
        quote = Quote(price_per_hour=price, at_s=self.clock.now())
        self.price = (self.price or PriceRecord()).quoted(quote)


@pytest.fixture
async def house() -> House:
    found = House()
    found.quote(1.0)
    await found.look(*NODES)
    return found


async def test_the_first_look_is_written(house: House) -> None:
    status = house.pool.status
    assert house.written == 1
    assert (status.nodes, status.price, status.observed_generation) == (4, 1.0, 1)
    assert [(one.type, one.status) for one in status.conditions] == [
        ("PriceFresh", "True"),
        ("HazardKnown", "False"),
    ]


async def test_a_loss_is_written_at_once_and_only_once(house: House) -> None:
    await house.look(*NODES, after_s=HOUR_S)
    before = house.written
    assert await house.look(*NODES[1:], after_s=5.0) == 1
    assert await house.look(*NODES[1:], after_s=5.0) == 0
    assert house.pool.status.last_loss is not None
    assert house.written == before + 1


async def test_a_price_is_written_when_it_moves_by_more_than_a_percent(house: House) -> None:
    house.quote(1.009)
    assert await house.look(*NODES, after_s=5.0) == 0
    house.quote(1.02)
    assert await house.look(*NODES, after_s=5.0) == 1
    assert house.pool.status.price == 1.02


async def test_figures_that_drift_are_written_every_ten_minutes_at_most(house: House) -> None:
    times = [house.clock.now() for _ in range(720) if await house.look(*NODES, after_s=10.0)]
    assert 2 <= len(times) <= 12
    assert all(later - at >= 600 for at, later in pairwise(times))


async def test_an_empty_pool_falls_silent() -> None:
    house = House()
    house.quote(1.0)
    await house.look()
    for _ in range(6 * 60):
        house.quote(1.0)
        await house.look(after_s=60.0)
    assert house.written <= 3  # the price's own time, every three hours


async def test_many_nodes_that_come_one_by_one_are_told_in_a_few_writes(house: House) -> None:
    nodes, before = list(NODES), house.written
    for index in range(60):
        nodes.append(a_member(f"new-{index}", created=house.clock.now()))
        await house.look(*nodes, after_s=2.0)
    await house.look(*nodes, after_s=40.0)
    assert house.pool.status.nodes == 64
    assert house.written - before <= 6


async def test_a_write_that_was_lost_is_written_again() -> None:
    house = House()
    house.lossy = True
    assert await house.look(*NODES) == 1
    assert await house.look(*NODES, after_s=30.0) == 0
    assert await house.look(*NODES, after_s=31.0) == 1


async def test_a_standby_knows_what_happened_while_it_watched(house: House) -> None:
    leader, standby = house.replica, Replica(house, house.clock)
    house.replica = standby
    await house.look(*NODES, is_leader=False)
    house.replica = leader
    house.quote(1.5)
    await house.look(*NODES, after_s=5.0)
    house.replica = standby
    await house.look(*NODES, is_leader=False)
    house.price = None
    await house.look(*NODES[1:], after_s=5.0, is_leader=False)  # the leader died before it told
    assert await house.look(*NODES[1:], after_s=5.0) == 1
    status = house.pool.status
    assert status.last_loss is not None
    assert (status.last_loss.lost, status.price) == (1, 1.5)


async def test_a_pool_that_was_made_again_starts_again(house: House) -> None:
    await house.look(*NODES, after_s=HOUR_S)
    house.pool = a_pool(uid="another")
    await house.look(*NODES, after_s=5.0)
    assert house.pool.status.exposure_hours == 0.0
    assert "another" in house.told


async def test_decisions_see_what_is_known_and_echoes_wake_no_one(house: House) -> None:
    state = ClusterState(effect_of)
    assert state.upsert(streams.CAPACITY_POOLS, raw_pool(), 0.0)
    uid = state.pools_written()["spot-a"].uid
    status = pool_as_stored(house.pool.status)
    assert state.set_pool(uid, status)
    assert not state.set_pool(uid, status)
    first = state.freeze(1.0)
    assert first.pools["spot-a"].status == status
    assert first.pools["spot-a"].price_source is None
    assert state.pools_written()["spot-a"].price_source is not None
    pool = replace(house.pool, uid=uid)
    write = write_of(pool, status, 1)
    raw = raw_pool(status=pool_status_body(write)["status"])  # type: ignore[arg-type]
    assert not state.upsert(streams.CAPACITY_POOLS, raw, 2.0)
    assert state.freeze(3.0).pools["spot-a"].status == status
    assert state.upsert(streams.CAPACITY_POOLS, raw_pool(max=3), 4.0)
    assert state.freeze(5.0).pools["spot-a"].most == 3
