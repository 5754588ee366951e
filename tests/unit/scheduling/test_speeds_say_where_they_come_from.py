# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Speeds per accelerator: measured before estimated before unknown, and never without a source."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import a_job, a_profile, a_snapshot
from ullage.cluster.records.profile import (
    Method,
    ProfileRecord,
    ProfileStatus,
    SoloEntry,
    Source,
    StepRow,
    ThroughputEntry,
)
from ullage.engines.admission.records import Partner
from ullage.scheduling.learning.throughput import Throughputs, measured_speeds, remeasured


def window(number: int, step_s: float, accelerator: str = "v100", **changes: object) -> StepRow:
    return replace(
        StepRow(
            id=str(number), accelerator=accelerator, share=100, step_s=step_s, at_s=float(number)
        ),
        **changes,  # type: ignore[arg-type]
    )


def alone(accelerator: str, rate: float, share: int = 100, samples: int = 1) -> SoloEntry:
    return SoloEntry(device=accelerator, share=share, steps_per_second=rate, samples=samples)


def estimate(accelerator: str, rate: float, confidence: float = 0.3) -> ThroughputEntry:
    return ThroughputEntry(
        accelerator=accelerator,
        steps_per_second=rate,
        source=Source.ESTIMATED,
        method=Method.SIBLINGS,
        confidence=confidence,
        samples=4,
        low=rate / 1.5,
        high=rate * 1.5,
    )


def measured(profile: ProfileRecord, *entries: SoloEntry) -> ProfileRecord:
    return replace(profile, status=ProfileStatus(solo=entries))


def test_every_window_alone_renews_the_speed_by_half() -> None:
    rows = [window(1, 0.1), window(3, 0.05), window(2, 0.1)]
    (speed,) = measured_speeds(rows, [alone("v100", 10.0)])
    assert speed.steps_per_second == pytest.approx((10 + 20) / 2)
    assert (speed.source, speed.method, speed.samples) == (Source.MEASURED, Method.WINDOWS, 3)
    assert speed.confidence == pytest.approx(3 / 4)


def test_windows_beside_others_or_of_a_pause_are_no_speed_alone() -> None:
    beside = window(2, 9.0, partners=(Partner(workload_class="x", percent=50),))
    paused = window(3, 9.0, counterfactual=True)
    (speed,) = measured_speeds([window(1, 0.1), beside, paused], [alone("v100", 10.0)])
    assert speed.steps_per_second == pytest.approx(10.0)


def test_a_window_on_a_part_counts_as_the_whole_by_the_curve() -> None:
    solo = [alone("v100", 5.0, share=50), alone("v100", 8.0, share=100)]
    (speed,) = measured_speeds([window(1, 0.2, share=50)], solo)
    assert speed.steps_per_second == pytest.approx(8.0)


def test_a_measured_speed_replaces_the_estimate_of_its_type_alone() -> None:
    before = [estimate("v100", 3.0), estimate("h100", 30.0)]
    after = remeasured(before, [window(1, 0.1)], [alone("v100", 10.0)])
    found = {one.accelerator: (one.source, round(one.steps_per_second, 9)) for one in after}
    assert found == {"h100": (Source.ESTIMATED, 30.0), "v100": (Source.MEASURED, 10.0)}


def test_a_job_reads_its_class_then_the_profile_it_names() -> None:
    own = measured(a_profile("own", workload_class="resnet"), alone("v100", 10.0))
    own = replace(own, status=replace(own.status, throughput=(estimate("h100", 30.0),)))
    named = a_profile("named", alone("v100", 99.0), alone("k80", 1.0), workload_class="other")
    job = a_job().with_(workload_class="resnet", profile_ref="named").build()
    found = Throughputs(a_snapshot(own, named, job)).of(job)
    assert {name: one.source for name, one in found.items()} == {
        "v100": Source.MEASURED,
        "h100": Source.ESTIMATED,
        "k80": Source.DECLARED,
    }
    assert found["v100"].steps_per_second == pytest.approx(10.0)


@pytest.mark.parametrize(("confidence", "wins"), [(0.3, Source.DECLARED), (0.45, Source.ESTIMATED)])
def test_of_what_was_declared_and_estimated_the_surer_stands(
    confidence: float, wins: Source
) -> None:
    profile = a_profile("p", alone("h100", 20.0), workload_class="resnet")
    profile = replace(
        profile, status=ProfileStatus(throughput=(estimate("h100", 30.0, confidence),))
    )
    job = a_job().with_(workload_class="resnet").build()
    assert Throughputs(a_snapshot(profile, job)).of(job)["h100"].source is wins


def test_a_share_is_slower_by_the_measured_curve_or_else_in_proportion() -> None:
    flat = measured(
        a_profile("p", workload_class="flat"), alone("v100", 9.0, share=50), alone("v100", 10.0)
    )
    steep = measured(a_profile("q", workload_class="steep"), alone("v100", 10.0))
    jobs = [
        a_job(name).fractional(50).with_(workload_class=name).build() for name in ("flat", "steep")
    ]
    snapshot = a_snapshot(flat, steep, *jobs)
    found = [Throughputs(snapshot).of(job)["v100"].steps_per_second for job in jobs]
    assert found == pytest.approx([9.0, 5.0])


def test_a_class_that_no_one_saw_does_what_others_typically_do() -> None:
    fast = measured(a_profile("a", workload_class="a"), alone("v100", 10.0), alone("k80", 1.0))
    slow = measured(a_profile("b", workload_class="b"), alone("v100", 2.0), alone("k80", 0.5))
    lone = measured(a_profile("c", workload_class="c"), alone("h100", 500.0))
    job = a_job().with_(workload_class="new").build()
    found = Throughputs(a_snapshot(fast, slow, lone, job)).of(job)
    assert {one.method for one in found.values()} == {Method.TYPICAL}
    assert "h100" not in found  # no class was seen on it and on another type
    ratio = found["v100"].steps_per_second / found["k80"].steps_per_second
    assert ratio == pytest.approx((10 * 4) ** 0.5)
    assert all(one.confidence <= 0.05 for one in found.values())


def test_nothing_known_is_nothing_said() -> None:
    job = a_job().build()
    assert Throughputs(a_snapshot(job)).of(job) == {}


def test_alike_workloads_are_answered_once() -> None:
    profile = measured(a_profile("p", workload_class="resnet"), alone("v100", 10.0))
    jobs = [a_job(f"job-{n}").with_(workload_class="resnet").build() for n in range(2)]
    speeds = Throughputs(a_snapshot(profile, *jobs))
    assert speeds.of(jobs[0]) is speeds.of(jobs[1])
