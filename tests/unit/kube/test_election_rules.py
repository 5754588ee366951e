# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The election's pure rules."""

from __future__ import annotations

import pytest

from ullage.kube.election import (
    LeaseMove,
    LeaseTimes,
    LeaseView,
    WatchedLease,
    decide,
    micro_time,
    observe,
    view_of,
)

TIMES = LeaseTimes()
ME, OTHER = "me", "other"


def lease(holder: str, version: str = "5") -> LeaseView:
    return LeaseView(holder=holder, transitions=3, version=version, raw={})


@pytest.mark.parametrize(
    ("view", "is_leader", "fresh", "now", "move"),
    [
        (None, False, True, 0.0, LeaseMove.CREATE),
        (lease(""), False, False, 0.0, LeaseMove.TAKE),
        (lease(OTHER), False, False, 11.9, LeaseMove.WAIT),
        (lease(OTHER), False, True, 11.9, LeaseMove.WAIT),
        (lease(OTHER), False, False, 12.0, LeaseMove.TAKE),
        # our own take whose answer was lost
        (lease(ME), False, False, 1.0, LeaseMove.TAKE),
        (lease(ME), True, False, 100.0, LeaseMove.RENEW),
        (lease(OTHER), True, False, 1.0, LeaseMove.LOST),
        (lease(""), True, False, 1.0, LeaseMove.LOST),
        (None, True, True, 1.0, LeaseMove.LOST),
        # deleted while someone may still write
        (None, False, False, 11.9, LeaseMove.WAIT),
        (None, False, False, 12.0, LeaseMove.CREATE),
    ],
)
def test_each_sight_has_its_move(
    view: LeaseView | None, is_leader: bool, fresh: bool, now: float, move: LeaseMove
) -> None:
    watched = WatchedLease(version=view.version if view else "", since=0.0)
    found = decide(
        view, watched, identity=ME, is_leader=is_leader, fresh=fresh, now=now, times=TIMES
    )
    assert found is move


def sight(
    before: WatchedLease | None, view: LeaseView | None, now: float, epoch: int = 3
) -> WatchedLease:
    return observe(before, view, highest_epoch=epoch, now=now)


def test_expiry_counts_from_the_last_change_seen() -> None:
    first = sight(None, lease(OTHER, "5"), 100.0)
    assert first.since == 100.0
    assert sight(first, lease(OTHER, "5"), 105.0) is first
    assert sight(first, lease(OTHER, "6"), 106.0).since == 106.0


def test_a_lease_is_missing_since_it_was_first_missed() -> None:
    first = sight(sight(None, lease(OTHER), 1.0), None, 9.0)
    assert first.since == 9.0
    assert sight(first, None, 15.0) is first


def test_a_new_epoch_means_that_the_missing_lease_was_there_in_between() -> None:
    first = sight(None, None, 1.0, epoch=3)
    assert sight(first, None, 12.0, epoch=4).since == 12.0


@pytest.mark.parametrize("spec", [None, {}, {"holderIdentity": None, "leaseTransitions": None}])
def test_an_empty_lease_is_held_by_no_one(spec: object) -> None:
    view = view_of({"spec": spec})
    assert (view.holder, view.transitions, view.version) == ("", 0, "")


def test_times_are_micro_times() -> None:
    assert micro_time(0.25) == "1970-01-01T00:00:00.250000Z"


def test_the_default_times_leave_room_for_a_write_in_flight() -> None:
    write_limit_s = 3.0
    assert write_limit_s < TIMES.duration_s - TIMES.renew_deadline_s
    assert TIMES.period_s < TIMES.renew_deadline_s
