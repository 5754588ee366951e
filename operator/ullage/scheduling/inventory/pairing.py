# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What stands in a spec and what its node reports, put side by side.

Capacity is free only when a slice stands in neither, so every slice counts once. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from ullage.api.slices import DesiredSlice, ObservedSlice, SlicePhase
from ullage.cluster.records.snapshot import GPUNodeRecord
from ullage.scheduling.model.view import View


def paired(record: GPUNodeRecord) -> Iterator[tuple[DesiredSlice | None, ObservedSlice | None]]:
    """Every slice that counts on a node once: as wanted, as reported, or both."""
    desired, observed = record.desired, record.observed
    if len(desired) == len(observed) and all(
        one.key == other.key and one.gpu == other.gpu
        for one, other in zip(desired, observed, strict=True)
    ):
        yield from zip(desired, observed, strict=True)
        return
    reports = {(part.key, part.gpu): part for part in observed}
    for part in desired:
        yield part, reports.pop((part.key, part.gpu), None)
    for seen in reports.values():
        yield None, seen


def says_no(wanted: DesiredSlice, seen: ObservedSlice) -> bool:
    """Whether a node refused just this decision."""
    return seen.phase is SlicePhase.REFUSED and seen.epoch == wanted.epoch


def runs_here(view: View, seen: ObservedSlice, node: str) -> bool:
    """Whether the pod of a reported slice lives on that node."""
    pod = view.snapshot.pods.get(seen.key.pod_uid)
    return pod is not None and not pod.stage.finished and pod.node == node
