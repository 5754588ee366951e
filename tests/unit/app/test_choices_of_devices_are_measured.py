# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A speed that no one measured is held against the first measurement; choices against the best."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import a_device_profile, a_gpu_node, a_job, a_profile, a_snapshot
from builders_nodes import gpu
from ullage.api.reasons import Reason
from ullage.api.slices import SliceKey
from ullage.api.trainingjob import CostAim
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.profile import Method, ProfileRecord, SoloEntry, Source, ThroughputEntry
from ullage.cluster.records.status import Placement
from ullage.metrics.devices import SpeedErrors, regrets
from ullage.scheduling.model.plan import SetProfile


def speed(kind: str, rate: float, source: Source = Source.MEASURED) -> ThroughputEntry:
    """A speed on a type."""
    methods = {
        Source.MEASURED: Method.WINDOWS,
        Source.ESTIMATED: Method.SIBLINGS,
        Source.DECLARED: Method.DECLARED,
    }
    return ThroughputEntry(
        accelerator=kind,
        steps_per_second=rate,
        source=source,
        method=methods[source],
        confidence=0.5,
    )


def known(*entries: ThroughputEntry) -> ProfileRecord:
    """A class with these speeds in its status."""
    made = a_profile("p", workload_class="a")
    return replace(made, status=replace(made.status, throughput=entries))


def written(before: ProfileRecord, *entries: ThroughputEntry) -> SetProfile:
    """What a cycle writes of it."""
    return SetProfile(
        target=ObjectRef(
            kind="WorkloadProfile", namespace=before.namespace, name=before.name, uid=before.uid
        ),
        status=replace(before.status, throughput=entries),
        epoch=1,
        reason=Reason.MEASURED,
        text="",
    )


def test_an_estimate_is_held_against_the_first_measurement_and_only_that() -> None:
    told = SpeedErrors()
    before = known(speed("slow", 2.0), speed("fast", 6.0, Source.ESTIMATED))
    first = written(before, speed("slow", 2.1), speed("fast", 4.0))
    told.look(a_snapshot(before), [first])
    assert told.errors() == {("fast", "Estimated"): pytest.approx(0.5)}
    after = known(*first.status.throughput)
    told.look(a_snapshot(after), [written(after, speed("slow", 2.1), speed("fast", 5.0))])
    assert told.errors() == {("fast", "Estimated"): pytest.approx(0.5)}


def test_a_declared_speed_counts_as_declared() -> None:
    told = SpeedErrors()
    row = SoloEntry(device="fast", share=100, steps_per_second=3.0)
    before = a_profile("p", row, workload_class="a")
    told.look(a_snapshot(before), [written(before, speed("fast", 4.0))])
    assert told.errors() == {("fast", "Declared"): pytest.approx(0.25)}


def a_node(name: str, kind: str) -> GPUNodeRecord:
    """A node of one device of a type."""
    made = a_gpu_node(name, devices=1)
    return replace(made, devices=tuple(replace(one, model=kind) for one in made.devices))


def picture(objective: str, *entries: ThroughputEntry, phase: str = "Running") -> dict[str, float]:
    """Regret of one job on the fast type, ten times as dear as the slow one."""
    placed = Placement(
        key=SliceKey(pod_uid="u", container="main", index=0),
        pod="train-0",
        node="n1",
        gpu=gpu("n1", 0),
        percent=100,
        memory_mib=1,
        epoch=1,
    )
    job = a_job("train").with_(workload_class="a", cost=CostAim(objective=objective))
    prices = [
        replace(a_device_profile(kind), price_per_hour=price)
        for kind, price in (("fast", 10.0), ("slow", 1.0))
    ]
    return regrets(
        a_snapshot(
            job.status(phase=phase, placement=(placed,)),
            known(*entries),
            a_node("n1", "fast"),
            a_node("n2", "slow"),
            *prices,
        )
    )


def test_regret_is_against_the_best_type_that_was_measured() -> None:
    both = (speed("fast", 4.0), speed("slow", 1.0))
    assert picture("CostPerWork", *both) == {"fast": pytest.approx(2.5)}
    assert picture("Makespan", *both) == {"fast": pytest.approx(1.0)}


def test_what_was_not_measured_or_does_not_run_tells_nothing() -> None:
    guess = speed("slow", 1.0, Source.ESTIMATED)
    assert picture("CostPerWork", speed("fast", 4.0), guess) == {}
    both = (speed("fast", 4.0), speed("slow", 1.0))
    assert picture("CostPerWork", *both, phase="Pending") == {}
