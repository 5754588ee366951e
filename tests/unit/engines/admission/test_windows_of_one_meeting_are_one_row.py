# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Twenty windows of two tenants side by side are one observation of that pair, not twenty."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.engines.admission.colocations import meetings
from ullage.engines.admission.learning import learn
from ullage.engines.admission.records import Partner, Row
from ullage.engines.admission.times import MEETING_GAP_S

PERIOD_S = 30.0


def window(number: int, victim: str = "a", other: str = "b", **changes: object) -> Row:
    row = Row(
        id=f"{victim}{other}.{number}",
        workload_class=victim,
        accelerator="v100",
        percent=50,
        partners=(Partner(workload_class=other, percent=50),),
        step_s=0.1,
        slowdown=1.2,
        at_s=PERIOD_S * number,
        max_slowdown=2.0,
    )
    return replace(row, **changes)  # type: ignore[arg-type]


def test_a_meeting_is_one_row_for_each_tenant_with_the_median() -> None:
    odd = [1.1, 1.2, 9.0]
    windows = [window(n, slowdown=one) for n, one in enumerate(odd)]
    windows += [window(n, "b", "a", slowdown=1.5) for n in range(3)]
    found = meetings(windows)
    assert {(row.workload_class, round(row.slowdown, 9)) for row in found} == {
        ("a", 1.2),
        ("b", 1.5),
    }
    assert {row.at_s for row in found} == {2 * PERIOD_S}


def test_a_pause_begins_another_meeting_and_so_does_another_share() -> None:
    later = MEETING_GAP_S + 1 + PERIOD_S
    apart = [window(0), window(1), window(2, at_s=later + PERIOD_S)]
    assert len(meetings(apart)) == 2
    assert len(meetings([window(0), window(1, percent=40)])) == 2
    assert len(meetings([window(0), window(1, other="c")])) == 2


def test_the_newest_objective_counts_and_lone_tenants_are_left_out() -> None:
    (row,) = meetings([window(0), window(1, max_slowdown=1.3), window(2, partners=())])
    assert row.max_slowdown == 1.3
    assert row.id == "ab.1"


@given(
    st.lists(
        st.tuples(st.integers(0, 200), st.sampled_from("abc"), st.sampled_from("abc")),
        max_size=60,
        unique=True,
    ),
    st.randoms(use_true_random=False),
)
def test_neither_order_nor_a_second_look_changes_meetings(
    places: list[tuple[int, str, str]], random: object
) -> None:
    windows = [window(n, victim, other) for n, victim, other in places]
    found = meetings(windows)
    assert meetings(found) == found
    random.shuffle(windows)  # type: ignore[attr-defined]
    assert meetings(windows) == found


@pytest.mark.parametrize("windows", [1, 20])
def test_more_windows_of_the_same_pairs_certify_nothing_more(windows: int) -> None:
    """Twelve pairs in 20 windows each gave thresholds that admitted unseen pairs."""
    classes = [f"c{number}" for number in range(6)]
    rows = []
    for number, one in enumerate(classes):
        for place, other in enumerate(classes[:number][:4]):
            began = 10_000.0 * (10 * number + place)
            rows += [
                window(n, victim, partner, at_s=began + PERIOD_S * n, id=f"{began}{victim}{n}")
                for n in range(windows)
                for victim, partner in ((one, other), (other, one))
            ]
    model = learn(rows, {}, accelerator="v100", previous=None, refit=True, wanted=())
    assert all(math.isinf(one.value) for one in model.thresholds.values())
    assert max(one.rows for one in model.thresholds.values()) <= 14
