# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The decision of one job, from its members and its state store to maps and a verdict.

Read :func:`decide` top to bottom: losses, stage, owners, backups, workers. Where no member stays,
the maps stay as they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from ullage.engines.tiers.explain import text
from ullage.engines.tiers.flush import Flush, NoticeAnswer, answer_notice, feasibility, flush_time_s
from ullage.engines.tiers.maps import divide, hosts
from ullage.engines.tiers.records import (
    Loss,
    Map,
    Maps,
    OnNotice,
    Situation,
    StateSource,
    TierDecision,
    TierMember,
    TierOption,
    TierSettings,
    TierWhy,
)
from ullage.engines.tiers.stages import Hold, TierStage, nearest_other, ratio, settle, target

DEFAULT: Final = TierSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scene:
    """The situation as input of the rules."""

    seen: Situation
    settings: TierSettings
    reliable: tuple[TierMember, ...]
    transient: tuple[TierMember, ...]
    loss: Loss

    @property
    def q(self) -> float:
        """Transient machines per reliable one, among those that stay."""
        return ratio(
            len({member.node for member in self.transient}),
            len({member.node for member in self.reliable}),
        )


def decide(seen: Situation, settings: TierSettings = DEFAULT) -> TierDecision:
    """The maps from the next step boundary on.

    Args:
        seen: Members, sizes, the maps in force and the content of the state store.
        settings: Of the job and the policy.
    """
    members = tuple(sorted(seen.members, key=lambda member: member.name))
    seen = replace(seen, members=members)
    scene = _scene(seen, settings)
    if seen.maps is not None and not scene.reliable + scene.transient:
        return _unchanged(scene, seen.maps)
    stage, hold = _stage(scene)
    option, maps = _maps(scene, stage)
    if seen.maps is not None and seen.heard <= seen.maps.epoch:
        same = replace(maps, epoch=seen.maps.epoch) == seen.maps
        maps = seen.maps if same else maps
    why = _why(scene, maps, hold)
    other = _runner_up(scene, stage)
    return TierDecision(
        chosen=option,
        runner_up=other,
        reason=why,
        text=text(why, seen, option, other, q=scene.q, loss=scene.loss, divided=_divided(scene)),
        maps=maps,
        source=scene.loss.source,
        lost_steps=scene.loss.lost_steps,
    )


def _scene(seen: Situation, settings: TierSettings) -> _Scene:
    """Members that stay, and the losses; nothing is done where notices are ignored."""
    ignored = settings.on_notice is OnNotice.IGNORE
    staying = [member for member in seen.members if ignored or member.stays]
    if not staying and seen.maps is None:
        staying = list(seen.members)
    return _Scene(
        seen=seen,
        settings=settings,
        reliable=tuple(member for member in staying if member.reliable),
        transient=tuple(member for member in staying if not member.reliable),
        loss=_loss(seen, settings, {member.name for member in staying}),
    )


def _loss(seen: Situation, settings: TierSettings, staying: set[str]) -> Loss:
    """Owners that are gone or cannot flush in time, owners that hand over, and the source."""
    old = seen.maps
    if old is None:
        return Loss()
    running = {member.name: member for member in seen.members}
    owners = set(old.owners)
    gone = {name for name in owners if name not in running}
    noticed = owners - gone - staying
    if settings.on_notice is not OnNotice.CHECKPOINT:
        late = {name for name in noticed if _is_too_late(seen, settings, running[name])}
        noticed, gone = noticed - late, gone | late
    source: StateSource = StateSource.NONE
    lost: int | None = 0
    if gone and seen.committed is not None:  # the store is not a member, so it survives
        source, lost = StateSource.STATE_STORE, seen.step - seen.committed
    elif gone:
        source, lost = StateSource.CHECKPOINT, None
    elif noticed and settings.on_notice is OnNotice.CHECKPOINT:
        source = StateSource.CHECKPOINT
    return Loss(gone=frozenset(gone), noticed=frozenset(noticed), source=source, lost_steps=lost)


def _is_too_late(seen: Situation, settings: TierSettings, member: TierMember) -> bool:
    """True if an owner under notice cannot flush in time; all owners under notice flush at once.

    Without a copy it saves to storage and hands over itself, which is not checked here.
    """
    old = seen.maps
    if old is None or not old.backups:
        return False
    noticed = {
        member.name for member in seen.members if not member.stays and member.name in old.owners
    }
    part = len([name for name in old.owners if name in noticed]) / len(old.owners)
    link = replace(
        seen.link,
        state_bytes=math.ceil(seen.link.state_bytes * part),
        dirty_bytes_per_step=math.floor(seen.link.dirty_bytes_per_step * part),
    )
    state_stores = settings.state_stores_of(len(set(old.backups)))
    flush_s = flush_time_s(link, owners=len(noticed), state_stores=state_stores)
    answer = answer_notice(
        step_left_s=seen.step_s, flush_s=flush_s, notice_left_s=member.notice_left_s or 0.0
    )
    return answer is NoticeAnswer.TOO_LATE


def _stage(scene: _Scene) -> tuple[TierStage, Hold]:
    """The stage by pin, loss or ratio, within the limits of the members."""
    old, pinned = scene.seen.maps, scene.settings.pinned
    hold = Hold.FREE
    if old is not None and old.stage is not TierStage.RELIABLE and _all_owners_gone(scene):
        stage = TierStage.RELIABLE
    elif pinned is not None:
        stage = pinned
    elif old is None:
        stage = target(scene.q, scene.settings.rule)
    else:
        stage, hold = settle(
            scene.q,
            old.stage,
            since_s=scene.seen.since_s,
            owner_lost=bool(scene.loss.gone),
            rule=scene.settings.rule,
        )
    possible = _possible(scene, stage)
    return possible, hold if possible is stage else Hold.FREE


