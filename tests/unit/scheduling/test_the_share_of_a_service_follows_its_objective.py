# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``scaling.policy: SLO`` chooses the share of replicas that may be started again for another."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import (
    DEVICE_MEMORY_MIB,
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
from ullage.api.devices import GPUMode
from ullage.api.gpurequest import GPURequest, Share
from ullage.api.loads import ObservedLoad
from ullage.api.observations import LatencyObjective
from ullage.api.reasons import Reason
from ullage.api.sharing import SharingRules
from ullage.api.slices import SlicePhase
from ullage.cluster.codecs.status import as_stored
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.spec_fields import ReplicaBounds
from ullage.cluster.records.status import (
    ChosenShare,
    ReplicaChoice,
    ScalingHistory,
    ScalingRecord,
    WorkloadStatus,
)
from ullage.cluster.records.workload import WorkloadKind
from ullage.scheduling.inventory.held_shares import scaled_share
from ullage.scheduling.lifecycle.share_choice import KNOWN_BINS
from ullage.scheduling.model.plan import ApplyDeployment
from ullage.scheduling.times import LOAD_BIN_S, SHARE_HOLD_S, SHARE_ROOM_S

BOUNDS: Final = ReplicaBounds(min_replicas=1, max_replicas=3)
LEAST, MOST = 20, 80


def resizable(latency_ms: int = 500, memory_mib: int = 1024) -> WorkloadBuilder:
    service = a_service().fractional(LEAST, MOST)
    return service.with_(
        slo=LatencyObjective(latency_ms=latency_ms),
        scaling=BOUNDS,
        sharing=SharingRules(resizable=True),
        gpu=replace(service.build().gpu, memory_mib=memory_mib),
    )


def load(per_s: float, service_s: float) -> ObservedLoad:
    """Requests to one replica, waiting as in M/D/1."""
    busy = min(per_s * service_s, 0.95)
    mean = service_s * (1 + busy / (2 * (1 - busy)))
    return ObservedLoad(
        seconds=15,
        requests_milli=round(per_s * 1000),
        request_micros=round(mean * 1e6),
        latency_micros=round(1.3 * mean * 1e6),
    )


def replica(service: WorkloadBuilder, at: int, now: float, *, waits_s: float = 0.0) -> PodRecord:
    """One that serves, or one that waits for a device since so many seconds."""
    if waits_s:
        return a_pod(f"serve-{at}", owner=service.build(), created=now - waits_s)
    pod = a_pod(
        f"serve-{at}",
        owner=service.build(),
        stage=PodStage.RUNNING,
        node="node-1",
        created=NOW - 900,
    )
    return replace(pod, ready_since=pod.created + 30)


def cycle(
    service: WorkloadBuilder,
    per_s: float,
    now: float,
    *,
    percents: tuple[int, ...] = (MOST,),
    whole_s: float = 0.02,
    waits_s: float = 0.0,
    extra: tuple[PodRecord, ...] = (),
) -> Decided:
    """Replicas of these shares, each on a device of its own; a request takes 1 / share."""
    pods = [replica(service, at, now) for at in range(len(percents))]
    held = [
        a_slice(pod, device=gpu("node-1", at), percent=percent, memory_mib=1024)
        for at, (pod, percent) in enumerate(zip(pods, percents, strict=True))
    ]
    seen = [
        replace(
            reported(one, SlicePhase.ATTACHED),
            load=load(per_s / len(percents), whole_s * 100 / one.percent),
        )
        for one in held
    ]
    node = replace(a_gpu_node(devices=4, desired=held, observed=seen), heartbeat=now)
    waiting = [replica(service, 9, now, waits_s=waits_s)] if waits_s else []
    deployment = a_deployment(service.build(), surge=0, unavailable=1, ready=len(percents))
    parts: list[Part] = [node, *pods, *waiting, *extra, deployment, a_kube_service(service.build())]
    return decided(service, *parts, at=now)


def stored(service: WorkloadBuilder, status: WorkloadStatus) -> WorkloadBuilder:
    kept = as_stored(WorkloadKind.INFERENCE_DEPLOYMENT, status)
    return service.with_(status=kept)


