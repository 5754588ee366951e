# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Books of cost: parts of prices, nothing twice, nothing lost, no number without a price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from builders import NOW, a_job, a_policy, a_slice, gpu
from fakes.toy_books import HOUR, Days, a_pool, cluster, on, one_spot_node
from ullage.api.reasons import ConditionType, Reason
from ullage.api.slices import DesiredSlice
from ullage.cluster.records.pool import CapacityType
from ullage.cluster.records.status import Account, Condition, SpendRecord, WorkloadStatus
from ullage.cluster.records.workload import WorkloadKind
from ullage.scheduling.accounting import cost_records
from ullage.scheduling.accounting.account import Accountant, cost_news
from ullage.scheduling.accounting.rates import Rates
from ullage.scheduling.times import COST_COUNTED_MOST_S


def test_a_job_pays_its_part_of_the_node_until_it_ends() -> None:
    days = Days(one_spot_node())
    days.cycle(phase="Running", placement=(on("n1", percent=50),))
    # half of one of two devices of 2 $ an hour
    assert days.known.per_hour == "0.5"
    days.cycle(10 * HOUR, phase="Succeeded", placement=())
    assert (days.known.total, days.known.on_demand_total) == ("5", "15")
    assert (days.known.vs_on_demand, days.known.per_hour) == ("0.3333", "")
    told = days.known
    assert (told.unpriced_seconds, told.on_demand_seconds, told.reached_steps) == (0, 0, 0)
    ended = days.known
    days.cycle(100 * HOUR)
    assert days.known == ended


def test_another_leader_goes_on_where_the_last_one_stopped() -> None:
    days = Days(one_spot_node())
    days.cycle(placement=(on("n1"),))
    for _ in range(7):
        days.cycle(HOUR)
    # the leader is gone for three hours while the job runs
    days.cycle(3 * HOUR, phase="Succeeded", placement=())
    assert days.known.total == "10"


def test_an_entry_that_was_not_written_is_made_again_and_counts_once() -> None:
    days = Days(one_spot_node())
    days.cycle(placement=(on("n1"),))
    lost = days.workload
    days.cycle(HOUR, placement=())
    assert days.known.total == "1"
    days.workload = lost  # the write failed, or the cycle came before the watch
    days.cycle(60.0, placement=())
    assert days.known.total == "1.016667"


def test_what_is_steady_is_written_seldom() -> None:
    days = Days(one_spot_node())
    days.cycle(phase="Running", placement=(on("n1"),))
    for _ in range(10):
        days.cycle(10 * HOUR)
    days.writes = 0
    for _ in range(121):
        days.cycle(30.0)
    assert days.writes == 1  # 1 % of a hundred dollars takes an hour
    days.writes = 0
    for _ in range(10):
        days.cycle(5.0)
    assert days.writes == 0


def test_a_price_that_changes_midway_counts_from_then_on() -> None:
    days = Days(one_spot_node())
    days.cycle(placement=(on("n1"), on("n1", device=1)))
    days.cycle(2 * HOUR)
    dear = a_pool("spot", 5.0), a_pool("firm", 6.0, CapacityType.ON_DEMAND)
    days.snapshot = cluster(*dear, n1="spot")
    days.cycle(60.0)
    before = float(days.known.total)
    assert before == pytest.approx(2 * 2 + 2 / 60)
    days.cycle(HOUR, placement=())
    assert float(days.known.total) == pytest.approx(before + 5, abs=2e-6)


def test_a_price_that_is_missing_is_a_reason_and_never_nothing() -> None:
    days = Days(cluster(a_pool("spot", None), a_pool("other", 1.0), n1="spot"))
    days.cycle(placement=(on("n1"),))
    assert days.known.message == "CapacityPool spot has no price yet"
    assert (days.known.total, days.known.per_hour, days.known.vs_on_demand) == ("", "", "")
    days.snapshot = cluster(a_pool("spot", 4.0), n1="spot")
    days.cycle(HOUR)
    assert (days.known.total, days.known.unpriced_seconds) == ("", 3600)
    days.cycle(HOUR, placement=())
    assert (days.known.total, days.known.message) == ("2", "")
    # no one sells this type on demand, so there is nothing to compare with
    assert (days.known.on_demand_total, days.known.vs_on_demand) == ("", "")


def test_where_one_of_two_prices_is_missing_no_sum_is_told() -> None:
    days = Days(cluster(a_pool("spot", 4.0), a_pool("other", None), n1="spot", n2="other"))
    days.cycle(placement=(on("n1"), on("n2")))
    assert (days.known.per_hour, days.known.message) == ("", "CapacityPool other has no price yet")


