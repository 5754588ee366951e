# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Books of cost: parts of prices, nothing twice, nothing lost, no number without a price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from builders import (
    MODEL,
    NOW,
    a_device_profile,
    a_gpu_node,
    a_job,
    a_node,
    a_policy,
    a_service,
    a_slice,
    a_snapshot,
    gpu,
    reported,
)
from ullage.api.contract import DesiredSlice, Reason, SlicePhase
from ullage.api.reasons import ConditionType
from ullage.decide.accounting import books
from ullage.decide.accounting.account import Accountant
from ullage.decide.accounting.news import cost_news
from ullage.decide.accounting.rates import Rates
from ullage.state.pools.records import CapacityType, PoolRecord, PoolStatus
from ullage.state.records import Snapshot, WorkloadKind, WorkloadRecord
from ullage.state.status.account import Account
from ullage.state.status.records import Condition, Placement, Progress, WorkloadStatus
from ullage.state.status.spend import SpendRecord
from ullage.state.status.wire import status_from_wire, status_to_wire

HOUR = 3600.0


def a_pool(
    name: str, price: float | None, kind: CapacityType = CapacityType.SPOT, *, gpus: int = 2
) -> PoolRecord:
    return PoolRecord(
        name=name,
        instance_type="box",
        zone="z1",
        capacity_type=kind,
        accelerator=MODEL,
        gpus_per_instance=gpus,
        node_selector={"pool": name},
        status=PoolStatus(price=price),
    )


def cluster(*pools: PoolRecord, declared: float | None = None, **nodes: str) -> Snapshot:
    """Nodes by name, each with the pool that its label names, two devices a node."""
    snapshot = a_snapshot(
        *(a_node(name, labels={"pool": pool}) for name, pool in nodes.items()),
        *(a_gpu_node(name) for name in nodes),
        replace(a_device_profile(MODEL), price_per_hour=declared),
    )
    return replace(snapshot, pools={one.name: one for one in pools})


def on(node: str, *, percent: int = 100, device: int = 0, pod: str = "train-0") -> Placement:
    wanted = a_slice(f"uid-{pod}", device=gpu(node, device), percent=percent)
    return Placement(
        key=wanted.key,
        pod=pod,
        node=node,
        gpu=wanted.gpu,
        percent=percent,
        memory_mib=1,
        epoch=1,
    )


class Days:
    """A workload over time, every status stored and read back as the API would."""

    def __init__(self, snapshot: Snapshot, kind: WorkloadKind = WorkloadKind.TRAINING_JOB) -> None:
        self.snapshot, self.now, self.kind = snapshot, NOW, kind
        made = a_job() if kind is WorkloadKind.TRAINING_JOB else a_service()
        self.workload: WorkloadRecord = made.build()
        self.writes = 0

    def cycle(self, after_s: float = 0.0, **changes: object) -> Account | None:
        self.now += after_s
        before = self.workload.status
        wanted = replace(before, **changes) if changes else before  # type: ignore[arg-type]
        accountant = Accountant.of(self.snapshot, {}, self.now)
        status = accountant.booked(self.workload, wanted)
        if status is not before:
            self.writes += 1
            status = status_from_wire(self.kind, status_to_wire(self.kind, status))
            self.workload = replace(self.workload, status=status)
        return self.account

    @property
    def account(self) -> Account | None:
        spend = self.workload.status.spend
        return spend.account if spend is not None else None

    @property
    def known(self) -> Account:
        assert self.account is not None
        return self.account


def one_spot_node() -> Snapshot:
    pools = a_pool("spot", 2.0), a_pool("firm", 6.0, CapacityType.ON_DEMAND)
    return cluster(*pools, n1="spot")


def test_a_job_pays_its_part_of_the_node_until_it_ends() -> None:
    days = Days(one_spot_node())
    days.cycle(phase="Running", placement=(on("n1", percent=50),))
    # half of one of two devices of 2 $ an hour
    assert days.known.per_hour == "0.5"
    days.cycle(10 * HOUR, phase="Succeeded", placement=())
    assert (days.known.total, days.known.on_demand_total) == ("5", "15")
    assert (days.known.vs_on_demand, days.known.per_hour) == ("0.3333", "")
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
    # nobody sells this type on demand, so there is nothing to compare with
    assert (days.known.on_demand_total, days.known.vs_on_demand) == ("", "")


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
    assert float(days.known.total) == pytest.approx(1 + books.MOST_S / HOUR)


