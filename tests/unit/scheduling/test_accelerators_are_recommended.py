# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A job learns which accelerator serves its aim, why others do not, and nothing twice."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import a_device, a_device_profile, a_gpu_node, a_job, a_profile, a_snapshot
from fakes.deciding import decided_on
from ullage.api.reasons import Reason
from ullage.api.trainingjob import CostAim
from ullage.cluster.codecs.status import as_stored
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.profile import (
    DeviceProfileRecord,
    Method,
    ProfileRecord,
    ProfileStatus,
    SoloEntry,
    Source,
    ThroughputEntry,
)
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import Recommended, WorkloadStatus
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.admission.records import Fingerprint
from ullage.scheduling.learning.recommend import Advisor
from ullage.scheduling.learning.recommendation import advice_news, advised, rows_of
from ullage.scheduling.model.plan import Emit

CHEAP = CostAim(objective="CostPerWork")
FAST = CostAim(objective="Makespan")
SIZES = {"small": 8_000, "middle": 16_000, "large": 80_000}
PRICES = {"small": 0.6, "middle": 1.5, "large": 4.0}
RATES = {"small": 1.0, "middle": 4.0, "large": 8.0}


def nodes(per_type: int = 4) -> list[GPUNodeRecord]:
    return [
        a_gpu_node(
            f"node-{name}",
            devices=[
                a_device(f"GPU-{name}-{at}", model=name, memory_mib=SIZES[name])
                for at in range(per_type)
            ],
        )
        for name in SIZES
    ]


def prices(**changed: float | None) -> list[DeviceProfileRecord]:
    stated: dict[str, float | None] = {**PRICES, **changed}
    return [
        replace(a_device_profile(name, SIZES[name]), price_per_hour=price)
        for name, price in stated.items()
    ]


def known(peak_mib: float | None = 5_000, **rates: float) -> ProfileRecord:
    """The class as measured on every type but the large one, which is estimated."""
    rates = rates or RATES
    print_ = Fingerprint(peak_memory_mib=peak_mib)
    solo = tuple(
        SoloEntry(device=name, share=100, steps_per_second=rate, samples=9, fingerprint=print_)
        for name, rate in rates.items()
        if name != "large"
    )
    estimate = ThroughputEntry(
        accelerator="large",
        steps_per_second=rates["large"],
        low=rates["large"] / 1.25,
        high=rates["large"] * 1.25,
        source=Source.ESTIMATED,
        method=Method.SIBLINGS,
        confidence=0.4,
        samples=6,
    )
    status = ProfileStatus(solo=solo, throughput=(estimate,))
    return replace(a_profile("resnet", workload_class="resnet"), uid="uid-resnet", status=status)


def job(cost: CostAim | None = CHEAP, **changes: object) -> WorkloadRecord:
    return a_job().with_(workload_class="resnet", work_steps=36_000, cost=cost, **changes).build()


def world(one: WorkloadRecord, *parts: ProfileRecord | DeviceProfileRecord) -> Snapshot:
    return a_snapshot(*nodes(), *(parts or (known(), *prices())), one)


def told(one: WorkloadRecord, snapshot: Snapshot) -> WorkloadStatus:
    return advised(Advisor.of(snapshot), one, one.status)


def of_its_size(one: WorkloadRecord, snapshot: Snapshot) -> list[Recommended]:
    """What is told of the job's own number of devices."""
    own = one.replicas * one.gpu.count
    return [row for row in told(one, snapshot).recommendation if row.devices == own]


def table(one: WorkloadRecord, snapshot: Snapshot) -> dict[str, tuple[Reason, int | None, str]]:
    rows = of_its_size(one, snapshot)
    return {row.accelerator: (row.reason, row.total_s, row.cost) for row in rows}


def test_the_cheapest_type_comes_first_with_time_cost_and_bounds() -> None:
    one = job()
    rows = of_its_size(one, world(one))
    assert [row.accelerator for row in rows] == ["middle", "large", "small"]
    assert table(one, world(one)) == {
        "middle": (Reason.RECOMMENDED, 9_000, "3.75"),
        "large": (Reason.FEASIBLE, 4_500, "5.00"),
        "small": (Reason.FEASIBLE, 36_000, "6.00"),
    }
    large = rows[1]
    assert (large.low_s, large.high_s, large.source) == (3_600, 5_625, "Estimated")
    assert large.confidence == "0.40"
    assert rows[0].message == "costs least of the types that can be had"
    assert large.message == "costs 1.33 times as much as middle"


def test_the_fastest_type_comes_first_when_time_is_the_aim() -> None:
    one = job(FAST)
    rows = of_its_size(one, world(one))
    assert [row.accelerator for row in rows] == ["large", "middle", "small"]


def test_a_gang_pays_for_all_of_its_devices() -> None:
    one = job(replicas=2)
    (first, *_) = told(one, world(one)).recommendation
    assert (first.devices, first.total_s, first.cost) == (2, 9_000, "7.50")


