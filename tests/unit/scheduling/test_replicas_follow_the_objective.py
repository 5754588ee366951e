# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``scaling.policy: SLO``: load in, replicas out; nothing on missing data, nothing for others."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import (
    NOW,
    Part,
    WorkloadBuilder,
    a_deployment,
    a_gpu_node,
    a_kube_service,
    a_pod,
    a_service,
    a_slice,
    gpu,
    reported,
)
from fakes.deciding import Decided, decided
from ullage.api.loads import ObservedLoad
from ullage.api.observations import LatencyObjective
from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage.cluster.codecs.status import as_stored
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.spec_fields import ReplicaBounds
from ullage.cluster.records.status import (
    NeedRecord,
    ReplicaChoice,
    ScalingHistory,
    ScalingRecord,
    WorkloadStatus,
)
from ullage.cluster.records.workload import WorkloadKind
from ullage.scheduling.model.plan import Emit, ScaleWorkload
from ullage.scheduling.times import LOAD_BIN_S, REPLICAS_SETTLE_S

SERVICE_S = 0.1
BOUNDS = ReplicaBounds(min_replicas=1, max_replicas=8)


def scaled(replicas: int = 1, latency_ms: int = 500) -> WorkloadBuilder:
    slo = LatencyObjective(latency_ms=latency_ms)
    return a_service().replicas(replicas).with_(slo=slo, scaling=BOUNDS)


def load(per_replica: float, *, late: int = 0, mean_s: float = 0.0) -> ObservedLoad:
    """Requests of ``SERVICE_S`` each, waiting as in M/D/1."""
    busy = min(per_replica * SERVICE_S, 0.99)
    mean = mean_s or SERVICE_S * (1 + busy / (2 * (1 - busy)))
    if not per_replica:
        return ObservedLoad(seconds=15)
    return ObservedLoad(
        seconds=15,
        requests_milli=round(per_replica * 1000),
        request_micros=round(mean * 1e6),
        latency_micros=round(1.5 * mean * 1e6),
        late_milli=late,
    )


def world(
    service: WorkloadBuilder,
    loads: list[ObservedLoad | None],
    now: float,
    heartbeat: float | None = None,
) -> list[Part]:
    """As many ready replicas as there are loads, each on a device of its own."""
    pods = [
        a_pod(
            f"serve-{at}",
            owner=service.build(),
            rank=-1,
            stage=PodStage.RUNNING,
            node="node-1",
            created=NOW - 900,
        )
        for at in range(len(loads))
    ]
    pods = [replace(pod, ready_since=pod.created + 30) for pod in pods]
    held = [a_slice(pod, device=gpu("node-1", at), percent=100) for at, pod in enumerate(pods)]
    seen = [
        replace(reported(one, SlicePhase.ATTACHED), load=told)
        for one, told in zip(held, loads, strict=True)
    ]
    node = a_gpu_node(devices=8, desired=held, observed=seen)
    node = replace(node, heartbeat=now if heartbeat is None else heartbeat)
    record = service.build()
    deployment = a_deployment(record, surge=1, unavailable=0, ready=record.replicas)
    return [node, *pods, deployment, a_kube_service(record)]


def cycle(
    service: WorkloadBuilder, loads: list[ObservedLoad | None], now: float, **more: float
) -> Decided:
    return decided(service, *world(service, loads, now, **more), at=now)


def scaling(found: Decided, service: WorkloadBuilder) -> ScalingRecord:
    record = found.status(service).scaling
    assert record is not None
    return record


def stored(service: WorkloadBuilder, status: WorkloadStatus) -> WorkloadBuilder:
    """The service with the status as the API gives it back."""
    kept = as_stored(WorkloadKind.INFERENCE_DEPLOYMENT, status)
    return service.with_(status=kept)


