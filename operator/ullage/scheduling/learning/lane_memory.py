# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Enters what programs took of their lanes in the profile of their class.

A program says it at the end of a step. What it says is no more than its device has, and stands in
the profile of its own namespace. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ullage.cluster.records.profile import ProfileStatus
from ullage.cluster.records.snapshot import Snapshot
from ullage.scheduling.model.view import Class


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneMemory:
    """Most memory, in MiB, that stayed between two steps, and that a step took above it."""

    persistent_mib: int
    ephemeral_mib: int


def lane_peaks(snapshot: Snapshot) -> dict[Class, LaneMemory]:
    """What programs that run took at most, by class; classes that said nothing are left out.

    Args:
        snapshot: What nodes report.
    """
    found: dict[Class, LaneMemory] = {}
    for node in snapshot.gpu_nodes.values():
        for seen in node.observed:
            if not seen.lane or not (seen.persistent_peak_mib or seen.ephemeral_peak_mib):
                continue
            pod = snapshot.pods.get(seen.key.pod_uid)
            owner = snapshot.workloads.get(pod.owner.uid) if pod is not None else None
            if owner is None or not owner.workload_class:
                continue
            at = (owner.ref.namespace, owner.workload_class)
            before = found.get(at, LaneMemory(persistent_mib=0, ephemeral_mib=0))
            found[at] = LaneMemory(
                persistent_mib=max(before.persistent_mib, seen.persistent_peak_mib),
                ephemeral_mib=max(before.ephemeral_mib, seen.ephemeral_peak_mib),
            )
    return found


def with_lane_memory(status: ProfileStatus, took: LaneMemory | None) -> ProfileStatus:
    """The status with the larger of what it knows and what was taken.

    Args:
        status: Of the class.
        took: By its programs that run; ``None`` = nothing was said.
    """
    if took is None:
        return status
    return replace(
        status,
        lane_persistent_mib=max(status.lane_persistent_mib, took.persistent_mib),
        lane_ephemeral_mib=max(status.lane_ephemeral_mib, took.ephemeral_mib),
    )
