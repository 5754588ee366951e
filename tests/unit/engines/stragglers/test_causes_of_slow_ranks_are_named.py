# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.engines.stragglers.detector import (
    SLOW,
    STANDS_OUT,
    RankTimes,
    SlowCause,
    find_stragglers,
)

FAST = RankTimes(compute=1.0, data=0.1)


@pytest.mark.parametrize(
    ("slow", "cause"),
    [
        (RankTimes(compute=2.0, data=0.1), SlowCause.COMPUTE),
        (RankTimes(compute=2.0, data=0.1, throttled_percent=60), SlowCause.THROTTLED),
        (RankTimes(compute=2.0, data=0.1, neighbours=1), SlowCause.NEIGHBOUR),
        (RankTimes(compute=1.0, data=1.5), SlowCause.DATA),
        (RankTimes(compute=1.0, data=1.5, throttled_percent=30), SlowCause.THROTTLED),
        (RankTimes(compute=1.1, data=0.1, link=2.0), SlowCause.LINK),
    ],
)
def test_the_slow_one_is_named_with_its_cause(slow: RankTimes, cause: SlowCause) -> None:
    (straggler,) = find_stragglers([FAST, FAST, slow, FAST]).stragglers
    assert (straggler.at, straggler.cause) == (2, cause)


def test_what_all_have_is_no_cause() -> None:
    beside = RankTimes(compute=1.0, throttled_percent=60, neighbours=1)
    slow = RankTimes(compute=2.0, throttled_percent=60, neighbours=1)
    (straggler,) = find_stragglers([beside, slow, beside]).stragglers
    assert straggler.cause is SlowCause.COMPUTE


def test_a_slow_stage_blames_none_of_its_ranks() -> None:
    ranks = [RankTimes(compute=1.6 if stage == 3 else 1.0, stage=stage) for stage in (0, 1, 2, 3)]
    verdict = find_stragglers(ranks * 2)
    assert verdict.stragglers == ()
    assert [stage for stage, _ in verdict.stages] == [3]


def test_a_slow_rank_does_not_make_its_stage_slow() -> None:
    ranks = [RankTimes(compute=1.0, stage=at % 2) for at in range(8)]
    ranks[4] = RankTimes(compute=3.0, stage=0)
    verdict = find_stragglers(ranks)
    assert [straggler.at for straggler in verdict.stragglers] == [4]
    assert verdict.stages == ()


def test_of_many_like_ranks_a_little_slower_one_stands_out() -> None:
    peers = [1.0, 1.01, 1.02, 1.01, 1.0, 1.02, 1.01]
    (straggler,) = find_stragglers([RankTimes(compute=time) for time in (*peers, 1.1)]).stragglers
    assert straggler.at == len(peers)
    assert not find_stragglers([RankTimes(compute=time) for time in (*peers[1:], 1.1)]).stragglers
    uneven = [1.0, 1.1, 1.2, 1.1, 1.0, 1.05, 1.15]
    assert not find_stragglers([RankTimes(compute=time) for time in (*uneven, 1.2)]).stragglers


@given(st.lists(st.floats(min_value=1.0, max_value=SLOW - 0.01), max_size=7))
def test_small_differences_are_no_stragglers(times: list[float]) -> None:
    verdict = find_stragglers([RankTimes(compute=time) for time in times])
    assert verdict.stragglers == ()


@given(
    st.lists(
        st.builds(
            RankTimes,
            compute=st.floats(min_value=0, max_value=1e9),
            data=st.floats(min_value=0, max_value=1e9),
            throttled_percent=st.integers(0, 100),
            neighbours=st.integers(0, 9),
            stage=st.integers(0, 3),
        ),
        max_size=12,
    )
)
def test_any_figures_have_a_verdict(ranks: list[RankTimes]) -> None:
    verdict = find_stragglers(ranks)
    ratios = [straggler.ratio for straggler in verdict.stragglers]
    assert ratios == sorted(ratios, reverse=True)
    assert all(ratio >= STANDS_OUT for ratio in ratios)
