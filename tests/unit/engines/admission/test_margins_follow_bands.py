# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A mixture is held to the threshold of its own group and band, or a stricter one that it keeps."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.admission import tenant
from ullage.engines.admission.calibration import Band, Scored, Threshold, thresholds
from ullage.engines.admission.margin import margin
from ullage.engines.admission.records import Forecast, Group, Rung


def threshold(value: float, needed: int = 0) -> Threshold:
    return Threshold(value=value, rows=5, admitted=0, violations=0, needed=needed)


def forecast(*means: float, sd: float = 0.1, group: Group = Group.KNOWN) -> Forecast:
    return Forecast(mean=means, sd=(sd,) * len(means), group=group, rung=Rung.GP)


def test_the_tightest_objective_names_the_band_and_the_worst_tenant_binds() -> None:
    pair = [tenant("a", slo=1.5), tenant("b", slo=2.0), tenant("c", slo=None)]
    found = margin(pair, forecast(0.1, 0.6, 9.0), {(Group.KNOWN, Band.CLOSE): threshold(0.5)})
    assert found.band is Band.CLOSE
    assert found.binding == 1
    assert found.z == (math.log(2.0) - 0.6) / 0.1
    assert found.passes
    assert found.margins[2] == math.inf


def test_a_stricter_band_lends_its_threshold_to_who_keeps_its_edge() -> None:
    table = {
        (Group.KNOWN, Band.WIDE): threshold(math.inf, needed=32),
        (Group.KNOWN, Band.MEDIUM): threshold(1.0),
    }
    pair = [tenant("a", slo=4.0), tenant("b", slo=4.0)]
    kept = margin(pair, forecast(0.1, 0.2), table)
    assert kept.passes
    assert kept.band is Band.MEDIUM
    assert kept.z == (math.log(2.5) - 0.2) / 0.1
    missed = margin(pair, forecast(0.1, 0.9), table)
    assert not missed.passes
    assert missed.band is Band.WIDE


def test_without_a_certified_margin_what_the_forecast_lacks_is_missing() -> None:
    pair = [tenant("a", slo=1.5), tenant("b", slo=None)]
    bare, certified = (
        margin(pair, forecast(0.6, 0.0), table)
        for table in ({}, {(Group.KNOWN, Band.CLOSE): threshold(1.0)})
    )
    assert bare.missing == pytest.approx(0.6 - math.log(1.5))
    assert certified.missing == pytest.approx(0.7 - math.log(1.5))
    assert (
        margin(pair, forecast(0.1, 0.0), {(Group.KNOWN, Band.CLOSE): threshold(1.0)}).missing == 0
    )


def test_nothing_is_missing_to_a_tenant_that_has_the_device_to_itself() -> None:
    alone = margin([tenant("a", 100, slo=1.5)], forecast(9.0), {})
    assert alone.passes
    assert alone.missing == 0


def test_only_the_group_of_the_forecast_counts() -> None:
    table = {(Group.SEEN_PAIR, Band.MEDIUM): threshold(0.0)}
    assert not margin([tenant("a", slo=2.0)] * 2, forecast(0.1, 0.1), table).passes


slos = st.floats(1.05, 6.0)
tables = st.fixed_dictionaries(
    {
        (Group.KNOWN, band): st.sampled_from([0.0, 0.7, 2.0, math.inf]).map(threshold)
        for band in Band
    }
)


@given(tables, slos, slos, st.floats(0.0, 1.5), st.floats(0.0, 1.5))
def test_a_looser_objective_never_closes_a_door(
    table: dict[tuple[Group, Band], Threshold], one: float, other: float, a: float, b: float
) -> None:
    tight, loose = sorted((one, other))
    told = forecast(a, b)
    strict = margin([tenant("a", slo=tight), tenant("b", slo=tight)], told, table)
    easy = margin([tenant("a", slo=loose), tenant("b", slo=loose)], told, table)
    assert easy.passes or not strict.passes


def scored(group: Group, count: int, *, violated: bool = False) -> list[Scored]:
    return [Scored(z=3.0, violated=violated, group=group, band=Band.MEDIUM)] * count


def test_a_group_with_few_rows_is_lent_those_of_harder_groups_never_of_easier_ones() -> None:
    rows = scored(Group.SEEN_PAIR, 9) + scored(Group.KNOWN, 20) + scored(Group.NEW_FAMILY, 35)
    found = thresholds(rows, eps=0.05, confidence=0.8)
    lent = found[Group.SEEN_PAIR, Band.MEDIUM]
    assert not lent.refuses
    assert lent.rows == 64
    assert lent.pooled == (Group.KNOWN, Group.NEW_CONFIG, Group.NEW_FAMILY)
    assert found[Group.KNOWN, Band.MEDIUM].refuses
    assert (found[Group.KNOWN, Band.MEDIUM].rows, found[Group.KNOWN, Band.MEDIUM].needed) == (
        20,
        59,
    )
    assert found[Group.NEW_FAMILY, Band.MEDIUM].refuses


def test_a_group_that_failed_its_own_test_is_lent_nothing() -> None:
    rows = scored(Group.SEEN_PAIR, 80, violated=True) + scored(Group.KNOWN, 300)
    found = thresholds(rows, eps=0.05, confidence=0.8)
    assert found[Group.SEEN_PAIR, Band.MEDIUM].refuses
    assert not found[Group.KNOWN, Band.MEDIUM].refuses


def test_what_is_lent_counts_a_pair_once() -> None:
    """A pair that its own group scored says nothing more from a harder one."""
    own = [
        Scored(z=3.0, violated=False, group=Group.KNOWN, band=Band.MEDIUM, pair=(f"c{n}", "x"))
        for n in range(40)
    ]
    again = [replace(one, group=Group.NEW_FAMILY) for one in own]
    found = thresholds(own + again, eps=0.05, confidence=0.8)
    assert found[Group.KNOWN, Band.MEDIUM].rows == 40
    assert found[Group.KNOWN, Band.MEDIUM].refuses


def test_a_little_below_the_threshold_nothing_passes() -> None:
    table = {(Group.KNOWN, Band.MEDIUM): threshold(1.0)}
    pair = [tenant("a", slo=2.0), tenant("b", slo=None)]
    for z, passes in ((1.01, True), (0.99, False), (0.6, False)):
        found = margin(pair, forecast(math.log(2.0) - 0.1 * z, 0.0), table)
        assert found.passes is passes, z