def test_where_nothing_has_a_price_no_books_are_kept() -> None:
    days = Days(cluster(n1=""))
    assert days.cycle(placement=(on("n1"),)) is None


def test_without_a_pool_the_declared_price_of_the_device_holds() -> None:
    days = Days(cluster(declared=3.0, n1=""))
    days.cycle(placement=(on("n1", percent=50),))
    days.cycle(2 * HOUR, placement=())
    assert (days.known.total, days.known.vs_on_demand) == ("3", "1.0000")


def test_a_clock_that_jumps_is_not_paid_for() -> None:
    days = Days(one_spot_node())
    days.cycle(placement=(on("n1"),))
    days.cycle(HOUR)
    days.cycle(-5 * HOUR)
    assert days.known.total == "1"
    assert days.known.as_of == NOW - 4 * HOUR
    days.cycle(400 * 24 * HOUR)
    assert float(days.known.total) == pytest.approx(1 + COST_COUNTED_MOST_S / HOUR)


def test_a_service_has_books_too() -> None:
    days = Days(one_spot_node(), WorkloadKind.INFERENCE_DEPLOYMENT)
    days.cycle(phase="Ready", placement=(on("n1", percent=20),))
    days.cycle(10 * HOUR)
    assert days.known.total == "2"


def test_on_demand_is_that_of_the_same_instance_before_the_cheapest_of_the_type() -> None:
    cheap = replace(a_pool("cheap", 4.0, CapacityType.ON_DEMAND), instance_type="other")
    reserved = a_pool("kept", 1.0, CapacityType.RESERVED)
    firm = a_pool("firm", 6.0, CapacityType.ON_DEMAND)
    assert Rates.of(cluster(a_pool("spot", 2.0), cheap, reserved, firm, n1="spot"), {}).device(
        "n1", gpu("n1")
    ).on_demand == pytest.approx(3.0)
    assert Rates.of(cluster(a_pool("spot", 2.0), cheap, reserved, n1="spot"), {}).device(
        "n1", gpu("n1")
    ).on_demand == pytest.approx(0.5)


def test_shares_beyond_the_whole_divide_one_price() -> None:
    snapshot = replace(one_spot_node(), policy=a_policy(max_percent_sum=200))
    slices: Mapping[str, Sequence[DesiredSlice]] = {
        "n1": [a_slice(f"uid-{n}", device=gpu("n1"), percent=80) for n in range(2)]
    }
    rates = Rates.of(snapshot, slices)
    one = rates.held((on("n1", percent=80),)).per_hour
    assert one == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.0, "0"),
        (1e-9, "0"),
        (0.1234567, "0.123457"),
        (12.3456789, "12.34568"),
        (1234567.89, "1234568"),
        (5e9, "999999999"),
    ],
)
def test_money_is_decimal_text_of_seven_digits(value: float, said: str) -> None:
    assert cost_records.money(value) == said


def test_an_untouched_status_stays_the_very_object() -> None:
    job = a_job().build()
    status = WorkloadStatus(phase="Pending")
    assert Accountant.of(one_spot_node(), {}, NOW).booked(job, status) is status


def test_a_large_cluster_enters_no_more_at_a_time_than_a_small_one() -> None:
    assert cost_records.period_s(1) == cost_records.period_s(600) == 60.0
    assert cost_records.period_s(10_000) == 1000.0
    days = Days(one_spot_node())
    days.cycle(placement=(on("n1"),))
    many = {f"uid-{number}": days.workload for number in range(1000)}
    days.snapshot = replace(days.snapshot, workloads=many)
    days.cycle(99.0)
    assert days.known.total == ""
    days.cycle(1.0)
    assert days.known.total == "0.027778"


def test_the_end_of_a_job_tells_what_it_cost_once() -> None:
    job = a_job().build()
    finished = Condition(type=ConditionType.FINISHED, status="True", reason="Completed")
    account = Account(
        since=NOW,
        as_of=NOW,
        total="12.5",
        on_demand_total="37.5",
        vs_on_demand="0.3333",
        lost_seconds=40,
        lost_steps=80,
    )
    ended = WorkloadStatus(conditions=(finished,), spend=SpendRecord(account=account))
    (told,) = cost_news(job, ended, 7)
    assert (told.reason, told.warning) == (Reason.COST_SETTLED, False)
    assert told.text == (
        "spent 12.50; on-demand would have taken 37.50 (67% saved);"
        " losses took up to 40 s of work (80 steps)"
    )
    assert cost_news(replace(job, status=ended), ended, 7) == ()
    assert cost_news(job, replace(ended, spend=None), 7) == ()