def lived(service: WorkloadBuilder, per_s: float, **world: object) -> tuple[WorkloadBuilder, float]:
    """After so many bins that a share may become smaller."""
    now = NOW
    for _ in range(KNOWN_BINS + 1):
        found = cycle(service, per_s, now, **world)  # type: ignore[arg-type]
        service, now = stored(service, found.status(service)), now + LOAD_BIN_S
    return service, now


def share_of(service: WorkloadBuilder) -> ChosenShare | None:
    record = service.build().status.scaling
    return record.share if record is not None else None


def test_little_load_needs_little_of_a_device() -> None:
    service, _ = lived(resizable(), 1.0)
    share = share_of(service)
    assert share is not None
    assert LEAST <= share.percent < MOST
    record = service.build().status.scaling
    assert record is not None
    assert record.chosen.percent == share.percent
    assert f"{share.percent} % of a device replace those with {MOST} %" in record.message


def test_nothing_is_chosen_before_five_minutes_of_load_are_known() -> None:
    service, now = resizable(), NOW
    for _ in range(KNOWN_BINS - 1):
        service = stored(service, cycle(service, 1.0, now).status(service))
        assert share_of(service) is None
        now += LOAD_BIN_S


@pytest.mark.parametrize(
    "changes",
    [
        {"sharing": SharingRules()},
        {"gpu": GPURequest(mode=GPUMode.FRACTIONAL, share=Share(min_percent=20, max_percent=80))},
        {
            "gpu": GPURequest(
                mode=GPUMode.FRACTIONAL,
                share=Share(min_percent=80, max_percent=80),
                memory_mib=1024,
            )
        },
    ],
    ids=["may not be restarted", "memory goes with the share", "one share only"],
)
def test_who_did_not_agree_keeps_what_it_has(changes: dict[str, object]) -> None:
    service, _ = lived(resizable().with_(**changes), 1.0)
    assert share_of(service) is None


def test_replicas_are_replaced_one_after_the_other_beside_their_replacement() -> None:
    service, now = lived(resizable(), 1.0)
    found = cycle(service, 1.0, now)
    assert found.one(ApplyDeployment).replicas == 2
    condition = found.condition(service, "Degraded")
    assert condition.reason == "ResizePending"
    share = share_of(service)
    assert share is not None
    assert f"its objective asks for {share.percent} % (status.scaling.share)" in condition.message


def test_a_newcomer_gets_the_chosen_share() -> None:
    service, now = lived(resizable(), 1.0)
    found = cycle(service.replicas(2), 1.0, now, waits_s=1.0)
    share = share_of(service)
    assert share is not None
    assert [one.percent for _, one in found.slices() if one.pod_name == "serve-9"] == [
        share.percent
    ]


def test_a_share_that_finds_no_room_is_given_up() -> None:
    small = ScalingRecord(
        chosen=ReplicaChoice(replicas=2, percent=MOST),
        share=ChosenShare(percent=MOST, time=NOW - 60),
        reason=Reason.STEADY,
        history=ScalingHistory(
            as_of=NOW - LOAD_BIN_S, rates_milli=(1000,) * 40, service_micros=30_000
        ),
    )
    service = resizable().replicas(2).with_(status=WorkloadStatus(scaling=small))
    full = (MOST,) * 4
    found = cycle(service, 1.0, NOW, percents=full, waits_s=SHARE_ROOM_S + 1)
    given_up = found.status(service).scaling
    assert given_up is not None
    assert given_up.share == ChosenShare(percent=0, time=NOW)
    assert scaled_share(stored(service, found.status(service)).build()) is None


def test_a_replica_that_another_controller_holds_ends_no_choice() -> None:
    service, now = lived(resizable(), 1.0)
    waiting = replica(service.replicas(2), 9, now, waits_s=SHARE_ROOM_S + 1)
    held = replace(waiting, gates=(*waiting.gates, "kueue.x-k8s.io/admission"))
    found = cycle(service.replicas(2), 1.0, now, extra=(held,)).status(service).scaling
    assert found is not None
    assert found.share == share_of(service)
    alone = cycle(service.replicas(2), 1.0, now, extra=(waiting,), percents=(MOST,) * 4)
    given_up = alone.status(service).scaling
    assert given_up is not None
    assert given_up.share == ChosenShare(percent=0, time=now)


