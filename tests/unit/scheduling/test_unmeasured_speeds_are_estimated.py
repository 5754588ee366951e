# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Estimates hold on to something, say how sure they are, and give way to what is measured."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bench.devicechoice_live import left_out
from bench.devicechoice_networks import mean_of, read_networks
from builders import NOW, a_device, a_device_profile, a_gpu_node, a_job, a_profile, a_snapshot
from ullage.api.numbers import MOST as LARGEST
from ullage.api.reasons import Reason
from ullage.api.words import Kernel
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.profile import (
    DeviceProfileRecord,
    Method,
    OpRow,
    OpTable,
    ProfileRecord,
    ProfileStatus,
    SoloEntry,
    Source,
)
from ullage.cluster.records.snapshot import Snapshot
from ullage.engines.admission.records import Fingerprint
from ullage.engines.devicechoice.fit import LearnedOpTimes
from ullage.scheduling.learning.estimates import MOST_CONFIDENT, estimated, gather
from ullage.scheduling.learning.loop import ProfileUpdates
from ullage.scheduling.learning.operations import OpTables, op_time_fits
from ullage.scheduling.learning.throughput import Throughput, Throughputs
from ullage.scheduling.learning.written_speeds import MOST_A_CYCLE, with_estimates
from ullage.scheduling.model.plan import SetProfile
from ullage.scheduling.times import SPEEDS_WRITE_S

TYPES = ("k80", "p100", "v100")
LESSONS = ProfileUpdates(dropped={})


def node(*models: str) -> GPUNodeRecord:
    return a_gpu_node(devices=[a_device(f"GPU-{one}", model=one) for one in models])


def a_class(name: str, family: str = "", /, **rates: float) -> ProfileRecord:
    """A class with measured speeds, steps per second by accelerator."""
    solo = tuple(
        SoloEntry(device=device, share=100, steps_per_second=rate, samples=9)
        for device, rate in sorted(rates.items())
    )
    profile = replace(a_profile(name, workload_class=name), uid=f"uid-{name}", family=family)
    return replace(profile, status=ProfileStatus(solo=solo))


def rated(name: str, tflops: float, gbytes: float) -> DeviceProfileRecord:
    return replace(
        a_device_profile(name),
        peak_flops=(("FP32", tflops * 1e12),),
        memory_bytes_per_s=gbytes * 1e9,
    )


def estimates(snapshot: Snapshot, profile: ProfileRecord) -> dict[str, tuple[Method, float]]:
    found = estimated(profile, gather(snapshot)["default"])
    assert all(one.source is Source.ESTIMATED for one in found)
    assert all(0 < one.confidence < MOST_CONFIDENT for one in found)
    assert all(one.low <= one.steps_per_second <= one.high for one in found)  # type: ignore[operator]
    return {one.accelerator: (one.method, one.steps_per_second) for one in found}


def test_no_speed_grows_beyond_what_a_profile_can_hold() -> None:
    mine = a_class("mine", k80=9e17)
    half = replace(mine.status.solo[0], device="p100", share=50)
    mine = replace(mine, solo=(half,))
    devices = (rated("k80", 1, 1), rated("v100", 1e4, 1e4))
    (action,) = with_estimates(a_snapshot(node(*TYPES), mine, *devices), NOW, 1, LESSONS).actions
    speeds = {one.accelerator: one.steps_per_second for one in action.status.throughput}
    assert speeds == {"k80": 9e17, "p100": LARGEST, "v100": LARGEST}


def test_siblings_carry_a_measured_speed_to_other_types() -> None:
    others = [a_class(f"c{n}", k80=1.0 * n, v100=4.0 * n) for n in range(1, 7)]
    mine = a_class("mine", k80=2.5)
    found = estimates(a_snapshot(node(*TYPES), mine, *others), mine)
    assert set(found) == {"v100"}  # no one was ever seen on p100
    assert found["v100"][1] == pytest.approx(10.0, rel=0.1)


def test_the_family_counts_more_than_strangers() -> None:
    kin = [a_class(f"kin{n}", "resnet", k80=1.0 + n / 10, v100=8.0 + n) for n in range(5)]
    strangers = [a_class(f"far{n}", "bert", k80=1.0 + n / 10, v100=2.0 + n / 10) for n in range(5)]
    mine = a_class("mine", "resnet", k80=1.2)
    world = a_snapshot(node(*TYPES), mine, *kin, *strangers)
    assert estimates(world, mine)["v100"][1] / 1.2 == pytest.approx(8.0, rel=0.15)


