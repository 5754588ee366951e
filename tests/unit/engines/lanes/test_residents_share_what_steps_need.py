# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ullage.engines.lanes.records import JobDemand
from ullage.engines.lanes.residents import (
    LaneDevice,
    RuleDevice,
    occupy,
    packing,
    single_lane,
)
from ullage.engines.lanes.settings import EXACT, LaneAim, LaneSettings

CAPACITY = 100
PAIRS = st.lists(
    st.tuples(st.integers(1, 20), st.integers(1, 80), st.floats(0.1, 5)), min_size=1, max_size=12
)


def residents(
    pairs: list[tuple[int, int, float]], *, aim: LaneAim = LaneAim.RESIDENTS
) -> dict[str, float]:
    demands = [
        JobDemand(name=f"j{at}", persistent_mib=p, ephemeral_mib=e)
        for at, (p, e, _) in enumerate(pairs)
    ]
    stays = [stay for *_, stay in pairs]
    lanes = LaneDevice(settings=LaneSettings(capacity_mib=CAPACITY, margins=EXACT, aim=aim))
    return {
        "lanes": occupy(demands, stays, lanes).residents,
        "packing": occupy(demands, stays, RuleDevice(usable_mib=CAPACITY, fits=packing)).residents,
        "clairvoyant": occupy(
            demands, stays, RuleDevice(usable_mib=CAPACITY, fits=single_lane)
        ).residents,
    }


@settings(max_examples=60)
@given(PAIRS)
def test_lanes_that_merge_have_as_many_residents_as_one_lane(
    pairs: list[tuple[int, int, float]],
) -> None:
    found = residents(pairs)
    assert abs(found["lanes"] - found["clairvoyant"]) < 1e-6


def test_one_after_the_other_where_only_one_fits() -> None:
    assert set(residents([(20, 80, 1.0)] * 5).values()) == {1.0}


def test_large_steps_are_shared_and_not_added_up() -> None:
    found = residents([(5, 60, 1.0)] * 8)
    assert found["packing"] == 1
    assert found["lanes"] > 4


def test_without_merging_the_lanes_that_opened_first_stay() -> None:
    pairs = [(5, 40, 10.0), (5, 40, 10.0), (15, 45, 10.0), (5, 10, 10.0)]
    assert residents(pairs, aim=LaneAim.RULES_ALONE)["lanes"] < residents(pairs)["lanes"]
