# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A user edits the objective of work that runs: its node is told, and it is judged where it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import (
    EPOCH,
    NOW,
    Part,
    WorkloadBuilder,
    a_gpu_node,
    a_job,
    a_pod,
    a_profile,
    a_slice,
    gpu,
    reported,
)
from fakes.deciding import Decided, decided, told
from ullage.api.observations import LatencyObjective
from ullage.api.reasons import Reason
from ullage.api.sharing import SharingRules
from ullage.api.slices import DesiredSlice, SlicePhase
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.profile import SoloEntry
from ullage.scheduling.model.plan import ApplyGPUNode, EvictPod

LAX = a_job().fractional(50, 100).slowdown(3).checkpointed().status(phase="Running")
NEIGHBOUR = a_job("busy").fractional(50, 50).status(phase="Running")


def _held(job: WorkloadBuilder, **fields: object) -> tuple[Part, DesiredSlice]:
    name = job.build().ref.name
    pod = a_pod(
        f"{name}-0", owner=job.build(), stage=PodStage.RUNNING, node="node-1", since=NOW - 300
    )
    wanted = a_slice(pod, percent=50, memory_mib=1000, epoch=EPOCH - 2)
    return pod, replace(wanted, **fields)  # type: ignore[arg-type]


def _cluster(job: WorkloadBuilder = LAX, devices: int = 2, **fields: object) -> list[Part]:
    """The job and a neighbour, each at one half of one device: both run at half their speed."""
    said: dict[str, object] = {"protected": True, "max_slowdown_percent": 300} | fields
    mine, first = _held(job, **said)
    other, second = _held(NEIGHBOUR)
    seen = [reported(one, SlicePhase.ATTACHED) for one in (first, second)]
    node = a_gpu_node(devices=devices, desired=[first, second], observed=seen)
    return [mine, other, NEIGHBOUR, node]


def _edited(job: WorkloadBuilder = LAX, **changes: object) -> tuple[WorkloadBuilder, list[Part]]:
    """The job as it was shown before, and what the user made of it."""
    parts = _cluster(job)
    return told(job, *parts).with_(generation=2, **changes), parts


def _slice(found: Decided, pod: str = "train-0") -> DesiredSlice:
    return next(one for _, one in found.slices() if one.pod_name == pod)


def test_before_an_edit_there_is_nothing_to_say() -> None:
    parts = _cluster()
    found = decided(told(LAX, *parts), *parts)
    assert not found.all(ApplyGPUNode)
    assert found.status(LAX).condition("Degraded") is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"max_slowdown": 2.5}, {"max_slowdown_percent": 250, "protected": True}),
        ({"max_slowdown": None}, {"max_slowdown_percent": 0, "protected": False}),
        (
            {"sharing": SharingRules(freeze_neighbours=False)},
            {"max_slowdown_percent": 300, "alert_only": True},
        ),
        (
            {"max_slowdown": None, "slo": LatencyObjective(latency_ms=40)},
            {"slo": LatencyObjective(latency_ms=40), "max_slowdown_percent": 0},
        ),
    ],
)
def test_the_node_is_told_the_new_objective_once(
    changes: dict[str, object], said: dict[str, object]
) -> None:
    job, parts = _edited(**changes)
    found = decided(job, *parts)
    mine = _slice(found)
    assert {name: getattr(mine, name) for name in said} == said
    assert mine.epoch == EPOCH
    assert (mine.gpu, mine.percent, mine.memory_mib) == (gpu(), 50, 1000)
    assert _slice(found, "busy-0").epoch == EPOCH - 2
    after = replace(parts[3], desired=tuple(one for _, one in found.slices()))  # type: ignore[type-var]
    again = decided(job.with_(status=found.status(job)), *parts[:3], after)
    assert not again.all(ApplyGPUNode)


def test_a_speed_that_was_measured_again_is_told_in_steps_and_an_edit_exactly() -> None:
    job = a_job().fractional(50, 100).with_(min_throughput=4.0, profile_ref="p")
    job = job.status(phase="Running", observed_generation=1)

    def percent(speed: float, told: int, job: WorkloadBuilder = job) -> int:
        row = SoloEntry(device="emulated", share=100, steps_per_second=speed)
        parts = _cluster(job, max_slowdown_percent=told)
        return _slice(decided(job, a_profile("p", row), *parts)).max_slowdown_percent

    assert percent(10.0, 250) == 250
    assert percent(9.9, 250) == 250
    assert percent(9.0, 250) == 225
    assert percent(9.9, 250, job.with_(generation=2)) == 247


def test_a_slice_on_trial_is_left_to_its_trial() -> None:
    job = LAX.slowdown(2.5)
    found = decided(job, *_cluster(job, probation=True))
    assert _slice(found).max_slowdown_percent == 300


def test_what_is_predicted_to_be_kept_goes_on_where_it_is() -> None:
    job, parts = _edited(max_slowdown=2.1)
    found = decided(job, *parts)
    assert found.status(job).phase == "Running"
    assert found.status(job).condition("Degraded") is None


