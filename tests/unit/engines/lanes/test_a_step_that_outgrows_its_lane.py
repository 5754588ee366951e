# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from ullage.engines.lanes.records import (
    Exceeded,
    Granted,
    JobDemand,
    JobRefused,
    Moved,
    TableRefusal,
)
from ullage.engines.lanes.settings import EXACT, LaneSettings
from ullage.engines.lanes.table import LaneTable


def a_table(**jobs: tuple[int, int]) -> LaneTable:
    table = LaneTable(settings=LaneSettings(capacity_mib=10_000, margins=EXACT))
    for name, (persistent, ephemeral) in jobs.items():
        demand = JobDemand(name=name, persistent_mib=persistent, ephemeral_mib=ephemeral)
        table.arrive(demand, 0.0)
    return table


def granted(table: LaneTable, job: str, ephemeral_mib: int | None = None) -> Granted:
    turn, _ = table.acquire(job, 0.0, ephemeral_mib)
    assert isinstance(turn, Granted)
    return turn


def test_a_larger_step_enlarges_its_lane() -> None:
    assert granted(a_table(a=(1000, 2000)), "a", 5000).size_mib == 5000


def test_a_larger_step_moves_to_a_lane_that_holds_it() -> None:
    table = a_table(a=(500, 2000), b=(500, 6500))
    turn, changes = table.acquire("a", 0.0, 6000)
    assert isinstance(turn, Granted)
    assert turn.lease.lane == 2
    assert Moved(jobs=("a",), lane=1, into=2) in changes


def test_a_step_that_no_lane_can_hold_is_refused_and_the_job_keeps_what_it_had() -> None:
    table = a_table(a=(3000, 2000), b=(3000, 2000))
    turn, _ = table.acquire("a", 0.0, 4001)
    assert isinstance(turn, JobRefused)
    assert turn.reason is TableRefusal.CANNOT_GROW
    assert granted(table, "a").size_mib == 2000


def test_a_breach_is_reported_and_the_next_step_gets_what_the_last_one_took() -> None:
    table = a_table(a=(1000, 2000))
    lease = granted(table, "a").lease
    changes = table.release(lease.lease, 1.0, 3000)
    assert changes == (Exceeded(job="a", peak_mib=3000, declared_mib=2000),)
    assert granted(table, "a").size_mib == 3000


def test_a_job_whose_step_is_known_to_be_too_large_never_runs_in_a_smaller_lane() -> None:
    table = a_table(a=(3000, 2000), b=(3000, 2000))
    lease = granted(table, "a").lease
    table.release(lease.lease, 1.0, 4001)
    for _ in range(2):
        assert isinstance(table.acquire("a", 2.0)[0], JobRefused)
    table.leave("b", 3.0)
    assert granted(table, "a").size_mib == 4001


def test_lanes_merge_for_a_larger_step() -> None:
    table = a_table(a=(500, 2500), b=(500, 2500), c=(500, 2500))
    turn = granted(table, "a", 5000)
    assert turn.size_mib == 5000