def test_one_reference_is_enough_for_an_estimate_and_never_for_much_trust() -> None:
    mine, other = a_class("mine", k80=2.0), a_class("other", k80=1.0, v100=5.0)
    (found,) = estimated(mine, gather(a_snapshot(node(*TYPES), mine, other))["default"])
    assert (found.method, found.samples) == (Method.NEIGHBOURS, 1)
    assert found.steps_per_second == pytest.approx(10.0)
    assert found.confidence < 0.25


def test_neighbours_are_those_whose_ratios_look_alike() -> None:
    compute = [a_class(f"dense{n}", k80=1.0, p100=5.0, v100=10.0) for n in range(4)]
    waiting = [a_class(f"input{n}", k80=1.0, p100=1.1, v100=1.2) for n in range(4)]
    mine = a_class("mine", k80=2.0, p100=2.2)
    world = a_snapshot(node(*TYPES), mine, *compute, *waiting)
    method, rate = estimates(world, mine)["v100"]
    assert method is Method.NEIGHBOURS
    assert rate == pytest.approx(2.4, rel=0.1)


def test_peak_rates_carry_a_speed_over_where_no_other_class_ran() -> None:
    mine = a_class("mine", k80=1.0)
    world = a_snapshot(
        node("k80", "v100"), mine, rated("k80", 4.0, 240.0), rated("v100", 16.0, 960.0)
    )
    assert estimates(world, mine) == {"v100": (Method.ROOFLINE, pytest.approx(4.0))}


@pytest.mark.parametrize(
    ("busy", "rate"),
    [(Fingerprint(dram=0.9, fp32=0.01), 2.0), (Fingerprint(dram=0.01, fp32=0.9), 4.0)],
)
def test_counters_say_which_peak_binds(busy: Fingerprint, rate: float) -> None:
    mine = a_class("mine", k80=1.0)
    (solo,) = mine.status.solo
    mine = replace(mine, status=ProfileStatus(solo=(replace(solo, fingerprint=busy),)))
    world = a_snapshot(
        node("k80", "v100"), mine, rated("k80", 4.0, 240.0), rated("v100", 16.0, 480.0)
    )
    (found,) = estimated(mine, gather(world)["default"])
    assert found.steps_per_second == pytest.approx(rate)


def test_an_op_table_says_which_peak_binds() -> None:
    heavy = OpRow(type="mm", flops=1e12, bytes_read=1e6, seconds=0.25)
    mine = replace(a_class("mine", k80=1.0), op_table=OpTable(ops=(heavy,), accelerator="k80"))
    world = a_snapshot(
        node("k80", "v100"), mine, rated("k80", 4.0, 240.0), rated("v100", 16.0, 240.0)
    )
    assert estimates(world, mine) == {"v100": (Method.ROOFLINE, pytest.approx(4.0))}


def timed(name: str, scale: float, accelerator: str, second_per_flop: float) -> ProfileRecord:
    ops = tuple(
        OpRow(type="mm", flops=flops, bytes_read=1e6, seconds=flops * second_per_flop)
        for flops in (scale * 1e9 * n for n in range(1, 8))
    )
    table = OpTable(ops=ops, accelerator=accelerator)
    return replace(a_profile(name, workload_class=name), uid=f"uid-{name}", op_table=table)


def test_op_times_of_other_tables_price_a_class_that_never_ran() -> None:
    others = [timed(f"c{n}", 1.0 + n, "v100", 1e-13) for n in range(4)]
    mine = replace(
        a_profile("mine", workload_class="mine"), op_table=OpTable(ops=others[1].op_table.ops)
    )  # type: ignore[union-attr]
    world = a_snapshot(node("k80", "v100"), mine, *others)
    method, rate = estimates(world, mine)["v100"]
    assert method is Method.OPS
    assert rate == pytest.approx(1 / (28 * 2e9 * 1e-13), rel=1e-6)


@pytest.mark.slow
def test_a_left_out_network_is_estimated_as_well_as_in_the_bench() -> None:
    found = {name: error for name, (error, _) in left_out(read_networks(), str).items()}
    assert len(found) == 12
    assert mean_of(found) <= 7.0


def test_op_times_are_fitted_once_for_the_same_tables() -> None:
    others = [timed(f"c{n}", 1.0 + n, "v100", 1e-13) for n in range(4)]
    mine = replace(a_profile("mine", workload_class="mine"), op_table=others[1].op_table)
    mine = replace(mine, op_table=replace(mine.op_table, accelerator=""))  # type: ignore[type-var]
    world = a_snapshot(node("k80", "v100"), replace(mine, uid="uid-mine"), *others)
    fits, asked = op_time_fits(), []

    def fit(tables: OpTables) -> LearnedOpTimes:
        asked.append(fits(tables))
        return asked[-1]

    for _ in range(2):
        with_estimates(world, NOW, 7, LESSONS, fit)
    assert len(asked) > 1
    assert all(one is asked[0] for one in asked)


