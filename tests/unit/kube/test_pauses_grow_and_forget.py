# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pauses between tries."""

from __future__ import annotations

import random
from typing import cast

from ullage.kube.backoff import Backoff


class Longest(random.Random):
    """Draws the upper end of every range."""

    def uniform(self, a: float, b: float) -> float:
        return b


def ceilings(backoff: Backoff, times: list[float]) -> list[float]:
    return [backoff.pause(now) for now in times]


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(first_s=0.5, max_s=4.0, rng=Longest())
    assert ceilings(backoff, [0.0, 1.0, 2.0, 3.0, 4.0]) == [0.5, 1.0, 2.0, 4.0, 4.0]


def test_health_makes_the_next_failure_the_first() -> None:
    backoff = Backoff(first_s=0.5, healthy_s=60.0, rng=Longest())
    assert ceilings(backoff, [0.0, 10.0, 69.9, 129.9]) == [0.5, 1.0, 2.0, 0.5]


def test_jitter_is_full_and_the_server_has_the_last_word() -> None:
    backoff = Backoff(first_s=1.0, max_s=1.0, rng=random.Random(3))
    pauses = [backoff.pause(float(number)) for number in range(200)]
    assert 0.0 <= min(pauses) < 0.1
    assert 0.9 < max(pauses) <= 1.0
    assert backoff.pause(300.0, at_least_s=7.0) == 7.0


def test_thousands_of_failures_do_not_overflow() -> None:
    backoff = Backoff(rng=cast("random.Random", Longest()))
    assert [backoff.pause(float(number)) for number in range(5_000)][-1] == 30.0
