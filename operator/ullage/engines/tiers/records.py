# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Members, maps and decisions of a job in tiers: values without behaviour.

A member is the failure unit, a whole replica and never one rank of it. A map has the member of each
shard or block, in order. It must never be changed within an epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from ullage.api.words import OnNotice as OnNotice
from ullage.engines.tiers.flush import Flush, Link
from ullage.engines.tiers.stages import StageRule, TierStage

Map = tuple[str, ...]
"""Member of each shard or block; empty = not assigned yet."""


class StateSource(IntEnum):
    """Source of the state after a loss."""

    NONE = 0
    """Nothing was lost."""
    STATE_STORE = 1
    """The last consistent cut in the memory of the backup."""
    CHECKPOINT = 2
    """Storage: no complete copy is in memory."""


class TierWhy(StrEnum):
    """Reason for the current maps, the most severe first."""

    STATE_LOST = "StateLost"
    """Shards are lost and no complete copy is in memory."""
    ALL_OWNERS_LOST = "AllOwnersLost"
    """No transient owner is left: the backup owns."""
    ROLLED_BACK = "RolledBack"
    """An owner was lost without notice."""
    FLUSHED = "EvictionNotice"
    """An owner is under notice and hands over."""
    STAGE_CHANGED = "StageChanged"
    """Transient against reliable machines passed a threshold by more than the band."""
    STARTED = "TiersStarted"
    """The first maps."""
    STATE_STORE_MOVED = "KeeperMoved"
    """The copy goes to other reliable members."""
    MEMBERS_CHANGED = "MembersChanged"
    """Members without shards joined or left."""
    IN_BAND = "InsideBand"
    """A threshold is passed, by less than the band."""
    TOO_SOON = "StageTooYoung"
    """A threshold is passed too soon after the last change."""
    KEPT = "StageKept"
    """No change is needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierMember:
    """A running replica group.

    Attributes:
        name: Unique; the name in the maps.
        node: Node of its machine.
        pool: Pool of the machine.
        reliable: On capacity that is not preempted.
        hazard_per_hour: Expected loss events per hour of its pool; 0 = never.
        notice_left_s: Seconds until its machine is removed, if announced.
    """

    name: str
    node: str
    pool: str
    reliable: bool = False
    hazard_per_hour: float = 0.0
    notice_left_s: float | None = None

    @property
    def stays(self) -> bool:
        """True without an announced removal of its machine."""
        return self.notice_left_s is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Maps:
    """The maps in force, as the job's status and the state store have them.

    Attributes:
        stage: Of the job.
        epoch: Increases with every change of a map.
        owners: Of each shard.
        backups: Of each shard; empty where no copy is kept.
        workers: Of each block of the data.
        homes: Previous worker of each block, which still has the data.
    """

    stage: TierStage
    epoch: int
    owners: Map
    backups: Map = ()
    workers: Map = ()
    homes: Map = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSettings:
    """Settings of tiers; defaults to sweep.

    Attributes:
        rule: Thresholds, band and rest of the stages.
        pinned: The stage, if the user named one.
        on_notice: Action on a notice.
        owner_part: Fraction of the transient members that owns shards.
        shards: Pieces of the state; at least the number of future owners.
        blocks: Pieces of the data; at least the number of future workers.
        state_stores: Machines that receive a flush; ``None`` = every reliable member keeps its
            part.
    """

    rule: StageRule = field(default_factory=StageRule)
    pinned: TierStage | None = None
    on_notice: OnNotice = OnNotice.FLUSH
    owner_part: float = 0.5
    shards: int = 64
    blocks: int = 256
    state_stores: int | None = None

    def __post_init__(self) -> None:
        """Reject settings that divide nothing.

        Raises:
            ValueError: no shards or blocks, or a part outside 0..1.
        """
        if self.shards < 1 or self.blocks < 1 or not 0 < self.owner_part <= 1:
            raise ValueError("tiers need at least 1 shard and block, and a part of owners in 0..1")

    def state_stores_of(self, reliable: int) -> int:
        """Machines that receive a flush, with this many reliable members that have a part."""
        return reliable if self.state_stores is None else min(self.state_stores, reliable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """All inputs of a decision.

    Attributes:
        members: Running members; a member of a map that is missing here is lost.
        link: State size and bandwidths.
        notice_s: The shortest notice of the pools in use; ``None`` = they give none.
        maps: The maps in force; ``None`` before the first decision.
        since_s: Seconds since the stage last changed.
        step: The last finished step.
        step_s: Seconds of a step; bounds the rest of the running one.
        committed: The state store's consistent cut; ``None`` = it has none. After a loss it is read
            from the answer to a new epoch: only then no push in flight can complete a later one.
        heard: The latest epoch that any member or the state store may have received. It is above
            the current one's after a transition interrupted by a loss: the transition is decided
            again from the last common maps, under an unused epoch.
    """

    members: tuple[TierMember, ...]
    link: Link
    notice_s: float | None = None
    maps: Maps | None = None
    since_s: float = 0.0
    step: int = 0
    step_s: float = 0.0
    committed: int | None = None
    heard: int = 0

    def __post_init__(self) -> None:
        """Reject impossible situations.

        Raises:
            ValueError: no members, two of one name, or a cut after the last step.
        """
        if not self.members:
            raise ValueError("a job without members has no tiers; wait for the first to run")
        if len({member.name for member in self.members}) < len(self.members):
            raise ValueError("two members have one name")
        if self.committed is not None and self.committed > self.step:
            raise ValueError(f"the state store's cut {self.committed} lies after step {self.step}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Loss of owners.

    Attributes:
        gone: Owners lost without notice, or with too short a one.
        noticed: Owners under notice that hand over.
        source: Source of the state.
        lost_steps: Finished steps to repeat; ``None`` = known when a checkpoint is found.
    """

    gone: frozenset[str] = frozenset()
    noticed: frozenset[str] = frozenset()
    source: StateSource = StateSource.NONE
    lost_steps: int | None = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TierOption:
    """A stage with its consequences.

    Attributes:
        stage: The stage.
        owners: Members that own shards.
        workers: Members that compute.
        flush: Verdict on the time to flush the pending state.
    """

    stage: TierStage
    owners: int
    workers: int
    flush: Flush


@dataclass(frozen=True, slots=True, kw_only=True)
class TierDecision:
    """The maps from the next boundary on, and the reason.

    Attributes:
        chosen: The stage.
        runner_up: The nearest other stage; ``None`` = members allow only one.
        reason: Reason of the choice.
        text: The reason with figures.
        maps: The new maps; equal to the old ones without a change.
        source: Source of the state.
        lost_steps: Finished steps that a rollback to the cut repeats; ``None`` = to be counted from
            the checkpoint that is found.
    """

    chosen: TierOption
    runner_up: TierOption | None
    reason: TierWhy
    text: str
    maps: Maps
    source: StateSource = StateSource.NONE
    lost_steps: int | None = 0
