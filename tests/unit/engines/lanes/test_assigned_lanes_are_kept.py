# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from ullage.engines.lanes.assignment import AssignedLane, choose_lane, next_lane
from ullage.engines.lanes.records import Enlarged, Granted, JobDemand, Joined, Opened, Queued
from ullage.engines.lanes.rules import LaneNeed
from ullage.engines.lanes.settings import EXACT, LaneSettings
from ullage.engines.lanes.table import LaneTable


def table(capacity_mib: int = 1000) -> LaneTable:
    return LaneTable(settings=LaneSettings(capacity_mib=capacity_mib, margins=EXACT))


def job(name: str, lane: int, keeps: int = 100, step: int = 200) -> JobDemand:
    return JobDemand(name=name, persistent_mib=keeps, ephemeral_mib=step, assigned=lane)


def test_jobs_of_one_number_share_a_lane_though_memory_would_do_for_two() -> None:
    lanes = table()
    assert isinstance(lanes.arrive(job("a", 2), 0.0)[0], Opened)
    answer, _ = lanes.arrive(job("b", 2), 0.0)
    assert isinstance(answer, Joined)
    lanes.acquire("a", 1.0)
    turn, _ = lanes.acquire("b", 1.0)
    assert not isinstance(turn, Granted), "one at a time"


def test_jobs_of_two_numbers_run_side_by_side() -> None:
    lanes = table()
    for name, lane in (("a", 1), ("b", 2)):
        assert isinstance(lanes.arrive(job(name, lane), 0.0)[0], Opened)
        assert isinstance(lanes.acquire(name, 0.0)[0], Granted)


def test_a_larger_step_enlarges_the_lane_of_its_number_alone() -> None:
    lanes = table()
    lanes.arrive(job("a", 1, step=300), 0.0)
    lanes.arrive(job("b", 2), 0.0)
    answer, _ = lanes.arrive(job("c", 2, step=250), 0.0)
    assert isinstance(answer, Enlarged)
    assert answer.size_mib == 250


def test_lanes_that_were_assigned_are_neither_merged_nor_split() -> None:
    lanes = table(800)
    lanes.arrive(job("a", 1), 0.0)
    lanes.arrive(job("b", 2), 0.0)
    newcomer = JobDemand(name="c", persistent_mib=100, ephemeral_mib=200)
    assert isinstance(lanes.arrive(newcomer, 0.0)[0], Queued), "a merge would make room"
    assert {one.assigned for one in lanes.memory.lanes.values()} == {1, 2}
    lanes = table()
    for name in "ab":
        lanes.arrive(job(name, 1), 0.0)
    assert len(lanes.memory.lanes) == 1


def test_a_job_that_was_assigned_none_joins_no_assigned_lane() -> None:
    lanes = table(800)
    lanes.arrive(job("a", 1, step=300), 0.0)
    answer, _ = lanes.arrive(JobDemand(name="b", persistent_mib=100, ephemeral_mib=200), 0.0)
    assert isinstance(answer, Opened)


def test_a_table_that_is_restored_still_knows_the_numbers() -> None:
    lanes = table()
    lanes.arrive(job("a", 3), 0.0)
    again = LaneTable.restored(lanes.settings, lanes.record(), 1.0)
    assert isinstance(again.arrive(job("b", 3), 1.0)[0], Joined)


def test_an_outgrown_step_stays_in_its_lane() -> None:
    lanes = table()
    lanes.arrive(job("a", 1), 0.0)
    lanes.arrive(job("b", 1), 0.0)
    turn, _ = lanes.acquire("a", 1.0, ephemeral_mib=500)
    assert isinstance(turn, Granted)
    assert turn.size_mib == 500
    assert len(lanes.memory.lanes) == 1


@pytest.mark.parametrize(
    ("free", "may_open", "expected"),
    [
        (900, True, None),
        (900, False, 2),
        (150, True, 2),
        (100, True, 2),
        (99, True, None),
    ],
)
def test_rules_choose_the_smallest_lane_that_is_large_enough(
    free: int, may_open: bool, expected: int | None
) -> None:
    lanes = [
        AssignedLane(lane=1, size_mib=900, percent=50, residents=1),
        AssignedLane(lane=2, size_mib=300, percent=50, residents=2),
    ]
    need = LaneNeed(persistent_mib=100, ephemeral_mib=250)
    found = choose_lane(need, lanes, free, may_open=may_open)
    assert (found.lane if found is not None else None) == expected


def test_a_new_lane_takes_the_least_free_number() -> None:
    lanes = [AssignedLane(lane=at, size_mib=1, percent=1, residents=1) for at in (1, 3)]
    assert next_lane(lanes) == 2
    assert next_lane([]) == 1


def test_a_lane_of_ones_own_is_assigned_to_no_one() -> None:
    with pytest.raises(ValueError, match="a lane of its own"):
        JobDemand(name="a", persistent_mib=1, ephemeral_mib=1, own_lane=True, assigned=1)
    with pytest.raises(ValueError, match="from 1 to"):
        JobDemand(name="a", persistent_mib=1, ephemeral_mib=1, assigned=1024)
