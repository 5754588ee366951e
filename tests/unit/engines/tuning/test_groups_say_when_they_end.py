# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A group's expected end follows from what its trials took; the bound is never above the truth."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.engines.tuning.makespan import GroupRuns, makespan


def test_nothing_is_said_before_a_trial_was_measured() -> None:
    assert makespan(GroupRuns(ended_s=(), running_s=(5.0,), elapsed_s=5.0, places=2)) is None
    assert makespan(GroupRuns(ended_s=(0.0,), elapsed_s=5.0, places=2)) is None
    assert makespan(GroupRuns(ended_s=(5.0,), elapsed_s=0.0, places=2)) is None


def test_what_is_left_takes_as_long_as_what_was_measured() -> None:
    found = makespan(
        GroupRuns(ended_s=(10.0, 10.0), running_s=(0.0, 0.0), waiting=2, elapsed_s=10.0, places=2)
    )
    assert found is not None
    assert (found.eta_s, found.lower_bound_s, found.utilisation) == (30.0, 30.0, 1.0)


def test_places_that_stay_empty_make_it_longer_and_not_the_bound() -> None:
    found = makespan(GroupRuns(ended_s=(10.0, 10.0), waiting=2, elapsed_s=20.0, places=2))
    assert found is not None
    assert (found.eta_s, found.lower_bound_s, found.utilisation) == (40.0, 20.0, 0.5)


def test_the_last_trial_is_not_shared_out() -> None:
    found = makespan(GroupRuns(ended_s=(10.0,) * 4, waiting=1, elapsed_s=10.0, places=4))
    assert found is not None
    assert found.eta_s == 20.0


def test_a_trial_that_takes_longer_than_the_others_counts_as_long_as_it_ran() -> None:
    found = makespan(GroupRuns(ended_s=(10.0,), running_s=(50.0,), elapsed_s=50.0, places=2))
    assert found is not None
    assert (found.eta_s, found.lower_bound_s) == (50.0, 50.0)


@pytest.mark.parametrize("wild", [float("nan"), float("inf"), -1.0])
def test_wild_times_are_refused(wild: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        makespan(GroupRuns(ended_s=(wild,), elapsed_s=1.0, places=1))
    with pytest.raises(ValueError, match="place"):
        makespan(GroupRuns(ended_s=(), elapsed_s=1.0, places=0))


@given(st.lists(st.integers(1, 100), min_size=1, max_size=12), st.integers(1, 5))
def test_no_schedule_beats_the_bound(lasted: list[int], places: int) -> None:
    free = [0.0] * places
    for one in lasted:  # first come, first served
        heapq.heappush(free, heapq.heappop(free) + one)
    end = max(free)
    found = makespan(GroupRuns(ended_s=tuple(map(float, lasted)), elapsed_s=end, places=places))
    assert found is not None
    assert found.eta_s == end
    assert found.lower_bound_s <= end * (1 + 1e-9)
    assert found.utilisation == pytest.approx(sum(lasted) / (end * places))
