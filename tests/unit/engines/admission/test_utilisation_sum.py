# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The baseline predictor follows its formula and its invariants."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.engines.admission.records import Tenant
from ullage.engines.admission.utilisation import UtilisationSum

SHARES = st.integers(1, 100)
USES = st.floats(0.01, 1.0)
TENANTS = st.lists(
    st.builds(Tenant, name=st.just("t"), percent=SHARES, utilisation=USES), max_size=6
)


def _slowdowns(*shares: tuple[int, float]) -> tuple[float, ...]:
    *others, (percent, use) = shares
    tenants = [Tenant(name="t", percent=part, utilisation=one) for part, one in others]
    newcomer = Tenant(name="new", percent=percent, utilisation=use)
    return UtilisationSum().predict(tenants, newcomer, percent)


def test_alone_on_the_whole_device_nothing_slows_down() -> None:
    assert _slowdowns((100, 1.0)) == (1.0,)


def test_a_share_below_the_demand_slows_by_their_ratio() -> None:
    assert _slowdowns((50, 1.0)) == (2.0,)
    assert _slowdowns((50, 0.4)) == (1.0,)


def test_three_slices_of_37_percent_run_three_times_slower() -> None:
    assert _slowdowns((37, 1.0), (37, 1.0), (37, 1.0)) == pytest.approx((3.0, 3.0, 3.0))


def test_demands_that_fit_beside_each_other_do_not_slow_each_other() -> None:
    assert _slowdowns((60, 0.5), (40, 0.4)) == (1.0, 1.0)


def test_demands_beyond_the_device_slow_everyone_alike() -> None:
    assert _slowdowns((80, 0.8), (70, 0.7)) == pytest.approx((1.5, 1.5))


@given(TENANTS, SHARES, USES)
def test_no_one_is_ever_faster_than_alone(tenants: list[Tenant], percent: int, use: float) -> None:
    newcomer = Tenant(name="new", percent=percent, utilisation=use)
    found = UtilisationSum().predict(tenants, newcomer, percent)
    assert len(found) == len(tenants) + 1
    assert all(one >= 1.0 for one in found)


@given(TENANTS, SHARES, USES)
def test_a_newcomer_never_speeds_anyone_up(tenants: list[Tenant], percent: int, use: float) -> None:
    if not tenants:
        return
    *others, last = tenants
    before = UtilisationSum().predict(others, last, last.percent)
    newcomer = Tenant(name="new", percent=percent, utilisation=use)
    after = UtilisationSum().predict(tenants, newcomer, percent)
    assert all(late >= early - 1e-9 for early, late in zip(before, after, strict=False))


def test_a_share_of_nothing_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="must be positive"):
        UtilisationSum().predict([], Tenant(name="new", percent=0), 0)
