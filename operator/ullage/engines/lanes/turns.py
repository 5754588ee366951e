# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Turns of a lane: requests for a step, the next grant, and the charge for a step."""

from __future__ import annotations

from dataclasses import dataclass

from ullage.engines.lanes.policies import chosen
from ullage.engines.lanes.records import Granted, LaneLease
from ullage.engines.lanes.settings import LaneSettings
from ullage.engines.lanes.state import LaneResident, LaneState

SMOOTHING = 0.2
"""Weight of the newest step in the expected step of a job."""


@dataclass(slots=True, kw_only=True)
class Turns:
    """The last request and lease numbers of a device."""

    asks: int = 0
    leases: int = 0

    def ask(
        self, resident: LaneResident, lane: LaneState, settings: LaneSettings, now_s: float
    ) -> None:
        """Start the wait of a job; its credit is bounded.

        Args:
            resident: The requesting job; a waiting one keeps its place.
            lane: Its lane.
            settings: Of the device.
            now_s: The current time.
        """
        if resident.asked_s is not None:
            return
        self.ask_away(resident, now_s)
        resident.level_s = max(resident.level_s, lane.clock_s - settings.credit_s)
        least = lane.clock_steps - settings.credit_steps
        resident.level_steps = max(resident.level_steps, least)

    def ask_away(self, resident: LaneResident, now_s: float) -> None:
        """Start the wait of a job without a lane for one, and for its step there."""
        if resident.asked_s is None:
            self.asks += 1
            resident.asked, resident.asked_s = self.asks, now_s

    def grant(self, lane: LaneState, settings: LaneSettings, now_s: float) -> Granted | None:
        """The next step of an idle lane by the policy; ``None`` = none.

        Args:
            lane: Of the device.
            settings: Of the device.
            now_s: The current time.
        """
        if lane.holder is not None:
            return None
        able = [
            resident
            for resident in lane.residents.values()
            if resident.may_run
            and not resident.needs_mib
            and resident.ephemeral_mib <= lane.size_mib
        ]
        resident = chosen(able, settings, now_s)
        if resident is None:
            return None
        self.leases += 1
        known = settings.first_step_s if resident.step_s is None else resident.step_s
        lease = LaneLease(
            lease=self.leases,
            job=resident.name,
            lane=lane.lane,
            granted_s=now_s,
            deadline_s=now_s + settings.deadline_factor * known,
        )
        resident.lease = lease
        resident.waited_s = resident.wait_s(now_s)
        resident.asked_s, resident.served = None, True
        lane.holder = resident.name
        lane.clock_s = max(lane.clock_s, resident.level_s)
        lane.clock_steps = max(lane.clock_steps, resident.level_steps)
        return Granted(lease=lease, size_mib=lane.size_mib, epoch=lane.epoch)


def stop_asking(resident: LaneResident, now_s: float) -> None:
    """End the wait of a job; its duration is kept."""
    resident.waited_s = resident.wait_s(now_s)
    resident.asked_s, resident.quiet_s = None, now_s


def count_step(resident: LaneResident, slowdown: float, now_s: float) -> None:
    """Charge the step by our own clock, since the client's times are untrusted.

    Args:
        resident: The job whose step ends now.
        slowdown: Slowdown by the other lanes.
        now_s: The current time.
    """
    assert resident.lease is not None
    took_s = now_s - resident.lease.granted_s
    resident.steps += 1
    resident.level_steps += 1
    resident.ran_s += took_s / slowdown
    resident.level_s += took_s / slowdown
    known = resident.step_s
    resident.step_s = took_s if known is None else known + SMOOTHING * (took_s - known)
