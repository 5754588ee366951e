# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""However devices are shared, what their tenants pay together is at most the price of the node.

And whenever books are looked at, the sum is the same as if they had been looked at once.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from builders import MODEL, NOW, a_gpu_node, a_job, a_node, a_policy, a_slice, a_snapshot, gpu
from ullage.cluster.records.pool import CapacityType, PoolRecord, PoolStatus
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import Account, Placement
from ullage.scheduling.accounting import cost_records
from ullage.scheduling.accounting.account import Accountant
from ullage.scheduling.accounting.losses import NONE
from ullage.scheduling.accounting.rates import Rate, Rates
from ullage.scheduling.times import COST_COUNTED_MOST_S

DEVICES = 4
shares = st.lists(
    st.tuples(st.integers(0, DEVICES - 1), st.integers(1, 100)), min_size=1, max_size=12
)


def the_node(price: float, gpus: int, most: int) -> Snapshot:
    pool = PoolRecord(
        name="spot",
        instance_type="box",
        zone="z",
        capacity_type=CapacityType.SPOT,
        accelerator=MODEL,
        gpus_per_instance=gpus,
        node_selector={"pool": "spot"},
        status=PoolStatus(price=price),
    )
    policy = a_policy(max_percent_sum=most)
    node = a_node("n", labels={"pool": "spot"})
    return replace(a_snapshot(node, a_gpu_node("n", devices=DEVICES), policy), pools={"spot": pool})


@given(
    asked=shares,
    price=st.floats(0.01, 1000),
    gpus=st.integers(1, 8),
    most=st.sampled_from([100, 150, 400]),
)
def test_parts_add_up_to_the_price_at_most(
    asked: list[tuple[int, int]], price: float, gpus: int, most: int
) -> None:
    sums = dict.fromkeys(range(DEVICES), 0)
    slices = []
    for number, (device, percent) in enumerate(asked):
        if sums[device] + percent <= most:
            sums[device] += percent
            slices.append(a_slice(f"uid-{number}", device=gpu("n", device), percent=percent))
    rates = Rates.of(the_node(price, gpus, most), {"n": slices})
    paid = 0.0
    for one in slices:
        part = Placement(
            key=one.key,
            pod="p",
            node="n",
            gpu=one.gpu,
            percent=one.percent,
            memory_mib=1,
            epoch=1,
        )
        held = rates.held((part,)).per_hour
        assert held is not None
        assert held > 0
        paid += held
    assert paid <= price * (1 + 1e-9)


@given(
    gaps=st.lists(st.integers(0, 40_000), min_size=1, max_size=20),
    rate=st.integers(1, 10_000_000).map(lambda micros: micros / 1e5),
)
def test_how_often_books_are_kept_changes_nothing(gaps: list[int], rate: float) -> None:
    often: Account | None = cost_records.entered(
        None, Rate(per_hour=rate, on_demand=rate), NONE, NOW
    )
    once = often
    assert once is not None
    now = NOW
    for gap in gaps:
        now += gap
        often = cost_records.entered(often, Rate(per_hour=rate, on_demand=rate), NONE, now)
    assert often is not None
    whole = float(rate) * sum(gaps) / 3600
    # an entry rounds to seven digits
    assert float(often.total or 0) == pytest.approx(whole, rel=1e-5, abs=2e-5)
    if often.total and float(often.total):
        assert often.vs_on_demand == "1.0000"
    if sum(gaps) <= COST_COUNTED_MOST_S:
        assert float(cost_records.spent(once, now) or 0) == pytest.approx(whole, rel=1e-6, abs=1e-6)


@given(times=st.lists(st.floats(-1e6, 1e6), max_size=12))
@example(times=[0.0, 244.0, 86644.0])
def test_a_wild_clock_never_takes_money_back_nor_pays_more_than_a_day_at_once(
    times: list[float],
) -> None:
    snapshot = the_node(4.0, DEVICES, 100)
    one = a_slice(device=gpu("n"), percent=100)
    part = Placement(
        key=one.key, pod="p", node="n", gpu=one.gpu, percent=100, memory_mib=1, epoch=1
    )
    job = a_job().status(placement=(part,)).build()
    total = 0.0
    for offset in times:
        status = Accountant.of(snapshot, {}, NOW + offset).booked(job, job.status)
        job = replace(job, status=status)
        assert status.spend is not None
        assert status.spend.account is not None
        after = float(status.spend.account.total or 0)
        most = total + COST_COUNTED_MOST_S / 3600
        assert total <= after <= most * (1 + 1e-6)  # an entry rounds to seven digits
        total = after
