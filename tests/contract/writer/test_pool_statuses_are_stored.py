# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A pool's status on the server: stored as written, read back equal, written once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from builders_raw import raw_pool
from fakes.mortal import Mortal
from fakes.small_world import Brain, Cluster, products_decision
from ullage import ports
from ullage.app.pools import ECHO_S, PoolKeeper
from ullage.engines.capacity.price import PriceRecord, Quote
from ullage.kube.client import K8sCluster
from ullage.scheduling.capacity.prices import PriceNews

World = Callable[[], AbstractAsyncContextManager[tuple[Cluster, K8sCluster]]]


async def kept(brain: Brain, keeper: PoolKeeper, price: float = 0.95) -> int:
    """Look, write what is worth it, and look again; how much was written."""
    brain.look()
    now = brain.wall.now()
    written = brain.state.pools_written()
    news = {
        pool.uid: PriceNews(record=PriceRecord(quote=Quote(price_per_hour=price, at_s=now)))
        for pool in written.values()
    }
    keeper.look(brain.state.freeze(now), written, news, is_leader=True)
    writes = keeper.writes(written, now, epoch=1)
    brain.state.set_pools(keeper.told)
    await brain.carry_out(*writes)
    brain.look()
    return len(writes)


async def test_a_status_is_stored_and_read_back_and_written_once(world: World) -> None:
    async with world() as (cluster, port):
        cluster.server.put(ports.CAPACITY_POOL, raw_pool())
        brain, keeper = Brain(Mortal(port), cluster, 1, products_decision), PoolKeeper()
        assert await kept(brain, keeper) == 1
        assert await kept(brain, keeper) == 0
        stored = cluster.server.get(ports.CAPACITY_POOL, "spot-a")
        assert stored is not None
        assert stored["status"]["price"] == "0.95"
        assert stored["status"]["available"] is True
        (pool,) = brain.state.pools_written().values()
        assert pool.status == keeper.told[pool.uid]
        cluster.wall.seconds += ECHO_S
        assert await kept(brain, keeper) == 0
        assert await kept(brain, PoolKeeper()) == 0  # nor does a restarted operator
        assert await kept(brain, keeper, price=1.1) == 1
        assert brain.failures == []
        await brain.stop()
