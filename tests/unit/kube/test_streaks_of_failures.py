# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""How long something has been failing, and whether the fault is our own."""

from __future__ import annotations

from ullage.kube.failure_streak import Streak
from ullage.kube.times import STREAK_SETTLED_S
from ullage.ports import Unavailable
from ullage.process.faults import MOST_CHARACTERS

AWAY = Unavailable(0, "connection refused")
OURS = TypeError("unhashable type: 'dict'")


def test_a_streak_begins_with_the_first_failure_and_a_success_ends_it() -> None:
    streak = Streak()
    assert streak.seconds(100.0) == 0.0
    streak.failed(100.0, AWAY)
    streak.failed(140.0, AWAY)
    assert streak.seconds(170.0) == 70.0
    streak.worked(171.0)
    assert streak.seconds(200.0) == 0.0
    streak.failed(200.0, AWAY)
    assert streak.seconds(210.0) == 10.0


def test_a_success_between_two_failures_is_none() -> None:
    streak = Streak()
    for at in (0.0, 30.0, 60.0):
        streak.worked(at)
        streak.failed(at + STREAK_SETTLED_S / 2, OURS)
    assert streak.seconds(70.0) == 70.0 - STREAK_SETTLED_S / 2
    assert streak.own_seconds(70.0) == 70.0 - STREAK_SETTLED_S / 2


def test_an_api_server_that_is_away_is_no_fault_of_our_own() -> None:
    streak = Streak()
    streak.failed(0.0, OURS)
    streak.failed(50.0, AWAY)
    assert (streak.seconds(80.0), streak.own_seconds(80.0)) == (80.0, 0.0)
    streak.failed(90.0, OURS)
    assert streak.own_seconds(100.0) == 10.0, "counted from when it became ours again"


def test_what_failed_is_told_within_bounds() -> None:
    streak = Streak()
    streak.failed(0.0, ValueError("x" * 10_000))
    assert streak.text.startswith("ValueError: xxx")
    assert len(streak.text) == MOST_CHARACTERS