def test_a_share_pays_its_part_and_takes_its_time() -> None:
    one = replace(job(), gpu=a_job().fractional(50).build().gpu)
    first = table(one, world(one))["middle"]
    assert first == (Reason.RECOMMENDED, 18_000, "3.75")


@pytest.mark.parametrize(
    ("cost", "reasons"),
    [
        (
            CostAim(objective="CostPerWork", max_time_s=8_000),
            {"small": Reason.OVER_TIME, "middle": Reason.OVER_TIME, "large": Reason.RECOMMENDED},
        ),
        (
            CostAim(objective="Makespan", max_cost=4.0),
            {"small": Reason.OVER_COST, "middle": Reason.RECOMMENDED, "large": Reason.OVER_COST},
        ),
    ],
)
def test_caps_rule_types_out_and_say_so(cost: CostAim, reasons: dict[str, Reason]) -> None:
    one = job(cost)
    assert {name: row[0] for name, row in table(one, world(one)).items()} == reasons


def test_a_type_without_a_price_cannot_be_the_cheapest() -> None:
    one = job()
    found = table(one, world(one, known(), *prices(middle=None)))
    assert found["middle"][0] is Reason.PRICE_MISSING


def test_types_that_the_job_does_not_allow_are_not_in_the_list() -> None:
    one = job(accelerators=("small", "large", "unheard-of"))
    found = table(one, world(one))
    assert {name: row[0] for name, row in found.items()} == {
        "large": Reason.RECOMMENDED,
        "small": Reason.FEASIBLE,
        "unheard-of": Reason.NO_ESTIMATE,
    }


def a_class(name: str, family: str, *ran: str) -> ProfileRecord:
    """A class that was measured on these types alone."""
    solo = tuple(
        SoloEntry(device=kind, share=100, steps_per_second=RATES[kind], samples=9) for kind in ran
    )
    profile = replace(a_profile(name, workload_class=name), uid=f"uid-{name}", family=family)
    return replace(profile, status=ProfileStatus(solo=solo))


def test_a_family_that_never_ran_on_a_type_has_no_number_there() -> None:
    one = job()
    mine, other = a_class("resnet", "cnn", "small"), a_class("bert", "lm", "small", "large")
    found = table(one, world(one, mine, other, *prices()))
    assert found["small"][1] == 36_000
    assert found["large"] == (Reason.FAMILY_NOT_MEASURED, None, "")
    row = next(row for row in of_its_size(one, world(one, mine, other)) if row.source == "")
    assert (row.low_s, row.high_s, row.confidence) == (None, None, "")
    assert "no class of the job's family ran on" in row.message
    kin = a_class("vgg", "cnn", "large")
    found = table(one, world(one, mine, other, kin, *prices()))
    assert found["large"][0] is Reason.NO_ESTIMATE  # kin ran there, but on no type of this class


def test_a_class_that_never_ran_has_no_number_anywhere() -> None:
    one = job()
    others = [a_class(name, "lm", "small", "large") for name in ("bert", "gpt")]
    for row in of_its_size(one, world(one, *others, *prices())):
        assert (row.reason, row.total_s, row.cost) == (Reason.NO_ESTIMATE, None, "")
        assert (row.source, row.confidence) == ("", "")


def test_too_few_devices_are_counted() -> None:
    one = job(replicas=5)
    rows = of_its_size(one, world(one))
    assert {row.reason for row in rows} == {Reason.NOT_AVAILABLE}
    assert rows[0].message == (
        "the job takes 5 devices; the cluster has 4 healthy ones, at most 4 on one node"
    )


def test_what_does_not_fit_in_memory_is_never_recommended() -> None:
    stated = replace(job(), gpu=replace(job().gpu, memory_mib=12_000))
    assert table(stated, world(stated))["small"][0] is Reason.MEMORY_TOO_LARGE
    one = job()
    peaks = known(peak_mib=9_000)
    found = table(one, world(one, peaks, *prices(small=0.001)))
    assert found["small"][0] is Reason.MEMORY_TOO_LARGE
    assert found["middle"][0] is Reason.RECOMMENDED


def test_of_devices_of_one_type_the_smallest_memory_counts() -> None:
    stated = replace(job(), gpu=replace(job().gpu, memory_mib=12_000))
    roomy = a_device("GPU-roomy", model="small", memory_mib=16_000)
    for name in ("a-first", "z-last"):
        mixed = a_snapshot(*nodes(), a_gpu_node(name, devices=[roomy]), known(), *prices(), stated)
        assert table(stated, mixed)["small"][0] is Reason.MEMORY_TOO_LARGE


def test_where_no_one_vouches_for_the_memory_all_is_advice() -> None:
    one = job()
    found = table(one, world(one, known(peak_mib=None), *prices()))
    assert {row[0] for row in found.values()} == {Reason.MEMORY_UNKNOWN}


