# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Orders the commands that lead from the present maps to the new ones.

First the state of leaving members is saved or rolled back, then state moves, then the maps switch,
then members leave. It must never name a member that is gone, nor copy from one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ullage.engines.tiers.flush import NoticeAnswer
from ullage.engines.tiers.maps import places
from ullage.engines.tiers.records import Command, Do, Map, Situation, Source, Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Loss of owners.

    Attributes:
        gone: Owners without notice, or with one that is too short.
        answers: Owners under notice that hand over, and how.
        source: Where the state comes from.
        lost_steps: Finished steps that are done again; ``None`` = known when a checkpoint is found.
    """

    gone: frozenset[str] = frozenset()
    answers: Mapping[str, NoticeAnswer] = field(default_factory=dict)
    source: Source = Source.NONE
    lost_steps: int | None = 0


def commands(seen: Situation, new: Standing, loss: Loss) -> tuple[Command, ...]:
    """The transition, in order; empty where nothing changes.

    Args:
        seen: What the decision saw.
        new: The maps to reach.
        loss: Loss of owners.
    """
    old = seen.standing
    if old is None:
        return (Command(do=Do.SWITCH),)
    saved = list(_saved(old, loss))
    if new == old:
        return tuple(saved)
    return (
        *saved,
        *_rolled_back(seen, loss),
        *_state(old, new, loss),
        *_work(seen, old, new, loss),
        Command(do=Do.SWITCH),
        *_leaving(seen, old, new),
    )


def _saved(old: Standing, loss: Loss) -> Iterable[Command]:
    """Owners under notice save what only they have; a roll-back makes that worthless."""
    if loss.gone:
        return
    stored = loss.source is Source.CHECKPOINT or not old.backups
    for name, answer in sorted(loss.answers.items()):
        shards = places(old.owners, name)
        if stored:
            yield Command(do=Do.CHECKPOINT, member=name, shards=shards)
        else:
            yield Command(do=Do.FLUSH, member=name, shards=shards, answer=answer)


def _rolled_back(seen: Situation, loss: Loss) -> Iterable[Command]:
    if loss.source is Source.KEEPER:
        yield Command(do=Do.ROLL_BACK, step=seen.committed)
    elif loss.source is Source.CHECKPOINT:
        yield Command(do=Do.RESTORE)


def _state(old: Standing, new: Standing, loss: Loss) -> Iterable[Command]:
    """Shards to their new owners, copies to their new holders."""
    if loss.source is Source.CHECKPOINT:
        return  # everyone reads from storage
    left = loss.gone | loss.answers.keys()
    moved = _changes(old.owners, new.owners)
    for name in sorted(set(moved.values())):
        mine = [shard for shard, to in moved.items() if to == name]
        # a roll-back takes all from the copy, a hand-over what its owner has flushed there
        saved = {
            shard for shard in mine if loss.gone or (old.backups and old.owners[shard] in left)
        }
        loaded = [shard for shard in mine if shard in saved and old.backups[shard] != name]
        copied = [shard for shard in mine if shard not in saved]
        if loaded:
            yield Command(do=Do.LOAD, member=name, shards=tuple(loaded))
        if copied:
            yield Command(do=Do.COPY, member=name, shards=tuple(copied))
    # who owned a shard until now has its values already
    kept = _changes(old.backups or old.owners, new.backups)
    for name in sorted(set(kept.values())):
        shards = tuple(shard for shard, to in kept.items() if to == name)
        yield Command(do=Do.COPY, member=name, shards=shards)


def _work(seen: Situation, old: Standing, new: Standing, loss: Loss) -> Iterable[Command]:
    known = {*old.owners, *old.backups, *old.workers}
    staying = {*new.owners, *new.backups, *new.workers}
    for name in sorted(one.name for one in seen.members if one.name in staying):
        works = name in new.workers
        if name not in known:
            if loss.source is not Source.CHECKPOINT:
                yield Command(do=Do.JOIN, member=name)
        elif works and name not in old.workers:
            yield Command(do=Do.START_WORK, member=name)
        elif not works and name in old.workers:
            yield Command(do=Do.STOP_WORK, member=name)


def _leaving(seen: Situation, old: Standing, new: Standing) -> Iterable[Command]:
    had = {*old.owners, *old.backups, *old.workers}
    has = {*new.owners, *new.backups, *new.workers}
    for one in seen.members:
        if not one.stays and one.name in had - has:
            yield Command(do=Do.LEAVE, member=one.name)


def _changes(old: Map, new: Map) -> dict[int, str]:
    """Numbers whose holder is another now."""
    return {
        place: name for place, name in enumerate(new) if place >= len(old) or old[place] != name
    }
