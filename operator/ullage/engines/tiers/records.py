# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Members, maps and decisions of a job in tiers: values without behaviour.

A member is the unit that lives and dies, a whole replica and never one rank of it. A map says for
each shard or block, in order, which member has it. It must never be changed within an epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from ullage.api.words import OnNotice as OnNotice
from ullage.engines.tiers.flush import Flush, Link
from ullage.engines.tiers.stages import StageRule, TierStage

Map = tuple[str, ...]
"""Member of each shard or block; empty = no one was given any yet."""


class StateSource(IntEnum):
    """Source of the state after a loss."""

    NONE = 0
    """Nothing was lost."""
    STATE_STORE = 1
    """The last consistent cut in the memory of the backup."""
    CHECKPOINT = 2
    """Storage: no complete copy is in memory."""


class TierWhy(StrEnum):
    """Reason for the maps as they are, the gravest first."""

    STATE_LOST = "StateLost"
    """Shards are gone and no complete copy is in memory."""
    ALL_OWNERS_LOST = "AllOwnersLost"
    """No transient owner is left: the backup owns."""
    ROLLED_BACK = "RolledBack"
    """An owner went without notice."""
    FLUSHED = "EvictionNotice"
    """An owner is under notice and hands over."""
    STAGE_CHANGED = "StageChanged"
    """Transient against reliable machines passed a threshold by more than the band."""
    STARTED = "TiersStarted"
    """The first maps."""
    STATE_STORE_MOVED = "KeeperMoved"
    """The copy goes to other reliable members."""
    MEMBERS_CHANGED = "MembersChanged"
    """Members came or went that own nothing."""
    IN_BAND = "InsideBand"
    """A threshold is passed, by less than the band."""
    TOO_SOON = "StageTooYoung"
    """A threshold is passed too soon after the last change."""
    KEPT = "StageKept"
    """Nothing asks for a change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierMember:
    """One replica group that runs.

    Attributes:
        name: Unique; equals the one in the maps.
        node: Its machine.
        pool: Where the machine comes from.
        reliable: On capacity that is not taken away.
        hazard_per_hour: Expected loss events per hour of its pool; 0 = never.
        notice_left_s: Seconds until its machine goes, if that is announced.
    """

    name: str
    node: str
    pool: str
    reliable: bool = False
    hazard_per_hour: float = 0.0
    notice_left_s: float | None = None

    @property
    def stays(self) -> bool:
        """No one announced that its machine goes."""
        return self.notice_left_s is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Maps:
    """The maps that hold now, as the job's status and the state store know them.

    Attributes:
        stage: Of the job.
        epoch: Grows with every change of a map.
        owners: Of each shard.
        backups: Of each shard; empty where no copy is kept.
        workers: Of each block of the data.
        homes: Of each block, who had it before: that member still has the data.
    """

    stage: TierStage
    epoch: int
    owners: Map
    backups: Map = ()
    workers: Map = ()
    homes: Map = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSettings:
    """Defaults to sweep.

    Attributes:
        rule: Thresholds, band and rest of the stages.
        pinned: The stage, if the user named one.
        on_notice: What a notice does.
        owner_part: Part of the transient members that owns shards.
        shards: Pieces of the state; at least as many as there will be owners.
        blocks: Pieces of the data; at least as many as there will be workers.
        state_stores: Machines that a flush goes to; ``None`` = every reliable member keeps its
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
        """Refuse what divides nothing.

        Raises:
            ValueError: no shards or blocks, or a part outside 0..1.
        """
        if self.shards < 1 or self.blocks < 1 or not 0 < self.owner_part <= 1:
            raise ValueError("tiers need at least 1 shard and block, and a part of owners in 0..1")

    def state_stores_of(self, reliable: int) -> int:
        """Machines that a flush goes to, with so many reliable members that have a part."""
        return reliable if self.state_stores is None else min(self.state_stores, reliable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """All that a decision sees.

    Attributes:
        members: That run now; who is in a map and not here is lost.
        link: State size and bandwidths.
        notice_s: The shortest notice of the pools in use; ``None`` = they give none.
        maps: The maps that hold; ``None`` before the first decision.
        since_s: Seconds since the stage last changed.
        step: The last finished step.
        step_s: Seconds that a step takes; bounds what is left of the running one.
        committed: The state store's consistent cut; ``None`` = it has none. After a loss it is
            read from the answer to a new epoch: only then no push on its way can complete a later
            one.
        heard: The latest epoch that any member or the state store may have heard of. It is above
            the standing one's after a transition that a loss interrupted: that one is decided again
            from the maps that all had, under an epoch that no one knows.
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
        """Refuse what no job can be in.

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
        gone: Owners without notice, or with one that is too short.
        noticed: Owners under notice that hand over.
        source: Where the state comes from.
        lost_steps: Finished steps that are done again; ``None`` = known when a checkpoint is found.
    """

    gone: frozenset[str] = frozenset()
    noticed: frozenset[str] = frozenset()
    source: StateSource = StateSource.NONE
    lost_steps: int | None = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TierOption:
    """A stage with what it would mean.

    Attributes:
        stage: The stage.
        owners: Members that own shards.
        workers: Members that compute.
        flush: Whether a notice leaves time for what is pending.
    """

    stage: TierStage
    owners: int
    workers: int
    flush: Flush


@dataclass(frozen=True, slots=True, kw_only=True)
class TierDecision:
    """The maps from the next boundary on, and why.

    Attributes:
        chosen: The stage.
        runner_up: The other stage that was nearest; ``None`` = members allow only one.
        reason: Why.
        text: The reason with numbers.
        maps: The new maps; equal to the old ones where nothing changes.
        source: Where the state comes from.
        lost_steps: Finished steps that a roll-back to the cut does again; ``None`` = to be counted
            from the checkpoint that is found.
    """

    chosen: TierOption
    runner_up: TierOption | None
    reason: TierWhy
    text: str
    maps: Maps
    source: StateSource = StateSource.NONE
    lost_steps: int | None = 0
