# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Translates between the engine's records and the channel's messages.

Values only; it must never decide anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ullage.engines.tiers.flush import Link
from ullage.engines.tiers.records import Maps, StateSource, TierDecision, TierMember, TierSettings
from ullage_run.orders import Identity, MemberAssignment


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSettings:
    """Settings of a job's coordinator.

    Attributes:
        members: Initial members.
        least: Minimum to begin with after ``settle_s``; ``None`` = all.
        link: Sizes and bandwidths.
        settings: Settings of the engine.
        notice_s: The shortest notice of the pools in use; ``None`` = none.
        copy: A copy is kept; without one every loss of an owner restarts the job.
        join_s: Longest wait for the first members, and for one to return.
        settle_s: Longest wait for all of them where fewer suffice.
    """

    members: int
    link: Link
    settings: TierSettings
    notice_s: float | None = None
    copy: bool = True
    join_s: float = 600.0
    least: int | None = None
    settle_s: float = 60.0

    def enough(self, there: int, waited_s: float) -> bool:
        """True if the job begins with the current members after this time."""
        least = self.members if self.least is None else self.least
        return there >= (self.members if waited_s < self.settle_s else min(least, self.members))


def member_of(identity: Identity, leaves_at: float | None, now: float) -> TierMember:
    """A member as the engine sees it; ``leaves_at`` is on the clock of ``now``."""
    return TierMember(
        name=identity.name,
        node=identity.node,
        pool=identity.pool,
        reliable=identity.reliable,
        notice_left_s=None if leaves_at is None else max(0.0, leaves_at - now),
    )


def assignment_of(
    decision: TierDecision, old: Maps | None, name: str, members: Sequence[str]
) -> MemberAssignment:
    """A member's part of new maps; new shards come from the copy."""
    maps = decision.maps
    mine = tuple(number for number, owner in enumerate(maps.owners) if owner == name)
    load: tuple[int, ...] = ()
    if decision.source is StateSource.STATE_STORE:
        load = mine
    elif old is not None:
        load = tuple(number for number in mine if old.owners[number] != name)
    return MemberAssignment(
        shards=mine,
        load=load,
        blocks=tuple(block for block, worker in enumerate(maps.workers) if worker == name),
        block_count=len(maps.workers),
        members=tuple(members),
    )
