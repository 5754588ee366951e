# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""By the learned rule: no one's objective at risk first, then what a place is worth."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from builders import (
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
from ullage.api.observations import LatencyObjective
from ullage.api.reasons import Reason
from ullage.api.sharing import OfferedLoad
from ullage.api.slices import SlicePhase
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.profile import SoloEntry
from ullage.engines.admission.calibration import Band, Threshold
from ullage.engines.admission.model import LearnedModel
from ullage.engines.admission.records import Fingerprint, Group
from ullage.scheduling.model.plan import CreatePod

LEARNED = a_policy(learned=True)
CERTIFIED = LearnedModel(
    accelerator="emulated",
    base_sd=0.05,
    thresholds={
        key: Threshold(value=1.0, rows=59, admitted=59, violations=0)
        for key in product(Group, Band)
    },
)


def _running(
    name: str, percent: int, *, device: int = 0, job: WorkloadBuilder | None = None
) -> tuple[list[Part], tuple]:
    builder = (job or a_job(name)).fractional(percent, percent)
    pod = a_pod(f"{name}-0", owner=builder.build(), stage=PodStage.RUNNING, node="node-1")
    held = a_slice(pod, device=gpu("node-1", device), percent=percent, memory_mib=1000)
    return [builder, pod], (held, reported(held, SlicePhase.ATTACHED))


def _cluster(*tenants: tuple[list[Part], tuple], devices: int = 1) -> list[Part]:
    parts = [part for found, _ in tenants for part in found]
    held = [one[0] for _, one in tenants]
    seen = [one[1] for _, one in tenants]
    return [*parts, a_gpu_node(devices=devices, desired=held, observed=seen), LEARNED]


def _mine(found: Decided, pod: str = "train-0") -> tuple[str, int, bool]:
    return next(
        (one.gpu, one.percent, one.probation) for _, one in found.slices() if one.pod_name == pod
    )


def _with_model(*parts: Part) -> Decided:
    return decided_on(replace(a_snapshot(*parts), models={"emulated": CERTIFIED}))


def test_a_job_alone_gets_the_share_at_which_it_is_fastest() -> None:
    job = a_job().fractional(20, 80)
    found = decided(a_gpu_node(), LEARNED, job, *job.pods())
    assert _mine(found) == (gpu(), 80, False)


def test_a_share_that_makes_nothing_faster_is_left_to_others() -> None:
    light = a_profile("light", SoloEntry(device="emulated", share=100, sm_util=0.3))
    job = a_job().fractional(20, 80).profile("light")
    found = decided(a_gpu_node(), LEARNED, light, job, *job.pods())
    assert _mine(found) == (gpu(), 30, False)


def test_an_objective_can_be_met_alone_on_a_cluster_that_has_seen_nothing() -> None:
    job = a_job().fractional(40, 50).slowdown(3)
    found = decided(a_gpu_node(), LEARNED, job, *job.pods())
    assert _mine(found) == (gpu(), 50, False)


def test_an_undivided_device_keeps_any_objective() -> None:
    for job in (a_job().slowdown(1.0), a_job().fractional(50, 100).slowdown(1.01)):
        found = decided(a_gpu_node(), LEARNED, job, *job.pods())
        assert _mine(found)[1] == 100


def test_a_share_judged_at_its_worst_needs_no_margin_on_top() -> None:
    job = a_job().fractional(60, 60).slowdown(1.7)
    found = decided(a_gpu_node(), LEARNED, job, *job.pods())
    assert _mine(found) == (gpu(), 60, False)
    rows = (
        SoloEntry(device="emulated", share=100, steps_per_second=10.0),
        SoloEntry(device="emulated", share=60, steps_per_second=6.0),
        SoloEntry(device="emulated", share=30, steps_per_second=3.1),
    )
    tight = job.profile("p").slowdown(1.66)
    refused = decided(a_gpu_node(), LEARNED, a_profile("p", *rows), tight)
    assert refused.decision(tight).reason is Reason.PREDICTED_SLO_BREACH


def test_a_neighbour_that_would_break_an_objective_is_named() -> None:
    strict = a_job("strict").slowdown(1.7)
    parts = [one for one in _cluster(_running("strict", 60, job=strict)) if one is not LEARNED]
    job = a_job().fractional(60, 60, memory_mib=1000)
    roomy = a_policy(learned=True, max_percent_sum=150)
    found = decided(*parts, roomy, job, *job.pods())
    assert found.decision(job).reason is Reason.PREDICTED_SLO_BREACH
    assert "default/strict predicted 2.00x > 1.70x" in found.decision(job).message