@settings(max_examples=30, deadline=None)
@given(
    need=st.integers(1, 90_000),
    overhead=st.integers(0, 4_000),
    costs=st.dictionaries(st.sampled_from(list(SIZES)), st.floats(0.001, 50), min_size=3),
    aim=st.sampled_from([CHEAP, FAST, None]),
)
def test_no_type_with_too_little_memory_comes_out_whatever_it_costs(
    need: int, overhead: int, costs: dict[str, float], aim: CostAim | None
) -> None:
    one = replace(job(aim), gpu=replace(job().gpu, memory_mib=need))
    devices = [replace(one_, context_overhead_mib=overhead) for one_ in prices(**costs)]
    advice = Advisor.of(world(one, known(), *devices)).advice(one)
    for row in rows_of(advice):
        fits = need + overhead <= SIZES[row.accelerator]
        assert (row.reason is Reason.MEMORY_TOO_LARGE) == (not fits)
    assert all(row.need_mib == need + overhead for row in rows_of(advice))


def after(one: WorkloadRecord, status: WorkloadStatus) -> WorkloadRecord:
    return replace(one, status=as_stored(one.kind, status))


def test_the_list_is_written_once_and_again_when_it_says_something_new() -> None:
    one = job()
    status = told(one, world(one))
    assert as_stored(one.kind, status) == status
    choices = after(one, status)
    assert told(choices, world(choices)) is choices.status
    nearly = {name: rate * 1.02 for name, rate in RATES.items()}
    still = told(choices, world(choices, known(**nearly), *prices()))
    assert still.recommendation is choices.status.recommendation
    dearer = told(choices, world(choices, known(), *prices(middle=3.0)))
    assert dearer.recommendation[0].accelerator == "large"


def test_a_measured_speed_takes_the_estimates_place_in_the_list() -> None:
    one = job()
    choices = after(one, told(one, world(one)))
    fast = known(small=1.0, middle=4.0, large=2.0)
    measured = SoloEntry(device="large", share=100, steps_per_second=20.0, samples=3)
    solo = (*fast.status.solo, replace(measured, fingerprint=Fingerprint(peak_memory_mib=5e3)))
    fast = replace(fast, status=replace(fast.status, solo=solo, throughput=()))
    first = told(choices, world(choices, fast, *prices())).recommendation[0]
    assert (first.accelerator, first.source) == ("large", "Measured")


def test_jobs_that_ask_for_nothing_have_no_list_and_ended_ones_keep_theirs() -> None:
    one = job(None)
    assert told(one, world(one)) is one.status
    had = after(one, told(job(), world(job())))
    assert told(had, world(had)).recommendation == ()
    ended = after(job(), replace(told(job(), world(job())), phase="Succeeded"))
    assert told(ended, world(ended, known(), *prices(middle=9.0))) is ended.status


def test_an_event_tells_who_comes_first_and_only_when_that_changes() -> None:
    one = job()
    advisor = Advisor.of(world(one))
    status = advised(advisor, one, one.status)
    news = advice_news(advisor, one, status, 7)
    assert isinstance(news, Emit)
    assert news.reason is Reason.INSTANCE_SELECTED
    assert news.text.startswith("take 1 x middle, 2.50 h, cost 3.75, measured; next 1 x large")
    choices = after(one, status)
    assert advice_news(advisor, choices, choices.status, 7) is None
    none_left = replace(one, gpu=replace(one.gpu, memory_mib=100_000))
    advisor = Advisor.of(world(none_left))
    warned = advice_news(advisor, none_left, advised(advisor, none_left, one.status), 7)
    assert warned is not None
    assert (warned.warning, warned.reason) == (True, Reason.NO_FEASIBLE_ACCELERATOR)


def test_the_cycle_puts_it_into_the_status_and_then_keeps_still() -> None:
    one = job()
    plan = decided_on(world(one)).plan
    status = plan.statuses[one.ref.uid]
    assert status.recommendation[0].accelerator == "middle"
    assert Reason.INSTANCE_SELECTED in {event.reason for event in plan.events}
    choices = after(one, status)
    again = decided_on(world(choices)).plan
    assert Reason.INSTANCE_SELECTED not in {event.reason for event in again.events}
    later = again.statuses.get(one.ref.uid, status)
    assert later.recommendation == status.recommendation


def test_feasible_types_stand_in_order_of_the_aim() -> None:
    one = job()
    rows = of_its_size(one, world(one))
    costs = [float(row.cost) for row in rows]
    assert all(left <= right for left, right in pairwise(costs))


def test_a_crowd_of_new_jobs_is_answered_in_parts() -> None:
    one = job()
    advisor = Advisor.of(world(one))
    advisor.left = 1
    first = advised(advisor, one, one.status)
    assert first.recommendation
    assert advised(advisor, one, one.status) is one.status


def test_who_was_answered_alike_leaves_the_answers_of_a_cycle_to_others() -> None:
    one = job()
    choices = after(one, told(one, world(one)))
    other = world(choices, known(**{name: rate * 1.07 for name, rate in RATES.items()}), *prices())
    again = after(choices, told(choices, other))
    assert again.status.recommendation == choices.status.recommendation
    assert again.status.recommendation_basis != choices.status.recommendation_basis
    advisor = Advisor.of(other)
    assert advised(advisor, again, again.status) is again.status
    assert advisor.left == Advisor.of(other).left
