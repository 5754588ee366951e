# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.engines.batching.waiting import BatchRequest, WaitingRequests

DEADLINES = st.floats(-1e6, 1e6)
APPS = st.sampled_from(["a", "b", "c"])


def a_request(number: int, deadline_s: float, app: str) -> BatchRequest:
    return BatchRequest(number=number, arrival_s=float(number), deadline_s=deadline_s, app=app)


@given(
    offered=st.lists(st.tuples(DEADLINES, APPS), max_size=80),
    data=st.data(),
)
def test_columns_and_requests_are_one_sorted_queue(
    offered: list[tuple[float, str]], data: st.DataObject
) -> None:
    plain: list[BatchRequest] = []
    waiting = WaitingRequests()
    for number, (deadline_s, app) in enumerate(offered):
        request = a_request(number, deadline_s, app)
        waiting.add(request)
        plain.append(request)
        if data.draw(st.booleans()):
            places = data.draw(
                st.lists(st.integers(0, len(plain) - 1), unique=True, max_size=len(plain))
            )
            plain.sort(key=lambda r: (r.deadline_s, r.number))
            assert waiting.take(places) == tuple(plain[at] for at in places)
            plain = [r for at, r in enumerate(plain) if at not in places]
    plain.sort(key=lambda r: (r.deadline_s, r.number))
    assert list(waiting) == plain
    assert waiting.deadline_s.tolist() == [r.deadline_s for r in plain]
    assert waiting.arrival_s.tolist() == [r.arrival_s for r in plain]
    names = {number: app for app, number in waiting.apps.items()}
    assert [names[number] for number in waiting.app.tolist()] == [r.app for r in plain]
    assert waiting.apps.keys() == {r.app for r in plain}


def test_names_of_applications_are_forgotten_with_their_last_request() -> None:
    waiting = WaitingRequests()
    for number in range(1_000):
        waiting.add(a_request(number, 1.0, f"app-{number}"))
        waiting.take([0])
    assert waiting.apps == {}
    waiting.add(a_request(0, 1.0, "new"))
    assert waiting.apps == {"new": 0}


def test_a_deadline_that_is_no_number_is_refused() -> None:
    waiting = WaitingRequests.of([a_request(0, 1.0, "a")])
    with pytest.raises(ValueError, match="a number of seconds"):
        waiting.add(a_request(1, float(np.nan), "a"))
    assert len(waiting) == 1