def test_an_objective_that_its_own_share_breaks_is_refused_before_a_pod_is_made() -> None:
    job = a_job().fractional(30, 60).slowdown(1.3)
    found = decided(a_gpu_node(), LEARNED, job)
    assert not found.all(CreatePod)
    assert found.decision(job).reason is Reason.PREDICTED_SLO_BREACH


def test_no_one_without_objective_waits_for_a_certificate() -> None:
    job = a_job().fractional(20, 40)
    found = decided(*_cluster(_running("busy", 50)), job, *job.pods())
    # 40 % would leave no room for another one like it
    assert _mine(found) == (gpu(), 30, False)


def test_an_empty_device_comes_before_a_trial() -> None:
    strict = a_job("strict").slowdown(3)
    job = a_job().fractional(20, 40)
    found = decided(*_cluster(_running("strict", 50, job=strict), devices=2), job, *job.pods())
    assert _mine(found) == (gpu("node-1", 1), 40, False)


def test_an_empty_device_is_kept_for_those_who_need_a_whole_one() -> None:
    job = a_job().fractional(20, 20)
    parts = _cluster(_running("busy", 30, device=1), devices=2)
    assert _mine(decided(*parts, job, *job.pods()))[0] == gpu("node-1", 0)
    whole = a_job("whole")
    assert _mine(decided(*parts, job, *job.pods(), whole))[0] == gpu("node-1", 1)


def test_a_stranger_beside_an_objective_is_on_trial_at_the_safest_share() -> None:
    strict = a_job("strict").slowdown(3)
    job = a_job().fractional(20, 40)
    found = decided(*_cluster(_running("strict", 50, job=strict)), job, *job.pods())
    assert _mine(found) == (gpu(), 20, True)
    assert any(reason == "ProbationStarted" for reason, _ in found.events())


def test_only_one_at_a_time_is_on_trial() -> None:
    strict = a_job("strict").slowdown(3)
    first, second = a_job("one").fractional(20, 20), a_job("two").fractional(20, 20)
    found = decided(
        *_cluster(_running("strict", 50, job=strict)),
        first,
        *first.pods(),
        second,
        *second.pods(),
    )
    assert _mine(found, "one-0")[2]
    assert "two-0" not in found.places()
    assert found.decision(second).reason is Reason.NEED_PROFILE
    assert "on trial" in found.decision(second).message


def test_with_a_certified_margin_the_same_place_needs_no_trial() -> None:
    strict = a_job("strict").slowdown(3)
    job = a_job().fractional(20, 40)
    found = _with_model(*_cluster(_running("strict", 50, job=strict)), job, *job.pods())
    assert _mine(found) == (gpu(), 30, False)
    assert [reason for reason, _ in found.events() if reason.startswith("Sharing")] == [
        "SharingAdmitted"
    ]


def test_a_class_that_has_spent_its_trials_needs_a_device_of_its_own() -> None:
    strict = a_job("strict").slowdown(3)
    job = a_job().fractional(20, 40).with_(workload_class="k")
    profile = a_profile("class-k", workload_class="k")
    tired = replace(profile, status=replace(profile.status, trial_s=60.0))
    parts = _cluster(_running("strict", 50, job=strict))
    found = decided(*parts, tired, job, *job.pods())
    assert found.decision(job).reason is Reason.NEED_PROFILE
    assert "0 s of trial left" in found.decision(job).message
    assert decided(*parts, profile, job, *job.pods()).places()["train-0"]


def test_no_one_is_tried_out_beside_a_latency_objective() -> None:
    slo = LatencyObjective(latency_ms=100)
    solo = a_profile(
        "fast",
        SoloEntry(device="emulated", share=100, steps_per_second=200.0, latency=((0.99, 0.01),)),
    )
    service = (
        a_service()
        .fractional(50, 50)
        .profile("fast")
        .with_(slo=slo, load=OfferedLoad(requests_per_s=10.0))
    )
    pod = a_pod("serve-x", owner=service.build(), stage=PodStage.RUNNING, node="node-1")
    held = a_slice(pod, percent=50, memory_mib=1000)
    job = a_job().fractional(20, 40)
    found = decided(
        service,
        pod,
        solo,
        a_gpu_node(devices=1, desired=[held], observed=[reported(held, SlicePhase.ATTACHED)]),
        LEARNED,
        job,
        *job.pods(),
    )
    assert found.decision(job).reason is Reason.NEED_PROFILE
    assert "latency objective of default/serve" in found.decision(job).message


