# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``scaling.policy: SLO`` chooses the accelerator by price, where times on both are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import (
    NOW,
    WorkloadBuilder,
    a_deployment,
    a_device_profile,
    a_gpu_node,
    a_kube_service,
    a_pod,
    a_profile,
    a_service,
    a_slice,
    gpu,
    reported,
)
from fakes.deciding import Decided, decided
from ullage.api.loads import ObservedLoad
from ullage.api.observations import LatencyObjective
from ullage.api.reasons import Reason
from ullage.api.sharing import SharingRules
from ullage.api.slices import SlicePhase
from ullage.cluster.codecs.status import as_stored
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.profile import SoloEntry
from ullage.cluster.records.spec_fields import ReplicaBounds
from ullage.cluster.records.status import (
    ChosenShare,
    ReplicaChoice,
    ScalingHistory,
    ScalingRecord,
    WorkloadStatus,
)
from ullage.cluster.records.workload import WorkloadKind
from ullage.scheduling.inventory.held_shares import accelerators_asked
from ullage.scheduling.lifecycle.share_choice import KNOWN_BINS
from ullage.scheduling.times import LOAD_BIN_S, SHARE_HOLD_S, SHARE_REPAIR_S, SHARE_ROOM_S

FAST, SLOW = "fast", "slow"
ON: Final = {FAST: "node-1", SLOW: "node-2"}
WHOLE_S: Final = {FAST: 0.02, SLOW: 0.04}
PERCENT: Final = 50
PRICES: Final = {FAST: 4.0, SLOW: 1.0}


def movable(*accelerators: str, latency_ms: int = 1000) -> WorkloadBuilder:
    service = a_service().fractional(PERCENT, PERCENT).profile("known")
    return service.with_(
        slo=LatencyObjective(latency_ms=latency_ms),
        scaling=ReplicaBounds(min_replicas=1, max_replicas=3),
        sharing=SharingRules(resizable=True),
        accelerators=accelerators,
        gpu=replace(service.build().gpu, memory_mib=1024),
    )


def load(per_s: float, service_s: float) -> ObservedLoad:
    return ObservedLoad(
        seconds=15,
        requests_milli=round(per_s * 1000),
        request_micros=round(service_s * 1e6),
        latency_micros=round(1.2 * service_s * 1e6),
    )


def cycle(
    service: WorkloadBuilder,
    now: float,
    *,
    on: str = FAST,
    per_s: float = 2.0,
    prices: Mapping[str, float] = PRICES,
    timed: tuple[str, ...] = (FAST, SLOW),
    latency: Mapping[str, tuple[tuple[float, float], ...]] | None = None,
    devices: int = 2,
    waits_s: float = 0.0,
) -> Decided:
    """One replica on an accelerator, and perhaps one that waits for a device."""
    node = ON[on]
    pod = a_pod(
        "serve-0", owner=service.build(), stage=PodStage.RUNNING, node=node, created=NOW - 900
    )
    pod = replace(pod, ready_since=pod.created + 30)
    held = a_slice(pod, device=gpu(node, 0), percent=PERCENT, memory_mib=1024)
    seen = replace(
        reported(held, SlicePhase.ATTACHED), load=load(per_s, WHOLE_S[on] * 100 / PERCENT)
    )
    nodes = [
        replace(
            a_gpu_node(
                name,
                devices=devices,
                model=model,
                desired=[held] if model == on else [],
                observed=[seen] if model == on else [],
            ),
            heartbeat=now,
        )
        for model, name in ON.items()
        if devices or model == on
    ]
    waiting = [a_pod("serve-9", owner=service.build(), created=now - waits_s)] if waits_s else []
    known = a_profile(
        "known",
        *(
            SoloEntry(
                device=one,
                share=100,
                steps_per_second=1 / WHOLE_S[one],
                latency=(latency or {}).get(one, ()),
            )
            for one in timed
        ),
    )
    types = [replace(a_device_profile(one), price_per_hour=prices.get(one)) for one in ON]
    deployment = a_deployment(service.build(), surge=0, unavailable=1, ready=1)
    of_service = (deployment, a_kube_service(service.build()))
    return decided(service, *nodes, pod, *waiting, known, *types, *of_service, at=now)


def stored(service: WorkloadBuilder, found: Decided) -> WorkloadBuilder:
    status = as_stored(WorkloadKind.INFERENCE_DEPLOYMENT, found.status(service))
    return service.with_(status=status)


