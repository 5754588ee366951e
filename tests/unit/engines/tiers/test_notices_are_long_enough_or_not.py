# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A flush takes at most half of a notice; else it is said what would help."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from ullage.engines.tiers.explain import shortfall
from ullage.engines.tiers.flush import Link, NoticeAnswer, answer_notice, feasibility, flush_time_s

WAY = 200e6 / 8
SMALL = Link(
    state_bytes=50_000_000,
    dirty_bytes_per_step=50_000_000,
    host_bytes_per_s=WAY,
    state_store_bytes_per_s=WAY,
)
BIG = replace(SMALL, state_bytes=1_000_000_000, dirty_bytes_per_step=200_000_000)


def test_fifty_megabytes_are_flushed_in_two_seconds() -> None:
    for owners in (1, 2, 3):  # the way into the state store is what binds
        assert flush_time_s(SMALL, owners=owners, state_stores=1) == pytest.approx(2.0)


@pytest.mark.parametrize("notice_s", [120.0, 30.0, 15.0])
def test_it_fits_into_the_notice_of_every_provider(notice_s: float) -> None:
    assert feasibility(SMALL, owners=3, state_stores=1, notice_s=notice_s).feasible


def test_an_uneven_split_is_paid_for_by_its_fullest_owner() -> None:
    wide = replace(SMALL, state_store_bytes_per_s=10 * WAY)
    assert flush_time_s(wide, owners=2, state_stores=1, shards=3) == pytest.approx(2 * 2 / 3)


def test_pending_is_the_longest_lag_and_never_more_than_the_state() -> None:
    assert BIG.pending_bytes == 400_000_000
    assert replace(BIG, max_lag_steps=9).pending_bytes == 1_000_000_000


def test_what_would_help_helps() -> None:
    found = feasibility(BIG, owners=2, state_stores=1, notice_s=30.0)  # 16 s into one state store
    assert not found.feasible
    assert found.flush_s == pytest.approx(16.0)
    assert (found.owners_needed, found.state_stores_needed, found.lag_needed) == (None, 2, 1)
    assert feasibility(BIG, owners=2, state_stores=2, notice_s=30.0).feasible
    shorter = replace(BIG, max_lag_steps=1)
    assert feasibility(shorter, owners=2, state_stores=1, notice_s=30.0).feasible
    said = shortfall(found, owners=2)
    assert "16.0 s" in said
    assert "reliableReplicas 2" in said
    assert "maxLagSteps 1" in said


def test_one_holder_of_the_copy_names_what_helps_it() -> None:
    found = feasibility(BIG, owners=2, state_stores=1, notice_s=30.0)
    assert shortfall(found, owners=2, divided=False).endswith("needs backup.maxLagSteps 1")
    tight = feasibility(replace(BIG, max_lag_steps=1), owners=2, state_stores=1, notice_s=10.0)
    said = shortfall(tight, owners=2, divided=False)
    assert "longer notice" in said
    assert "reliableReplicas" not in said


def test_more_owners_help_where_their_own_way_out_binds() -> None:
    wide = replace(BIG, state_store_bytes_per_s=100 * WAY)
    found = feasibility(wide, owners=1, state_stores=1, notice_s=10.0, shards=7)  # 5 s for 16 s
    assert found.owners_needed == 4
    assert feasibility(wide, owners=4, state_stores=1, notice_s=10.0, shards=7).feasible
    assert not feasibility(wide, owners=3, state_stores=1, notice_s=10.0, shards=7).feasible
    assert "4 owners instead of 1" in shortfall(found, owners=1)


def test_without_a_holder_or_a_notice_nothing_can_be_flushed() -> None:
    alone = feasibility(SMALL, owners=2, state_stores=0, notice_s=120.0)
    assert math.isinf(alone.flush_s)
    assert not alone.feasible
    assert "reliableReplicas" in shortfall(alone, owners=2)
    untold = feasibility(SMALL, owners=2, state_stores=1, notice_s=None)
    assert not untold.feasible
    assert "no notice" in shortfall(untold, owners=2)
    assert feasibility(SMALL, owners=0, state_stores=0, notice_s=None).feasible


@pytest.mark.parametrize(
    ("step_left_s", "flush_s", "notice_left_s", "answer"),
    [
        (1.0, 2.0, 6.0, NoticeAnswer.FINISH),
        (1.1, 2.0, 6.0, NoticeAnswer.ABORT),
        (9.0, 6.0, 6.0, NoticeAnswer.ABORT),
        (0.0, 6.1, 6.0, NoticeAnswer.TOO_LATE),
    ],
)
def test_the_running_step_is_finished_if_half_of_the_notice_allows_it(
    step_left_s: float, flush_s: float, notice_left_s: float, answer: NoticeAnswer
) -> None:
    found = answer_notice(step_left_s=step_left_s, flush_s=flush_s, notice_left_s=notice_left_s)
    assert found is answer


def test_a_lag_shorter_than_the_interval_would_wait_for_ever() -> None:
    with pytest.raises(ValueError, match="raise maxLagSteps"):
        replace(SMALL, every_steps=3, max_lag_steps=2)


@pytest.mark.parametrize(
    "wrong", [{"dirty_bytes_per_step": 60_000_000}, {"host_bytes_per_s": 0.0}, {"every_steps": 0}]
)
def test_links_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        replace(SMALL, **wrong)
