# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Turns of a lane: who asks for a step, who is granted the next one, and what a step counts."""

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
    """The numbers that the asks and leases of a device were given last."""

    asks: int = 0
    leases: int = 0

    def ask(
        self, resident: LaneResident, lane: LaneState, settings: LaneSettings, now_s: float
    ) -> None:
        """The job waits from now on; what it may catch up is bounded.

        Args:
            resident: Who asks; one that waits already waits on.
            lane: Its lane.
            settings: Of the device.
            now_s: The present.
        """
        if resident.asked_s is not None:
            return
        self.ask_away(resident, now_s)
        resident.level_s = max(resident.level_s, lane.clock_s - settings.credit_s)
        least = lane.clock_steps - settings.credit_steps
        resident.level_steps = max(resident.level_steps, least)

    def ask_away(self, resident: LaneResident, now_s: float) -> None:
        """A job that is in no lane waits for one, and for its step there, from now on."""
        if resident.asked_s is None:
            self.asks += 1
            resident.asked, resident.asked_s = self.asks, now_s

    def grant(self, lane: LaneState, settings: LaneSettings, now_s: float) -> Granted | None:
        """The next step of an idle lane, as the policy says; ``None`` = none.

        Args:
            lane: Of the device.
            settings: Of the device.
            now_s: The present.
        """
        if lane.holder is not None or (lane.draining and not settings.early_release):
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
    """The job waits no longer; how long it did stays known."""
    resident.waited_s = resident.wait_s(now_s)
    resident.asked_s, resident.quiet_s = None, now_s


def count_step(resident: LaneResident, slowdown: float, now_s: float) -> None:
    """Count the step by our own clock; what the client says of its time could be wrong.

    Args:
        resident: Whose step ends now.
        slowdown: How much slower it was by the other lanes.
        now_s: The present.
    """
    assert resident.lease is not None
    took_s = now_s - resident.lease.granted_s
    resident.steps += 1
    resident.level_steps += 1
    resident.ran_s += took_s / slowdown
    resident.level_s += took_s / slowdown
    known = resident.step_s
    resident.step_s = took_s if known is None else known + SMOOTHING * (took_s - known)
