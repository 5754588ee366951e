# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from bench.lanes_residents import LaneDevice, RuleDevice, occupy, packing, single_lane
from ullage.engines.lanes.records import JobDemand
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


def test_steps_go_on_side_by_side_in_lanes_of_their_own_and_in_turn_in_one() -> None:
    jobs = [
        JobDemand(name=f"j{at}", persistent_mib=5, ephemeral_mib=20, own_lane=True, duty=duty)
        for at, duty in enumerate((0.25, 0.75, 0.5))
    ]
    lanes = LaneDevice(settings=LaneSettings(capacity_mib=CAPACITY, margins=EXACT))
    packed = RuleDevice(usable_mib=CAPACITY, fits=packing)
    turns = RuleDevice(usable_mib=CAPACITY, fits=single_lane)
    seen = []
    for job in jobs:
        for device in (lanes, packed, turns):
            assert device.offer(job) == [job.name]
        seen.append((lanes.parallel, packed.parallel, turns.parallel))
    assert seen == [(0.25, 0.25, 0.25), (1.0, 1.0, 1.0), (1.5, 1.5, 1.0)]


def test_no_job_keeps_more_than_its_lane_busy() -> None:
    eager = JobDemand(name="eager", persistent_mib=5, ephemeral_mib=20, own_lane=True, duty=1.0)
    calm = replace(eager, name="calm", duty=0.5)
    for device in (
        LaneDevice(settings=LaneSettings(capacity_mib=CAPACITY, margins=EXACT)),
        RuleDevice(usable_mib=CAPACITY, fits=packing),
    ):
        device.offer(eager)
        device.offer(calm)
        assert device.parallel == 1.5
        device.leave("eager")
        assert device.parallel == 0.5