def test_a_service_has_books_too() -> None:
    days = Days(one_spot_node(), WorkloadKind.INFERENCE_SERVICE)
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


RUNNING = Condition(type=ConditionType.READY, status="True", reason="Running", since=NOW)


def restarting(reason: Reason) -> dict[str, object]:
    admitted = Condition(type=ConditionType.ADMITTED, status="False", reason=reason)
    return {"phase": "Restarting", "conditions": (admitted,), "placement": ()}


def working(snapshot: Snapshot, *, steps: int, age_s: int, resumed_at: int = 0) -> Snapshot:
    seen = reported(a_slice(device=gpu("n1"), percent=100), SlicePhase.ATTACHED, steps=steps)
    node = a_gpu_node("n1", observed=[replace(seen, checkpoint_age_s=age_s, resumed_at=resumed_at)])
    return replace(snapshot, gpu_nodes={"n1": node})


def test_a_loss_takes_what_was_done_since_the_last_checkpoint() -> None:
    days = Days(one_spot_node())
    progress = Progress(steps=7200, steps_per_second="2")
    days.cycle(phase="Running", placement=(on("n1"),), conditions=(RUNNING,), progress=progress)
    days.snapshot = working(days.snapshot, steps=7200, age_s=300)
    days.cycle(HOUR, **restarting(Reason.MEMBER_LOST))
    lost = days.known
    assert (lost.lost_seconds, lost.lost_steps, lost.evictions) == (300, 600, 1)
    # 1 $ for 6600 steps that count
    assert lost.per_thousand_steps == "0.151515"
    days.cycle(60.0, phase="Running", placement=(on("n1"),), conditions=(RUNNING,))
    days.cycle(60.0, progress=Progress(steps=10, steps_per_second="2"))
    assert days.known.earlier_steps == 7200
    again = days.known
    days.cycle(1.0)
    assert days.known == again


def running(steps: int, resumed_at: int = 0) -> dict[str, object]:
    progress = Progress(steps=steps, resumed_at=resumed_at, steps_per_second="2")
    return {
        "phase": "Running",
        "placement": (on("n1"),),
        "conditions": (RUNNING,),
        "progress": progress,
    }


def test_where_a_job_resumes_says_exactly_what_a_loss_took() -> None:
    days = Days(one_spot_node())
    days.cycle(**running(7000))
    days.snapshot = working(days.snapshot, steps=7200, age_s=1200)
    days.cycle(HOUR, **restarting(Reason.MEMBER_LOST))
    assumed = days.known
    assert (assumed.lost_steps, assumed.assumed_steps, assumed.assumed_seconds) == (
        2400,
        2400,
        1200,
    )
    assert assumed.reached_steps == 7200
    days.cycle(60.0, phase="Running", placement=(on("n1"),), conditions=(RUNNING,))
    assert days.known.reached_steps == 7200
    # it says so late, and has caught up by then
    days.cycle(600.0, **running(7500, 6600))
    exact = days.known
    assert (exact.lost_steps, exact.lost_seconds) == (600, 300)
    assert (exact.reached_steps, exact.assumed_steps, exact.assumed_seconds) == (0, 0, 0)
    assert exact.earlier_steps == 7200
    days.cycle(2 * HOUR, **running(9000, 6600))
    # 7200 steps of the first start and 2400 of the second are 9000 that count: 4 $ for 9
    assert float(days.known.per_thousand_steps) == pytest.approx(float(days.known.total) / 9)
    again = days.known
    days.cycle(1.0)
    assert days.known == again


def test_what_is_not_assumed_of_lost_work_never_shrinks() -> None:
    days = Days(one_spot_node())
    settled = [0]

    def note() -> None:
        settled.append(days.known.lost_seconds - days.known.assumed_seconds)

    days.cycle(**running(7000))
    for steps, resumed_at in ((7200, 0), (900, 7200), (300, 7900), (50, 8200)):
        days.snapshot = working(days.snapshot, steps=steps, age_s=900, resumed_at=resumed_at)
        days.cycle(HOUR, **restarting(Reason.MEMBER_LOST))
        note()
        days.cycle(90.0, phase="Starting", placement=(on("n1"),), conditions=())
        note()
        reached = steps + resumed_at
        days.cycle(60.0, **running(reached + 10, reached - 40))
        note()
    assert settled == sorted(settled)
    # four times 40 steps at two in a second
    assert settled[-1] == 4 * 20


