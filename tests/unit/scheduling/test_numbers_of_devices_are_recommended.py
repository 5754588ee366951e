# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A job learns how many devices serve its aim: within its bounds to take, beyond them as advice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import a_device, a_device_profile, a_gpu_node, a_job, a_profile, a_snapshot
from fakes.deciding import decided_on
from ullage.api.reasons import Reason
from ullage.api.trainingjob import CostAim
from ullage.cluster.codecs.status import as_stored
from ullage.cluster.records.profile import ProfileStatus, SoloEntry
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.spec_fields import Elasticity
from ullage.cluster.records.status import Recommended
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.admission.records import Fingerprint
from ullage.engines.devicechoice.comm import FITTED
from ullage.scheduling.learning.recommend import MOST_NUMBERS, Advisor, numbers_of
from ullage.scheduling.learning.recommendation import advised, rows_of
from ullage.scheduling.model.gang_speed import speed

CHEAP = CostAim(objective="CostPerWork")
FAST = CostAim(objective="Makespan")
MEMORY_MIB = {"small": 8_000, "large": 80_000}
PRICES = {"small": 1.0, "large": 4.0}
RATES = {"small": 1.0, "large": 3.0}
STEPS = 36_000


def world(one: WorkloadRecord, peak_mib: float = 5_000, per_type: int = 8) -> Snapshot:
    solo = tuple(
        SoloEntry(
            device=name,
            share=100,
            steps_per_second=rate,
            samples=9,
            fingerprint=Fingerprint(peak_memory_mib=peak_mib),
        )
        for name, rate in RATES.items()
    )
    known = replace(a_profile("resnet", workload_class="resnet"), status=ProfileStatus(solo=solo))
    nodes = [
        a_gpu_node(
            f"node-{name}",
            devices=[
                a_device(f"GPU-{name}-{at}", model=name, memory_mib=MEMORY_MIB[name])
                for at in range(per_type)
            ],
        )
        for name in RATES
    ]
    prices = [
        replace(a_device_profile(name, MEMORY_MIB[name]), price_per_hour=PRICES[name])
        for name in RATES
    ]
    return a_snapshot(*nodes, known, *prices, one)


def fixed(cost: CostAim | None = CHEAP, **changes: object) -> WorkloadRecord:
    return a_job().with_(workload_class="resnet", work_steps=STEPS, cost=cost, **changes).build()


def elastic(cost: CostAim | None, least: int, most: int, now: int = 0) -> WorkloadRecord:
    bounds = Elasticity(min_replicas=least, max_replicas=most)
    return replace(fixed(cost), elasticity=bounds, replicas=now or least, checkpoint=True)


def rows(one: WorkloadRecord, **kind: float) -> tuple[Recommended, ...]:
    return rows_of(Advisor.of(world(one, **kind)).advice(one))


def test_the_largest_number_within_the_bounds_is_the_fastest() -> None:
    found = rows(elastic(FAST, 2, 8))
    first = found[0]
    assert (first.accelerator, first.devices, first.reason) == ("large", 8, Reason.RECOMMENDED)
    assert first.total_s == round(STEPS / 3.0 * speed(2) / speed(8))
    others = [row.devices for row in found if row.accelerator == "large"]
    assert others == [8, 2, 3, 4, 5, 6, 7]
    assert [row.devices for row in found if row.accelerator == "small"] == [8]


def test_the_fewest_that_keep_the_time_are_the_cheapest() -> None:
    alone_s = STEPS / 1.0 * speed(1)
    cap = CostAim(objective="CostPerWork", max_time_s=alone_s / speed(5))
    first = rows(elastic(cap, 1, 8))[0]
    assert (first.accelerator, first.devices, first.reason) == ("small", 5, Reason.RECOMMENDED)
    assert float(first.cost) == pytest.approx(5 * alone_s / speed(5) / 3600, abs=0.01)


def test_the_number_that_a_job_has_stays_where_another_saves_next_to_nothing() -> None:
    first = rows(elastic(CHEAP, 2, 4, now=3))[0]
    assert (first.accelerator, first.devices, first.source) == ("small", 3, "Measured")


def test_no_number_outside_of_the_bounds_is_named() -> None:
    found = rows(elastic(FAST, 3, 5))
    assert {row.devices for row in found} <= {3, 4, 5}
    assert Reason.COUNT_CHANGES_BATCH not in {row.reason for row in found}


def test_numbers_that_the_cluster_does_not_have_are_not_recommended() -> None:
    found = rows(elastic(FAST, 2, 8), per_type=4)
    assert (found[0].accelerator, found[0].devices) == ("large", 4)
    assert max(row.devices for row in found) == 4


