# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Maintains the statuses of CapacityPools, as one task of the operator.

Two loops, one that asks for prices and one that looks at nodes and tells; neither waits for the
other, and deciding waits for neither.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ullage.app.pools import PoolKeeper
from ullage.app.prices import PriceLoop
from ullage.app.settings import PriceSettings
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.records.pool import PoolRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.metrics.pools import PoolFigures, pool_figures
from ullage.ports import Clock, ClusterPort
from ullage.prices.fetcher import Fetcher
from ullage.prices.source import Where
from ullage.scheduling.model.plan import SetPoolStatus

LOOK_EVERY_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Connections of the service to the rest of the operator.

    Attributes:
        synced: The snapshot is whole.
        epoch: Of this leader; ``None`` where this replica does not lead.
        submit: Queues writes.
        poke: Wishes for a decision, with a reason.
    """

    synced: Callable[[], bool]
    epoch: Callable[[], int | None]
    submit: Callable[[Sequence[SetPoolStatus]], None]
    poke: Callable[[str], None]


class PoolService:
    """Prices and hazards of all pools."""

    def __init__(
        self,
        cluster: ClusterPort,
        state: ClusterState,
        hooks: Hooks,
        *,
        clock: Clock,
        settings: PriceSettings,
        namespace: str,
        environment: Mapping[str, str],
    ) -> None:
        """``namespace`` is the operator's own, ``environment`` the process's."""
        self._currency = settings.currency
        self._state = state
        self._hooks = hooks
        self._clock = clock
        self._fetcher = Fetcher(
            cluster,
            environment=environment,
            file_root=settings.file_root,
            timeout_s=settings.timeout_seconds,
            now=clock.now,
        )
        self._prices = PriceLoop(
            self._fetcher,
            self._to_ask_for,
            clock=clock,
            where=Where(namespace=namespace, file_root=settings.file_root),
            period_s=settings.period_seconds,
        )
        self._keeper = PoolKeeper()

    async def run(self) -> None:
        """Ask and look until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._prices.run())
                tasks.create_task(self._look())
        finally:
            await self._fetcher.close()

    def look(self) -> None:
        """Take in what happened, tell decisions, write what is worth it."""
        if not self._hooks.synced():
            return
        epoch, written = self._hooks.epoch(), self._state.pools_written()
        snapshot = self._state.freeze(self._clock.now())
        self._keeper.look(snapshot, written, self._prices.news, is_leader=epoch is not None)
        if epoch is None:
            return
        writes = self._keeper.writes(written, snapshot.taken_at, epoch)
        if self._state.set_pools(self._keeper.told):
            self._hooks.poke("pools")
        if writes:
            self._hooks.submit(writes)

    def end_term(self) -> None:
        """This replica leads no more: what it wrote last may never have arrived."""
        self._keeper.forget_told()

    def figures(self, snapshot: Snapshot) -> PoolFigures:
        """Figures of the metrics."""
        return pool_figures(
            snapshot.pools.values(),
            dict(self._prices.figures.answers),
            self._keeper.failures,
            self._currency,
        )

    async def _look(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(LOOK_EVERY_S)

    def _to_ask_for(self) -> Iterable[PoolRecord]:
        """Every pool, where this replica leads."""
        if self._hooks.epoch() is None or not self._hooks.synced():
            return ()
        return self._state.pools_written().values()
