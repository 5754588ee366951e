# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Slices as a node wants and holds them, for tests of its book and its last word."""

from __future__ import annotations

from dataclasses import replace

from ullage.api.reasons import Reason
from ullage.api.slices import DesiredSlice, SliceKey, SlicePhase
from ullage_node.model.slices import HeldSlice


def a_slice(uid: str, **change: object) -> DesiredSlice:
    """A slice of ``gpu-0`` for a pod: 40 %, 1000 MiB."""
    part = DesiredSlice(
        key=SliceKey(pod_uid=uid, container="main"),
        pod_namespace="team",
        pod_name=f"pod-{uid}",
        gpu="gpu-0",
        percent=40,
        memory_mib=1000,
        epoch=1,
    )
    return replace(part, **change)  # type: ignore[arg-type]


def a_held(uid: str, phase: SlicePhase = SlicePhase.ATTACHED, **change: object) -> HeldSlice:
    """The same as the node holds it; one that failed runs without its limits."""
    reason = Reason.UNENFORCED.value if phase is SlicePhase.FAILED else ""
    return HeldSlice(desired=a_slice(uid, **change), phase=phase, reason=reason)
