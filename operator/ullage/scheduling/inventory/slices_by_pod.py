# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Slices by the pod that they are for: what specs give it, and what nodes report of it.

Kept from cycle to cycle: only the nodes whose record changed are read again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TypeVar

from ullage.api.slices import DesiredSlice, ObservedSlice
from ullage.cluster.records.snapshot import GPUNodeRecord
from ullage.cluster.values.device_ref import DeviceRef

Slice = TypeVar("Slice", bound=DesiredSlice | ObservedSlice)


@dataclass(slots=True)
class SlicesByPod:
    """All slices of the cluster, by uid of their pod: (node, slice) in order of nodes."""

    desired: dict[str, Sequence[tuple[str, DesiredSlice]]] = field(default_factory=dict)
    observed: dict[str, Sequence[tuple[str, ObservedSlice]]] = field(default_factory=dict)
    touched: set[DeviceRef] = field(default_factory=set)
    """Devices that other slices stand on since the last update."""
    _records: Mapping[str, GPUNodeRecord] = field(default_factory=dict)

    def update(self, names: Collection[str], records: Mapping[str, GPUNodeRecord]) -> set[str]:
        """Read the nodes whose record changed.

        Args:
            names: Nodes whose record is another one than at the last update, new or gone.
            records: The records of all nodes.

        Returns:
            uids of the pods that other slices stand for now, or slices of another age.
        """
        before = {name: self._records[name] for name in names if name in self._records}
        after = {name: records[name] for name in sorted(names) if name in records}
        self._records, self.touched = records, set()
        desired = [
            _others(
                name,
                before[name].desired if name in before else (),
                after[name].desired if name in after else (),
            )
            for name in names
        ]
        observed = [
            _others(
                name,
                before[name].observed if name in before else (),
                after[name].observed if name in after else (),
            )
            for name in names
        ]
        pods = _replace(self.desired, self.touched, desired)
        pods |= _replace(self.observed, self.touched, observed)
        for name in before.keys() & after.keys():
            pods.update(_of_another_age(before[name], after[name]))
        return pods


def _of_another_age(before: GPUNodeRecord, after: GPUNodeRecord) -> Iterator[str]:
    old, new = before.desired_since, after.desired_since
    if old is not new:
        for part in after.desired:
            if old.get(part.key) != new.get(part.key):
                yield part.key.pod_uid


def _others(
    name: str, before: Sequence[Slice], after: Sequence[Slice]
) -> tuple[list[tuple[str, Slice]], list[tuple[str, Slice]]]:
    """Slices on a node, before and after, of the pods of which any is another object."""
    if before is after:
        return [], []
    olds, news = set(map(id, before)), set(map(id, after))
    uids = {one.key.pod_uid for one in before if id(one) not in news}
    uids.update(one.key.pod_uid for one in after if id(one) not in olds)
    return (
        [(name, one) for one in before if one.key.pod_uid in uids],
        [(name, one) for one in after if one.key.pod_uid in uids],
    )


def _replace(
    table: dict[str, Sequence[tuple[str, Slice]]],
    touched: set[DeviceRef],
    others: Sequence[tuple[Sequence[tuple[str, Slice]], Sequence[tuple[str, Slice]]]],
) -> set[str]:
    """Enter other slices of some nodes in the place of those before; returns pods with others."""
    pods = set[str]()
    fresh: dict[str, list[tuple[str, Slice]]] = {}
    read: dict[str, set[str]] = {}
    for before, after in others:
        for node, one in before:
            fresh.setdefault(one.key.pod_uid, [])
            read.setdefault(one.key.pod_uid, set()).add(node)
        for located in after:
            fresh.setdefault(located[1].key.pod_uid, []).append(located)
    for uid, new in fresh.items():
        old, away = table.pop(uid, []), read.get(uid, ())
        slices = sorted([*(one for one in old if one[0] not in away), *new], key=itemgetter(0))
        if slices:
            table[uid] = slices
        if slices != old:
            pods.add(uid)
            touched.update(DeviceRef(node, one.gpu) for node, one in (*old, *slices))
    return pods
