# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The desired slices of every node during a cycle: kept, dropped, added.

Mutable scratch of one cycle. An unaffected node keeps the same tuple object, so that an unchanged
node is detected cheaply.
"""

from __future__ import annotations

from ullage.api.slices import DesiredSlice, SliceKey
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.values.device_ref import DeviceRef


class Ledger:
    """Desired slices of every GPUNode."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._records = snapshot.gpu_nodes
        self._dropped: dict[str, set[SliceKey]] = {}
        self._added: dict[str, dict[SliceKey, DesiredSlice]] = {}

    def drop(self, node: str, key: SliceKey) -> None:
        """Remove a slice."""
        self._dropped.setdefault(node, set()).add(key)

    def add(self, node: str, wanted: DesiredSlice) -> None:
        """Add a slice; one with the same key on that node is replaced."""
        self._added.setdefault(node, {})[wanted.key] = wanted

    def dropped(self, node: str, key: SliceKey) -> bool:
        """True if a slice was dropped in this cycle."""
        return key in self._dropped.get(node, ())

    def drops_on(self, node: str) -> bool:
        """True if any slice was dropped on a node in this cycle."""
        return node in self._dropped

    def changed_nodes(self) -> set[str]:
        """Nodes that gained or lost a slice in this cycle."""
        return {*self._dropped, *self._added}

    def changed_devices(self) -> set[DeviceRef]:
        """Devices that gained or lost a slice in this cycle."""
        devices: set[DeviceRef] = set()
        for node in self.changed_nodes():
            added, record = self._added.get(node, {}), self._records.get(node)
            devices.update(DeviceRef(node, part.gpu) for part in added.values())
            changed = {*added, *self._dropped.get(node, ())}
            if record is None:
                continue
            devices.update(
                DeviceRef(node, part.gpu) for part in record.desired if part.key in changed
            )
            devices.update(
                DeviceRef(node, part.gpu) for part in record.observed if part.key in changed
            )
        return devices

    def added(self, node: str, pod_uid: str) -> tuple[tuple[str, DesiredSlice], ...]:
        """New slices of a pod on a node, with the node's name, in order of their index."""
        new = self._added.get(node, {})
        keys = sorted(key for key in new if key.pod_uid == pod_uid)
        return tuple((node, new[key]) for key in keys)

    def slices(self) -> dict[str, tuple[DesiredSlice, ...]]:
        """All desired slices by node, each list in order of its keys."""
        result: dict[str, tuple[DesiredSlice, ...]] = {}
        for name, record in self._records.items():
            dropped = self._dropped.get(name)
            added = self._added.get(name)
            if not dropped and not added:
                result[name] = record.desired
                continue
            gone = dropped or set()
            merged = {part.key: part for part in record.desired if part.key not in gone}
            merged.update(added or {})
            result[name] = tuple(merged[key] for key in sorted(merged))
        return result