def test_two_losses_from_one_checkpoint_are_two_losses() -> None:
    days = Days(one_spot_node())
    days.cycle(**running(6000, 5000))
    for reached, caught_up in ((6000, 6100), (6500, 6900)):
        own = reached - 5000
        days.snapshot = working(days.snapshot, steps=own, age_s=0, resumed_at=5000)
        days.cycle(HOUR, **restarting(Reason.MEMBER_LOST))
        days.cycle(90.0, **running(caught_up, 5000))
    assert days.known.lost_steps == 1000 + 1500
    assert days.known.lost_seconds == 500 + 750
    assert books.useful_steps(days.known, days.workload, days.workload.status) == 1900


def test_steps_of_another_job_are_not_paid_for_twice() -> None:
    days = Days(one_spot_node())
    days.cycle(phase="Running", placement=(on("n1"),), conditions=(RUNNING,))
    days.cycle(60.0, **running(100_050, 100_000))
    days.cycle(HOUR, **running(107_200, 100_000))
    assert days.known.first_step == 100_000
    assert books.useful_steps(days.known, days.workload, days.workload.status) == 7200


def test_a_checkpoint_that_failed_is_a_loss_though_it_was_asked_for() -> None:
    days = Days(one_spot_node())
    days.workload = a_job().checkpointed().build()
    days.cycle(**running(7000, 6000))
    days.snapshot = working(days.snapshot, steps=1000, age_s=500, resumed_at=6000)
    days.cycle(HOUR, **restarting(Reason.PREEMPTED))
    assert days.known.lost_steps == 0
    days.cycle(60.0, **running(6010, 6000))
    assert (days.known.lost_steps, days.known.lost_seconds) == (1000, 500)


def test_a_program_that_goes_back_as_it_runs_loses_that() -> None:
    days = Days(one_spot_node())
    days.cycle(**running(7000, 6000))
    days.cycle(60.0, **running(6950, 6900))
    assert (days.known.lost_steps, days.known.lost_seconds) == (100, 50)
    days.cycle(60.0, **running(7100, 6900))
    assert days.known.lost_steps == 100


def test_a_job_that_starts_afresh_has_lost_all_of_it() -> None:
    days = Days(one_spot_node())
    days.cycle(**running(7000, 6000))
    days.cycle(HOUR, **restarting(Reason.MEMBER_LOST))
    days.cycle(60.0, **running(40))
    assert days.known.lost_steps == 7000
    assert books.useful_steps(days.known, days.workload, days.workload.status) <= 40


def test_without_any_checkpoint_a_loss_takes_the_whole_start() -> None:
    days = Days(one_spot_node())
    days.cycle(phase="Running", placement=(on("n1"),), conditions=(RUNNING,))
    days.snapshot = working(days.snapshot, steps=5, age_s=0)
    days.cycle(HOUR, **restarting(Reason.DEVICE_LOST))
    assert (days.known.lost_seconds, days.known.lost_steps) == (3600, 0)


def test_who_is_asked_to_save_its_work_loses_none() -> None:
    days = Days(one_spot_node())
    days.workload = a_job().checkpointed().build()
    days.cycle(phase="Running", placement=(on("n1"),), conditions=(RUNNING,))
    days.snapshot = working(days.snapshot, steps=5, age_s=900)
    days.cycle(HOUR, **restarting(Reason.PREEMPTED))
    assert (days.known.lost_seconds, days.known.evictions) == (0, 1)


def test_a_job_that_fails_by_itself_was_not_evicted() -> None:
    days = Days(one_spot_node())
    days.cycle(phase="Running", placement=(on("n1"),), conditions=(RUNNING,))
    days.cycle(HOUR, **restarting(Reason.EXIT_CODE))
    assert days.known.evictions == 0


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
    assert books.money(value) == said


def test_an_untouched_status_stays_the_very_object() -> None:
    job = a_job().build()
    status = WorkloadStatus(phase="Pending")
    assert Accountant.of(one_spot_node(), {}, NOW).booked(job, status) is status


def test_a_large_cluster_enters_no_more_at_a_time_than_a_small_one() -> None:
    assert books.period_s(1) == books.period_s(600) == 60.0
    assert books.period_s(10_000) == 1000.0
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
    assert told.reason is Reason.COST_SETTLED
    assert told.text == (
        "spent 12.50; on-demand would have taken 37.50 (67% saved);"
        " losses took up to 40 s of work (80 steps)"
    )
    assert cost_news(replace(job, status=ended), ended, 7) == ()
    assert cost_news(job, replace(ended, spend=None), 7) == ()
