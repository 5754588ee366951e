# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The devices as they will be when all that is leaving has left; copied when first asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ullage.scheduling.feasibility.held_quota import HeldQuota
from ullage.scheduling.placement.placement import Placement, Placer


@dataclass(slots=True)
class LaterDevices:
    """What comes after ``now``, kept in step with it by who places and who holds."""

    now: Placer
    _placer: Placer | None = None

    @property
    def differ(self) -> bool:
        """Whether anything is leaving, or may have been lifted from them already."""
        return self._placer is not None or self.now.occupancy.leaving()

    @property
    def placer(self) -> Placer:
        """Places on the devices as they will be."""
        if self._placer is None:
            self._placer = Placer(self.now.occupancy.later(), self.now.rule)
        return self._placer

    @property
    def quota(self) -> HeldQuota | None:
        """Quota in use then; nothing is copied where nothing leaves."""
        now = self.now.occupancy.quota
        if now is None or not self.differ:
            return now
        return self.placer.occupancy.quota or now

    def take(self, gang: Sequence[Placement]) -> None:
        """Who is placed now is there later too."""
        if self._placer is not None:
            for placement in gang:
                self._placer.take(placement)

    def hold(self, sites: Sequence[int], holder: str) -> None:
        """Devices that are held now are held later too."""
        if self._placer is not None:
            self._placer.occupancy.block(sites, holder, held=True)
