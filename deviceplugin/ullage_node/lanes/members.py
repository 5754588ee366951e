# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The containers that hold part of a device, and the state of their steps."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ullage.engines.lanes.records import LaneLease
from ullage_node.model.switching import ProcessId


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneMember:
    """A container that holds part of the device.

    ``persistent_mib`` and ``ephemeral_mib`` are its owner's request, 0 where the container shares
    no lane; ``memory_mib`` is its limit. ``lane`` is the assigned lane, 0 where the table chooses.
    ``steps`` are those of the whole work, 0 = not declared. ``suspendable`` = it may be suspended
    between steps when another program needs memory. ``context_mib`` is its context's device memory
    beside its own.
    """

    job: str
    memory_mib: int
    persistent_mib: int = 0
    ephemeral_mib: int = 0
    lane: int = 0
    steps: int = 0
    suspendable: bool = False
    context_mib: int = 0

    @property
    def shares(self) -> bool:
        """True if it may greet."""
        return self.ephemeral_mib > 0

    def beside(self, known: LaneMember) -> LaneMember:
        """This member, with the values fixed at container start taken from ``known``."""
        return replace(self, context_mib=known.context_mib, suspendable=known.suspendable)


@dataclass(slots=True, kw_only=True)
class ContainerPrograms:
    """State of the programs of a container."""

    member: LaneMember
    session: str = ""
    """Session of the process that greeted; "" = none."""
    connected: bool = False
    caches: bool = False
    asks: bool = False
    """True while it waits for the answer to ``Acquire``."""
    asked_s: float = 0.0
    lease: LaneLease | None = None
    """The delivered grant."""
    reserved: LaneLease | None = None
    """A grant not delivered yet."""
    kept: bool = False
    """Its step has ended, but the step's memory was not given back."""
    ended_s: float = 0.0
    quick: bool = False
    """It returned within ``TURN_PATIENCE_S`` the last time."""
    stalled: int = 0
    """Lease reported as stalled."""
    persistent_peak_mib: int = 0
    ephemeral_peak_mib: int = 0
    """Highest value reported, at most the device's memory."""
    processes: tuple[ProcessId, ...] = ()
    """Processes that held memory when it was suspended, by host PID."""
