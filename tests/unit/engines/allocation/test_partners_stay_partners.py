# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Time of groups side by side is split into few pairs, evenly, and partners stay partners."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.engines.allocation.model import PairShare
from ullage.engines.allocation.pairs import as_before, beside_before, partners

SIZES = st.integers(1, 12)


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{at}" for at in range(count)]


def times(shares: Sequence[PairShare]) -> dict[str, float]:
    """Time that each member spends in pairs."""
    found: dict[str, float] = defaultdict(float)
    for share in shares:
        assert share.left != share.right
        found[share.left] += share.fraction
        found[share.right] += share.fraction
    return found


@given(count=st.integers(2, 12), part=st.floats(0.01, 0.5))
def test_within_a_group_everyone_has_the_same_time_with_few_partners(
    count: int, part: float
) -> None:
    group = names("a", count)
    shares = list(partners(group, group, "t", part * count))
    assert times(shares) == pytest.approx(dict.fromkeys(group, 2 * part))
    assert len(shares) == (count // 2 if count % 2 == 0 else count // 2 - 1 + 3)


@given(left=SIZES, right=SIZES, total=st.floats(0.01, 1.0))
def test_between_groups_everyone_of_a_group_has_the_same_time(
    left: int, right: int, total: float
) -> None:
    one, other = names("a", left), names("b", right)
    shares = list(partners(one, other, "t", total))
    assert len(shares) <= left + right - 1
    for group in (one, other):
        had = {name: time for name, time in times(shares).items() if name in group}
        assert had == pytest.approx(dict.fromkeys(group, total / len(group)), rel=1e-6)


@given(count=st.integers(4, 12), leaves=st.integers(0, 11), order=st.randoms())
def test_partners_of_before_stay_partners_when_one_leaves(
    count: int, leaves: int, order: Random
) -> None:
    group = names("a", 2 * (count // 2))
    before: dict[str, list[str]] = defaultdict(list)
    for share in partners(group, group, "t", 1.0):
        before[share.left].append(share.right)
        before[share.right].append(share.left)
    gone = group[leaves % len(group)]
    left = [name for name in group if name != gone]
    order.shuffle(left)
    now = as_before(left, before)
    assert sorted(now) == sorted(left)
    after = {frozenset((one.left, one.right)) for one in partners(now, now, "t", 1.0)}
    kept = {frozenset((one, *others)) for one, others in before.items() if gone not in others}
    kept.discard(frozenset((gone, *before[gone])))
    # of an odd number, three share among them: the couples that are left stay beside them
    assert len(kept - after) <= 1


@given(left=SIZES, right=SIZES, shift=st.integers(0, 11))
def test_partners_of_two_groups_stay_side_by_side(left: int, right: int, shift: int) -> None:
    one, other = names("a", left), names("b", right)
    before = {name: [other[(at + shift) % right]] for at, name in enumerate(one)}
    found = beside_before(one, other, before)
    assert sorted(found) == sorted(other)
    fewer = min(left, right)
    assert found[:fewer] == [before[name][0] for name in one[:fewer]]
