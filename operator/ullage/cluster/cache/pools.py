# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""CapacityPools in the snapshot: what the API shows, with what this process knows by now on top.

The leader's own figures are newer than what it wrote of them; a decision sees those. The echo of a
write of ours wakes no one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ullage import ports
from ullage.cluster.cache.stores import Context, PlainStore, name_of
from ullage.cluster.projection.pool import project_pool
from ullage.cluster.records.pool import PoolRecord, PoolStatus
from ullage.ports import JsonObject


class PoolStore(PlainStore[str, PoolRecord]):
    """CapacityPools by name."""

    tells = ports.CAPACITY_POOL.kind

    def __init__(self, stream: str, context: Context) -> None:
        super().__init__(stream, context, name_of, project_pool, lambda pool: pool.uid)
        self._told: dict[str, PoolStatus] = {}
        self._seen: dict[str, tuple[PoolRecord, PoolStatus, PoolRecord]] = {}
        self._view: dict[str, PoolRecord] = {}

    def put(self, raw: JsonObject, now: float) -> bool:
        """Keep a pool as it is now; a status of ours that was read back is no news."""
        held = self.table.get(self.key(raw))
        changed = super().put(raw, now)
        record = self.table.get(self.key(raw))
        if not changed or held is None or record is None or held.uid not in self._told:
            return changed
        return replace(held, status=record.status) != record

    def written(self) -> Mapping[str, PoolRecord]:
        """Every pool as the API shows it, status included."""
        return self.table.view()

    def tell(self, uid: str, status: PoolStatus) -> bool:
        """Sets the known state of a pool; returns whether it is new."""
        if self._told.get(uid) == status:
            return False
        there = {pool.uid for pool in self.table.values()}
        self._told = {uid: told for uid, told in self._told.items() if uid in there}
        self._told[uid] = status
        self.context.touch()
        return True

    def forget_told(self) -> None:
        """The API alone is believed."""
        self._told = {}

    def seen(self) -> Mapping[str, PoolRecord]:
        """Every pool as decisions see it: the very same records as long as nothing changes.

        Without its price source: nothing is decided by it, and its address may be no one's
        business who reads a snapshot.
        """
        kept: dict[str, tuple[PoolRecord, PoolStatus, PoolRecord]] = {}
        for name, record in self.table.view().items():
            told = self._told.get(record.uid, record.status)
            known = self._seen.get(name)
            if known is None or known[0] is not record or known[1] is not told:
                known = record, told, replace(record, status=told, price_source=None)
            kept[name] = known
        if any(kept.get(name) is not known for name, known in self._seen.items()) or len(
            kept
        ) != len(self._seen):
            self._view = {name: known[2] for name, known in kept.items()}
        self._seen = kept
        return self._view
