# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The containers that hold part of a device, and how far each is with its steps."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ullage.engines.lanes.records import LaneLease
from ullage_node.model.switching import ProcessId


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneMember:
    """A container that holds part of the device.

    ``persistent_mib`` and ``ephemeral_mib`` are what its owner asked for, 0 where the container
    shares no lane; ``memory_mib`` is all it may have. ``lane`` is the one that it was assigned, 0
    where the table chooses. ``steps`` are those of the whole work, 0 where it does not say.
    ``suspendable`` = it may be suspended between steps, for memory that another one needs.
    ``context_mib`` is what its context takes of the device beside its memory.
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
        """This one, with what counts from the start of its container on as it was known then."""
        return replace(self, context_mib=known.context_mib, suspendable=known.suspendable)


@dataclass(slots=True, kw_only=True)
class ContainerPrograms:
    """State of the programs of a container."""

    member: LaneMember
    session: str = ""
    """Of the process that greeted; "" = none did."""
    connected: bool = False
    caches: bool = False
    asks: bool = False
    """It waits for the answer to ``Acquire``."""
    asked_s: float = 0.0
    lease: LaneLease | None = None
    """The grant that it was told."""
    reserved: LaneLease | None = None
    """A grant that it was not told yet."""
    kept: bool = False
    """Its step has ended, and the memory of it was not given back."""
    ended_s: float = 0.0
    quick: bool = False
    """It came back within ``TURN_PATIENCE_S`` the last time."""
    stalled: int = 0
    """Lease that was reported."""
    persistent_peak_mib: int = 0
    ephemeral_peak_mib: int = 0
    """What it reported at most; no more than the device has."""
    processes: tuple[ProcessId, ...] = ()
    """Those that held memory when it was suspended, by the host's numbers."""
