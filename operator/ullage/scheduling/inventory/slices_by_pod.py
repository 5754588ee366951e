# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Slices by the pod that they are for: what specs give it, and what nodes report of it.

Kept from cycle to cycle: only the nodes whose record changed are read again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TypeVar

from ullage.api.contract import DesiredSlice, ObservedSlice
from ullage.cluster.records.snapshot import GPUNodeRecord
from ullage.cluster.values.device_ref import DeviceRef
from ullage.scheduling.model.changes import changed

Slice = TypeVar("Slice", bound=DesiredSlice | ObservedSlice)


@dataclass(slots=True)
class SlicesByPod:
    """All slices of the cluster, by uid of their pod: (node, slice) in order of nodes."""

    desired: dict[str, Sequence[tuple[str, DesiredSlice]]] = field(default_factory=dict)
    observed: dict[str, Sequence[tuple[str, ObservedSlice]]] = field(default_factory=dict)
    touched: set[DeviceRef] = field(default_factory=set)
    """Devices that other slices stand on since the last update."""
    _records: Mapping[str, GPUNodeRecord] = field(default_factory=dict)

    def update(self, records: Mapping[str, GPUNodeRecord]) -> set[str]:
        """Read the nodes whose record changed.

        Returns:
            uids of the pods that other slices stand for now, or slices of another age.
        """
        names = changed(self._records, records)
        before = {name: self._records[name] for name in names if name in self._records}
        after = {name: records[name] for name in sorted(names) if name in records}
        self._records, self.touched = records, set()
        pods = _replace(
            self.desired,
            self.touched,
            names,
            [(name, slice_) for name, one in before.items() for slice_ in one.desired],
            [(name, slice_) for name, one in after.items() for slice_ in one.desired],
        )
        pods |= _replace(
            self.observed,
            self.touched,
            names,
            [(name, slice_) for name, one in before.items() for slice_ in one.observed],
            [(name, slice_) for name, one in after.items() for slice_ in one.observed],
        )
        for name in before.keys() & after.keys():
            pods.update(_of_another_age(before[name], after[name]))
        return pods


def _of_another_age(before: GPUNodeRecord, after: GPUNodeRecord) -> Iterator[str]:
    old, new = before.desired_since, after.desired_since
    if old is not new:
        for part in after.desired:
            if old.get(part.key) != new.get(part.key):
                yield part.key.pod_uid


def _replace(
    table: dict[str, Sequence[tuple[str, Slice]]],
    touched: set[DeviceRef],
    nodes: Collection[str],
    before: Iterable[tuple[str, Slice]],
    after: Iterable[tuple[str, Slice]],
) -> set[str]:
    """Enter the slices of some nodes in the place of those before; returns pods with others."""
    read, pods = frozenset(nodes), set[str]()
    fresh: dict[str, list[tuple[str, Slice]]] = {one.key.pod_uid: [] for _, one in before}
    for located in after:
        fresh.setdefault(located[1].key.pod_uid, []).append(located)
    for uid, new in fresh.items():
        old = table.pop(uid, [])
        slices = sorted([*(one for one in old if one[0] not in read), *new], key=itemgetter(0))
        if slices:
            table[uid] = slices
        if slices != old:
            pods.add(uid)
            touched.update(DeviceRef(node, one.gpu) for node, one in (*old, *slices))
    return pods
