# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A service of which no one knows latency or load starts alone, is measured, and shares then."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from builders import (
    NOW,
    Part,
    WorkloadBuilder,
    a_gpu_node,
    a_job,
    a_pod,
    a_policy,
    a_profile,
    a_service,
    a_slice,
    a_snapshot,
    gpu,
    reported,
)
from fakes.deciding import Decided, decided, decided_on
from ullage.api.observations import LatencyObjective, Observation
from ullage.api.reasons import Reason
from ullage.api.sharing import OfferedLoad
from ullage.api.slices import SlicePhase
from ullage.cluster.projection.workload_class import profile_name
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.profile import ProfileRecord, SoloEntry
from ullage.engines.admission.calibration import Band, Threshold
from ullage.engines.admission.model import LearnedModel
from ullage.engines.admission.records import Group
from ullage.scheduling.learning.loop import profiles_to_write
from ullage.scheduling.model.plan import SetProfile

CERTIFIED = LearnedModel(
    accelerator="emulated",
    base_sd=0.05,
    thresholds={
        key: Threshold(value=1.0, rows=59, admitted=59, violations=0)
        for key in product(Group, Band)
    },
)
LEARNED = a_policy(learned=True)
BOTH = pytest.mark.parametrize("policy", [LEARNED, a_policy()], ids=["risk", "sum"])


def serving(latency_ms: int = 100, percentile: str = "99") -> WorkloadBuilder:
    slo = LatencyObjective(latency_ms=latency_ms, percentile=percentile)
    return a_service().fractional(30, 50).with_(slo=slo, workload_class="chat")