def test_what_the_host_adds_to_a_step_is_carried_over() -> None:
    others = [timed(f"c{n}", 1.0 + n, "v100", 1e-13) for n in range(4)]
    slow = timed("c1", 2.0, "k80", 4e-13).op_table
    ops_s, host_s = 28 * 2e9 * 4e-13, 0.05
    mine = replace(a_class("mine", k80=1 / (ops_s + host_s)), op_table=slow)
    world = a_snapshot(node("k80", "v100"), mine, *others)
    method, rate = estimates(world, mine)["v100"]
    assert method is Method.OPS
    assert rate == pytest.approx(1 / (ops_s / 4 + host_s), rel=1e-6)


def test_a_family_that_was_never_measured_gets_no_comparison() -> None:
    seen = [
        a_class("c1", "resnet", k80=1.0, p100=3.0, v100=8.0),
        a_class("c2", "resnet", k80=2.0, p100=6.0, v100=16.1),
        a_class("c3", "bert", k80=1.0, p100=2.0),
    ]

    def found(family: str) -> dict[str, tuple[Method, float]]:
        mine = a_class("mine", family, k80=1.5)
        return estimates(a_snapshot(node(*TYPES), mine, *seen), mine)

    assert set(found("resnet")) == {"p100", "v100"}
    assert set(found("bert")) == {"p100"}  # no bert was ever seen on v100
    assert found("gpt") == {}


def test_kin_on_any_type_where_the_class_ran_are_compared() -> None:
    kin = [a_class(f"kin{n}", "bert", p100=2.0 + n, v100=6.0 + 3 * n) for n in range(3)]
    mine = a_class("mine", "bert", k80=1.0, p100=2.5)
    found = estimates(a_snapshot(node(*TYPES), mine, *kin), mine)
    assert found["v100"][1] == pytest.approx(7.5, rel=0.1)


def test_a_comparison_that_no_longer_holds_is_taken_back() -> None:
    seen = [a_class(f"c{n}", "resnet", k80=1.0 + n, v100=8.0 + n) for n in range(4)]
    mine = a_class("mine", "bert", k80=1.5)
    old = Throughput(
        accelerator="v100", steps_per_second=9.0, source=Source.ESTIMATED,
        method=Method.SIBLINGS, confidence=0.2,
    )  # fmt: skip
    mine = replace(mine, status=replace(mine.status, throughput=(old,), throughput_basis="x"))
    (action,) = written(a_snapshot(node("k80", "v100"), mine, *seen))
    assert action.target.name == "mine"
    assert [entry.accelerator for entry in action.status.throughput] == ["k80"]
    assert (action.reason, action.text) == (
        Reason.NO_ESTIMATE,
        "no speed of class mine can be estimated",
    )


def test_op_times_of_another_family_are_bounded_by_errors_across_families() -> None:
    others = [
        replace(timed(f"{kin}{n}", 1.0 + n, "v100", cost), family=kin)
        for kin, cost in (("a", 1e-13), ("b", 3e-13))
        for n in range(3)
    ]

    def factor(family: str) -> float:
        mine = replace(timed("mine", 2.0, "", 1.0), family=family)
        (found,) = estimated(
            mine, gather(a_snapshot(node("k80", "v100"), mine, *others))["default"]
        )
        assert found.low is not None
        return found.steps_per_second / found.low

    assert factor("c") > 1.2 * factor("a")


def test_a_class_without_any_hold_gets_no_estimate() -> None:
    others = [a_class(f"c{n}", k80=1.0, v100=4.0) for n in range(5)]
    mine = a_class("mine", p100=3.0)
    assert estimates(a_snapshot(node(*TYPES), mine, *others), mine) == {}


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(
        st.dictionaries(st.sampled_from(TYPES), st.floats(1e-3, 1e5), min_size=1),
        min_size=1,
        max_size=8,
    )
)
def test_estimates_are_finite_and_never_of_what_was_measured(rows: list[dict[str, float]]) -> None:
    classes = [a_class(f"c{at}", **row) for at, row in enumerate(rows)]
    evidence = gather(a_snapshot(node(*TYPES), *classes))["default"]
    for profile, row in zip(classes, rows, strict=True):
        for one in estimated(profile, evidence):
            assert one.accelerator not in row
            assert math.isfinite(one.steps_per_second)
            assert one.steps_per_second > 0


