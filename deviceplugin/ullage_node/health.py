# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Decides when a device becomes unhealthy, and healthy again.

Raw probes come from the backend; this adds hysteresis. A hard fault makes a device unhealthy at
once, soft ones only when they repeat, and it recovers after a fault-free time; a flapping device
must stay fault-free longer each time. Pure: readings and times in, changes out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ullage.api.reasons import Reason
from ullage_node.model.devices import DeviceReading
from ullage_node.model.slices import SliceRefusal
from ullage_node.times import FLAP_WINDOW_S, RECOVERY_MOST_S

WINDOW: Final = 5
"""Number of recent probes considered."""
BAD_OF_WINDOW: Final = 3
"""Bad ones among them that make a device unhealthy."""
FLAP_CHANGES: Final = 3
"""Changes within :data:`FLAP_WINDOW_S` that count as flapping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthChange:
    """A device became unhealthy (``refusal`` says why) or healthy again (``None``)."""

    uuid: str
    refusal: SliceRefusal | None


@dataclass(slots=True, kw_only=True)
class _HealthTrack:
    """State of one device; times are monotonic seconds."""

    recovery: float
    refusal: SliceRefusal | None = None
    clean_since: float | None = None
    quarantined_until: float = 0.0
    """Wall-clock time, for the checkpoint."""
    recent: deque[bool] = field(default_factory=lambda: deque(maxlen=WINDOW))
    changes: deque[float] = field(default_factory=lambda: deque(maxlen=FLAP_CHANGES))


class HealthTracker:
    """Hysteresis over all devices of the node."""

    def __init__(self, recovery_seconds: float) -> None:
        self._recovery = recovery_seconds
        self._tracks: dict[str, _HealthTrack] = {}

    @property
    def quarantine(self) -> Mapping[str, float]:
        """Unhealthy devices and the wall-clock time before which they stay so."""
        return {
            uuid: track.quarantined_until
            for uuid, track in sorted(self._tracks.items())
            if track.refusal is not None
        }

    def refusal(self, uuid: str) -> SliceRefusal | None:
        """The refusal of starts on the device, if any."""
        track = self._tracks.get(uuid)
        return track.refusal if track else None

    def restore(self, quarantine: Mapping[str, float], *, wall: float) -> None:
        """Restore the quarantine of a previous agent process until it expires."""
        for uuid, until in quarantine.items():
            left = min(until - wall, RECOVERY_MOST_S)
            if left > 0:
                message = f"{uuid} was unhealthy before the agent restarted"
                self._tracks[uuid] = _HealthTrack(
                    recovery=left,
                    refusal=SliceRefusal(reason=Reason.DEVICE_UNHEALTHY, message=message),
                    quarantined_until=until,
                )

    def take(
        self, readings: Iterable[DeviceReading], *, now: float, wall: float
    ) -> tuple[HealthChange, ...]:
        """Judge one round of probes.

        Args:
            readings: one per device.
            now: monotonic seconds.
            wall: seconds since the epoch.
        """
        changes: list[HealthChange] = []
        for reading in readings:
            track = self._tracks.setdefault(reading.uuid, _HealthTrack(recovery=self._recovery))
            before = track.refusal
            if reading.healthy:
                self._good(track, now)
            else:
                self._bad(track, reading, now, wall)
            if (before is None) != (track.refusal is None):
                changes.append(HealthChange(uuid=reading.uuid, refusal=track.refusal))
        return tuple(changes)

    def _good(self, track: _HealthTrack, now: float) -> None:
        track.recent.append(True)
        if track.refusal is None:
            return
        if track.clean_since is None:
            track.clean_since = now
        if now - track.clean_since >= track.recovery:
            track.refusal = None
            track.changes.append(now)
            track.recent.clear()

    def _bad(self, track: _HealthTrack, reading: DeviceReading, now: float, wall: float) -> None:
        track.recent.append(False)
        track.clean_since = None
        refusal = _refusal(reading)
        if track.refusal is not None:
            # A soft fault may become a hard one; the reverse would hide the worse fault.
            if reading.hard:
                track.refusal = refusal
            return
        if not reading.hard and list(track.recent).count(False) < BAD_OF_WINDOW:
            return
        track.recovery = self._next_recovery(track, now)
        track.changes.append(now)
        track.refusal = refusal
        track.quarantined_until = wall + track.recovery

    def _next_recovery(self, track: _HealthTrack, now: float) -> float:
        recent = [moment for moment in track.changes if now - moment < FLAP_WINDOW_S]
        if len(recent) + 1 < FLAP_CHANGES:
            return self._recovery
        return min(track.recovery * 2, RECOVERY_MOST_S)


def _refusal(reading: DeviceReading) -> SliceRefusal:
    reason = reading.reason or Reason.DEVICE_UNHEALTHY
    message = reading.message or "the probe failed"
    return SliceRefusal(reason=reason, message=f"{reading.uuid}: {message}")
