# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Watches the instances of all pools, on every replica; nothing is written.

kopf runs on the leader alone. A replica that comes to lead knows from here the instances that were
lost before, and those that someone wanted to go. A cluster without pools costs nothing.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.records.pool import PoolStatus
from ullage.handlers.times import POOL_LOOK_S, POOL_LOOK_SHARED_S
from ullage.ports import Clock
from ullage.scheduling.capacity.hazard import Learning, observed
from ullage.scheduling.inventory.instances import Watch, look


class PoolWatch:
    """Remembers what was seen; everything else is in the snapshot."""

    def __init__(self, state: ClusterState, *, synced: Callable[[], bool], clock: Clock) -> None:
        """``synced`` says whether the snapshot is whole: half a picture is not looked at."""
        self._state = state
        self._synced = synced
        self._clock = clock
        self._watch = Watch()
        self.known: dict[str, PoolStatus] = {}
        """Observed state of each pool by its uid, prices and conditions aside."""
        self.faults: dict[str, Exception] = {}
        """Errors of the last look, by uid of the pool."""
        self._looked_at = -math.inf
        self.failures = 0
        """Looks at one pool, or writes of it, that raised."""

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(POOL_LOOK_S)

    def look(self) -> None:
        """Take in what happened since the last look."""
        moment, written = self._clock.monotonic(), self._state.pools_written()
        if moment - self._looked_at < POOL_LOOK_SHARED_S or not self._synced():
            return
        if not written and not self.known:
            return
        self._looked_at = moment
        now = self._clock.now()
        snapshot = self._state.freeze(now)
        learning = Learning.of(snapshot.policy.spot)
        self._watch, sightings = look(self._watch, snapshot, written.values(), now)
        before, self.known, self.faults = self.known, {}, {}
        for pool in written.values():
            if pool.uid not in sightings:
                continue
            status = before.get(pool.uid, pool.status)
            try:
                status = observed(pool, status, sightings[pool.uid], now, learning)
            except Exception as error:  # the other pools are looked at
                self.faults[pool.uid] = error
            self.known[pool.uid] = status