def test_a_share_that_serves_too_slowly_becomes_larger_at_once() -> None:
    """A request takes a second at 20 %; the objective is half of one."""
    service = resizable()
    found = cycle(service, 2.0, NOW, percents=(LEAST,), whole_s=0.2)
    record = found.status(service).scaling
    assert record is not None
    assert record.share is not None
    assert record.share.percent > LEAST
    (text,) = [text for reason, text in found.events() if reason == "ShareChosen"]
    assert f"each replica is to have {record.share.percent} % of a device" in text
    again = stored(service, found.status(service))
    later = cycle(again, 2.0, NOW + LOAD_BIN_S, percents=(LEAST,), whole_s=0.2)
    assert "ShareChosen" not in dict(later.events())


def test_it_does_not_change_again_while_replicas_are_replaced() -> None:
    service, now = lived(resizable(), 1.0)
    before = share_of(service)
    for _ in range(10):
        found = cycle(service, 1.0, now)
        service, now = stored(service, found.status(service)), now + LOAD_BIN_S
    assert share_of(service) == before


def test_the_service_time_of_another_share_is_predicted() -> None:
    """Few requests come after the change; none of them measures the new share."""
    service, now = lived(resizable(), 1.0)
    share = share_of(service)
    before = service.build().status.scaling
    assert share is not None
    assert before is not None
    assert before.history is not None
    found = cycle(service, 0.1, now, percents=(share.percent,))
    after = found.status(service).scaling
    assert after is not None
    assert after.history is not None
    assert after.history.percent == share.percent
    expected = before.history.service_micros * MOST / share.percent
    assert after.history.service_micros == pytest.approx(expected, rel=0.01)


def test_bounds_that_are_edited_hold_for_a_share_that_was_chosen() -> None:
    service, now = lived(resizable(), 1.0)
    gpu_now = replace(service.build().gpu, share=Share(min_percent=70, max_percent=90))
    edited = service.with_(gpu=gpu_now)
    record = cycle(edited, 1.0, now).status(edited).scaling
    assert record is not None
    assert record.share is not None
    assert record.share.percent == record.chosen.percent == 70


def test_a_clock_that_went_back_holds_nothing_up() -> None:
    service, now = lived(resizable(), 1.0)
    record = service.build().status.scaling
    assert record is not None
    later = replace(record, share=ChosenShare(percent=LEAST, time=now + 1e6))
    service = service.with_(status=replace(service.build().status, scaling=later))
    found = cycle(service, 20.0, now, percents=(LEAST,), whole_s=0.2).status(service).scaling
    assert found is not None
    assert found.share is not None
    assert found.share.percent > LEAST


@settings(deadline=None, max_examples=40)
@given(
    percent=st.integers(0, 100),
    at=st.floats(NOW - 10 * SHARE_HOLD_S, NOW + 10 * SHARE_HOLD_S),
    per_s=st.floats(0, 500),
    held=st.lists(st.integers(1, 100), min_size=1, max_size=4),
    waits_s=st.sampled_from([0.0, 1.0, 1000.0]),
)
def test_whatever_a_status_says_the_share_stays_within_its_bounds(
    percent: int, at: float, per_s: float, held: list[int], waits_s: float
) -> None:
    record = ScalingRecord(
        chosen=ReplicaChoice(replicas=len(held), percent=percent),
        share=ChosenShare(percent=percent, time=at),
        reason=Reason.STEADY,
        history=ScalingHistory(as_of=NOW - LOAD_BIN_S, rates_milli=(1000,) * 40, percent=percent),
    )
    service = resizable().replicas(len(held)).with_(status=WorkloadStatus(scaling=record))
    found = cycle(service, per_s, NOW, percents=tuple(held), waits_s=waits_s)
    for _, one in found.slices():
        if one.pod_name == "serve-9":
            assert LEAST <= one.percent <= MOST
            assert one.memory_mib == 1024 < DEVICE_MEMORY_MIB
    share = scaled_share(stored(service, found.status(service)).build())
    if share is not None:
        assert LEAST <= share.min_percent == share.max_percent <= MOST
