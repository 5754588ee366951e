# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Remembers the faults of the node's devices, each with the pods that may have caused it.

The driver reports neither process nor time, so suspects are all pods that held a slice of the
device at any moment since the previous reading of faults: never too few. One broken program causes
many events, and may break in a loop: a repetition with the same pods within a minute is the same
fault. Pure except for the ids; no I/O, no clock.
"""

from __future__ import annotations

import math
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from ullage.api.faults import MAX_FAULTS, MAX_SUSPECTS, DeviceFault, Suspect
from ullage.api.xids import XIDS, Cause, xid_of
from ullage.process.metric_families import counter
from ullage_node.model.device_labels import DEVICE
from ullage_node.model.devices import FaultEvent, FaultReading
from ullage_node.model.slices import HeldSlice
from ullage_node.times import FAULT_KEPT_S, SAME_FAULT_S

OTHER: Final = "other"
"""Label of the metric for numbers that are not listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultFigures:
    """Figures of the faults."""

    events: Mapping[tuple[str, str], int] = counter(
        "ullage_node_device_faults",
        "Faults that the driver told of, by Xid; numbers that are not listed are `other`.",
        DEVICE,
        "xid",
    )


@dataclass(frozen=True, slots=True)
class _Stay:
    """A pod on a device, until a time (monotonic); ``inf`` = still there."""

    suspect: Suspect
    until: float = math.inf


class FaultBook:
    """The newest faults of the node, oldest first."""

    def __init__(self) -> None:
        self._faults: list[DeviceFault] = []
        self._stays: dict[tuple[str, str], _Stay] = {}
        self.counts: Counter[tuple[str, str]] = Counter()
        """Events by device and number since the agent started, repeated ones included."""

    @property
    def faults(self) -> tuple[DeviceFault, ...]:
        """The faults of the status."""
        return tuple(self._faults)

    def see(self, held: Iterable[HeldSlice], now: float) -> None:
        """Record the pods on the devices; to be called after every change.

        Args:
            held: the slices of the node.
            now: monotonic, seconds.
        """
        here = {
            (part.desired.gpu, part.desired.key.pod_uid): _Stay(
                Suspect(
                    pod_uid=part.desired.key.pod_uid,
                    namespace=part.desired.pod_namespace,
                    pod=part.desired.pod_name,
                    workload_class=part.desired.workload_class,
                )
            )
            for part in held
            if part.phase.started
        }
        for key, stay in self._stays.items():
            if key not in here and stay.until == math.inf:
                self._stays[key] = replace(stay, until=now)
        self._stays |= here

    def take(self, reading: FaultReading, wall: float) -> tuple[DeviceFault, ...]:
        """Add the faults that the driver reported.

        Args:
            reading: the events since the last reading.
            wall: seconds since the epoch.

        Returns:
            The new faults, up to the number kept.
        """
        before = {fault.id for fault in self._faults}
        for event in reading.events:
            self._note(event, wall)
        self._faults = [fault for fault in self._faults if abs(wall - fault.at_s) < FAULT_KEPT_S]
        self._bound()
        self._stays = {
            key: stay for key, stay in self._stays.items() if stay.until >= reading.settled_at
        }
        return tuple(fault for fault in self._faults if fault.id not in before)

    def restore(self, earlier: Iterable[DeviceFault]) -> None:
        """Take over an earlier agent's faults; they keep their ids, so each counts once."""
        here = {fault.id for fault in self._faults}
        self._faults[:0] = [fault for fault in earlier if fault.id not in here]
        self._faults.sort(key=lambda fault: fault.at_s)
        self._bound()

    def _note(self, event: FaultEvent, wall: float) -> None:
        self.counts[event.gpu, str(event.xid) if event.xid in XIDS else OTHER] += 1
        there = {stay.suspect for (gpu, _), stay in self._stays.items() if gpu in event.gpus}
        fault = DeviceFault(
            id=uuid.uuid4().hex,
            gpu=event.gpu,
            xid=event.xid,
            at_s=float(int(wall)),
            suspects=_named(there),
        )
        if not any(_same(known, fault) for known in self._faults):
            self._faults.append(fault)

    def _bound(self) -> None:
        """Drop the oldest of the device with most, so that no device crowds out another."""
        while len(self._faults) > MAX_FAULTS:
            many = Counter(fault.gpu for fault in self._faults).most_common(1)[0][0]
            self._faults.remove(next(fault for fault in self._faults if fault.gpu == many))


def _named(suspects: Collection[Suspect]) -> tuple[Suspect, ...]:
    """Suspects up to the status's limit, in turn from each class."""
    ranks: Counter[tuple[str, str]] = Counter()
    ranked = []
    for suspect in sorted(suspects):
        kind = (suspect.namespace, suspect.workload_class)
        ranked.append((ranks[kind], suspect))
        ranks[kind] += 1
    return tuple(sorted(suspect for _, suspect in sorted(ranked)[:MAX_SUSPECTS]))


def _same(known: DeviceFault, fault: DeviceFault) -> bool:
    """True if one broken program, or one broken device, may have caused both."""
    return (
        (known.gpu, known.suspects) == (fault.gpu, fault.suspects)
        and _kind(known.xid) == _kind(fault.xid)
        and abs(fault.at_s - known.at_s) < SAME_FAULT_S
    )


def _kind(xid: int) -> object:
    """Key of equivalent numbers: a broken program causes several; those of devices are distinct."""
    cause = xid_of(xid).cause
    return cause if cause is Cause.APPLICATION else xid
