# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""kopf for as long as a leadership lasts: its handlers, its patches, the fence."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

import kopf

from ullage.app.replica import Replica
from ullage.handlers import ends, pools
from ullage.handlers.ends import Ends
from ullage.handlers.frame import Bridge
from ullage.handlers.kinds import LIVES
from ullage.handlers.pools import PoolScaling
from ullage.kube.client import JSON_PATCH, MERGE_PATCH
from ullage.ports import BadRequest, JsonObject, Kind, Unavailable
from ullage.prices.asked import Prices
from ullage.prices.fetcher import Fetcher
from ullage.prices.source import Where
from ullage.scheduling.model.plan import Action


class Lives:
    """kopf of one leadership."""

    def __init__(self, replica: Replica, submit: Callable[[Sequence[Action]], None]) -> None:
        """``submit`` queues writes."""
        self._replica = replica
        self._ends = Ends(
            replica.state, submit=submit, epoch=lambda: replica.lease.epoch, clock=replica.clock
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
        self._scaling = PoolScaling(
            state,
            replica.pool_watch,
            prices,
            submit=submit,
            poke=replica.trigger.poke,
            epoch=lambda: replica.lease.epoch,
            clock=clock,
        )

    async def run(self) -> None:
        """Care until cancelled.

        Raises:
            RuntimeError: kopf ended by itself.
        """
        try:
            await self._replica.frame.run(self._send, self._register)
        finally:
            await self._fetcher.close()

    def _register(self, registry: kopf.OperatorRegistry, bridge: Bridge) -> None:
        for life in LIVES:
            ends.register(registry, bridge, life, self._ends)
        pools.register(registry, bridge, self._scaling)

    async def _send(
        self, kind: Kind, namespace: str, name: str, content_type: str, body: object
    ) -> JsonObject:
        """Patch finalizers or annotations of ours, as long as the Lease is held.

        Raises:
            ApiError: it is not, or the API server refuses.
        """
        if not self._replica.lease.held_for_write():
            raise Unavailable(503, "this replica does not lead")
        cluster = self._replica.cluster
        if content_type == JSON_PATCH and isinstance(body, list):
            return await cluster.json_patch(kind, name, body, namespace=namespace)
        if content_type == MERGE_PATCH and isinstance(body, Mapping):
            return await cluster.merge_patch(kind, name, body, namespace=namespace)
        raise BadRequest(400, f"a patch of type {content_type}")
