# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The worst event takes as few replicas as any placing allows; spares are as few as can be."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ullage.engines.capacity.spread import pools_to_join, replicas_to_survive

FRACTIONS = st.dictionaries(
    st.sampled_from("abcd"), st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=3
)


def worst(held: Counter[str], lost: dict[str, float]) -> float:
    return max(held[name] * fraction for name, fraction in lost.items())


@settings(max_examples=80, deadline=None)
@given(lost=FRACTIONS, replicas=st.integers(1, 6))
def test_one_after_the_other_is_as_good_as_the_best_of_all_placings(
    lost: dict[str, float], replicas: int
) -> None:
    held: Counter[str] = Counter()
    for _ in range(replicas):
        held[min(pools_to_join(held, lost))] += 1
    best = min(
        worst(Counter(placing), lost)
        for placing in itertools.combinations_with_replacement(sorted(lost), replicas)
    )
    assert worst(held, lost) == pytest.approx(best)


def test_machines_that_stay_come_first_and_a_pool_without_room_is_none() -> None:
    assert pools_to_join({"": 9}, {"": 0.0, "spot": 1.0}) == {""}
    assert pools_to_join({"a": 2}, {"a": 0.3, "b": 1.0}) == {"a"}, "fewer of it are lost at once"
    assert pools_to_join({"a": 1}, {"a": 1.0, "b": 1.0, "c": 1.0}) == {"b", "c"}
    assert pools_to_join({"a": 1}, {}) == frozenset()


@pytest.mark.parametrize("pools", range(2, 6))
@pytest.mark.parametrize("needed", range(9))
def test_spares_are_the_fewest_that_leave_enough(needed: int, pools: int) -> None:
    enough = next(n for n in itertools.count(needed) if n - -(-n // pools) >= needed)
    assert replicas_to_survive(needed, pools) == enough


def test_where_all_would_be_lost_at_once_no_spare_helps() -> None:
    assert replicas_to_survive(5, 1) == 5
    for needed, pools in ((-1, 2), (1, 0)):
        with pytest.raises(ValueError, match="needed in"):
            replicas_to_survive(needed, pools)