def _possible(scene: _Scene, stage: TierStage) -> TierStage:
    """Transient owners need transient members, reliable owners reliable ones."""
    if not scene.transient:
        return TierStage.RELIABLE
    if not scene.reliable and stage is TierStage.RELIABLE:
        return TierStage.BACKED
    return stage


def _all_owners_gone(scene: _Scene) -> bool:
    old = scene.seen.maps
    return old is not None and scene.loss.gone >= set(old.owners)


def _owners(scene: _Scene, stage: TierStage) -> tuple[int, Flush]:
    """Number of owners: a fraction of the transient members, more if a notice requires it."""
    reliable, shards = len(scene.reliable), scene.settings.shards
    state_stores = scene.settings.state_stores_of(reliable)
    if stage is TierStage.RELIABLE:
        none = feasibility(scene.seen.link, owners=0, state_stores=state_stores, notice_s=None)
        return min(max(1, reliable), shards), none
    most = min(len(scene.transient), shards)
    count = min(most, max(1, math.ceil(scene.settings.owner_part * len(scene.transient) - 1e-9)))

    def verdict(owners: int) -> Flush:
        return feasibility(
            scene.seen.link,
            owners=owners,
            state_stores=state_stores,
            notice_s=scene.seen.notice_s,
            shards=shards,
        )

    flush = verdict(count)
    if not flush.feasible and flush.owners_needed is not None and flush.owners_needed <= most:
        count = max(count, flush.owners_needed)
        flush = verdict(count)
    return count, flush


def _option(scene: _Scene, stage: TierStage) -> TierOption:
    count, flush = _owners(scene, stage)
    workers = len(scene.transient)
    if stage is not TierStage.TRANSIENT or not workers:
        workers += len(scene.reliable)
    return TierOption(stage=stage, owners=count, workers=workers, flush=flush)


def _maps(scene: _Scene, stage: TierStage) -> tuple[TierOption, Maps]:
    """The new maps; the epoch is the next one."""
    option, settings, old = _option(scene, stage), scene.settings, scene.seen.maps
    was = old or Maps(stage=stage, epoch=0, owners=())
    reliable = [member.name for member in scene.reliable]
    if stage is TierStage.RELIABLE:
        owners = divide(settings.shards, reliable, now=was.backups or was.owners)
        backups: Map = ()
    else:
        chosen = hosts(scene.transient, option.owners, now=set(was.owners))
        owners = divide(settings.shards, chosen, now=was.owners)
        backups = divide(settings.shards, reliable, now=was.backups or was.owners)
    names = [member.name for member in scene.transient]
    if stage is not TierStage.TRANSIENT or not names:
        names += reliable
    workers = divide(settings.blocks, sorted(names), now=was.workers, homes=was.homes)
    maps = Maps(
        stage=stage,
        epoch=max(was.epoch, scene.seen.heard) + 1,
        owners=owners,
        backups=backups,
        workers=workers,
        homes=_homes(was, workers),
    )
    return option, maps


def _homes(was: Maps, workers: Map) -> Map:
    """Owner of each block before its present worker."""
    if not was.workers or len(was.workers) != len(workers):
        return was.homes if len(was.homes) == len(workers) else workers
    homes = was.homes if len(was.homes) == len(workers) else was.workers
    return tuple(
        old if old != new else home
        for old, new, home in zip(was.workers, workers, homes, strict=True)
    )


def _why(scene: _Scene, maps: Maps, hold: Hold) -> TierWhy:
    old, loss = scene.seen.maps, scene.loss
    if old is None:
        return TierWhy.STARTED
    if loss.gone:
        if loss.source is StateSource.CHECKPOINT:
            return TierWhy.STATE_LOST
        return TierWhy.ALL_OWNERS_LOST if _all_owners_gone(scene) else TierWhy.ROLLED_BACK
    if loss.noticed:
        return TierWhy.FLUSHED
    if maps.stage is not old.stage:
        return TierWhy.STAGE_CHANGED
    if maps.backups != old.backups:
        return TierWhy.STATE_STORE_MOVED
    if maps != old:
        return TierWhy.MEMBERS_CHANGED
    return {Hold.BAND: TierWhy.IN_BAND, Hold.REST: TierWhy.TOO_SOON, Hold.FREE: TierWhy.KEPT}[hold]


def _runner_up(scene: _Scene, stage: TierStage) -> TierOption | None:
    """The stage of the ratio, if it was held back; else the nearest other."""
    rule = scene.settings.rule
    wanted = target(scene.q, rule)
    other = wanted if wanted is not stage else nearest_other(scene.q, stage, rule)
    return _option(scene, other) if _possible(scene, other) is other else None


def _divided(scene: _Scene) -> bool:
    """True if each additional reliable member would take a part of a flush."""
    return scene.settings.state_stores is None


def _unchanged(scene: _Scene, maps: Maps) -> TierDecision:
    """Maps that must stay: there is no member to hand over to."""
    seen = scene.seen
    state_stores = scene.settings.state_stores_of(len(set(maps.backups)))
    owners = len(set(maps.owners)) if maps.backups else 0
    option = TierOption(
        stage=maps.stage,
        owners=len(set(maps.owners)),
        workers=len(set(maps.workers)),
        flush=feasibility(
            seen.link, owners=owners, state_stores=state_stores, notice_s=seen.notice_s
        ),
    )
    return TierDecision(
        chosen=option,
        runner_up=None,
        reason=TierWhy.FLUSHED,
        text=text(
            TierWhy.FLUSHED, seen, option, None, q=scene.q, loss=scene.loss, divided=_divided(scene)
        ),
        maps=maps,
    )