def test_two_that_would_get_less_done_together_do_not_share() -> None:
    crowd = a_policy(learned=True, max_percent_sum=200)
    parts = [part for part in _cluster(_running("one", 100)) if part is not LEARNED]
    job = a_job().fractional(100, 100, memory_mib=1000)
    found = decided(*parts, crowd, job, *job.pods())
    assert found.decision(job).reason is Reason.NOT_WORTH_SHARING


@pytest.mark.parametrize(
    ("solo", "load", "reason", "words"),
    [
        (((0.99, 0.052),), 1.0, Reason.SLO_INFEASIBLE, "solo 52 ms > 40 ms"),
        (((0.99, 0.030),), 60.0, Reason.LOAD_INFEASIBLE, "busy even alone"),
    ],
)
@pytest.mark.parametrize("learned", [True, False])
def test_a_latency_objective_that_makes_no_sense_is_refused_at_once(
    solo: tuple[tuple[float, float], ...],
    load: float,
    reason: Reason,
    words: str,
    learned: bool,
) -> None:
    row = SoloEntry(device="emulated", share=100, steps_per_second=50.0, latency=solo)
    service = (
        a_service()
        .fractional(50, 50)
        .profile("p")
        .with_(slo=LatencyObjective(latency_ms=40), load=OfferedLoad(requests_per_s=load))
    )
    found = decided(a_gpu_node(), a_policy(learned=learned), a_profile("p", row), service)
    assert found.decision(service).reason is reason
    assert words in found.decision(service).message


def test_the_load_of_a_service_is_shared_by_its_replicas() -> None:
    row = SoloEntry(
        device="emulated", share=100, steps_per_second=50.0, latency=((0.99, 0.03),), cs2=0.0
    )
    crowded = (
        a_service()
        .fractional(100, 100)
        .profile("p")
        .with_(slo=LatencyObjective(latency_ms=200), load=OfferedLoad(requests_per_s=60.0, cv2=1.0))
    )
    parts = (a_gpu_node(), LEARNED, a_profile("p", row))
    assert decided(*parts, crowded).decision(crowded).reason is Reason.LOAD_INFEASIBLE
    enough = decided(*parts, crowded.replicas(4))
    assert enough.status(crowded).decision is None or (
        enough.decision(crowded).reason is not Reason.LOAD_INFEASIBLE
    )


@pytest.mark.parametrize(
    ("speed", "reason", "words"),
    [
        (0.0, Reason.NEED_PROFILE, "declare stepsPerSecond"),
        (5.0, Reason.SLO_INFEASIBLE, "solo 5 steps/s < 10 steps/s"),
        (15.0, Reason.PREDICTED_SLO_BREACH, "50 %"),
    ],
)
def test_a_least_throughput_becomes_a_slowdown(speed: float, reason: Reason, words: str) -> None:
    row = SoloEntry(device="emulated", share=100, steps_per_second=speed)
    job = a_job().fractional(50, 50).profile("p").with_(min_throughput=10.0)
    found = decided(a_gpu_node(), LEARNED, a_profile("p", row), job)
    assert found.decision(job).reason is reason
    assert words in found.decision(job).message


def test_a_slice_says_all_that_guard_and_node_need() -> None:
    row = SoloEntry(device="emulated", share=100, steps_per_second=40.0)
    job = (
        a_job()
        .fractional(50, 50)
        .profile("p")
        .with_(min_throughput=10.0, workload_class="k", family="f", trust_domain="team")
    )
    policy = replace(LEARNED, trust_domains={"team": frozenset({"default"})})
    found = decided(a_gpu_node(), policy, a_profile("p", row), job, *job.pods())
    one = found.slices()[0][1]
    assert (one.workload_class, one.family, one.trust_domain) == ("k", "f", "team")
    assert (one.protected, one.max_slowdown_percent) == (True, 400)
    assert one.solo_step_micros == 25_000
    assert not one.probation


