# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``sharing.onViolation: Alert``: a broken objective is told, and no one leaves because of it."""

from __future__ import annotations

from dataclasses import replace

from builders import (
    EPOCH,
    NOW,
    Part,
    WorkloadBuilder,
    a_gpu_node,
    a_job,
    a_pod,
    a_policy,
    a_slice,
    reported,
)
from fakes.deciding import Decided, decided
from ullage.api.reasons import Reason
from ullage.api.sharing import SharingRules
from ullage.api.slices import DesiredSlice, ObservedSlice, SlicePhase
from ullage.cluster.records.pod import PodStage
from ullage.scheduling.model.plan import EvictPod

LEARNED = a_policy(learned=True)
ALERT = SharingRules(freeze_neighbours=False)
TOLD = a_job("told").fractional(50, 50).slowdown(3).with_(sharing=ALERT)
ABOVE = {"phase": SlicePhase.VIOLATING, "reason": Reason.ABOVE_OBJECTIVE.value}


def _held(job: WorkloadBuilder, percent: int, **fields: object) -> tuple[Part, DesiredSlice]:
    name = job.build().ref.name
    pod = a_pod(
        f"{name}-0", owner=job.build(), stage=PodStage.RUNNING, node="node-1", since=NOW - 30
    )
    wanted = a_slice(pod, percent=percent, memory_mib=1000, epoch=EPOCH)
    return pod, replace(wanted, **fields)  # type: ignore[arg-type]


def _seen(wanted: DesiredSlice, **fields: object) -> ObservedSlice:
    return replace(reported(wanted, SlicePhase.ATTACHED), **fields)  # type: ignore[arg-type]


def _slices(job: WorkloadBuilder) -> DesiredSlice:
    (found,) = [one for _, one in decided(a_gpu_node(), job, *job.pods(), LEARNED).slices()]
    return found


def test_its_slice_says_so_to_the_node() -> None:
    assert _slices(TOLD).alert_only
    assert _slices(TOLD).protected
    assert not _slices(TOLD.with_(sharing=SharingRules())).alert_only
    assert not _slices(TOLD.with_(max_slowdown=None)).alert_only, "there is nothing to tell"


def _running(told: WorkloadBuilder, *, trial: bool = False, **victim: object) -> Decided:
    """Beside it another job runs, on trial or for good."""
    told = told.status(phase="Running")
    job = (
        a_job()
        .fractional(20, 40)
        .with_(workload_class="k", checkpoint=True)
        .status(phase="Running")
    )
    alert = not told.build().sharing.freeze_neighbours
    calm, first = _held(
        told, 50, protected=True, alert_only=alert, max_slowdown_percent=300, workload_class=""
    )
    pod, second = _held(job, 20, probation=trial)
    seen = [_seen(first, **({"windows": 6} | victim)), _seen(second)]
    node = a_gpu_node(devices=1, desired=[first, second], observed=seen, desired_since=NOW - 40)
    return decided(told, calm, job, pod, node, LEARNED)


def test_a_broken_objective_is_condition_and_event_on_the_users_own_object() -> None:
    found = _running(TOLD, violations=3, **ABOVE)
    met = found.condition("told", "SLOMet")
    assert (met.status, met.reason) == ("False", Reason.ABOVE_OBJECTIVE)
    (text,) = [text for reason, text in found.events() if reason == Reason.ABOVE_OBJECTIVE]
    assert text == "kept in 3 of 6 windows since the start"
    shown = TOLD.with_(status=found.status("told"))
    again = decided(shown, *_beside(shown))
    assert Reason.ABOVE_OBJECTIVE not in [reason for reason, _ in again.events()], "said once"


def _beside(told: WorkloadBuilder) -> tuple[Part, ...]:
    pod, wanted = _held(told, 50, protected=True, alert_only=True, max_slowdown_percent=300)
    node = a_gpu_node(
        devices=1, desired=[wanted], observed=[_seen(wanted, windows=6, violations=3, **ABOVE)]
    )
    return pod, node, LEARNED


def test_the_others_are_told_by_the_pause_of_their_neighbours_alone() -> None:
    found = _running(TOLD.with_(sharing=SharingRules()), violations=3, **ABOVE)
    assert found.condition("told", "SLOMet").status == "False"
    assert Reason.ABOVE_OBJECTIVE not in [reason for reason, _ in found.events()]


def test_a_neighbour_on_trial_does_not_leave_because_of_it() -> None:
    found = _running(TOLD, trial=True, violations=3, **ABOVE)
    assert found.status("train").phase == "Running"
    assert not found.all(EvictPod)
    assert "ProbationCommitted" in [reason for reason, _ in found.events()]
    strict = _running(TOLD.with_(sharing=SharingRules()), trial=True, violations=3, **ABOVE)
    assert strict.status("train").phase == "Restarting"


def test_on_trial_itself_a_broken_objective_still_ends_the_trial() -> None:
    told = TOLD.with_(workload_class="k", checkpoint=True).status(phase="Running")
    pod, wanted = _held(told, 20, protected=True, alert_only=True, probation=True)
    node = a_gpu_node(
        devices=1,
        desired=[wanted],
        observed=[_seen(wanted, windows=3, **ABOVE)],
        desired_since=NOW - 40,
    )
    assert decided(told, pod, node, LEARNED).status(told).phase == "Restarting"