def lived(service: WorkloadBuilder, **world: object) -> tuple[WorkloadBuilder, float]:
    """At the end of so many bins that a change that saves may be made."""
    on, per_s = str(world.get("on", FAST)), 2.0
    history = ScalingHistory(
        as_of=NOW - LOAD_BIN_S,
        rates_milli=(round(per_s * 1e3),) * KNOWN_BINS,
        service_micros=round(WHOLE_S[on] * 100 / PERCENT * 1e6),
        percent=PERCENT,
        accelerator=on,
    )
    record = ScalingRecord(chosen=ReplicaChoice(replicas=1), reason=Reason.STEADY, history=history)
    service = service.with_(status=WorkloadStatus(scaling=record))
    found = cycle(service, NOW, **world)  # type: ignore[arg-type]
    return stored(service, found), NOW + LOAD_BIN_S


def share_of(service: WorkloadBuilder) -> ChosenShare | None:
    record = service.build().status.scaling
    return record.share if record is not None else None


def test_a_cheaper_accelerator_that_keeps_the_objective_is_chosen() -> None:
    service, now = lived(movable())
    share = share_of(service)
    assert share is not None
    assert (share.accelerator, share.percent) == (SLOW, PERCENT)
    record = service.build().status.scaling
    assert record is not None
    assert (record.chosen.accelerator, record.chosen.percent) == (SLOW, PERCENT)
    assert f"{PERCENT} % of one {SLOW} replace those with {PERCENT} %" in record.message
    condition = cycle(service, now).condition(service, "Degraded")
    assert condition.reason == "ResizePending"
    assert f"serve-0 runs on {FAST}, its objective asks for {SLOW}" in condition.message


def test_an_event_names_the_accelerator() -> None:
    found = cycle(movable(latency_ms=60), NOW, on=SLOW, per_s=1.0)
    assert f"{PERCENT} % of one {FAST}" in dict(found.events())["ShareChosen"]


def test_a_newcomer_starts_on_the_chosen_accelerator() -> None:
    service, now = lived(movable())
    found = cycle(service.replicas(2), now, waits_s=1.0)
    assert found.places()["serve-9"][0].startswith(f"GPU-{ON[SLOW]}")


def test_it_stays_where_it_is_once_all_are_replaced() -> None:
    service, now = lived(movable())
    chosen = share_of(service)
    for _ in range(4):
        found = cycle(service, now, on=SLOW)
        service, now = stored(service, found), now + SHARE_HOLD_S
    assert share_of(service) == chosen
    assert "Degraded" not in {
        one.type for one in service.build().status.conditions if one.status == "True"
    }


@pytest.mark.parametrize(
    "world",
    [
        {"prices": {FAST: 4.0}},
        {"prices": {SLOW: 1.0}},
        {"prices": {FAST: 1.0, SLOW: 1.0}},
        {"timed": (FAST,)},
        {"timed": (SLOW,)},
        {"devices": 1, "on": SLOW, "prices": {FAST: 1.0, SLOW: 1.1}},
    ],
    ids=[
        "the other has no price",
        "its own has no price",
        "the other is no cheaper",
        "the other was never timed",
        "its own was never timed",
        "the other saves too little",
    ],
)
def test_what_is_not_known_to_be_cheaper_changes_nothing(world: dict[str, object]) -> None:
    service, _ = lived(movable(), **world)
    share = share_of(service)
    assert share is None or not share.accelerator


@pytest.mark.parametrize(
    "service",
    [
        movable(FAST),
        movable().with_(sharing=SharingRules()),
        movable(latency_ms=90),
        movable().fractional(PERCENT - 10, PERCENT + 10),
    ],
    ids=["not allowed", "may not be restarted", "too slow", "a range of which it gets what fits"],
)
def test_an_accelerator_that_will_not_do_is_not_chosen(service: WorkloadBuilder) -> None:
    service, _ = lived(service)
    share = share_of(service)
    assert share is None or share.accelerator in ("", FAST)


def test_one_without_room_for_all_replicas_is_not_chosen() -> None:
    service = movable().with_(scaling=ReplicaBounds(min_replicas=3, max_replicas=3))
    service, _ = lived(service, devices=2)
    assert share_of(service) is None
    service = movable().with_(scaling=ReplicaBounds(min_replicas=2, max_replicas=3))
    service, _ = lived(service, devices=2)
    assert share_of(service) is not None


