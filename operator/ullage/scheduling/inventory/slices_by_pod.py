# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Slices by the pod that they are for: what specs give it, and what nodes report of it.

Kept from cycle to cycle: only the nodes whose record changed are read again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TypeVar

from ullage.api.contract import DesiredSlice, ObservedSlice
from ullage.cluster.records.snapshot import GPUNodeRecord
from ullage.scheduling.model.changes import changed

Slice = TypeVar("Slice", bound=DesiredSlice | ObservedSlice)


@dataclass(slots=True)
class SlicesByPod:
    """All slices of the cluster, by uid of their pod: (node, slice) in order of nodes."""

    desired: dict[str, Sequence[tuple[str, DesiredSlice]]] = field(default_factory=dict)
    observed: dict[str, Sequence[tuple[str, ObservedSlice]]] = field(default_factory=dict)
    _records: Mapping[str, GPUNodeRecord] = field(default_factory=dict)

    def update(self, records: Mapping[str, GPUNodeRecord]) -> set[str]:
        """Read the nodes whose record changed.

        Returns:
            uids of all pods that have, or had, a slice on one of them.
        """
        names = changed(self._records, records)
        before = [self._records[name] for name in names if name in self._records]
        after = [records[name] for name in sorted(names) if name in records]
        self._records = records
        read = set(names)
        return _replace(
            self.desired,
            read,
            [(one.name, slice_) for one in before for slice_ in one.desired],
            [(one.name, slice_) for one in after for slice_ in one.desired],
        ) | _replace(
            self.observed,
            read,
            [(one.name, slice_) for one in before for slice_ in one.observed],
            [(one.name, slice_) for one in after for slice_ in one.observed],
        )


def _replace(
    table: dict[str, Sequence[tuple[str, Slice]]],
    nodes: Collection[str],
    before: Iterable[tuple[str, Slice]],
    after: Iterable[tuple[str, Slice]],
) -> set[str]:
    """Enter the slices of some nodes in the place of those before; returns the pods of both."""
    fresh: dict[str, list[tuple[str, Slice]]] = {one.key.pod_uid: [] for _, one in before}
    for located in after:
        fresh.setdefault(located[1].key.pod_uid, []).append(located)
    for uid, new in fresh.items():
        slices = [*(one for one in table.pop(uid, ()) if one[0] not in nodes), *new]
        if slices:
            table[uid] = sorted(slices, key=itemgetter(0))
    return set(fresh)
