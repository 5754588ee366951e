# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What a killed process or machine may have held is told apart from what nothing explains."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest

from bench.service_faults import (
    AFTER_S,
    BARS,
    OUTAGE_S,
    SHORT_S,
    End,
    Request,
    ServiceFaults,
    figures_of,
)


def harmed(*faults: tuple[float, str]) -> ServiceFaults:
    nothing = cast("Any", None)
    return ServiceFaults(api=nothing, local=nothing, dice=random.Random(1), done=list(faults))


def ended(at_s: float, end: End, due_s: float | None = None) -> Request:
    return Request(due_s=at_s - 0.1 if due_s is None else due_s, ended_s=at_s, end=end)


@pytest.mark.parametrize(
    ("fault", "at_s", "explained"),
    [
        ("router killed", 100.5, True),
        ("router deleted", 100.0 + SHORT_S + 1, False),
        ("router killed", 98.0, False),
        ("replica killed", 100.5, False),
        ("operator killed", 100.5, False),
        ("machine lost", 100.0 + OUTAGE_S, True),
        ("machine lost", 100.0 + AFTER_S + 1, False),
    ],
)
def test_only_who_held_a_request_may_cut_it_off(fault: str, at_s: float, explained: bool) -> None:
    figures = figures_of([ended(at_s, End.CUT)], harmed((100.0, fault)))
    assert figures["cut_unexplained"] == (0 if explained else 1)


def test_only_a_machine_takes_requests_with_it_without_a_word() -> None:
    held = ended(130.0, End.LOST, due_s=85.0)
    later = ended(160.0, End.LOST, due_s=115.0)
    figures = figures_of([held, later], harmed((100.0, "machine lost")))
    assert (figures["lost"], figures["lost_unexplained"]) == (2, 1)
    figures = figures_of([held], harmed((100.0, "router killed")))
    assert figures["lost_unexplained"] == 1


def test_every_request_is_counted_once() -> None:
    made = [ended(float(at), end) for at, end in enumerate(End)]
    figures = figures_of(made, harmed())
    assert sum(int(cast("int", figures[end.value])) for end in End) == figures["requests"] == 4
    assert set(BARS) <= figures.keys()
