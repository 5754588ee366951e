# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Maps of shards and of data: even, and with as few moves as evenness allows.

Hosts of shards are chosen by hazard and spread over pools, because a pool is lost as a whole.
Present hosts keep hosting: moving state costs more than a little hazard. Nothing may ever be
assigned to a member that leaves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from ullage.engines.tiers.records import Map, TierMember


def hosts(candidates: Sequence[TierMember], count: int, *, now: Collection[str] = ()) -> list[str]:
    """Chooses owners of shards: present hosts, then pools with the fewest, then least hazard.

    Args:
        candidates: Members that stay.
        count: Number of owners wanted.
        now: Names of the present hosts.

    Returns:
        At most ``count`` names, sorted.
    """
    chosen: list[TierMember] = []
    rest = [candidate for candidate in candidates if candidate.name not in now]
    held = [member for member in candidates if member.name in now]
    for group in (held, rest):
        while group and len(chosen) < count:
            per_pool = Counter(member.pool for member in chosen)
            best = min(
                group,
                key=lambda member: (per_pool[member.pool], member.hazard_per_hour, member.name),
            )
            group.remove(best)
            chosen.append(best)
    return sorted(member.name for member in chosen)


def divide(count: int, among: Sequence[str], *, now: Map = (), homes: Map = ()) -> Map:
    """An even map: parts differ by at most one, with as few moves as that needs.

    Args:
        count: Shards or blocks.
        among: Names of the members.
        now: The present map.
        homes: Previous member of each one; a free one returns there if there is room.

    Returns:
        The new map; empty without members.
    """
    if not among:
        return ()
    small, larger = divmod(count, len(among))
    had = Counter(name for name in now if name in set(among))
    # the largest holders keep the larger parts: the remainder alone moves nothing
    order = sorted(among, key=lambda name: (-had[name], name))
    room = {name: small + (place < larger) for place, name in enumerate(order)}
    new: list[str | None] = [None] * count
    for wish in (now, homes):
        for place, name in enumerate(wish[:count]):
            if new[place] is None and room.get(name, 0) > 0:
                new[place] = name
                room[name] -= 1
    free = iter([name for name in sorted(room) for _ in range(room[name])])
    return tuple(next(free) if name is None else name for name in new)