class Played:
    """A service that lives on: each bin its load is told, and what is decided happens."""

    def __init__(self, service: WorkloadBuilder) -> None:
        self.service, self.now = service, NOW
        self.sizes: list[int] = [service.build().replicas]
        self.events: list[str] = []

    def bin(self, total: float, replicas_told: int | None = None) -> ScalingRecord:
        size = self.service.build().replicas
        told = size if replicas_told is None else replicas_told
        loads = [load(total / size) if at < told else None for at in range(size)]
        found = cycle(self.service, loads, self.now)
        self.events += [one.reason.value for one in found.all(Emit)]
        status = found.status(self.service)
        self.service = stored(self.service, status)
        after = cycle(self.service, loads, self.now + REPLICAS_SETTLE_S)
        for step in after.all(ScaleWorkload):
            self.service = self.service.replicas(step.replicas)
        self.sizes.append(self.service.build().replicas)
        self.now += LOAD_BIN_S
        assert status.scaling is not None
        return status.scaling


def test_a_service_of_others_is_left_alone() -> None:
    service = scaled().with_(scaling=None)
    found = cycle(service, [load(50.0)], NOW)
    assert found.status(service).scaling is None
    assert found.status(service).condition("ScalingActive") is None
    assert not found.all(ScaleWorkload)


def test_more_load_brings_more_replicas_through_the_status() -> None:
    service = scaled()
    found = cycle(service, [load(9.5)], NOW)
    record = scaling(found, service)
    assert record.reason is Reason.SCALED_UP
    assert record.chosen.replicas >= 2
    assert record.last_scale_time == NOW
    assert not found.all(ScaleWorkload), "first the status says so"
    assert [one.reason for one in found.all(Emit)].count(Reason.SCALED_UP) == 1
    known = stored(service, found.status(service))
    after = cycle(known, [load(9.5)], NOW + REPLICAS_SETTLE_S)
    step = after.one(ScaleWorkload)
    assert step.replicas == record.chosen.replicas
    assert step.resource_version == known.build().resource_version
    assert Reason.SCALED_UP not in [one.reason for one in after.all(Emit)], "told once"


def test_what_is_decided_keeps_the_objective_and_one_less_would_not() -> None:
    service = scaled(4)
    record = scaling(cycle(service, [load(7.0)] * 4, NOW), service)
    assert 0 < record.predicted_ms <= 500
    fewer = record.runner_up
    assert fewer is not None
    assert fewer.replicas < record.chosen.replicas
    assert not fewer.predicted_ms or fewer.predicted_ms > 500
    assert (record.chosen.percent, record.chosen.accelerator) == (100, "emulated")
    assert record.launch_seconds == 30
    assert float(record.load) == pytest.approx(28.0, rel=0.01)


