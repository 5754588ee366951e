# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""kopf for as long as a leadership lasts: its handlers, its patches, the fence."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import kopf

from ullage.app.replica import Replica
from ullage.handlers import ends, pools
from ullage.handlers.ends import LeaderContext
from ullage.handlers.frame import Bridge
from ullage.handlers.kinds import LIVES
from ullage.handlers.pools import PoolScaling
from ullage.ports import JsonObject, JsonPatch, Kind, Unavailable
from ullage.prices.asked import Prices
from ullage.prices.fetcher import Fetcher
from ullage.prices.source import Where
from ullage.scheduling.model.plan import Action


class Lives:
    """kopf of one leadership."""

    def __init__(self, replica: Replica, submit: Callable[[Sequence[Action]], None]) -> None:
        """``submit`` queues writes."""
        self._replica = replica
        self._leader = LeaderContext(
            state=replica.state,
            pool_watch=replica.pool_watch,
            clock=replica.clock,
            epoch=lambda: replica.lease.epoch,
            submit=submit,
            poke=replica.trigger.poke,
        )
        state, clock, settings = replica.state, replica.clock, replica.settings.price
        self._fetcher = Fetcher(
            replica.cluster,
            environment=os.environ,
            file_root=settings.file_root,
            timeout_s=settings.timeout_seconds,
            now=clock.now,
        )
        prices = Prices(
            self._fetcher,
            lambda: state.pools_written().values(),
            clock=clock,
            where=Where(namespace=replica.settings.lease.namespace, file_root=settings.file_root),
            period_s=settings.period_seconds,
            answers=replica.counters.price_answers,
        )
        self._scaling = PoolScaling(self._leader, prices)

    async def run(self) -> None:
        """Care until cancelled.

        Raises:
            RuntimeError: kopf ended by itself.
        """
        try:
            await self._replica.frame.run(self._send, self._register)
        finally:
            await self._fetcher.close()

    async def tell_unheld(self) -> None:
        """Tell owners of objects that end in any order, until cancelled."""
        await ends.tell_unheld(self._leader, self._replica.mirror)

    def _register(self, registry: kopf.OperatorRegistry, bridge: Bridge) -> None:
        for life in LIVES:
            ends.register(registry, bridge, life, self._leader)
        pools.register(registry, bridge, self._scaling)

    async def _send(self, kind: Kind, namespace: str, name: str, patch: JsonPatch) -> JsonObject:
        """Patch finalizers of ours, as long as the Lease is held.

        Raises:
            ApiError: it is not, or the API server refuses.
        """
        if not self._replica.lease.held_for_write():
            raise Unavailable(503, "this replica does not lead")
        return await self._replica.cluster.json_patch(kind, name, patch, namespace=namespace)
