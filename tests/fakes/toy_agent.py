# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A node agent and its kubelet, reduced to what they say and when.

Follows the rules of the real agent's book of slices: intake with a floor of epochs, reservations
that end when they leave the spec, started slices that stay until their pod is gone, the last word
before a container starts.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ullage.api.devices import ObservedDevice
from ullage.api.slices import DesiredSlice, ObservedSlice, SliceKey, SlicePhase
from ullage.cluster.records.pod import PodRecord


@dataclass(slots=True)
class ToyAgent:
    """One node's book of slices."""

    devices: dict[str, ObservedDevice]
    held: dict[SliceKey, ObservedSlice] = field(default_factory=dict)
    wanted: dict[SliceKey, DesiredSlice] = field(default_factory=dict)
    floor: int = 0
    up: bool = True
    refuse_next: int = 0
    """Refuses that many of the next newcomers, whatever they ask."""

    def intake(self, epoch: int, spec: tuple[DesiredSlice, ...]) -> None:
        """Read the spec: take in what is new and fits, let go what left and never started."""
        self.wanted = {one.key: one for one in spec}
        for key in [key for key in self.held if key not in self.wanted]:
            if not self.held[key].phase.started:
                del self.held[key]
        floor = self.floor
        for one in sorted(spec, key=lambda part: (part.epoch, part.key)):
            self._take(one, floor)
        self.floor = max(floor, epoch)

    def _take(self, one: DesiredSlice, floor: int) -> None:
        held = self.held.get(one.key)
        if held is not None and (held.gpu, held.percent, held.memory_mib, held.epoch) == (
            one.gpu,
            one.percent,
            one.memory_mib,
            one.epoch,
        ):
            return
        if one.epoch < floor:
            return
        if held is not None and held.phase.started:
            if (held.gpu, held.percent) == (one.gpu, one.percent):
                self.held[one.key] = replace(held, epoch=one.epoch)
            return
        reason, message = self._refusal(one)
        self.held[one.key] = ObservedSlice(
            key=one.key,
            phase=SlicePhase.REFUSED if reason else SlicePhase.RESERVED,
            gpu=one.gpu,
            percent=one.percent,
            memory_mib=one.memory_mib,
            epoch=one.epoch,
            reason=reason,
            message=message,
        )

    def _refusal(self, one: DesiredSlice) -> tuple[str, str]:
        if self.refuse_next > 0:
            self.refuse_next -= 1
            return "PredictionRefused", "the toy refuses at random"
        device = self.devices.get(one.gpu)
        if device is None:
            return "DeviceLost", "no such device"
        others = [
            part
            for key, part in self.held.items()
            if key != one.key and part.gpu == one.gpu and part.phase.holds_capacity
        ]
        if sum(part.memory_mib for part in others) + one.memory_mib > device.memory_mib:
            return "CapacityExceeded", "memory"
        if len(others) >= device.contexts:
            return "CapacityExceeded", "contexts"
        return "", ""

    def sweep(self, pods: dict[str, PodRecord]) -> None:
        """Free what belongs to pods that are over; a reservation waits for its spec to go."""
        for key in list(self.held):
            pod = pods.get(key.pod_uid)
            over = pod is None or pod.stage.finished
            if over and (self.held[key].phase.started or pod is not None):
                del self.held[key]

    def prepare(self, pod: PodRecord, slots: int) -> str:
        """The last word before a container starts; empty when it may."""
        parts = [part for key, part in self.held.items() if key.pod_uid == pod.uid]
        if len(parts) != slots:
            return "PodUnknown"
        if any(part.phase is SlicePhase.REFUSED for part in parts):
            return "PlacementMissing"
        for part in parts:
            if part.phase is SlicePhase.RESERVED:
                self.held[part.key] = replace(part, phase=SlicePhase.PREPARED)
        return ""

    def attach(self, pod: PodRecord) -> None:
        """The container runs under verified limits, and keeps its objective in every window."""
        self._set(pod, SlicePhase.ATTACHED, windows=9)

    def fail(self, pod: PodRecord) -> None:
        """The limits of a container were not verified."""
        self._set(pod, SlicePhase.FAILED)

    def reboot(self) -> None:
        """The agent starts again: started slices come from its checkpoint, others from the spec."""
        self.held = {key: part for key, part in self.held.items() if part.phase.started}

    def _set(self, pod: PodRecord, phase: SlicePhase, windows: int = 0) -> None:
        for key, part in self.held.items():
            if key.pod_uid == pod.uid and part.phase.started:
                self.held[key] = replace(part, phase=phase, windows=windows)
