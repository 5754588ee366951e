# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Elastic spot-scaling of CapacityPools: a timer and a price of each, and an end in order.

What a timer finds (price, hazard, failed launches, room) is told to the pool and to decisions,
which request nodes of the pools that are best for all jobs together. A pool that is deleted gets
no more requests and stays until those that are out are there or gone, so that what comes is still
counted; bounded, and Events say so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import kopf

from ullage import ports
from ullage.api.contract import JsonObject, Reason, WireError, section
from ullage.api.times import seconds
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.codecs.pool import pool_as_stored
from ullage.cluster.records.pool import PoolRecord, PoolStatus
from ullage.cluster.records.snapshot import ObjectRef
from ullage.cluster.values.lives import KINDS_HELD
from ullage.handlers.frame import Bridge
from ullage.handlers.pool_watch import LOOK_EVERY_S, PoolWatch
from ullage.ports import Clock
from ullage.prices.asked import Prices
from ullage.process.faults import fault_text
from ullage.scheduling.capacity.hazard import Learning
from ullage.scheduling.capacity.pool_status import current, failed, worth_a_write, write_of
from ullage.scheduling.model.plan import Action, Emit

ECHO_S: Final = 60.0
"""A write that the API does not show after so long is written again."""
END_LOOKS_EVERY_S: Final = 1.0
AGAIN_S: Final = 60.0
"""Pause of a pool that could not be looked at."""
_KIND: Final = ports.CAPACITY_POOL
_MOST_S: Final = KINDS_HELD[_KIND]


def is_launching(item: JsonObject) -> bool:
    """Whether instances of a pool were on their way when its status was written."""
    status = item.get("status")
    launching = status.get("launching") if isinstance(status, dict) else None
    return isinstance(launching, int) and launching > 0


class PoolScaling:
    """Looks after pools one by one; called in the operator's loop."""

    def __init__(
        self,
        state: ClusterState,
        watch: PoolWatch,
        prices: Prices,
        *,
        submit: Callable[[Sequence[Action]], None],
        poke: Callable[[str], None],
        epoch: Callable[[], int],
        clock: Clock,
    ) -> None:
        """``submit`` queues writes of the leader of this epoch, ``poke`` asks for a decision."""
        self._state = state
        self._watch = watch
        self._prices = prices
        self._submit = submit
        self._poke = poke
        self._epoch = epoch
        self._clock = clock
        self._told: dict[str, tuple[PoolStatus, float]] = {}
        """What was written last, and when, by uid of the pool."""
        self._ending: dict[str, float] = {}
        """When each was deleted that waits for instances."""

    async def ask(self, pool: ObjectRef) -> None:
        """Ask for its price, if that is due."""
        written = self._written(pool)
        if written is not None:
            await self._prices.ask(written)

    async def scale(self, pool: ObjectRef) -> None:
        """Tell decisions and the API what is known of a pool now.

        Raises:
            Exception: of this pool alone; its status says so.
        """
        self._watch.look()
        written, now = self._written(pool), self._clock.now()
        if written is None:
            self._told.pop(pool.uid, None)
            return
        before = self._told.get(pool.uid, (written.status, now))[0]
        try:
            if pool.uid in self._watch.faults:
                raise self._watch.faults[pool.uid]
            if pool.uid not in self._watch.known:
                return
            seen = self._watch.known[pool.uid]
            learning = Learning.of(self._state.freeze(now).policy.spot)
            news = self._prices.news(pool.uid)
            self._tell(written, current(written, before, seen, news, now, learning), now)
        except Exception as error:
            self._watch.failures += 1
            self._tell(written, failed(written, before, fault_text(error), now), now)
            raise

    async def left(self, pool: ObjectRef, deleted: object) -> int:
        """Instances on their way to a pool that is being deleted; 0 = it may end.

        Args:
            pool: The pool.
            deleted: Since when, as it says itself.
        """
        self._watch.look()
        now, written = self._clock.now(), self._written(pool)
        seen = self._watch.known.get(pool.uid, written.status if written is not None else None)
        launching = seen.launching if seen is not None else 0
        begins = pool.uid not in self._ending
        since_s = self._ending.setdefault(pool.uid, _moment(deleted, now))
        late = now - since_s >= _MOST_S
        if launching and (begins or late):
            text = f"no more are requested; the pool ends after {launching} that come"
            if late:
                text = f"{launching} instances have not come after {_MOST_S:.0f} s: left alone"
            say = Emit(
                target=pool, warning=late, epoch=self._epoch(), reason=Reason.POOL_ENDS, text=text
            )
            self._submit([say])
        if launching and not late:
            return launching
        del self._ending[pool.uid]
        return 0

    def _written(self, pool: ObjectRef) -> PoolRecord | None:
        """A pool as the API shows it; ``None`` = it is gone, or was never readable."""
        written = self._state.pools_written().get(pool.name)
        return written if written is not None and written.uid == pool.uid else None

    def _tell(self, pool: PoolRecord, status: PoolStatus, now: float) -> None:
        told, at_s = self._told.get(pool.uid, (pool.status, now))
        unseen = now - at_s >= ECHO_S and worth_a_write(pool.status, status)
        if not unseen and not worth_a_write(told, status):
            return
        stored, write = pool_as_stored(status), write_of(pool, status, self._epoch())
        self._told[pool.uid] = stored, now
        if self._state.set_pool(pool.uid, stored):
            self._poke("pools")
        self._submit([write])


def register(registry: kopf.OperatorRegistry, bridge: Bridge, scaling: PoolScaling) -> None:
    """Add the handlers of CapacityPools."""
    kind = (_KIND.group, _KIND.version, _KIND.plural)

    @kopf.timer(*kind, registry=registry, id="scales", interval=LOOK_EVERY_S, backoff=AGAIN_S)
    async def scales(name: str, uid: str, **_: Any) -> None:
        await bridge.call(scaling.scale(_reference(name, uid)))

    @kopf.daemon(*kind, registry=registry, id="price", cancellation_timeout=1.0, backoff=AGAIN_S)
    async def price(name: str, uid: str, stopped: kopf.DaemonStopped, **_: Any) -> None:
        while not stopped:
            await bridge.call(scaling.ask(_reference(name, uid)))
            await stopped.wait(LOOK_EVERY_S)

    # kopf holds back every object with a timer (nolar/kopf#833); these need no time to end
    running = registry._spawning._handlers
    running[:] = [replace(handler, requires_finalizer=False) for handler in running]

    @kopf.on.delete(
        *kind,
        registry=registry,
        id="launches-end",
        when=lambda body, **_: bool(body.get("life")),
        backoff=END_LOOKS_EVERY_S,
    )
    async def launches_end(body: kopf.Body, name: str, uid: str, **_: Any) -> None:
        deleted = section(body, "metadata").get("deletionTimestamp")
        while await bridge.call(scaling.left(_reference(name, uid), deleted)):
            await asyncio.sleep(END_LOOKS_EVERY_S)


def _reference(name: str, uid: str) -> ObjectRef:
    return ObjectRef(kind=_KIND.kind, namespace="", name=name, uid=uid)


def _moment(stated: object, now: float) -> float:
    """When a pool was deleted; one that says nonsense is deleted now."""
    try:
        return min(now, seconds(stated, "deletionTimestamp") or now)
    except WireError:
        return now
