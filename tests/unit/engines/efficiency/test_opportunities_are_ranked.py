# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Opportunities are ranked by device time, and no row changes the gain of another."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from ullage.api.times import HOUR_MS
from ullage.api.usage import DeviceTime
from ullage.api.words import EfficiencyRule as Rule
from ullage.engines.efficiency.ranking import RankedRow, RowFinding, summary

GROUP = ("team", "vision", "h100")


def row(
    name: str,
    hours: int,
    used: int,
    *findings: tuple[Rule, int],
    price: str | None = "2",
    group: tuple[str, str, str] = GROUP,
) -> RankedRow:
    return RankedRow(
        name=name,
        group=group,
        time=DeviceTime(allocated_ms=hours * HOUR_MS, used_ms=used * HOUR_MS),
        per_device_hour=None if price is None else Decimal(price),
        findings=tuple(RowFinding(rule, gain) for rule, gain in findings),
        gain_permille=max((gain for _, gain in findings), default=0),
    )


def test_rules_and_groups_are_added_up_and_the_largest_is_first() -> None:
    fleet = summary(
        [
            row("a", 10, 0, (Rule.IDLE, 1000)),
            row("b", 20, 10, (Rule.HOST_BOUND, 400), (Rule.SMALL_BATCH, 300)),
            row("c", 4, 0, (Rule.IDLE, 1000)),
            row("d", 4, 0, (Rule.IDLE, 1000), group=("other", "other", "a100")),
        ]
    )
    assert [(entry.rule, entry.group[0], entry.rows) for entry in fleet.opportunities] == [
        (Rule.IDLE, "team", 2),
        (Rule.HOST_BOUND, "team", 1),
        (Rule.SMALL_BATCH, "team", 1),
        (Rule.IDLE, "other", 1),
    ]
    assert fleet.opportunities[0].gain_ms == 14 * HOUR_MS
    assert fleet.opportunities[0].cost == Decimal(28)
    assert fleet.opportunities[0].example == "a"
    assert fleet.gain_ms == 26 * HOUR_MS  # of b the larger gain, not the sum
    assert fleet.time.wasted_ms == 28 * HOUR_MS
    assert fleet.cost == Decimal(56)


def test_a_missing_price_is_no_price_of_nothing() -> None:
    fleet = summary([row("a", 1, 0, (Rule.IDLE, 1000), price=None), row("b", 1, 0)])
    assert fleet.opportunities[0].cost is None
    assert fleet.cost == Decimal(2)
    assert fleet.unpriced == 1
    assert summary([]).cost is None


ROWS = st.builds(
    lambda name, hours, part, gains, group: row(
        name,
        hours,
        hours * part // 100,
        *((rule, gain) for rule, gain in gains.items()),
        group=(group, "t", "h100"),
    ),
    st.text("abc", min_size=1, max_size=3),
    st.integers(0, 50),
    st.integers(0, 100),
    st.dictionaries(st.sampled_from(list(Rule)), st.integers(0, 1000), max_size=3),
    st.sampled_from(["a", "b"]),
)


@given(st.lists(ROWS, max_size=6), st.lists(ROWS, max_size=6))
def test_rows_of_another_namespace_change_no_gain(
    rows: list[RankedRow], others: list[RankedRow]
) -> None:
    own = [entry for entry in rows if entry.group[0] == "a"]
    forged = [entry for entry in others if entry.group[0] == "b"]
    alone = list(summary(own).opportunities)
    beside = [entry for entry in summary(own + forged).opportunities if entry.group[0] == "a"]
    assert beside == alone


@given(st.lists(ROWS, max_size=6))
def test_explained_time_is_wasted_time(rows: list[RankedRow]) -> None:
    fleet = summary(rows)
    assert fleet.gain_ms <= fleet.time.wasted_ms
    assert fleet.time.used_ms + fleet.time.wasted_ms == fleet.time.allocated_ms
    assert all(entry.gain_ms <= fleet.time.wasted_ms for entry in fleet.opportunities)