@pytest.mark.slow
def test_a_square_wave_does_not_flap() -> None:
    played = Played(scaled(2))
    for at in range(80):
        played.bin(20.0 if at // 3 % 2 else 4.0)
    changes = [(a, b) for a, b in pairwise(played.sizes[20:]) if a != b]
    assert not changes, played.sizes


@pytest.mark.slow
def test_an_idle_service_shrinks_after_the_hold_and_only_then() -> None:
    played = Played(scaled(6))
    for _ in range(8):
        played.bin(1.0)
    assert set(played.sizes) == {6}
    for _ in range(40):
        played.bin(1.0)
    assert played.sizes[-1] == 1
    assert played.events.count("ScaledDown") == sum(a != b for a, b in pairwise(played.sizes)), (
        "Events come with changes alone"
    )


def test_replicas_that_are_busy_stay() -> None:
    """A forecast lags behind a jump; what was begun by six replicas is not cut off by five."""
    played = Played(scaled(8, latency_ms=60_000))
    for _ in range(8):
        played.bin(1.0)
    played.bin(55.0)
    assert played.sizes[-1] >= 6


@pytest.mark.parametrize("why", ["silent node", "no report", "not ready"])
def test_nothing_changes_on_missing_data(why: str) -> None:
    played = Played(scaled(6))
    for _ in range(12):
        played.bin(40.0)
    size, service = played.sizes[-1], played.service
    now = played.now + 600
    loads: list[ObservedLoad | None] = [load(0.1)] * size
    more = {"heartbeat": now - 60} if why == "silent node" else {}
    parts = world(service, loads if why != "no report" else [None] * size, now, **more)
    if why == "not ready":
        parts = [
            replace(one, ready=False)
            if hasattr(one, "ready_since") and hasattr(one, "stage")
            else one
            for one in parts
        ]
    found = decided(service, *parts, at=now)
    record = scaling(found, service)
    assert record.reason is Reason.LOAD_UNKNOWN
    assert record.chosen.replicas == size
    assert record.history == played.service.build().status.scaling.history  # type: ignore[union-attr]
    condition = found.condition(service, "ScalingActive")
    assert (condition.status, condition.reason) == ("False", Reason.LOAD_UNKNOWN)
    assert not found.all(ScaleWorkload)


@pytest.mark.slow
def test_while_some_replicas_report_nothing_none_is_taken_away() -> None:
    played = Played(scaled(6))
    for _ in range(30):
        played.bin(1.0, replicas_told=4)
    assert set(played.sizes) == {6}
    played.bin(400.0, replicas_told=4)
    assert played.sizes[-1] == 8, "more is never late"


def test_a_gap_takes_nothing_away_on_the_word_of_one_bin() -> None:
    played = Played(scaled(6))
    for _ in range(4):
        played.bin(40.0)
    size = played.sizes[-1]
    played.now += 3600
    played.bin(0.5)
    assert played.sizes[-1] == size


def test_a_restart_of_the_operator_changes_nothing() -> None:
    """All that it needs stands in the status: the same inputs give the same record."""
    played = Played(scaled(3))
    for _ in range(20):
        played.bin(18.0)
    size = played.service.build().replicas
    once = scaling(cycle(played.service, [load(18.0 / size)] * size, played.now), played.service)
    again = scaling(cycle(played.service, [load(18.0 / size)] * size, played.now), played.service)
    assert once == again


def test_a_backlog_asks_for_more_than_what_is_answered() -> None:
    """A full server answers what it can; what waits shows in its latency."""
    calm = scaling(cycle(scaled(), [load(9.0)], NOW), scaled())
    full = scaling(cycle(scaled(), [load(9.0, mean_s=20.0, late=1000)], NOW), scaled())
    assert full.chosen.replicas > calm.chosen.replicas


def test_at_the_maximum_it_says_so() -> None:
    service = scaled(8)
    record = scaling(cycle(service, [load(9.9, mean_s=5.0, late=900)] * 8, NOW), service)
    assert record.reason is Reason.AT_MAXIMUM
    assert "maxReplicas is 8" in record.message


def test_an_objective_out_of_reach_wastes_no_replicas() -> None:
    service = scaled(1, latency_ms=20)
    record = scaling(cycle(service, [load(1.0)], NOW), service)
    assert record.chosen.replicas < 8
    played = Played(service)
    for _ in range(5):
        record = played.bin(1.0)
    assert record.reason is Reason.OUT_OF_REACH


def test_people_may_scale_while_the_load_is_unknown() -> None:
    service = scaled(2)
    service = stored(service, cycle(service, [None, None], NOW).status(service))
    by_hand = service.replicas(5)
    found = cycle(by_hand, [None] * 5, NOW + 60)
    assert not found.all(ScaleWorkload)
    assert scaling(found, by_hand).chosen.replicas == 5


def test_the_number_of_others_is_put_right() -> None:
    played = Played(scaled(2))
    for _ in range(12):
        played.bin(15.0)
    size = played.service.build().replicas
    by_hand = played.service.replicas(size + 3)
    loads: list[ObservedLoad | None] = [load(15.0 / (size + 3))] * (size + 3)
    assert cycle(by_hand, loads, played.now - LOAD_BIN_S + 2).one(ScaleWorkload).replicas == size


def test_a_number_that_is_refused_is_told_once() -> None:
    service, now, events = scaled(1), NOW, list[Reason]()
    for at in range(20):  # whoever sets the number is refused, so one replica it is
        found = cycle(service, [load(30.0 + at / 100)], now)
        events += [one.reason for one in found.all(Emit)]
        service = stored(service, found.status(service))
        assert cycle(service, [load(30.0)], now + REPLICAS_SETTLE_S).one(ScaleWorkload).replicas > 1
        now += LOAD_BIN_S
    assert events.count(Reason.SCALED_UP) == 1


def test_a_number_of_others_is_told_when_it_is_put_right() -> None:
    played = Played(scaled(2))
    for _ in range(12):
        played.bin(15.0)
    size = played.service.build().replicas
    told = len(played.events)
    played.service = played.service.replicas(size - 1)
    record = played.bin(15.0)
    assert played.sizes[-1] == size
    assert played.events[told:] == [Reason.SCALED_UP.value]
    assert record.last_scale_time == played.now - LOAD_BIN_S


def test_new_bounds_hold_at_once() -> None:
    played = Played(scaled(6))
    for _ in range(4):
        played.bin(40.0)
    narrow = played.service.with_(scaling=ReplicaBounds(min_replicas=1, max_replicas=2))
    size = narrow.build().replicas
    found = cycle(narrow, [load(40.0 / size)] * size, played.now - LOAD_BIN_S + 2)
    assert found.one(ScaleWorkload).replicas == 2


def test_between_two_bins_the_status_is_not_written() -> None:
    played = Played(scaled(2))
    for _ in range(6):
        record = played.bin(12.0)
    size = played.service.build().replicas
    found = cycle(played.service, [load(30.0)] * size, played.now - LOAD_BIN_S + 5)
    assert found.status(played.service).scaling == record
    assert found.plan.wake_at <= played.now + 1


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(loads=st.lists(st.floats(0, 200), min_size=1, max_size=25), first=st.integers(1, 8))
def test_whatever_comes_replicas_stay_within_bounds(loads: list[float], first: int) -> None:
    played = Played(scaled(first))
    for total in loads:
        record = played.bin(total)
        assert BOUNDS.min_replicas <= record.chosen.replicas <= BOUNDS.max_replicas
        assert (
            as_stored(WorkloadKind.INFERENCE_DEPLOYMENT, played.service.build().status)
            == played.service.build().status
        )


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(
    rates=st.lists(st.integers(0, 2**53), max_size=200),
    needs=st.lists(st.tuples(st.integers(0, 2 * 10**9), st.integers(0, 2**31 - 1)), max_size=16),
    micros=st.integers(0, 2**53),
    caution=st.sampled_from(["", "0", "1", "999999999", "0.5"]),
    spread=st.sampled_from(["", "0", "999999999", "0.4"]),
    as_of=st.integers(0, 2 * 10**9),
)
def test_a_forged_history_harms_nothing(
    rates: list[int],
    needs: list[tuple[int, int]],
    micros: int,
    caution: str,
    spread: str,
    as_of: int,
) -> None:
    history = ScalingHistory(
        as_of=as_of,
        rates_milli=tuple(rates),
        needs=tuple(NeedRecord(time=at, replicas=count) for at, count in needs),
        caution=caution,
        service_micros=micros,
        spread=spread,
    )
    record = ScalingRecord(
        chosen=ReplicaChoice(replicas=2**31 - 1), reason=Reason.STEADY, history=history
    )
    service = stored(scaled(2), WorkloadStatus(scaling=record))
    found = cycle(service, [load(3.0)] * 2, NOW)
    assert not found.plan.faults
    assert all(1 <= step.replicas <= 8 for step in found.all(ScaleWorkload))


@settings(max_examples=50, deadline=None)
@given(milli=st.integers(0, 2**53), micros=st.integers(0, 2**53), quantile=st.integers(0, 2**53))
def test_wild_reports_are_bounded(milli: int, micros: int, quantile: int) -> None:
    told = ObservedLoad(
        seconds=15, requests_milli=milli, request_micros=micros, latency_micros=quantile
    )
    service = scaled(2)
    record = scaling(cycle(service, [told, told], NOW), service)
    assert 1 <= record.chosen.replicas <= 8