def test_what_is_predicted_to_be_broken_starts_again_where_it_will_be_kept() -> None:
    job, parts = _edited(max_slowdown=1.5)
    found = decided(job, *parts)
    status = found.status(job)
    assert (status.phase, status.restarts) == ("Restarting", 0)
    admitted = found.condition(job, "Admitted")
    assert (admitted.status, admitted.reason) == ("False", Reason.PREDICTED_SLO_BREACH)
    assert "would run 2.00 times slower than alone" in admitted.message
    assert "its edited objective allows 1.5" in admitted.message
    assert "restarts from its checkpoint" in admitted.message
    assert Reason.PREDICTED_SLO_BREACH in [reason for reason, _ in found.events()]
    assert not found.all(EvictPod), "nothing is stopped before the status says why"

    leaving = decided(job.with_(status=status), *parts)
    assert [one.pod.name for one in leaving.all(EvictPod)] == ["train-0"]
    assert leaving.one(EvictPod).reason is Reason.PREDICTED_SLO_BREACH

    node = replace(parts[3], desired=parts[3].desired[1:], observed=parts[3].observed[1:])  # type: ignore[type-var, union-attr]
    again = job.with_(status=leaving.status(job))
    gone = again.with_(status=decided(again, NEIGHBOUR, parts[1], node).status(again))
    again = decided(gone, *gone.pods(), NEIGHBOUR, parts[1], node)
    assert again.places()["train-0"] == [gpu("node-1", 1)]


def test_without_a_checkpoint_it_stays_and_its_owner_is_told_why() -> None:
    job, parts = _edited(max_slowdown=1.5, checkpoint=False)
    found = decided(job, *parts)
    assert found.status(job).phase == "Running"
    bad = found.condition(job, "Degraded")
    assert (bad.status, bad.reason) == ("True", Reason.PREDICTED_SLO_BREACH)
    assert "without spec.checkpoint" in bad.message
    assert found.condition(job, "Admitted").status == "True"
    assert Reason.PREDICTED_SLO_BREACH in [reason for reason, _ in found.events()]


def test_without_a_better_place_it_stays_until_there_is_one() -> None:
    job = told(LAX, *_cluster(devices=1)).with_(generation=2, max_slowdown=1.5)
    parts = _cluster(devices=1)
    found = decided(job, *parts)
    assert "no other place is predicted to keep it" in found.condition(job, "Degraded").message
    shown = job.with_(status=found.status(job))
    after = replace(parts[3], desired=tuple(one for _, one in found.slices()))  # type: ignore[type-var]
    again = decided(shown, *parts[:3], after)
    assert not again.all(ApplyGPUNode)
    assert again.status(shown).conditions == found.status(job).conditions, "said once"
    assert again.status(shown).phase == "Running"
    more = a_gpu_node("node-2", devices=1)
    assert decided(shown, *parts[:3], after, more).status(shown).phase == "Restarting"


def test_an_objective_that_is_loosened_again_is_no_trouble_any_more() -> None:
    job, parts = _edited(max_slowdown=1.5, checkpoint=False)
    found = decided(job, *parts)
    after = replace(parts[3], desired=tuple(one for _, one in found.slices()))  # type: ignore[type-var]
    loose = job.with_(status=found.status(job), max_slowdown=3.0, generation=3)
    again = decided(loose, *parts[:3], after)
    assert again.status(loose).condition("Degraded") is None
    assert _slice(again).max_slowdown_percent == 300


def test_a_share_that_may_change_by_a_restart_may_change_where_it_is() -> None:
    idle = a_job().fractional(50, 100).slowdown(3).checkpointed()

    def after(resizable: bool) -> str:
        job = idle.with_(sharing=SharingRules(resizable=resizable)).status(phase="Running")
        pod, wanted = _held(job, protected=True, max_slowdown_percent=300)
        seen = [reported(wanted, SlicePhase.ATTACHED)]
        node = a_gpu_node(devices=1, desired=[wanted], observed=seen)
        shown = told(job, pod, node).with_(generation=2, max_slowdown=1.5)
        return decided(shown, pod, node).status(shown).phase

    assert (after(resizable=True), after(resizable=False)) == ("Restarting", "Running")


def test_an_objective_below_what_is_possible_alone_is_said_to_be_so() -> None:
    row = SoloEntry(device="emulated", share=100, steps_per_second=10.0)
    job = a_job().fractional(50, 100).with_(min_throughput=4.0, profile_ref="p").checkpointed()
    job = job.status(phase="Running")
    parts = [*_cluster(job, max_slowdown_percent=250), a_profile("p", row)]
    shown = told(job, *parts).with_(generation=2, min_throughput=12.0)
    bad = decided(shown, *parts).condition(shown, "Degraded")
    assert bad.reason == Reason.SLO_INFEASIBLE
    assert "cannot be met even alone" in bad.message


def test_a_prediction_that_drifts_moves_no_one() -> None:
    job = LAX.slowdown(1.5)
    parts = _cluster(job, max_slowdown_percent=150)
    shown = told(job, *parts)
    found = decided(shown, *parts)
    assert found.status(shown).phase == "Running"
    assert found.status(shown).condition("Degraded") is None
