# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A service sleeps after long enough without a request, wakes at the first, and does not flap."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.engines.scaling.sleeping import (
    MOST_DOUBLINGS,
    RoutersSaid,
    SleepMemory,
    SleepTerms,
    fallen_asleep,
    has_to_wake,
    idle_needed_s,
    may_sleep,
    woken,
)

TERMS = SleepTerms(idle_s=60.0, hold_s=30.0)
AWAKE = SleepMemory()
QUIET = RoutersSaid(waiting=0, idle_since_s=0.0, asked_s=None, wake_s=20.0)


def test_it_sleeps_when_no_request_came_for_long_enough() -> None:
    assert not may_sleep(AWAKE, TERMS, QUIET, 59.0)
    assert may_sleep(AWAKE, TERMS, QUIET, 60.0)


def test_what_waits_keeps_it_awake() -> None:
    assert not may_sleep(AWAKE, TERMS, replace(QUIET, waiting=1), 1e6)


def test_it_does_not_sleep_where_a_request_would_not_wait_for_it() -> None:
    assert may_sleep(AWAKE, TERMS, replace(QUIET, wake_s=30.0), 1e6)
    assert not may_sleep(AWAKE, TERMS, replace(QUIET, wake_s=30.1), 1e6)


def test_a_request_wakes_it_and_one_before_the_sleep_does_not() -> None:
    asleep = fallen_asleep(AWAKE, 100.0)
    assert asleep.asleep
    assert not has_to_wake(asleep, QUIET)
    assert not has_to_wake(asleep, replace(QUIET, asked_s=40.0))
    assert has_to_wake(asleep, replace(QUIET, asked_s=100.5))
    assert has_to_wake(asleep, replace(QUIET, waiting=1))


def test_a_router_that_began_again_is_no_request() -> None:
    assert not has_to_wake(fallen_asleep(AWAKE, 100.0), replace(QUIET, idle_since_s=500.0))


@pytest.mark.parametrize(
    ("slept_s", "before", "after"),
    [(1.0, 0, 1), (59.0, 0, 1), (60.0, 0, 0), (119.0, 1, 2), (120.0, 1, 0), (1.0, 4, 4)],
)
def test_a_wake_soon_after_the_sleep_doubles_the_time_and_a_late_one_halves_it(
    slept_s: float, before: int, after: int
) -> None:
    asleep = fallen_asleep(SleepMemory(doublings=before), 1000.0)
    found = woken(asleep, TERMS, 1000.0 + slept_s)
    assert (found.asleep, found.doublings) == (False, after)


def test_a_clock_that_goes_back_doubles_nothing() -> None:
    assert woken(fallen_asleep(AWAKE, 1000.0), TERMS, 10.0).doublings == 0


@dataclass
class Life:
    """A router, a replica that takes a while to start, and a decision every second."""

    terms: SleepTerms
    launch_s: float
    wake_s: float = 0.0
    """What is known of how long a request waits for a replica."""
    memory: SleepMemory = AWAKE
    ready_at: float = 0.0
    """When the replica answers; infinite while there is none."""
    waiting: list[float] = field(default_factory=list)
    asked_s: float | None = None
    answered: list[float] = field(default_factory=list)
    """How long each request waited."""
    lost: int = 0
    wakes: list[float] = field(default_factory=list)
    asleep_s: int = 0

    def second(self, now: float, arrivals: list[float]) -> None:
        """All that happens until now, and the decision."""
        for at in arrivals:
            self.waiting.append(at)
            self.asked_s = at
        if now >= self.ready_at:
            self.answered += [max(0.0, self.ready_at - at) for at in self.waiting]
            self.waiting.clear()
        self.lost += sum(now - at > self.terms.hold_s for at in self.waiting)
        self.waiting = [at for at in self.waiting if now - at <= self.terms.hold_s]
        said = RoutersSaid(
            waiting=len(self.waiting),
            idle_since_s=self.asked_s or 0.0,
            asked_s=self.asked_s,
            wake_s=self.wake_s,
        )
        if self.memory.asleep:
            self.asleep_s += 1
            if has_to_wake(self.memory, said):
                self.memory = woken(self.memory, self.terms, now)
                self.ready_at = now + self.launch_s
                self.wakes.append(now)
        elif may_sleep(self.memory, self.terms, said, now):
            self.memory, self.ready_at = fallen_asleep(self.memory, now), math.inf


def lived(life: Life, arrivals: list[float], until: int) -> Life:
    coming, at = sorted(arrivals), 0
    for now in range(1, until):
        first = at
        while at < len(coming) and coming[at] <= now:
            at += 1
        life.second(float(now), coming[first:at])
    return life


@given(
    gaps=st.lists(st.floats(0.01, 300.0), min_size=1, max_size=12),
    launch_s=st.floats(1.0, 60.0),
    hold_s=st.floats(5.0, 60.0),
    idle_s=st.floats(10.0, 120.0),
)
def test_no_request_is_lost_however_often_it_sleeps(
    gaps: list[float], launch_s: float, hold_s: float, idle_s: float
) -> None:
    arrivals, at = [], 0.0
    for gap in gaps:
        at += gap
        arrivals.append(at)
    # a decision comes a second after its request at the latest, and so does the next look
    takes_s = launch_s + 2.0
    life = Life(SleepTerms(idle_s=idle_s, hold_s=hold_s), launch_s, wake_s=takes_s)
    found = lived(life, arrivals, int(at + hold_s + launch_s) + 5)
    assert found.lost == 0
    assert len(found.answered) == len(arrivals)
    assert 0 <= found.memory.doublings <= MOST_DOUBLINGS
    if takes_s > hold_s:
        assert not found.wakes


@pytest.mark.parametrize("period", [61, 75, 90, 119, 121, 200, 400, 900])
def test_a_request_in_every_period_starts_few_replicas_in_vain(period: int) -> None:
    until = 40 * period
    life = lived(Life(TERMS, 20.0), [float(at) for at in range(period, until, period)], until)
    assert life.lost == 0
    # each wake is paid by a sleep at least as long as the wait before it, but for the first ones
    assert len(life.wakes) <= MOST_DOUBLINGS + life.asleep_s / TERMS.idle_s


def test_a_period_just_above_the_time_makes_it_stay_awake() -> None:
    life = lived(Life(TERMS, 20.0), [float(at) for at in range(70, 7000, 70)], 7000)
    assert len(life.wakes) == 1
    assert life.memory.doublings == 1


def test_nights_are_slept_through_every_time() -> None:
    """A request every ten seconds by day, none by night."""
    days = [day * 3000.0 + at for day in range(5) for at in range(0, 1500, 10)]
    life = lived(Life(TERMS, 20.0), days, 15_000)
    assert len(life.wakes) == 4
    assert all(
        later - earlier == pytest.approx(3000, abs=30) for earlier, later in pairwise(life.wakes)
    )
    assert life.asleep_s > 5 * 1300
    assert idle_needed_s(life.memory, TERMS) == TERMS.idle_s
