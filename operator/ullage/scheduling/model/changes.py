# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What changed between two snapshots; a record that did not is the very same object in both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import is_not
from typing import TypeVar

from ullage.cluster.records.snapshot import Snapshot

Key = TypeVar("Key")


def changed(old: Mapping[Key, object], new: Mapping[Key, object]) -> list[Key]:
    """Keys whose record is another one, new or gone."""
    if old is new:
        return []
    others = list(compress(new, map(is_not, map(old.get, new), new.values())))
    if len(old) + sum(key not in old for key in others) > len(new):
        others.extend(key for key in old if key not in new)
    return others


@dataclass(frozen=True, slots=True)
class Changes:
    """Keys of a snapshot's tables whose record is another one than in the last, new or gone."""

    workloads: Sequence[str] = ()
    pods: Sequence[str] = ()
    nodes: Sequence[str] = ()
    gpu_nodes: Sequence[str] = ()

    @classmethod
    def between(cls, old: Snapshot | None, new: Snapshot) -> Changes:
        """What changed from one snapshot to the next; all of it where there is none before."""
        if old is None:
            return cls(list(new.workloads), list(new.pods), list(new.nodes), list(new.gpu_nodes))
        return cls(
            workloads=changed(old.workloads, new.workloads),
            pods=changed(old.pods, new.pods),
            nodes=changed(old.nodes, new.nodes),
            gpu_nodes=changed(old.gpu_nodes, new.gpu_nodes),
        )
