# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Tracks CapacityPools: observes their nodes, informs decisions, writes statuses.

Every replica looks, so that a standby that takes over knows what happened in between; only the
leader tells and writes. A cluster without pools costs nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import structlog

from ullage.cluster.codecs.pool import pool_as_stored
from ullage.cluster.records.pool import PoolRecord, PoolStatus
from ullage.cluster.records.snapshot import Snapshot
from ullage.process.faults import fault_text
from ullage.scheduling.capacity.hazard import Learning
from ullage.scheduling.capacity.pool_status import current, failed, worth_a_write, write_of
from ullage.scheduling.capacity.prices import PriceNews
from ullage.scheduling.inventory.instances import Watch, look
from ullage.scheduling.model.plan import SetPoolStatus

log = structlog.get_logger("ullage.pools")

ECHO_S: Final = 60.0
"""A write that the API does not show after so long is written again."""


class PoolKeeper:
    """Remembers what was seen of the pools; everything else is in the snapshot."""

    def __init__(self) -> None:
        self._watch = Watch()
        self._known: dict[str, PoolStatus] = {}
        self._told: dict[str, tuple[PoolStatus, float]] = {}
        self._faults: dict[str, str] = {}
        self.failures = 0
        """Looks at one pool, or writes of it, that raised."""

    @property
    def told(self) -> Mapping[str, PoolStatus]:
        """The figures for decisions, by uid of the pool."""
        return {uid: status for uid, (status, _) in self._told.items()}

    def look(
        self,
        snapshot: Snapshot,
        written: Mapping[str, PoolRecord],
        news: Mapping[str, PriceNews],
        *,
        is_leader: bool,
    ) -> None:
        """Take in what happened since the last look.

        Args:
            snapshot: The snapshot, whose time is the moment of the look.
            written: The pools as the API shows them.
            news: What asking for prices has brought, by uid of the pool.
            is_leader: This replica asks for prices itself; else it believes what the leader wrote.
        """
        if not written and not self._known:
            return
        now, learning = snapshot.taken_at, Learning.of(snapshot.policy.spot)
        self._watch, sightings = look(self._watch, snapshot, written.values(), now)
        known: dict[str, PoolStatus] = {}
        for pool in written.values():
            if pool.uid not in sightings:
                continue
            before = self._known.get(pool.uid, pool.status)
            if not is_leader:
                before = _as_the_leader_prices(before, pool.status)
            seen = sightings[pool.uid]
            try:
                known[pool.uid] = current(pool, before, seen, news.get(pool.uid), now, learning)
            except Exception as error:  # the seam of one pool: the others are looked at
                self._failed(pool, error)
                known[pool.uid] = failed(pool, before, fault_text(error), now)
        self._known = known
        self._faults = {uid: text for uid, text in self._faults.items() if uid in known}
        self._told = {uid: told for uid, told in self._told.items() if uid in known}

    def writes(
        self, written: Mapping[str, PoolRecord], now: float, epoch: int
    ) -> tuple[SetPoolStatus, ...]:
        """Writes that bring the API and decisions up to date.

        Args:
            written: The pools as the API shows them.
            now: Seconds since the epoch.
            epoch: Epoch of this leader.
        """
        found: list[SetPoolStatus] = []
        for name in sorted(written):
            pool = written[name]
            status = self._known.get(pool.uid)
            try:
                if status is None or not self._due(pool, status, now):
                    continue
                stored, write = pool_as_stored(status), write_of(pool, status, epoch)
            except Exception as error:  # the seam of one pool: the others are written
                self._failed(pool, error)
                continue
            self._told[pool.uid] = stored, now
            found.append(write)
        return tuple(found)

    def _failed(self, pool: PoolRecord, error: Exception) -> None:
        """Tell a failure in the log, once while it stays the same."""
        self.failures += 1
        text = fault_text(error)
        if self._faults.get(pool.uid) != text:
            self._faults[pool.uid] = text
            log.error("pool not understood", pool=pool.name, error=text, exc_info=error)

    def forget_told(self) -> None:
        """Another leader may write from now on."""
        self._told = {}

    def _due(self, pool: PoolRecord, status: PoolStatus, now: float) -> bool:
        told = self._told.get(pool.uid)
        if told is None:
            return worth_a_write(pool.status, status)
        if worth_a_write(told[0], status):
            return True
        return now - told[1] >= ECHO_S and worth_a_write(pool.status, status)


def _as_the_leader_prices(known: PoolStatus, written: PoolStatus) -> PoolStatus:
    return replace(
        known,
        price=written.price,
        priced_at_s=written.priced_at_s,
        conditions=written.conditions,
    )