FIGURES = st.none() | st.sampled_from([0.0, 1e-300, 1e-9, 1.0, 1e18]) | st.floats(0, 1e18)
WILD_TABLES = st.builds(
    OpTable,
    ops=st.lists(
        st.builds(
            OpRow,
            type=st.sampled_from(["Conv2d", "Linear", "ReLU"]),
            count=st.sampled_from([1, 7, 10**6]),
            flops=FIGURES,
            bytes_read=FIGURES,
            parameter_bytes=FIGURES,
            bytes_written=FIGURES,
            kernel=st.sampled_from([None, *Kernel]),
            seconds=FIGURES,
        ),
        max_size=6,
    ).map(tuple),
    accelerator=st.sampled_from(["", "v100"]),
)


DUST = (
    OpRow(type="Conv2d", seconds=1e-300),
    OpRow(type="Conv2d", bytes_written=1e-300, seconds=1e18),
    OpRow(type="Conv2d", count=7, seconds=5e-324),
)
UNTIMED = OpTable(ops=(OpRow(type="ReLU", seconds=0.0),), accelerator="v100")


@pytest.mark.slow
@given(tables=st.lists(WILD_TABLES, min_size=3, max_size=6))
@example(tables=[UNTIMED] * 3)
@example(tables=[OpTable(ops=(row,), accelerator="v100") for row in DUST])
@example(tables=[OpTable(ops=DUST[1:2])] * 3)
def test_wild_op_tables_leave_finite_estimates(tables: list[OpTable]) -> None:
    classes = [
        replace(a_class(f"c{at}", k80=1.0), op_table=table) for at, table in enumerate(tables)
    ]
    rates = rated("k80", 4.0, 240.0), rated("v100", 16.0, 960.0)
    evidence = gather(a_snapshot(node(*TYPES), *rates, *classes))["default"]
    for profile in classes:
        for one in estimated(profile, evidence):
            assert math.isfinite(one.steps_per_second)
            assert one.steps_per_second > 0


def written(
    snapshot: Snapshot, now: float = NOW, lessons: ProfileUpdates = LESSONS
) -> list[SetProfile]:
    found = with_estimates(snapshot, now, 7, lessons).actions
    return [one for one in found if isinstance(one, SetProfile)]


def world_of(count: int, missing: int) -> list[ProfileRecord]:
    whole = [a_class(f"c{n}", k80=1.0 + n, v100=4.0 + n) for n in range(count)]
    return whole + [a_class(f"new{n}", k80=2.0 + n) for n in range(missing)]


def test_estimates_are_written_once_and_read_by_jobs() -> None:
    profiles = world_of(5, 1)
    (action,) = written(a_snapshot(node("k80", "v100"), *profiles))
    assert action.target.name == "new0"
    stored = replace(profiles[-1], status=action.status)
    job = a_job().with_(workload_class="new0").build()
    after = a_snapshot(node("k80", "v100"), *profiles[:-1], stored, job)
    assert written(after, NOW + 10_000) == []
    found = Throughputs(after).of(job)
    assert {name: one.source for name, one in found.items()} == {
        "k80": Source.MEASURED,
        "v100": Source.ESTIMATED,
    }
    assert {one.accelerator: one.source for one in action.status.throughput} == {
        "k80": Source.MEASURED,
        "v100": Source.ESTIMATED,
    }


def test_only_a_few_classes_a_cycle_and_the_rest_soon() -> None:
    snapshot = a_snapshot(node("k80", "v100"), *world_of(3, MOST_A_CYCLE + 2))
    lessons = with_estimates(snapshot, NOW, 7, LESSONS)
    assert len(lessons.actions) == MOST_A_CYCLE
    assert lessons.wake_at == NOW + 1


def test_new_evidence_is_taken_in_after_a_while() -> None:
    profiles = world_of(3, 1)
    (action,) = written(a_snapshot(node("k80", "v100"), *profiles))
    stored = replace(profiles[-1], status=action.status)
    more = a_snapshot(node("k80", "v100"), *world_of(4, 0), stored)
    assert written(more, NOW + 10) == []
    assert with_estimates(more, NOW + 10, 7, LESSONS).wake_at == NOW + SPEEDS_WRITE_S
    (again,) = written(more, NOW + SPEEDS_WRITE_S)
    assert again.status.throughput[1].samples == 4


def test_a_profile_that_is_written_already_waits_its_turn() -> None:
    snapshot = a_snapshot(node("k80", "v100"), *world_of(3, 1))
    (busy,) = written(snapshot)
    lessons = with_estimates(snapshot, NOW, 7, replace(LESSONS, actions=(busy,)))
    assert lessons.actions == (busy,)
    assert lessons.wake_at == NOW + 1


def test_one_type_of_device_needs_no_estimates() -> None:
    snapshot = a_snapshot(node("k80"), *world_of(3, 1))
    assert with_estimates(snapshot, NOW, 7, LESSONS) is LESSONS
