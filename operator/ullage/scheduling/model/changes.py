# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Changes between two snapshots; an unchanged record is the same object in both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress, filterfalse
from operator import is_not
from typing import Generic, TypeVar

from ullage.cluster.records.snapshot import Snapshot

Key = TypeVar("Key")


def changed(old: Mapping[Key, object], new: Mapping[Key, object]) -> list[Key]:
    """Keys of changed records, including added and removed ones."""
    if old is new:
        return []
    others = list(compress(new, map(is_not, map(old.get, new), new.values())))
    if len(old) + sum(key not in old for key in others) > len(new):
        others.extend(filterfalse(new.__contains__, old))
    return others


@dataclass(frozen=True, slots=True)
class Renewed(Generic[Key]):
    """Two versions of a table, and the keys of changed, added and removed records."""

    before: Mapping[Key, object] = field(default_factory=dict)
    after: Mapping[Key, object] = field(default_factory=dict)
    keys: Sequence[Key] = ()

    def since(self, seen: Mapping[Key, object], now: Mapping[Key, object]) -> Sequence[Key]:
        """Changes from one table to another, valid only for this pair."""
        if seen is self.before and now is self.after:
            return self.keys
        return changed(seen, now)


@dataclass(frozen=True, slots=True)
class Changes:
    """Keys of changed records in a snapshot's tables, including added and removed ones."""

    workloads: Sequence[str] = ()
    pods: Sequence[str] = ()
    nodes: Sequence[str] = ()
    gpu_nodes: Sequence[str] = ()
    before: Snapshot | None = None
    """The last snapshot; ``None`` = there is none."""

    def workloads_since(
        self, seen: Mapping[str, object], now: Mapping[str, object]
    ) -> Sequence[str]:
        """Workloads that changed from a table to that of this snapshot."""
        if self.before is not None and seen is self.before.workloads:
            return self.workloads
        return changed(seen, now)

    @classmethod
    def between(cls, old: Snapshot | None, new: Snapshot) -> Changes:
        """Changes from one snapshot to the next; everything without a previous one."""
        if old is None:
            return cls(list(new.workloads), list(new.pods), list(new.nodes), list(new.gpu_nodes))
        return cls(
            workloads=changed(old.workloads, new.workloads),
            pods=changed(old.pods, new.pods),
            nodes=changed(old.nodes, new.nodes),
            gpu_nodes=changed(old.gpu_nodes, new.gpu_nodes),
            before=old,
        )