def test_an_accelerator_that_is_too_slow_is_left_at_once() -> None:
    found = cycle(movable(latency_ms=60), NOW, on=SLOW, per_s=1.0)
    record = found.status(movable()).scaling
    assert record is not None
    assert record.share is not None
    assert record.share.accelerator == FAST
    assert record.share.time == NOW
    assert SHARE_REPAIR_S < SHARE_HOLD_S


def test_an_accelerator_on_which_the_objective_was_seen_to_fail_is_left() -> None:
    """The class is known to take longer there than the objective allows, even alone."""
    seen = ((0.95, 0.2), (0.99, 0.3))
    found = cycle(movable(latency_ms=60), NOW, on=SLOW, per_s=1.0, latency={SLOW: seen})
    record = found.status(movable()).scaling
    assert record is not None
    assert record.share is not None
    assert record.share.accelerator == FAST
    back = cycle(movable(latency_ms=60), NOW, on=FAST, per_s=1.0, latency={SLOW: seen})
    stays = back.status(movable()).scaling
    assert stays is not None
    assert stays.share is None


def test_one_that_finds_no_room_is_given_up() -> None:
    service, now = lived(movable())
    found = cycle(service.replicas(2), now, waits_s=SHARE_ROOM_S + 1)
    assert share_of(stored(service, found)) == ChosenShare(percent=0, time=now)
    assert accelerators_asked(stored(service, found).build()) == ()


def test_one_that_is_not_allowed_any_more_binds_no_longer() -> None:
    service, now = lived(movable(FAST, SLOW))
    assert accelerators_asked(service.build()) == (SLOW,)
    edited = service.with_(accelerators=(FAST,))
    assert accelerators_asked(edited.build()) == (FAST,)
    record = cycle(edited, now).status(edited).scaling
    assert record is not None
    assert record.share is not None
    assert record.share.accelerator == ""


def test_one_that_left_the_cluster_binds_no_longer() -> None:
    service, now = lived(movable())
    gone = replace(
        service.build().status.scaling
        or ScalingRecord(chosen=ReplicaChoice(replicas=1), reason=Reason.STEADY),
        share=ChosenShare(percent=PERCENT, accelerator="gone", time=now),
    )
    service = service.with_(status=replace(service.build().status, scaling=gone))
    found = cycle(service.replicas(2), now, waits_s=1.0)
    assert found.places()["serve-9"]


def test_the_service_time_follows_from_one_accelerator_to_the_other() -> None:
    service, now = lived(movable())
    before = service.build().status.scaling
    after = cycle(service, now, on=SLOW, per_s=0.1).status(service).scaling
    assert before is not None
    assert before.history is not None
    assert after is not None
    assert after.history is not None
    assert (before.history.accelerator, after.history.accelerator) == (FAST, SLOW)
    expected = before.history.service_micros * WHOLE_S[SLOW] / WHOLE_S[FAST]
    assert after.history.service_micros == pytest.approx(expected, rel=0.01)


@settings(deadline=None, max_examples=40)
@given(
    accelerator=st.text(max_size=63) | st.sampled_from([FAST, SLOW]),
    allowed=st.lists(st.sampled_from([FAST, SLOW, "gone"]), max_size=3, unique=True),
    percent=st.integers(0, 100),
    at=st.floats(NOW - 10 * SHARE_HOLD_S, NOW + 10 * SHARE_HOLD_S),
    per_s=st.floats(0, 100),
    timed=st.lists(st.sampled_from([FAST, SLOW]), unique=True),
    waits_s=st.sampled_from([0.0, 1.0, 1000.0]),
)
def test_whatever_a_status_says_replicas_go_where_the_spec_allows(
    accelerator: str,
    allowed: list[str],
    percent: int,
    at: float,
    per_s: float,
    timed: list[str],
    waits_s: float,
) -> None:
    record = ScalingRecord(
        chosen=ReplicaChoice(replicas=2),
        share=ChosenShare(percent=percent, accelerator=accelerator, time=at),
        reason=Reason.STEADY,
        history=ScalingHistory(
            as_of=NOW - LOAD_BIN_S, rates_milli=(1000,) * 40, percent=50, accelerator=accelerator
        ),
    )
    service = movable(*allowed).replicas(2).with_(status=WorkloadStatus(scaling=record))
    found = cycle(service, NOW, per_s=per_s, timed=tuple(timed), waits_s=waits_s)
    for node, one in found.slices():
        if one.pod_name == "serve-9":
            assert not allowed or node in {ON[name] for name in allowed if name in ON}