def test_the_examples_share_two_devices_and_the_fourth_waits_for_percent() -> None:
    profiles = [
        a_profile(name, SoloEntry(device="emulated", share=100, sm_util=util))
        for name, util in (("training", 1.0), ("parallel", 1.0), ("serving", 0.3))
    ]
    digits = a_job("digits-a").fractional(40, 50).slowdown(3).profile("training")
    parallel = a_job("digits-parallel").gang(2).fractional(20, 30).profile("parallel")
    serve = a_service("digits-serve").fractional(30, 40).profile("serving")
    pods = [
        *digits.pods(),
        *parallel.pods(),
        a_pod("digits-serve-x", owner=serve.build()),
    ]
    jobs = (*profiles, LEARNED, digits, parallel, serve)
    found = decided(*jobs, a_gpu_node(devices=2), *pods)
    slices = [one for _, one in found.slices()]
    assert [(one.pod_name, one.percent, one.probation) for one in slices] == [
        ("digits-a-0", 50, False),
        ("digits-parallel-0", 30, False),
        ("digits-parallel-1", 30, False),
        ("digits-serve-x", 30, False),
    ]
    running = [replace(pod, stage=PodStage.RUNNING, gates=(), node="node-1") for pod in pods]
    seen = [reported(one, SlicePhase.ATTACHED) for one in slices]
    node = a_gpu_node(devices=2, desired=slices, observed=seen)
    waits = a_job("digits-waits").fractional(60, 80).profile("training")
    found = decided(*jobs, node, *running, waits, *waits.pods())
    assert found.decision(waits).reason is Reason.PERCENT_LIMIT


def test_the_status_says_what_the_admission_rests_on() -> None:
    strict = a_job("strict").slowdown(3)
    job = a_job().fractional(20, 40)
    parts = _cluster(_running("strict", 50, job=strict))
    sharing = _with_model(*parts, job, *job.pods()).status(job).sharing
    assert sharing is not None
    assert (sharing.group, sharing.source, sharing.threshold) == ("G3", "utilisation-sum", "1.00")
    assert float(sharing.z) > 1
    assert float(sharing.predicted_upper) > float(sharing.predicted) > 1
    assert 0 <= float(sharing.risk_used) < 0.05
    tried = decided(*parts, job, *job.pods()).status(job).sharing
    assert tried is not None
    assert tried.threshold == "Refuse"


def test_an_objective_broken_by_its_own_load_is_said_so_and_no_one_leaves() -> None:
    strict = a_job("strict").slowdown(3).status(phase="Running")
    parts, (held, _) = _running("strict", 50, job=strict)
    own = replace(
        reported(held, SlicePhase.VIOLATING, reason="SelfViolating"), windows=9, violations=5
    )
    node = a_gpu_node(devices=1, desired=[held], observed=[own])
    found = decided(*parts, node, LEARNED)
    condition = found.condition("strict", "SLOMet")
    assert (condition.status, condition.reason) == ("False", Reason.SELF_VIOLATING)
    assert found.status("strict").phase == "Running"


@pytest.mark.parametrize("value", [float("nan"), -0.2, float("inf")])
def test_a_profile_with_impossible_figures_stops_its_own_class_alone(value: float) -> None:
    row = SoloEntry(device="emulated", share=100, fingerprint=Fingerprint(dram=value))
    sick = a_job("sick").fractional(20, 20).profile("p")
    well = a_job("well").fractional(20, 20)
    found = decided(
        a_gpu_node(), LEARNED, a_profile("p", row), sick, *sick.pods(), well, *well.pods()
    )
    assert "well-0" in found.places()
    assert found.decision(sick).reason is Reason.NEED_PROFILE
    assert "class default/sick: dram must be a number of at least 0" in found.decision(sick).message


def test_service_times_that_cannot_be_are_told() -> None:
    row = SoloEntry(
        device="emulated", share=100, steps_per_second=50.0, latency=((0.99, 0.03),), cs2=-1.0
    )
    service = (
        a_service()
        .fractional(50, 50)
        .profile("p")
        .with_(slo=LatencyObjective(latency_ms=100), load=OfferedLoad(requests_per_s=1.0))
    )
    found = decided(a_gpu_node(), LEARNED, a_profile("p", row), service)
    assert found.decision(service).reason is Reason.NEED_PROFILE
    assert "cv2 of the service must be a number" in found.decision(service).message
