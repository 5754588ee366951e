# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What members cost in a pool, how many a budget pays for, and how many its nodes take."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from builders import WorkloadBuilder, a_job
from fakes.toy_pools import a_pool, aim, priced
from ullage.cluster.records.pool import PoolRecord
from ullage.cluster.records.profile import Source
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.capacity.market import (
    Market,
    affordable,
    hazard,
    member_price,
    members_per_node,
    most_affordable,
)

FOUR = a_pool(price=8.0, gpus_per_instance=4)
"""Two dollars a device and hour."""


def paying(job: WorkloadBuilder, budget: float | None = None) -> WorkloadRecord:
    return job.with_(cost=aim(budget_per_hour=budget)).build()


@pytest.mark.parametrize(("devices", "members"), [(1, 4), (2, 2), (3, 1), (4, 1), (8, 1)])
def test_an_empty_node_takes_as_many_members_as_have_their_devices(
    devices: int, members: int
) -> None:
    assert members_per_node(FOUR, a_job().exclusive(devices).build()) == members


@pytest.mark.parametrize(("percent", "members"), [(50, 8), (40, 8), (60, 4), (100, 4)])
def test_an_empty_node_takes_shares_on_each_of_its_devices(percent: int, members: int) -> None:
    assert members_per_node(FOUR, a_job().fractional(percent).build()) == members


@pytest.mark.parametrize(("members", "each"), [(1, 8.0), (2, 4.0), (3, 16 / 3), (4, 4.0)])
def test_members_of_whole_devices_pay_for_whole_instances(members: int, each: float) -> None:
    job = paying(a_job().exclusive(2))
    assert member_price(FOUR, job, members) == pytest.approx(each)


@pytest.mark.parametrize("members", [1, 5])
def test_a_share_pays_for_its_part_of_one_device(members: int) -> None:
    job = paying(a_job().fractional(25, 75))
    assert member_price(FOUR, job, members) == 0.5


def test_a_pool_without_a_price_costs_no_one_knows_what() -> None:
    unpriced = priced(FOUR, None)
    for job in (paying(a_job().exclusive(2), 9.0), paying(a_job().fractional(25), 9.0)):
        assert member_price(unpriced, job, 1) is None
        assert affordable(unpriced, job) is None
        assert affordable(FOUR, replace(job, cost=None)) is None
    assert affordable(FOUR, paying(a_job().exclusive(2))) is None


@pytest.mark.parametrize(("budget", "members"), [(7.99, 0), (8.0, 2), (15.99, 2), (24.0, 6)])
def test_a_budget_pays_for_members_of_whole_instances(budget: float, members: int) -> None:
    assert affordable(FOUR, paying(a_job().exclusive(2), budget)) == members


@pytest.mark.parametrize(("budget", "members"), [(0.49, 0), (0.5, 1), (1.49, 2), (1.5, 3)])
def test_a_budget_pays_for_shares_of_devices(budget: float, members: int) -> None:
    assert affordable(FOUR, paying(a_job().fractional(25), budget)) == members


def test_what_costs_nothing_is_never_too_dear() -> None:
    free = affordable(priced(FOUR, 0.0), paying(a_job().exclusive(2), 1.0))
    assert free is not None
    assert free > 1_000


def test_the_best_pool_that_suits_counts() -> None:
    job = paying(a_job().exclusive(2), 8.0)
    cheap, dear = a_pool("cheap", price=2.0), a_pool("dear", price=8.0)
    assert most_affordable([dear, cheap], job) == 4
    assert most_affordable([dear, priced(cheap, None)], job) == 1
    assert most_affordable([], job) is None
    elsewhere = a_pool("elsewhere", price=2.0, accelerator="another")
    picky = replace(job, accelerators=(dear.accelerator,))
    assert most_affordable([dear, elsewhere], picky) == 1


@pytest.mark.parametrize(
    ("pool", "expected"),
    [
        (a_pool(hazard=0.3), 0.3),
        (a_pool(hazard=0.3, spot=False), 0.0),
        (replace(FOUR, status=replace(FOUR.status, hazard_per_hour=None)), 0.0),
    ],
)
def test_only_spot_is_taken_away(pool: PoolRecord, expected: float) -> None:
    assert hazard(pool) == expected


@pytest.mark.parametrize(
    ("fast", "slow", "steps"),
    [
        (Source.MEASURED, Source.ESTIMATED, 8.0),
        (Source.DECLARED, Source.MEASURED, 8.0),
        (Source.ESTIMATED, Source.MEASURED, 0.0),
        (Source.ESTIMATED, Source.ESTIMATED, 0.0),
    ],
)
def test_a_deadline_rests_on_the_fastest_only_where_that_was_measured_or_declared(
    fast: Source, slow: Source, steps: float
) -> None:
    pools = [a_pool("fast", accelerator="fast"), a_pool("slow", accelerator="slow")]
    view: Any = SimpleNamespace(snapshot=None)
    market = Market(view=view, growing=True)
    speeds = {
        "fast": SimpleNamespace(steps_per_second=8.0, source=fast),
        "slow": SimpleNamespace(steps_per_second=2.0, source=slow),
        "elsewhere": SimpleNamespace(steps_per_second=99.0, source=Source.MEASURED),
    }
    market._speeds = SimpleNamespace(of=lambda _: speeds)  # type: ignore[assignment]
    found = market._speeds_of(a_job().build(), pools)
    assert found == ({"fast": 1.0, "slow": 0.25}, steps, True)
