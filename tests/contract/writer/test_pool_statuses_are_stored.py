# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A pool's status on the server: stored as written, read back equal, written once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from builders_raw import raw_pool
from fakes.clock import FakeClock
from fakes.mortal import Mortal
from fakes.pool_scaling import Replica
from fakes.small_world import Brain, Cluster, products_decision
from ullage import ports
from ullage.engines.capacity.price import PriceRecord, Quote
from ullage.handlers.times import POOL_REWRITE_S
from ullage.kube.client import K8sCluster
from ullage.scheduling.capacity.pool_status import PriceNews

World = Callable[[], AbstractAsyncContextManager[tuple[Cluster, K8sCluster]]]


async def kept(brain: Brain, replica: Replica, price: float = 0.95) -> int:
    """Look, write what is worth it, and look again; how much was written."""
    brain.look()
    replica.clock.advance(5.0)
    now = replica.clock.now()
    record = PriceRecord(quote=Quote(price_per_hour=price, at_s=now))
    replica.quotes.of = {
        pool.uid: PriceNews(record=record) for pool in brain.state.pools_written().values()
    }
    writes = await replica.scale()
    await brain.carry_out(*writes)
    brain.look()
    return len(writes)


async def test_a_status_is_stored_and_read_back_and_written_once(world: World) -> None:
    async with world() as (cluster, port):
        cluster.server.put(ports.CAPACITY_POOL, raw_pool())
        brain = Brain(Mortal(port), cluster, 7, products_decision)
        replica = Replica(brain.state, FakeClock(cluster.wall.now()))
        assert await kept(brain, replica) == 1
        assert await kept(brain, replica) == 0
        stored = cluster.server.get(ports.CAPACITY_POOL, "spot-a")
        assert stored is not None
        assert stored["status"]["price"] == "0.95"
        assert stored["status"]["available"] is True
        (pool,) = brain.state.pools_written().values()
        assert pool.status == brain.state.freeze(0.0).pools["spot-a"].status
        replica.clock.advance(POOL_REWRITE_S)
        assert await kept(brain, replica) == 0
        restarted = Replica(brain.state, replica.clock)
        assert await kept(brain, restarted) == 0
        assert await kept(brain, replica, price=1.1) == 1
        assert brain.failures == []
        await brain.stop()
