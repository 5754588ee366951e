# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from ullage.engines.lanes.explain import lane_line, wait_fraction
from ullage.engines.lanes.records import (
    Answer,
    Granted,
    JobDemand,
    JobRefused,
    Joined,
    Opened,
    Queued,
    TableRefusal,
    Turn,
    Waits,
)
from ullage.engines.lanes.settings import EXACT, LaneSettings, Margins
from ullage.engines.lanes.table import LaneTable

GIB = 1024


def a_table(**jobs: tuple[float, float]) -> LaneTable:
    table = LaneTable(settings=LaneSettings(capacity_mib=16 * GIB, margins=EXACT))
    for name, demand in jobs.items():
        arrives(table, name, *demand)
    return table


def arrives(table: LaneTable, name: str, persistent: float, ephemeral: float) -> Answer:
    demand = JobDemand(
        name=name, persistent_mib=int(persistent * GIB), ephemeral_mib=int(ephemeral * GIB)
    )
    return table.arrive(demand, 0.0)[0]


def refused(job: str, reason: TableRefusal, needs_mib: int = 0) -> JobRefused:
    return JobRefused(job=job, reason=reason, needs_mib=needs_mib, usable_mib=16 * GIB)


def asks(table: LaneTable, name: str, needs_mib: int | None = None) -> Turn:
    return table.acquire(name, 0.0, needs_mib)[0]


def test_a_resident_says_its_lane_its_memory_and_how_much_it_waits() -> None:
    table = a_table(a=(1, 10), b=(4, 10))
    table.acquire("a", 0.0)
    table.acquire("b", 93.0)
    resident = table.memory.residents["b"]
    waits = wait_fraction(resident, 100.0)
    line = lane_line(resident.lane, "node-3", resident.persistent_mib, waits)
    assert line == "lane 1 of node-3: 4 GiB resident, waits 7 % of its time"


def test_answers_carry_the_numbers_that_say_why() -> None:
    table = a_table(a=(2, 6))
    assert arrives(table, "b", 1, 5) == Opened(
        job="b", lane=2, size_mib=5 * GIB, epoch=1, persistent_mib=GIB
    )
    assert arrives(table, "c", 0.5, 6) == Joined(
        job="c", lane=1, size_mib=6 * GIB, epoch=1, persistent_mib=GIB // 2
    )
    assert arrives(table, "d", 9.5, 1) == Queued(job="d", place=1, waiting=1, missing_mib=8 * GIB)
    assert arrives(table, "e", 9, 8) == refused("e", TableRefusal.EXCEEDS_DEVICE, 17 * GIB)
    assert arrives(table, "a", 1, 1) == refused("a", TableRefusal.KNOWN)


def test_asking_for_a_step_says_where_it_stands() -> None:
    table = a_table(a=(1, 10), b=(1, 10))
    granted = asks(table, "a")
    assert isinstance(granted, Granted)
    assert granted.lease.lane == 1
    assert asks(table, "b") == Waits(job="b", lane=1, others=0)
    assert asks(table, "a") == refused("a", TableRefusal.HOLDS_LEASE)
    assert asks(table, "x") == refused("x", TableRefusal.UNKNOWN)
    outgrown = asks(table, "b", 15 * GIB)
    assert isinstance(outgrown, JobRefused)
    assert (outgrown.reason, outgrown.needs_mib) == (TableRefusal.CANNOT_GROW, 16 * GIB)


def test_margins_reserve_more_than_is_declared_and_never_less() -> None:
    margins = Margins()
    assert margins.persistent_mib(1000) == 1100
    assert margins.ephemeral_mib(1000, 9000) == 10_500 - 1100
    assert margins.ephemeral_mib(9000, 10) == 10
