# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Instances are watched on every replica; the leader tells, writes, and is never half blind."""

from __future__ import annotations

import asyncio

import pytest

from builders_raw import raw_pool
from fakes.clock import FakeClock
from fakes.pool_scaling import Replica, reference
from ullage.app.effects import effect_of
from ullage.app.settings import settings_from
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.values import streams
from ullage.process.environment import SettingsError


@pytest.fixture
def replica() -> Replica:
    state = ClusterState(effect_of)
    state.upsert(streams.CAPACITY_POOLS, raw_pool(), 0.0)
    return Replica(state, FakeClock())


def hazard(replica: Replica) -> float | None:
    return replica.state.freeze(0.0).pools["spot-a"].status.hazard_per_hour


async def test_the_leader_tells_and_writes(replica: Replica) -> None:
    (write,) = await replica.scale()
    assert (write.epoch, replica.pokes, hazard(replica)) == (7, ["pools"], 0.01)
    replica.clock.advance(5.0)
    assert await replica.scale() == []
    assert replica.pokes == ["pools"]


async def test_a_standby_looks_and_stays_silent(replica: Replica) -> None:
    task = asyncio.create_task(replica.watch.run())
    while not replica.watch.known:
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (replica.writes, replica.pokes, hazard(replica)) == ([], [], None)


async def test_half_a_picture_is_not_looked_at(replica: Replica) -> None:
    replica.synced = False
    assert await replica.scale() == []
    assert replica.watch.known == {}


async def test_many_pools_share_one_look(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def look(*_: object) -> tuple[object, dict[str, object]]:
        nonlocal looks
        looks += 1
        return None, {}

    monkeypatch.setattr("ullage.handlers.pool_watch.look", look)
    for number in range(50):
        replica.state.upsert(streams.CAPACITY_POOLS, raw_pool(f"p-{number}"), 0.0)
    await replica.scale()
    assert looks == 1


async def test_a_pool_of_another_uid_is_another(replica: Replica) -> None:
    await replica.scaling.scale(reference(uid="before"))
    await replica.scaling.ask(reference(uid="before"))
    assert replica.writes == []


def test_settings_that_would_flood_a_source_are_refused() -> None:
    assert settings_from({"ULLAGE_PRICE_PERIOD_SECONDS": "60"}).price.period_seconds == 60.0
    for name, value in (("PERIOD", "1"), ("TIMEOUT", "0")):
        with pytest.raises(SettingsError, match="ULLAGE_PRICE_PERIOD_SECONDS must be"):
            settings_from({f"ULLAGE_PRICE_{name}_SECONDS": value})
