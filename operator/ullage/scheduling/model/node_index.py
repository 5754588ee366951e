# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""GPUNodes by what few of them say, kept from cycle to cycle: only new records are read."""

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
    """With a slice on trial, one that breaks its objective, or one that a guard wants gone."""

    def update(self, names: Collection[str], records: Mapping[str, GPUNodeRecord]) -> None:
        """Take in a snapshot; ``names`` are those whose record is another one, new or gone."""
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