def test_other_numbers_are_called_estimates_and_are_less_sure() -> None:
    found = rows(elastic(FAST, 2, 4))
    own = next(row for row in found if (row.accelerator, row.devices) == ("large", 2))
    more = found[0]
    assert (own.source, more.source) == ("Measured", "Estimated")
    assert float(more.confidence) < min(0.5, float(own.confidence))
    assert more.low_s is not None
    assert more.total_s is not None
    assert more.high_s is not None
    assert own.total_s is not None
    least, most = FITTED.bounds(2, 4)
    assert more.low_s == pytest.approx(own.total_s * 2 / 4 * least, abs=1)
    assert more.high_s == pytest.approx(own.total_s * 2 / 4 * most, abs=1)
    assert more.low_s < more.total_s < more.high_s
    assert more.message.startswith("by estimate takes least")


def test_fewer_members_hold_more_of_the_batch_and_may_not_fit() -> None:
    found = rows(elastic(CHEAP, 1, 4, now=4), peak_mib=5_000)
    need = {(row.accelerator, row.devices): (row.reason, row.need_mib) for row in found}
    assert need["small", 4] == (Reason.RECOMMENDED, 5_000)
    assert need["small", 3] == (Reason.FEASIBLE, round(5_000 * 4 / 3))
    assert need["small", 2] == (Reason.MEMORY_UNKNOWN, None)


def test_a_job_of_a_fixed_size_gets_its_own_number_and_others_as_advice() -> None:
    found = rows(fixed(CHEAP, replicas=2))
    assert [(row.accelerator, row.devices, row.reason) for row in found] == [
        ("small", 2, Reason.RECOMMENDED),
        ("large", 2, Reason.FEASIBLE),
        ("small", 1, Reason.COUNT_CHANGES_BATCH),
        ("small", 4, Reason.COUNT_CHANGES_BATCH),
        ("small", 8, Reason.COUNT_CHANGES_BATCH),
    ]
    double = found[3]
    assert double.total_s == round(STEPS * speed(2) / speed(4))
    assert double.message == (
        "by estimate costs 1.03 times as much as 2 x small; the batch was chosen for 2 devices"
    )


def test_where_no_type_keeps_the_time_other_numbers_that_would_are_named() -> None:
    cap = CostAim(objective="CostPerWork", max_time_s=STEPS / 3.0 / 3)
    found = rows(fixed(cap))
    assert [(row.accelerator, row.devices, row.reason) for row in found] == [
        ("large", 1, Reason.OVER_TIME),
        ("small", 1, Reason.OVER_TIME),
        ("large", 4, Reason.COUNT_CHANGES_BATCH),
    ]


@pytest.mark.parametrize(
    ("job", "numbers"),
    [
        (fixed(), (2, 4, 8)),
        (fixed(replicas=3), (1, 2, 4, 8)),
        (fixed(replicas=64), (8, 16, 32, 128)),
        (replace(fixed(), gpu=replace(fixed().gpu, count=4)), (2,)),
        (elastic(FAST, 2, 5, now=3), (2, 4, 5)),
    ],
)
def test_the_numbers_that_are_looked_at_are_few(
    job: WorkloadRecord, numbers: tuple[int, ...]
) -> None:
    assert numbers_of(job, 256) == numbers


def test_wide_bounds_are_looked_at_in_a_series_with_both_ends() -> None:
    found = numbers_of(elastic(FAST, 1, 4096, now=7), 5000)
    assert (found[0], found[-1]) == (1, 4096)
    assert len(found) <= MOST_NUMBERS


def test_wide_bounds_are_looked_at_as_far_as_there_are_devices() -> None:
    assert numbers_of(elastic(FAST, 1, 4096), 8) == (2, 3, 4, 5, 6, 7, 8)
    assert rows(elastic(FAST, 1, 4096))[0].devices == 8


def test_too_few_devices_bring_the_number_that_there_would_be_as_advice() -> None:
    found = rows(fixed(replicas=6), per_type=4)
    assert [(row.accelerator, row.devices, row.reason) for row in found] == [
        ("large", 6, Reason.NOT_AVAILABLE),
        ("small", 6, Reason.NOT_AVAILABLE),
        ("small", 1, Reason.COUNT_CHANGES_BATCH),
        ("large", 1, Reason.COUNT_CHANGES_BATCH),
    ]


def test_a_list_with_numbers_is_written_once() -> None:
    one = elastic(FAST, 2, 8)
    status = decided_on(world(one)).plan.statuses[one.ref.uid]
    assert status.recommendation[0].devices == 8
    assert as_stored(one.kind, status) == status
    choices = replace(one, status=status)
    again = advised(Advisor.of(world(choices)), choices, choices.status)
    assert again is choices.status