def seen(number: int, **changes: object) -> Observation:
    """Half a minute alone at 50 %: 20 ms a request, 5 of them a second, p99 30 ms."""
    base = Observation(
        id=f"node-1/{number}",
        workload_class="chat",
        namespace="default",
        accelerator="emulated",
        percent=50,
        step_micros=20_000,
        at_s=int(NOW) - 5_000 + number,
        latency_micros=30_000,
        percentile="99",
        requests_milli=5_000,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def taught(*rows: Observation, declared: tuple[SoloEntry, ...] = ()) -> ProfileRecord:
    """The profile of the class after nodes observed these."""
    made = replace(a_profile(profile_name("chat"), *declared, workload_class="chat"), uid="uid-p")
    node = replace(a_gpu_node(), observations=rows)
    (written,) = profiles_to_write(a_snapshot(node, made), NOW, 7).actions
    assert isinstance(written, SetProfile)
    return replace(made, status=written.status)


def running(builder: WorkloadBuilder, pod_name: str = "serve-x", percent: int = 50) -> list[Part]:
    """The workload at work on the only device."""
    pod = a_pod(pod_name, owner=builder.build(), stage=PodStage.RUNNING, node="node-1")
    held = a_slice(pod, percent=percent, memory_mib=1000)
    node = a_gpu_node(devices=1, desired=[held], observed=[reported(held, SlicePhase.ATTACHED)])
    return [builder, pod, node]


def place(found: Decided, pod: str) -> tuple[str, int]:
    return next((one.gpu, one.percent) for _, one in found.slices() if one.pod_name == pod)


def pod_of(builder: WorkloadBuilder) -> Part:
    return a_pod("serve-x", owner=builder.build())


@BOTH
def test_it_takes_an_empty_device_and_all_that_it_may_have(policy: Part) -> None:
    job = a_job("busy").fractional(20, 20)
    pod = a_pod("busy-0", owner=job.build(), stage=PodStage.RUNNING, node="node-1")
    held = a_slice(pod, percent=20, memory_mib=1000)
    node = a_gpu_node(devices=2, desired=[held], observed=[reported(held, SlicePhase.ATTACHED)])
    service = serving()
    found = decided(node, policy, job, pod, service, pod_of(service))
    assert place(found, "serve-x") == (gpu("node-1", 1), 50)
    assert found.decision(service).reason is Reason.PLACED
    assert found.decision(service).alone


@BOTH
def test_without_an_empty_device_it_waits_and_says_why(policy: Part) -> None:
    service = serving()
    parts = running(a_job("busy").fractional(20, 20), "busy-0", 20)
    found = decided(*parts, policy, service, pod_of(service))
    decision = found.decision(service)
    assert decision.reason is Reason.NEED_PROFILE
    assert "taken by default/busy (20 %), and it starts alone" in decision.message
    assert "its p99 alone on emulated and its load are not known yet" in decision.message


@BOTH
def test_no_one_joins_it_until_it_is_measured(policy: Part) -> None:
    job = a_job().fractional(20, 40)
    found = decided(*running(serving()), policy, job, *job.pods())
    assert "train-0" not in found.places()
    assert found.decision(job).reason is Reason.NEED_PROFILE
    assert "default/serve is being measured alone" in found.decision(job).message


def test_nor_does_another_replica_of_its_own() -> None:
    service = serving().replicas(2)
    second = a_pod("serve-y", owner=service.build())
    found = decided(*running(service), LEARNED, second)
    assert "serve-y" not in found.places()


def test_a_whole_device_is_given_without_a_word_about_it() -> None:
    service = a_service().with_(slo=LatencyObjective(latency_ms=100))
    found = decided(a_gpu_node(), LEARNED, service, pod_of(service))
    assert place(found, "serve-x")[1] == 100
    assert not found.decision(service).alone


def test_a_declared_latency_without_any_load_is_not_enough() -> None:
    row = SoloEntry(device="emulated", share=100, steps_per_second=100.0, latency=((0.99, 0.02),))
    service = serving().profile("p")
    parts = (a_gpu_node(), LEARNED, a_profile("p", row), pod_of(service))
    found = decided(*parts, service)
    assert found.decision(service).alone
    loaded = service.with_(load=OfferedLoad(requests_per_s=1.0))
    assert not decided(*parts, loaded).decision(loaded).alone


def test_another_objective_of_its_own_still_holds_alone() -> None:
    service = serving().slowdown(1.5)
    found = decided(a_gpu_node(), LEARNED, service, pod_of(service))
    assert found.decision(service).reason is Reason.PREDICTED_SLO_BREACH


def joined(service: WorkloadBuilder, profile: ProfileRecord) -> Decided:
    """A job asks for a place beside the service, with certified margins."""
    job = a_job().fractional(20, 20)
    snapshot = a_snapshot(*running(service), LEARNED, profile, job, *job.pods())
    return decided_on(replace(snapshot, models={"emulated": CERTIFIED}))


def test_once_measured_a_neighbour_is_judged_by_the_queue() -> None:
    profile = taught(seen(1), seen(2), seen(3))
    roomy = joined(serving(latency_ms=500), profile)
    assert place(roomy, "train-0") == (gpu(), 20)
    tight = joined(serving(latency_ms=31), profile)
    assert "train-0" not in tight.places()
    assert tight.decision("train").reason is Reason.PREDICTED_SLO_BREACH
    assert "default/serve" in tight.decision("train").message


def test_a_higher_measured_load_leaves_less_room() -> None:
    busy = [seen(at, requests_milli=40_000, latency_micros=90_000) for at in range(3)]
    found = joined(serving(latency_ms=100), taught(*busy))
    assert found.decision("train").reason is Reason.PREDICTED_SLO_BREACH
    found = joined(serving(latency_ms=100), taught(seen(1)))
    assert place(found, "train-0") == (gpu(), 20)


def test_what_is_measured_beats_what_was_declared() -> None:
    slow = SoloEntry(device="emulated", share=100, steps_per_second=100.0, latency=((0.99, 9.0),))
    service = serving().with_(load=OfferedLoad(requests_per_s=5.0))
    parts = (a_gpu_node(), LEARNED, service, pod_of(service))
    declared = a_profile("class-chat", slow, workload_class="chat")
    assert decided(*parts, declared).decision(service).reason is Reason.SLO_INFEASIBLE
    measured = taught(seen(1), declared=(slow,))
    assert decided(*parts, measured).decision(service).reason is Reason.PLACED


def test_an_objective_at_another_percentile_is_measured_again() -> None:
    service = serving(percentile="99.9")
    found = decided(a_gpu_node(), LEARNED, taught(seen(1)), service, pod_of(service))
    assert found.decision(service).alone


def test_what_is_measured_as_too_slow_is_refused() -> None:
    service = serving(latency_ms=5)
    found = decided(a_gpu_node(), LEARNED, taught(seen(1)), service, pod_of(service))
    assert found.decision(service).reason is Reason.SLO_INFEASIBLE


def test_a_load_that_was_kept_alone_is_not_called_impossible() -> None:
    steady = seen(1, requests_milli=45_000, latency_micros=40_000)
    service = serving(latency_ms=60)
    parts = (a_gpu_node(), LEARNED, service, pod_of(service))
    assert decided(*parts, taught(steady)).decision(service).reason is Reason.PLACED
    heavier = service.with_(load=OfferedLoad(requests_per_s=60.0))
    found = decided(a_gpu_node(), LEARNED, heavier, pod_of(heavier), taught(steady))
    assert found.decision(heavier).reason is Reason.LOAD_INFEASIBLE


@BOTH
def test_a_load_that_was_too_much_for_one_replica_keeps_none_from_starting(policy: Part) -> None:
    """The others died under what they could not carry; without a new one there is none at all."""
    busy = [seen(at, requests_milli=60_000, latency_micros=900_000) for at in range(3)]
    service = serving(latency_ms=500)
    parts = (a_gpu_node(devices=1), policy, service, pod_of(service))
    assert place(decided(*parts, taught(*busy)), "serve-x") == (gpu(), 50)
    declared = service.with_(load=OfferedLoad(requests_per_s=110.0))
    said = decided(a_gpu_node(), policy, declared, pod_of(declared), taught(*busy))
    assert said.decision(declared).reason is Reason.LOAD_INFEASIBLE


def test_the_record_says_so_only_as_long_as_it_is_so() -> None:
    service, node = serving(), a_gpu_node(devices=1)
    record = decided(node, LEARNED, service, pod_of(service)).decision(service)
    shown = service.status(phase="Running", decision=record)
    parts = [*running(shown), LEARNED]
    assert decided(*parts).decision(shown) == record
    after = decided(*parts, taught(seen(1))).decision(shown)
    assert (after.reason, after.chosen) == (Reason.PLACED, record.chosen)
    assert not after.alone


def test_its_node_is_told_what_the_objective_allows_once_that_is_known() -> None:
    service = serving(latency_ms=500)
    parts = [*running(service), LEARNED]
    assert [one.max_slowdown_percent for _, one in decided(*parts).slices()] == [0]
    held = a_slice(parts[1], percent=50, memory_mib=1000)
    held = replace(held, slo=service.build().slo)
    node = a_gpu_node(devices=1, desired=[held], observed=[reported(held, SlicePhase.ATTACHED)])
    found = decided(*parts, node, taught(seen(1)))
    ((_, told),) = found.slices()
    assert told.max_slowdown_percent > 200
    assert told.solo_step_micros == 10_000
    assert (told.gpu, told.percent) == (held.gpu, 50)
    node = a_gpu_node(devices=1, desired=[told], observed=[reported(told, SlicePhase.ATTACHED)])
    again = decided(*parts, node, taught(seen(1), seen(2, step_micros=30_000)))
    assert [one for _, one in again.slices()] == [told]


def test_latency_alone_is_a_median_by_percentile_and_load_is_a_busy_one() -> None:
    rows = [seen(at, latency_micros=micros) for at, micros in enumerate((30_000, 50_000, 34_000))]
    rows += [seen(10 + at, percentile="50", requests_milli=4_000 + 100 * at) for at in range(7)]
    rows.append(seen(30, frozen=True, latency_micros=900_000))
    rows.append(seen(31, percentile="", latency_micros=800_000))
    rows.append(seen(32, requests_milli=77_300))
    status = taught(*rows).status
    (solo,) = status.solo
    assert solo.measured == ((0.5, 0.03), (0.99, 0.032))
    assert solo.requests_per_s == 4.5
    assert status.requests_per_s == 5.0
    assert taught(seen(1, requests_milli=12_340)).status.requests_per_s == 13.0


def test_another_image_has_its_load_measured_again() -> None:
    old = seen(1, image="sha256:a", requests_milli=50_000)
    new = seen(2, image="sha256:b", requests_milli=0, latency_micros=0, percentile="")
    status = taught(old, new).status
    assert status.requests_per_s is None
    assert status.solo[0].measured == ()


@pytest.mark.parametrize(
    "changes",
    [{"percentile": "most"}, {"percentile": "0"}, {"percentile": "nan"}, {"latency_micros": -1}],
)
def test_a_latency_that_is_none_teaches_nothing(changes: dict[str, object]) -> None:
    node = replace(a_gpu_node(), observations=(seen(1, **changes),))
    lessons = profiles_to_write(a_snapshot(node, a_profile(workload_class="chat")), NOW, 7)
    assert lessons.actions == ()
    assert lessons.dropped == {"Latency": 1}
