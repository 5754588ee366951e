# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Slices in the specs and reports of nodes: by their pod, and paired.

Slices by pod are kept from cycle to cycle: only nodes with a changed record are read again.
Capacity is free only when a slice is in neither spec nor report, so every slice counts once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TypeVar

from ullage.api.slices import DesiredSlice, ObservedSlice, SlicePhase
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.values.device_ref import DeviceRef
from ullage.scheduling.model.view import View

Slice = TypeVar("Slice", bound=DesiredSlice | ObservedSlice)


@dataclass(slots=True)
class SlicesByPod:
    """All slices of the cluster, by uid of their pod: (node, slice) in order of nodes."""

    desired: dict[str, Sequence[tuple[str, DesiredSlice]]] = field(default_factory=dict)
    observed: dict[str, Sequence[tuple[str, ObservedSlice]]] = field(default_factory=dict)
    touched: set[DeviceRef] = field(default_factory=set)
    """Devices whose slices changed at the last update."""
    _records: Mapping[str, GPUNodeRecord] = field(default_factory=dict)

    def update(self, names: Collection[str], records: Mapping[str, GPUNodeRecord]) -> set[str]:
        """Read the nodes with a changed record.

        Args:
            names: Nodes whose record differs from the last update, new or deleted.
            records: The records of all nodes.

        Returns:
            uids of the pods whose slices, or the age of these, changed.
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
            old, new = before[name].desired_since, after[name].desired_since
            if old is not new:
                pods.update(
                    part.key.pod_uid
                    for part in after[name].desired
                    if old.get(part.key) != new.get(part.key)
                )
        return pods


def _others(
    name: str, before: Sequence[Slice], after: Sequence[Slice]
) -> tuple[list[tuple[str, Slice]], list[tuple[str, Slice]]]:
    """Slices on a node, before and after, of the pods with any changed one."""
    if before is after:
        return [], []
    olds, news = set(map(id, before)), set(map(id, after))
    uids = {part.key.pod_uid for part in before if id(part) not in news}
    uids.update(part.key.pod_uid for part in after if id(part) not in olds)
    return (
        [(name, part) for part in before if part.key.pod_uid in uids],
        [(name, part) for part in after if part.key.pod_uid in uids],
    )


def _replace(
    table: dict[str, Sequence[tuple[str, Slice]]],
    touched: set[DeviceRef],
    others: Sequence[tuple[Sequence[tuple[str, Slice]], Sequence[tuple[str, Slice]]]],
) -> set[str]:
    """Replace the slices of some nodes; returns pods with changed ones."""
    pods = set[str]()
    fresh: dict[str, list[tuple[str, Slice]]] = {}
    read: dict[str, set[str]] = {}
    for before, after in others:
        for node, part in before:
            fresh.setdefault(part.key.pod_uid, [])
            read.setdefault(part.key.pod_uid, set()).add(node)
        for located in after:
            fresh.setdefault(located[1].key.pod_uid, []).append(located)
    for uid, new in fresh.items():
        old, away = table.pop(uid, []), read.get(uid, ())
        slices = sorted(
            [*(located for located in old if located[0] not in away), *new], key=itemgetter(0)
        )
        if slices:
            table[uid] = slices
        if slices != old:
            pods.add(uid)
            touched.update(DeviceRef(node, part.gpu) for node, part in (*old, *slices))
    return pods


def paired(record: GPUNodeRecord) -> Iterator[tuple[DesiredSlice | None, ObservedSlice | None]]:
    """Every counted slice on a node once: as desired, as reported, or both."""
    desired, observed = record.desired, record.observed
    if len(desired) == len(observed) and all(
        part.key == seen.key and part.gpu == seen.gpu
        for part, seen in zip(desired, observed, strict=True)
    ):
        yield from zip(desired, observed, strict=True)
        return
    reports = {(part.key, part.gpu): part for part in observed}
    for part in desired:
        yield part, reports.pop((part.key, part.gpu), None)
    for seen in reports.values():
        yield None, seen


def says_no(wanted: DesiredSlice, seen: ObservedSlice) -> bool:
    """True when a node refused exactly this decision."""
    return seen.phase is SlicePhase.REFUSED and seen.epoch == wanted.epoch


def runs_here(view: View, seen: ObservedSlice, node: str) -> bool:
    """True when the pod of a reported slice runs on that node."""
    pod = view.snapshot.pods.get(seen.key.pod_uid)
    return pod is not None and not pod.stage.finished and pod.node == node
