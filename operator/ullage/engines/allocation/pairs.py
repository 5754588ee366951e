# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Two jobs on the same devices: pairs that are worth a column, and the choice of partners.

A pair that was neither measured nor predicted gets no time. A gang is paired only with a gang of
its size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from ullage.engines.allocation.model import Floats, Ints, PairShare, Problem

_NOTHING: Final = 1e-12
"""Time below which a share is rounding."""

Part = tuple[Ints, Ints, Ints, Floats, Floats]


def pair_columns(
    problem: Problem, kinds: Floats, rate: Floats, gang: Floats, count: Floats
) -> list[Part]:
    """Columns of two groups side by side, without those of little gain.

    Args:
        problem: Jobs and the speeds of pairs (steps/s).
        kinds: Number of each group's kind of job, shape (groups,).
        rate: Steps/s of one member alone on each type, shape (groups, types).
        gang: Devices of one member, shape (groups,).
        count: Jobs in each group, shape (groups,).

    Returns:
        For each measured pair and type: type, both groups, steps/s of both, one entry a column.
    """
    number: dict[str, float] = {}
    for job in problem.jobs:
        number.setdefault(job.kind or job.name, float(len(number)))
    lists: dict[tuple[float, int], list[int]] = {}
    for group, key in enumerate(zip(kinds.tolist(), gang.astype(int).tolist(), strict=True)):
        lists.setdefault(key, []).append(group)
    members = {key: np.array(groups, np.intp) for key, groups in lists.items()}
    parts: list[Part] = []
    for row in problem.throughputs.pairs:
        first = members.get((number.get(row.left, -1.0), row.gang))
        second = members.get((number.get(row.right, -1.0), row.gang))
        if first is None or second is None:
            continue
        lefts, rights = np.repeat(first, len(second)), np.tile(second, len(first))
        if row.left == row.right:
            # A pair of one kind is written once, and needs two jobs.
            keep = (lefts < rights) | ((lefts == rights) & (count[lefts] >= 2))
            lefts, rights = lefts[keep], rights[keep]
        for kind, (fast, slow) in enumerate(zip(row.left_rates, row.right_rates, strict=True)):
            alone_left, alone_right = rate[lefts, kind], rate[rights, kind]
            able = (alone_left > 0) & (alone_right > 0) & (fast > 0) & (slow > 0)
            a, b = lefts[able], rights[able]
            worth = fast / alone_left[able] + slow / alone_right[able] > problem.min_combined
            a, b = a[worth], b[worth]
            parts.append(
                (np.full(len(a), kind, np.intp), a, b, np.full(len(a), fast), np.full(len(a), slow))
            )
    return parts


def as_before(members: Sequence[str], previous: Mapping[str, Sequence[str]]) -> list[str]:
    """The members of a group, previous partners next to each other.

    Args:
        members: In any order.
        previous: Partners of each in the allocation in force.
    """
    here, kept = dict.fromkeys(members), dict[str, None]()
    for name in members:
        if name in kept:
            continue
        partner = next((member for member in previous.get(name, ()) if member in here), None)
        if partner is not None and partner not in kept:
            kept |= {name: None, partner: None}
    return [*kept, *(name for name in members if name not in kept)]


def beside_before(
    left: Sequence[str], right: Sequence[str], previous: Mapping[str, Sequence[str]]
) -> list[str]:
    """The right members in the order of the left ones that were their partners before.

    Args:
        left: Members of one group, in order.
        right: Members of another.
        previous: Partners of each in the allocation in force.
    """
    free = dict.fromkeys(right)
    places: list[str | None] = []
    for name in left[: len(right)]:
        partner = next((member for member in previous.get(name, ()) if member in free), None)
        if partner is not None:
            del free[partner]
        places.append(partner)
    rest = iter(free)
    placed = [next(rest) if entry is None else entry for entry in places]
    return [*placed, *rest]


def partners(
    left: Sequence[str], right: Sequence[str], kind: str, total: float
) -> Iterator[PairShare]:
    """Split the time of two groups side by side into few pairs of members, evenly.

    Every member spends the same time in pairs; a pair is two different jobs. The result has at most
    ``len(left) + len(right) - 1`` shares, so rounds stay as many as jobs. Within a group each has
    one partner while there are two jobs: a change of partners is a restart.

    Args:
        left: Members of one group.
        right: Members of the other; the same sequence for pairs within a group.
        kind: Type.
        total: Time of all pairs together, in job-seconds per second.
    """
    if total <= _NOTHING:
        return
    if left is right:
        couples = len(left) // 2 - len(left) % 2
        for index in range(couples):
            left_member, other = left[2 * index : 2 * index + 2]
            yield PairShare(
                left=left_member, right=other, type=kind, fraction=2 * total / len(left)
            )
        ring = left[2 * couples :]
        for index, member in enumerate(ring):
            after = ring[(index + 1) % len(ring)]
            yield PairShare(left=member, right=after, type=kind, fraction=total / len(left))
        return
    i, j = 0, 0
    has_left, has_right = total / len(left), total / len(right)
    while i < len(left) and j < len(right):
        given = min(has_left, has_right)
        if given > _NOTHING * total:
            yield PairShare(left=left[i], right=right[j], type=kind, fraction=given)
        has_left, has_right = has_left - given, has_right - given
        if has_left <= has_right:
            i, has_left = i + 1, total / len(left)
        else:
            j, has_right = j + 1, total / len(right)
