# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""When nodes refused slices: the one thing that no list of objects can tell again.

Only this process's memory, bounded in time and number; a new leader begins without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.api.contract import ObservedSlice, SlicePhase

REMEMBERED_S: Final = 1200.0
"""Twice the time for which a device is excluded after refusals."""
TIMES_KEPT: Final = 8

PodOnDevice = tuple[str, str]
"""uid of the pod, uuid of the device."""


class NodeRefusals:
    """Times at which nodes were seen to refuse a pod's slice on a device, oldest first."""

    def __init__(self) -> None:
        self._times: dict[PodOnDevice, tuple[float, ...]] = {}

    def compare(
        self, before: tuple[ObservedSlice, ...], after: tuple[ObservedSlice, ...], now: float
    ) -> bool:
        """Count what a node refuses now and did not refuse before; says whether there was any."""
        known = set(before)
        fresh = [
            piece for piece in after if piece.phase is SlicePhase.REFUSED and piece not in known
        ]
        for piece in fresh:
            key = (piece.key.pod_uid, piece.gpu)
            self._times[key] = (*self._times.get(key, ()), now)[-TIMES_KEPT:]
        return bool(fresh)

    def forget(self, pod_uid: str) -> None:
        """The pod is gone."""
        for key in [key for key in self._times if key[0] == pod_uid]:
            del self._times[key]

    def expire(self, now: float) -> bool:
        """Forget what is long past; says whether there was any."""
        kept = {key: times for key, times in self._times.items() if now - times[-1] < REMEMBERED_S}
        expired = len(kept) < len(self._times)
        if expired:
            self._times = kept
        return expired

    def shown(self) -> Mapping[PodOnDevice, tuple[float, ...]]:
        """Everything remembered."""
        return dict(self._times)
