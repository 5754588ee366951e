# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Remembers when nodes refused slices: the only fact that no list of objects can restore.

Only this process's memory, bounded in time and number; a new leader begins without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.api.slices import DesiredSlice, ObservedSlice, SlicePhase
from ullage.cluster.times import NODE_REFUSALS_KEPT_S

TIMES_KEPT: Final = 8

MOST_NAMES: Final = 10_000
"""Names of pods for which refusals are remembered, at most; the oldest are forgotten."""

PodOnDevice = tuple[str, str]
"""uid of the pod, uuid of the device."""
PodName = tuple[str, str]
"""Namespace and name: a pod that comes again under its name is tried again."""


class NodeRefusals:
    """Times at which nodes were seen to refuse a pod's slice on a device, oldest first."""

    def __init__(self) -> None:
        self._times: dict[PodOnDevice, tuple[float, ...]] = {}
        self._by_name: dict[PodName, tuple[float, ...]] = {}

    def compare(
        self,
        before: tuple[ObservedSlice, ...],
        after: tuple[ObservedSlice, ...],
        wanted: tuple[DesiredSlice, ...],
        now: float,
    ) -> bool:
        """Count what a node refuses now and did not refuse before; says whether there was any.

        Args:
            before: What the node said of its slices last time.
            after: What it says now.
            wanted: Its slices; they name the pods.
            now: Seconds since the epoch.
        """
        known = set(before)
        fresh = [
            piece for piece in after if piece.phase is SlicePhase.REFUSED and piece not in known
        ]
        for piece in fresh:
            key = (piece.key.pod_uid, piece.gpu)
            self._times[key] = (*self._times.get(key, ()), now)[-TIMES_KEPT:]
        refused = {piece.key.pod_uid for piece in fresh}
        for name in {
            (part.pod_namespace, part.pod_name) for part in wanted if part.key.pod_uid in refused
        }:
            self._by_name[name] = (*self._by_name.pop(name, ()), now)[-TIMES_KEPT:]
        while len(self._by_name) > MOST_NAMES:
            del self._by_name[next(iter(self._by_name))]
        return bool(fresh)

    def forget(self, pod_uid: str) -> None:
        """The pod is gone; another one of its name is remembered."""
        for key in [key for key in self._times if key[0] == pod_uid]:
            del self._times[key]

    def expire(self, now: float) -> bool:
        """Forget what is long past; says whether there was any."""
        kept = {
            key: times
            for key, times in self._times.items()
            if now - times[-1] < NODE_REFUSALS_KEPT_S
        }
        expired = len(kept) < len(self._times)
        if expired:
            self._times = kept
        names = {
            key: times
            for key, times in self._by_name.items()
            if now - times[-1] < NODE_REFUSALS_KEPT_S
        }
        expired |= len(names) < len(self._by_name)
        self._by_name = names
        return expired

    def shown(self) -> Mapping[PodOnDevice, tuple[float, ...]]:
        """Everything remembered of pods."""
        return dict(self._times)

    def shown_by_name(self) -> Mapping[PodName, tuple[float, ...]]:
        """Everything remembered of names."""
        return dict(self._by_name)
