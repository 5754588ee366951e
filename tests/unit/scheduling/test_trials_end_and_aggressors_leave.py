# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What follows when a trial is over, or when a node's guard says who has to go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import (
    EPOCH,
    NOW,
    Part,
    WorkloadBuilder,
    a_device,
    a_gpu_node,
    a_job,
    a_pod,
    a_policy,
    a_profile,
    a_service,
    a_slice,
    gpu,
    reported,
)
from fakes.deciding import Decided, decided
from ullage.api.devices import Backend, MpsState, MpsStatus
from ullage.api.reasons import Reason
from ullage.api.slices import DesiredSlice, ObservedSlice, SlicePhase
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.profile import ProfileRecord
from ullage.scheduling.model.plan import ApplyGPUNode, EvictPod, SetProfile

LEARNED = a_policy(learned=True)
STRICT = a_job("strict").fractional(50, 50).slowdown(3).status(phase="Running")


def _held(job: WorkloadBuilder, percent: int, **fields: object) -> tuple[Part, DesiredSlice]:
    name = job.build().ref.name
    pod = a_pod(
        f"{name}-0", owner=job.build(), stage=PodStage.RUNNING, node="node-1", since=NOW - 30
    )
    wanted = a_slice(pod, percent=percent, memory_mib=1000, epoch=EPOCH - 2)
    return pod, replace(wanted, **fields)  # type: ignore[arg-type]


def _seen(wanted: DesiredSlice, **fields: object) -> ObservedSlice:
    return replace(reported(wanted, SlicePhase.ATTACHED), **fields)  # type: ignore[arg-type]


def _trial(
    *,
    victim: dict[str, object] | None = None,
    at: float = NOW,
    more: tuple[Part, ...] = (),
) -> tuple[WorkloadBuilder, Decided]:
    """A stranger on trial beside a job with an objective, both running for 30 s."""
    job = (
        a_job()
        .fractional(20, 40)
        .with_(workload_class="k", checkpoint=True)
        .status(phase="Running")
    )
    calm, first = _held(STRICT, 50, protected=True, max_slowdown_percent=300)
    pod, second = _held(job, 20, probation=True)
    seen = [_seen(first, **({"windows": 6} | (victim or {}))), _seen(second)]
    node = a_gpu_node(devices=1, desired=[first, second], observed=seen, desired_since=NOW - 40)
    node = replace(node, heartbeat=at)
    return job, decided(STRICT, calm, job, pod, node, LEARNED, *more, at=at)


def _profile(**status: object) -> ProfileRecord:
    profile = replace(a_profile("class-k", workload_class="k"), uid="uid-profile")
    return replace(profile, status=replace(profile.status, **status))  # type: ignore[arg-type]


def test_a_trial_that_kept_every_objective_ends_where_it_stands() -> None:
    _, found = _trial()
    assert not found.all(EvictPod)
    mine = next(one for one in found.one(ApplyGPUNode).slices if one.pod_name == "train-0")
    assert (mine.probation, mine.percent, mine.gpu) == (False, 20, gpu())
    assert mine.epoch == EPOCH
    other = next(one for one in found.one(ApplyGPUNode).slices if one.pod_name == "strict-0")
    assert other.epoch == EPOCH - 2
    assert "ProbationCommitted" in [reason for reason, _ in found.events()]


def test_a_trial_goes_on_until_enough_was_seen_and_then_the_decision_comes_by_itself() -> None:
    _, found = _trial(victim={"windows": 3})
    assert not found.all(EvictPod)
    assert not found.all(ApplyGPUNode)
    assert found.plan.wake_at == NOW + 30
    job, found = _trial(victim={"windows": 3}, at=NOW + 31)
    assert found.status(job).phase == "Restarting"
    assert "too few windows" in found.status(job).conditions[0].message


def test_a_broken_objective_ends_a_trial_at_once_and_the_budget_of_the_class() -> None:
    above = {"phase": SlicePhase.VIOLATING, "reason": Reason.ABOVE_OBJECTIVE.value}
    job, found = _trial(victim=above, more=(_profile(),))
    status = found.status(job)
    assert (status.phase, status.restarts) == ("Restarting", 0)
    assert found.condition(job, "Admitted").reason == Reason.PROBATION_ROLLED_BACK
    assert "default/strict-0 was broken" in found.condition(job, "Admitted").message
    assert found.status("strict").phase == "Running"
    written = found.one(SetProfile)
    assert written.status.trial_s == 60
    assert "ProbationRolledBack" in [reason for reason, _ in found.events()]


def test_a_trial_that_is_rolled_back_says_by_how_much_an_objective_was_missed() -> None:
    above = {
        "phase": SlicePhase.VIOLATING,
        "reason": Reason.ABOVE_OBJECTIVE.value,
        "step_micros": 41_000,
        "solo_step_micros": 10_000,
    }
    job, found = _trial(victim=above)
    assert "default/strict-0 (4.10x, 3.00x allowed)" in found.condition(job, "Admitted").message


def test_a_load_of_its_own_is_nobodys_fault() -> None:
    above = {"phase": SlicePhase.VIOLATING, "reason": Reason.SELF_VIOLATING.value}
    _, found = _trial(victim=above)
    assert not found.all(EvictPod)
    assert "ProbationCommitted" in [reason for reason, _ in found.events()]


