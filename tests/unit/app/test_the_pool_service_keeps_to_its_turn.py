# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pools are looked at on every replica, told and written by the leader, never half blind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from builders_raw import raw_node, raw_pool
from fakes.clock import FakeClock
from ullage.app.effects import effect_of
from ullage.app.pool_service import Hooks, PoolService
from ullage.app.settings import PriceSettings, settings_from
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.values import streams
from ullage.ports import JsonObject, Kind
from ullage.process.environment import SettingsError
from ullage.scheduling.model.plan import SetPoolStatus


class Replica:
    """One operator's pools, without the rest of it."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.synced = True
        self.epoch: int | None = 7
        self.writes: list[SetPoolStatus] = []
        self.pokes: list[str] = []
        self.state = ClusterState(effect_of)
        self.state.upsert(streams.CAPACITY_POOLS, raw_pool(nodeSelector={"zone": "a"}), 0.0)
        self.service = PoolService(
            self,
            self.state,
            Hooks(
                synced=lambda: self.synced,
                epoch=lambda: self.epoch,
                submit=self.submit,
                poke=self.pokes.append,
            ),
            clock=self.clock,
            settings=PriceSettings(),
            namespace="house",
            environment={},
        )

    async def get(self, kind: Kind, name: str, *, namespace: str = "") -> JsonObject:
        raise AssertionError("no price of a ConfigMap was asked for")

    def submit(self, writes: Sequence[SetPoolStatus]) -> None:
        self.writes.extend(writes)


@pytest.fixture
def replica() -> Replica:
    return Replica()


def test_the_leader_tells_and_writes(replica: Replica) -> None:
    replica.service.look()
    (write,) = replica.writes
    assert write.epoch == 7
    assert replica.pokes == ["pools"]
    status = replica.state.freeze(0.0).pools["spot-a"].status
    assert status.hazard_per_hour == 0.01
    replica.service.look()
    assert (len(replica.writes), replica.pokes) == (1, ["pools"])


def test_a_standby_looks_and_stays_silent(replica: Replica) -> None:
    replica.epoch = None
    replica.service.look()
    assert (replica.writes, replica.pokes) == ([], [])
    assert replica.state.freeze(0.0).pools["spot-a"].status.hazard_per_hour is None


def test_half_a_picture_is_not_looked_at(replica: Replica) -> None:
    replica.synced = False
    replica.service.look()
    assert replica.writes == []


async def test_it_asks_and_looks_until_it_is_cancelled(replica: Replica) -> None:
    replica.state.upsert(streams.NODES, raw_node(), 0.0)
    task = asyncio.create_task(replica.service.run())
    async with asyncio.timeout(30):
        while not replica.writes or not replica.service.figures(replica.state.freeze(0.0)).answers:
            await asyncio.sleep(0.01)
    replica.service.look()
    assert replica.state.freeze(0.0).pools["spot-a"].status.price == 0.95
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()


def test_settings_that_would_flood_a_source_are_refused() -> None:
    assert settings_from({"ULLAGE_PRICE_PERIOD_SECONDS": "60"}).price.period_seconds == 60.0
    for name, value in (("PERIOD", "1"), ("TIMEOUT", "0")):
        with pytest.raises(SettingsError, match="ULLAGE_PRICE_PERIOD_SECONDS must be"):
            settings_from({f"ULLAGE_PRICE_{name}_SECONDS": value})
