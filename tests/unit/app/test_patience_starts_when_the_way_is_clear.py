# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whoever judges by the clock counts from the moment when the API server keeps up."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from ullage.app.api_backpressure import ApiBackpressure, Traffic

QUIET = Traffic(
    waiting=0, in_flight_most=20, answer_s=0.01, answered_at=99.0, lease_s=0.01, loop_lag_s=0.0
)


@dataclass
class Watch:
    wall: float = 1_000.0
    steady: float = 100.0

    def now(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.steady


@pytest.mark.parametrize(
    "busy",
    [
        replace(QUIET, waiting=21),
        replace(QUIET, answer_s=0.5),
        replace(QUIET, lease_s=0.5),
        replace(QUIET, loop_lag_s=1.5),
    ],
    ids=["writes wait", "answers late", "lease late", "own loop late"],
)
def test_patience_counts_from_the_end_of_congestion(busy: Traffic) -> None:
    now, clock = [QUIET], Watch()
    api_backpressure = ApiBackpressure(lambda: now[0], clock)
    assert api_backpressure.since() == 0.0
    now[0] = busy
    assert api_backpressure.since() == 1_000.0
    clock.wall = 1_005.0
    assert api_backpressure.since() == 1_005.0
    now[0], clock.wall = QUIET, 1_030.0
    assert api_backpressure.since() == 1_005.0


def test_an_old_average_says_nothing() -> None:
    api_backpressure = ApiBackpressure(
        lambda: replace(QUIET, answer_s=2.0, answered_at=80.0), Watch()
    )
    assert api_backpressure.since() == 0.0
