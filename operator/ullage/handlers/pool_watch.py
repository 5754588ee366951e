# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Watches the instances of all pools, on every replica; nothing is written.

kopf runs on the leader alone. This module gives a new leader the instances that were lost before,
and those that were removed on purpose. A cluster without pools costs nothing.
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
    """Stores observations; all other state is in the snapshot."""

    def __init__(self, state: ClusterState, *, synced: Callable[[], bool], clock: Clock) -> None:
        """``synced`` returns true for a complete snapshot: an incomplete one is not observed."""
        self._state = state
        self._synced = synced
        self._clock = clock
        self._watch = Watch()
        self.known: dict[str, PoolStatus] = {}
        """Observed state of each pool by its uid, without prices and conditions."""
        self.faults: dict[str, Exception] = {}
        """Errors of the last observation, by uid of the pool."""
        self._looked_at = -math.inf
        self.failures = 0
        """Observations or writes of one pool that raised."""

    async def run(self) -> None:
        """Observe until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(POOL_LOOK_S)

    def look(self) -> None:
        """Process the changes since the last observation."""
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
            except Exception as error:  # the other pools are still observed
                self.faults[pool.uid] = error
            self.known[pool.uid] = status