def test_whom_the_guard_blames_starts_elsewhere_and_stays_away_for_a_while() -> None:
    job = a_job().fractional(20, 40).with_(checkpoint=True).status(phase="Running")
    calm, first = _held(STRICT, 50, protected=True)
    pod, second = _held(job, 20)
    blamed = _seen(second, reason=Reason.INTERFERING.value, message="must leave this device")
    node = a_gpu_node(devices=1, desired=[first, second], observed=[_seen(first), blamed])
    found = decided(STRICT, calm, job, pod, node, LEARNED)
    assert found.status(job).phase == "Restarting"
    assert found.status("strict").phase == "Running"

    job = job.with_(status=found.status(job))
    leaving = decided(STRICT, calm, job, pod, node, LEARNED)
    assert [one.pod.name for one in leaving.all(EvictPod)] == ["train-0"]
    assert leaving.one(EvictPod).reason is Reason.INTERFERING

    gone = decided(STRICT, calm, job, _only(node, first), LEARNED)
    job = job.with_(status=gone.status(job))
    again = decided(STRICT, calm, job, *job.pods(), _only(node, first), LEARNED)
    assert "train-0" not in again.places()
    assert Reason.INTERFERING in {one.reason for one in again.decision(job).refusals}
    assert again.decision(job).reason is Reason.INTERFERING, "what binds is said, and not the place"
    assert again.condition(job, "Admitted").reason == Reason.INTERFERING
    assert "must leave this device" in again.decision(job).message
    later = NOW + 300.0 + 1
    fresh = replace(_only(node, first), heartbeat=later)
    back = decided(STRICT, calm, job, *job.pods(), fresh, LEARNED, at=later)
    assert "train-0" in back.places()


def _only(node: object, kept: DesiredSlice) -> Part:
    return replace(node, desired=(kept,), observed=(_seen(kept),))  # type: ignore[type-var,return-value]


def test_a_pod_of_a_service_that_is_blamed_is_evicted() -> None:
    service = a_service().fractional(20, 40)
    pod = a_pod("serve-x", owner=service.build(), stage=PodStage.RUNNING, node="node-1")
    wanted = a_slice(pod, percent=20, memory_mib=1000)
    blamed = _seen(wanted, reason=Reason.INTERFERING.value)
    node = a_gpu_node(devices=1, desired=[wanted], observed=[blamed])
    found = decided(service, pod, node, LEARNED)
    assert [one.pod.name for one in found.all(EvictPod)] == ["serve-x"]


def test_older_slices_are_left_as_they_are() -> None:
    job = a_job().fractional(20, 40).with_(workload_class="k").status(phase="Running")
    pod, wanted = _held(job, 20)
    node = a_gpu_node(devices=1, desired=[wanted], observed=[_seen(wanted)])
    assert not decided(job, pod, node, LEARNED).all(ApplyGPUNode)


@pytest.mark.parametrize("learned", [True, False])
def test_beside_a_tenant_without_verified_limits_no_one_is_placed(learned: bool) -> None:
    busy = a_job("busy").fractional(20, 20)
    pod, wanted = _held(busy, 20)
    failed = reported(wanted, SlicePhase.FAILED, reason="Unenforced", message="no client")
    node = a_gpu_node(devices=1, desired=[wanted], observed=[failed])
    job = a_job().fractional(20, 20)
    found = decided(busy, pod, node, a_policy(learned=learned), job, *job.pods())
    assert found.decision(job).reason is Reason.ENFORCEMENT_MISSING
    assert "default/busy runs there without verified limits" in found.decision(job).message


@pytest.mark.parametrize("state", [one for one in MpsState if one is not MpsState.ACTIVE])
def test_a_device_whose_mps_server_is_not_there_takes_no_one(state: MpsState) -> None:
    mps = MpsStatus(protocol=2, state=state, context_limit=48)
    node = a_gpu_node(devices=[replace(a_device(backend=Backend.MPS2), mps=mps)])
    job = a_job().fractional(20, 20)
    found = decided(node, job, *job.pods())
    assert found.decision(job).reason is Reason.MPS_NOT_READY
    assert str(state) in found.decision(job).message


def test_contexts_that_the_server_keeps_back_or_others_opened_are_not_given_away() -> None:
    busy = a_job("busy").fractional(20, 20)
    pod, wanted = _held(busy, 20)

    def node(contexts: int) -> Part:
        mps = MpsStatus(
            protocol=2, state=MpsState.ACTIVE, contexts=contexts, context_limit=48, server_pid=9
        )
        device = replace(a_device(backend=Backend.MPS2, contexts=60), mps=mps)
        return a_gpu_node(devices=[device], desired=[wanted], observed=[_seen(wanted)])

    job = a_job().fractional(20, 20)
    assert decided(busy, pod, node(43), job, *job.pods()).places()["train-0"]
    found = decided(busy, pod, node(44), job, *job.pods())
    assert found.decision(job).reason is Reason.CONTEXT_LIMIT


def test_who_lets_no_one_join_is_joined_by_no_one() -> None:
    alone = a_job("alone").fractional(20, 20)
    alone = alone.with_(sharing=replace(alone.build().sharing, allow=False))
    pod, wanted = _held(alone, 20)
    node = a_gpu_node(devices=1, desired=[wanted], observed=[_seen(wanted)])
    job = a_job().fractional(20, 20)
    assert decided(alone, pod, node, job, *job.pods()).decision(job).reason is Reason.NO_CAPACITY
    busy = a_job("busy").fractional(20, 20)
    pod, wanted = _held(busy, 20)
    node = a_gpu_node(devices=1, desired=[wanted], observed=[_seen(wanted)])
    found = decided(busy, pod, node, alone, *alone.pods())
    assert found.decision(alone).reason is Reason.NO_CAPACITY
