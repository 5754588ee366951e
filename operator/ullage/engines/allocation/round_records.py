# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Inputs and results of a round: debts of jobs, what runs, and the changes of the next round.

Plain numbers that a status can store: an operator restart between two rounds loses nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ullage.engines.allocation.model import ProblemError

Members = tuple[str, ...]
"""One job, or two side by side in the order of the allocation."""
Cell = tuple[Members, str]
"""The jobs, and their type."""

MEMORY_ROUNDS: Final = 20.0
"""Rounds of time to which a debt is bounded: history must not outweigh the present."""


class RoundJob(NamedTuple):
    """One job as rounds see it; a tuple, because every cycle makes one per job.

    Attributes:
        name: Name in the allocation.
        gang: Devices that all its workers hold together.
        speeds: Steps/s on each type; a type that is missing or 0 is never used.
        checkpointable: It saves its work on a signal; other jobs are never preempted.
        restart_s: Time that stopping and restarting it costs.
        unsaved_s: Additional work lost if it were stopped now.
    """

    name: str
    gang: int
    speeds: Mapping[str, float]
    checkpointable: bool = True
    restart_s: float = 0.0
    unsaved_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSettings:
    """Length of rounds, and limits on the losses of jobs and gangs.

    Attributes:
        round_s: Length of a round.
        gang_skip_limit: Rounds that a gang may be passed over before devices are kept for it.
        most_lost: Fraction of its time that a job may lose to preemption by equals: it keeps its
            devices until others are owed its cost of stopping divided by this (at most half of the
            bound of debts). Swept on a public trace at 30 and 120 s.
        pool_of: Pool of a type, where it is not the type itself.
    """

    round_s: float = 360.0
    gang_skip_limit: int = 3
    most_lost: float = 0.1
    pool_of: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (self.round_s > 0 and math.isfinite(self.round_s)):
            raise ProblemError(f"a round lasts more than 0 seconds, not {self.round_s}")
        if self.gang_skip_limit < 1:
            raise ProblemError("gang_skip_limit counts rounds, from 1")
        if not 0 < self.most_lost <= 1:
            raise ProblemError(f"most_lost is a part of the time, not {self.most_lost}")

    def pool(self, kind: str) -> str:
        """The pool that provides the devices of a type."""
        return self.pool_of.get(kind, kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundState:
    """State that persists from one round to the next.

    Attributes:
        at_s: Time of writing, on the clock of ``now``.
        promised: Fraction of time in force for each cell.
        owed_s: Promised minus received time of each cell; negative = received more than promised.
        received_s: Time that each cell has received.
        running: Jobs that run, with their type.
        skipped: Consecutive rounds in which a job was passed over for its size.
    """

    at_s: float = 0.0
    promised: Mapping[Cell, float] = field(default_factory=dict)
    owed_s: Mapping[Cell, float] = field(default_factory=dict)
    received_s: Mapping[Cell, float] = field(default_factory=dict)
    running: Mapping[Members, str] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)


class RoundRun(NamedTuple):
    """One gang of devices in the next round; a tuple, since there is one per running job.

    Attributes:
        members: Jobs that share them.
        type: Their type.
        kept: It already runs there: the lease is extended and nothing stops.
        spare: It has no promise there and only fills idle devices.
    """

    members: Members
    type: str
    kept: bool
    spare: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A running job that must save its work and leave its devices.

    Attributes:
        job: The job.
        type: Type where it runs now.
        moves_to: Type of its next round; ``None`` = it waits.
        costs_s: Cost of the stop or move.
    """

    job: str
    type: str
    moves_to: str | None
    costs_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """Devices kept for a gang that was passed over too often."""

    job: str
    type: str
    devices: int
    missing: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlan:
    """The next round, and the state to keep.

    Attributes:
        runs: Jobs that run, largest gang first.
        stops: Preemptions and moves.
        waiting: Jobs without devices, the most owed first.
        reserved: Devices kept for gangs.
        state: State to persist.
    """

    runs: tuple[RoundRun, ...]
    stops: tuple[Stop, ...]
    waiting: tuple[str, ...]
    reserved: tuple[Reserved, ...]
    state: RoundState
