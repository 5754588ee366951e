# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from ullage.engines.lanes.explain import answer_line, resident_line
from ullage.engines.lanes.records import JobDemand
from ullage.engines.lanes.settings import EXACT, LaneSettings, Margins
from ullage.engines.lanes.table import LaneTable

GIB = 1024


def a_table(**jobs: tuple[float, float]) -> LaneTable:
    table = LaneTable(settings=LaneSettings(capacity_mib=16 * GIB, margins=EXACT))
    for name, demand in jobs.items():
        arrives(table, name, *demand)
    return table


def arrives(table: LaneTable, name: str, persistent: float, ephemeral: float) -> str:
    demand = JobDemand(
        name=name, persistent_mib=int(persistent * GIB), ephemeral_mib=int(ephemeral * GIB)
    )
    return answer_line(table.arrive(demand, 0.0)[0], "node-3")


def test_a_resident_says_its_lane_its_memory_and_how_much_it_waits() -> None:
    table = a_table(a=(1, 10), b=(4, 10))
    table.acquire("a", 0.0)
    table.acquire("b", 93.0)
    resident = table.memory.residents["b"]
    found = resident_line(resident, "node-3", 100.0)
    assert found == "lane 1 of node-3: 4 GiB resident, waits 7 % of its time"


def test_answers_carry_the_numbers_that_say_why() -> None:
    table = a_table(a=(2, 6))
    assert arrives(table, "b", 1, 5) == (
        "lane 2 of node-3, opened: 1 GiB resident, 5 GiB for its steps"
    )
    assert arrives(table, "c", 0.5, 6) == (
        "lane 1 of node-3, joined: 512 MiB resident, 6 GiB for its steps"
    )
    assert arrives(table, "d", 9.5, 1) == (
        "waits for memory of node-3: place 1 of 1, 8 GiB are missing"
    )
    assert arrives(table, "e", 9, 8) == "refused by node-3: needs 17 GiB, the device has 16 GiB"
    assert arrives(table, "a", 1, 1) == (
        "refused by node-3: a job of this name is resident or queued"
    )


def test_asking_for_a_step_says_where_it_stands() -> None:
    table = a_table(a=(1, 10), b=(1, 10))
    assert answer_line(table.acquire("a", 0.0)[0], "n") == "runs in lane 1 of n"
    assert answer_line(table.acquire("b", 0.0)[0], "n") == "waits for lane 1 of n, as do 0 others"
    assert answer_line(table.acquire("a", 0.0)[0], "n") == (
        "refused by n: the last step has not ended"
    )
    assert answer_line(table.acquire("x", 0.0)[0], "n") == "refused by n: the job is not resident"
    assert answer_line(table.acquire("b", 0.0, 15 * GIB)[0], "n").startswith(
        "refused by n: its step has outgrown its lane, and the 16 GiB"
    )


def test_margins_reserve_more_than_is_declared_and_never_less() -> None:
    margins = Margins()
    assert margins.persistent_mib(1000) == 1100
    assert margins.ephemeral_mib(1000, 9000) == 10_500 - 1100
    assert margins.ephemeral_mib(9000, 10) == 10
