# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Elastic spot-scaling of CapacityPools: a timer and a price for each, and an ordered end.

A timer writes price, hazard, failed launches and room to the pool and to decisions, which request
nodes of the pools that are best for all jobs together. A deleted pool gets no more requests and
stays until the pending ones have arrived or failed, so that they are still counted; bounded, with
Events.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import kopf

from ullage import ports
from ullage.api.readers import JsonObject
from ullage.api.reasons import Reason
from ullage.cluster.codecs.status import pool_as_stored
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.pool import PoolRecord, PoolStatus
from ullage.handlers.ends import LeaderContext, Left, Life, field_at
from ullage.handlers.frame import Bridge
from ullage.handlers.times import POOL_LOOK_S, POOL_RETRY_S, POOL_REWRITE_S
from ullage.prices.asked import Prices
from ullage.process.faults import fault_text
from ullage.scheduling.capacity.hazard import Learning
from ullage.scheduling.capacity.pool_status import current, failed, worth_a_write, write_of

_KIND: Final = ports.CAPACITY_POOL


def is_launching(item: JsonObject) -> bool:
    """True when instances of a pool were pending when its status was written."""
    launching = field_at(item, "status", "launching")
    return isinstance(launching, int) and launching > 0


def left(leader: LeaderContext, pool: ObjectRef, _: float) -> Left:
    """Pending instances, as last observed here or else by its status."""
    leader.pool_watch.look()
    written = leader.state.pools_written().get(pool.name)
    before = written.status if written is not None and written.uid == pool.uid else PoolStatus()
    launching = leader.pool_watch.known.get(pool.uid, before).launching
    begins = "no more instances are requested; it goes after those on their way"
    text = f"{launching} instances on their way are"
    return Left(text=text, begins=begins) if launching else Left()


LIFE: Final = Life(kind=_KIND, reason=Reason.POOL_ENDS, lives=is_launching, left=left, owns=False)


class PoolScaling:
    """Handles pools one by one; called in the operator's loop."""

    def __init__(self, leader: LeaderContext, prices: Prices) -> None:
        """``prices`` are those of this leadership."""
        self._leader = leader
        self._prices = prices
        self._told: dict[str, tuple[PoolStatus, float]] = {}
        """Last written status, and its time, by uid of the pool."""

    async def ask(self, pool: ObjectRef) -> None:
        """Query its price, if due."""
        written = self._written(pool)
        if written is not None:
            await self._prices.ask(written)

    async def scale(self, pool: ObjectRef) -> None:
        """Give decisions and the API the current state of a pool.

        Raises:
            Exception: of this pool alone; its status has the error.
        """
        watch = self._leader.pool_watch
        watch.look()
        written, now = self._written(pool), self._leader.clock.now()
        if written is None:
            self._told.pop(pool.uid, None)
            return
        before = self._told.get(pool.uid, (written.status, now))[0]
        try:
            if pool.uid in watch.faults:
                raise watch.faults[pool.uid]
            if pool.uid not in watch.known:
                return
            seen = watch.known[pool.uid]
            learning = Learning.of(self._leader.state.freeze(now).policy.spot)
            news = self._prices.news(pool.uid)
            self._tell(written, current(written, before, seen, news, now, learning), now)
        except Exception as error:
            watch.failures += 1
            self._tell(written, failed(written, before, fault_text(error), now), now)
            raise

    def _written(self, pool: ObjectRef) -> PoolRecord | None:
        """A pool as in the API; ``None`` = it is deleted, or was never readable."""
        written = self._leader.state.pools_written().get(pool.name)
        return written if written is not None and written.uid == pool.uid else None

    def _tell(self, pool: PoolRecord, status: PoolStatus, now: float) -> None:
        last, at_s = self._told.get(pool.uid, (pool.status, now))
        unseen = now - at_s >= POOL_REWRITE_S and worth_a_write(pool.status, status)
        if not unseen and not worth_a_write(last, status):
            return
        stored, write = pool_as_stored(status), write_of(pool, status, self._leader.epoch())
        self._told[pool.uid] = stored, now
        if self._leader.state.set_pool(pool.uid, stored):
            self._leader.poke("pools")
        self._leader.submit([write])


def register(registry: kopf.OperatorRegistry, bridge: Bridge, scaling: PoolScaling) -> None:
    """Add the handlers of CapacityPools."""
    kind = (_KIND.group, _KIND.version, _KIND.plural)

    @kopf.timer(*kind, registry=registry, id="scales", interval=POOL_LOOK_S, backoff=POOL_RETRY_S)
    async def scales(name: str, uid: str, **_: Any) -> None:
        await bridge.call(scaling.scale(_reference(name, uid)))

    @kopf.daemon(
        *kind, registry=registry, id="price", cancellation_timeout=1.0, backoff=POOL_RETRY_S
    )
    async def price(name: str, uid: str, stopped: kopf.DaemonStopped, **_: Any) -> None:
        while not stopped:
            await bridge.call(scaling.ask(_reference(name, uid)))
            await stopped.wait(POOL_LOOK_S)

    # kopf holds back every object with a timer (nolar/kopf#833); these need no time to end
    running = registry._spawning._handlers
    running[:] = [replace(handler, requires_finalizer=False) for handler in running]


def _reference(name: str, uid: str) -> ObjectRef:
    return ObjectRef(kind=_KIND.kind, namespace="", name=name, uid=uid)
