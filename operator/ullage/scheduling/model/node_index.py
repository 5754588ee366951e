# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""GPUNodes by rare properties, kept from cycle to cycle: only new records are read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage.cluster.records.node import GPUNodeRecord


@dataclass(slots=True)
class NodeIndex:
    """Names of GPUNodes."""

    tried: set[str] = field(default_factory=set)
    """Nodes with a slice on trial, one that breaks its objective, or one that a guard evicts."""

    def update(self, names: Collection[str], records: Mapping[str, GPUNodeRecord]) -> None:
        """Update from a snapshot; ``names`` are those of changed records."""
        for name in names:
            record = records.get(name)
            if record is not None and _is_tried(record):
                self.tried.add(name)
            else:
                self.tried.discard(name)


def _is_tried(record: GPUNodeRecord) -> bool:
    return any(wanted.probation for wanted in record.desired) or any(
        seen.phase is SlicePhase.VIOLATING or seen.reason == Reason.INTERFERING
        for seen in record.observed
    )
