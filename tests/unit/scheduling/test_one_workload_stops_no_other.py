# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A workload whose decision fails is set aside and told so; the others are decided as ever."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import NOW, Part, a_gpu_node, a_job, a_policy, a_snapshot, gpu
from fakes.deciding import SETTINGS, Decided, decided
from fakes.planted import functions_given, planted
from fakes.scenes import BAD, SCENES, bad_job, others, running
from fakes.toy_pools import a_pool, aim
from ullage.api.reasons import Reason
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.snapshot import Snapshot
from ullage.scheduling.cycle.decide import decide
from ullage.scheduling.cycle.diff import diff
from ullage.scheduling.model.faults import WORKLOADS, Fault
from ullage.scheduling.model.plan import DeletePod, EvictPod, Plan, UngatePod


def _of_others(plan: Plan, snapshot: Snapshot) -> tuple[object, ...]:
    """The parts of a plan that are not about namespace one."""
    return (
        {
            at: [one for one in held if one.pod_namespace != "one"]
            for at, held in plan.slices.items()
        },
        [one for one in diff(plan, snapshot) if "'one'" not in repr(one)],
        {uid: one for uid, one in plan.statuses.items() if "-one-" not in uid},
    )


@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES)
def test_an_exception_anywhere_about_one_workload_leaves_the_others_as_without_it(
    scene: str,
) -> None:
    snapshot, settings = SCENES[scene]

    def run() -> Plan:
        return decide(snapshot, NOW, settings)

    known = (Fault(table=WORKLOADS, key=BAD, text="known"),)
    without = decide(snapshot, NOW, replace(settings, aside=known))
    run()  # what is kept from one decision to the next is there
    places = functions_given(BAD, run)
    assert len(places) > 20
    for code in places:
        plan = planted(BAD, code, run)
        (fault,) = plan.faults
        assert (fault.table, fault.key) == (WORKLOADS, BAD), code.co_qualname
        assert code.co_qualname in fault.text
        assert _of_others(plan, snapshot) == _of_others(without, snapshot), code.co_qualname


def test_work_that_holds_nothing_and_is_set_aside_is_as_if_it_were_not_there() -> None:
    there = a_snapshot(bad_job(), a_gpu_node("node-1"), *others())
    gone = a_snapshot(a_gpu_node("node-1"), *others())
    known = (Fault(table=WORKLOADS, key=BAD, text="known"),)
    aside = decide(there, NOW, replace(SETTINGS, aside=known))
    alone = decide(gone, NOW, SETTINGS)
    assert _of_others(aside, there) == _of_others(alone, gone)


def _aside(*parts: Part) -> Decided:
    known = (Fault(table=WORKLOADS, key=BAD, text="OverflowError: date value out of range"),)
    return decided(*parts, settings=replace(SETTINGS, aside=known))


def test_its_owner_is_told_what_failed() -> None:
    condition = _aside(bad_job(), a_gpu_node()).plan.statuses[BAD].condition("Invalid")
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", Reason.DECISION_FAILED)
    assert "OverflowError: date value out of range" in condition.message


def test_the_same_is_not_told_twice() -> None:
    first = _aside(bad_job(), a_gpu_node())
    told = first.plan.statuses[BAD]
    again = _aside(bad_job().with_(status=told), a_gpu_node())
    assert again.plan.statuses[BAD] is again.snapshot.workloads[BAD].status
    assert again.actions == ()


def test_once_it_can_be_decided_again_the_condition_is_gone() -> None:
    told = _aside(bad_job(), a_gpu_node()).plan.statuses[BAD]
    again = decided(bad_job().with_(status=told), a_gpu_node())
    assert again.plan.statuses[BAD].condition("Invalid") is None


@pytest.mark.parametrize("stage", [PodStage.RUNNING, PodStage.BOUND, PodStage.GATED])
def test_its_pods_and_slices_stay(stage: PodStage) -> None:
    job, pod, node = running(bad_job().checkpointed(), 100)
    assert isinstance(pod, PodRecord)
    pod = replace(pod, stage=stage, node="" if stage is PodStage.GATED else "node-1")
    rival = a_job("third", "three").priority(100)
    found = _aside(job, pod, node, rival, *rival.pods(), a_policy(objective="MaxMinFairness"))
    (held,) = found.snapshot.gpu_nodes["node-1"].desired
    assert held in found.plan.slices["node-1"]
    touched = [one for one in found.actions if isinstance(one, DeletePod | EvictPod | UngatePod)]
    assert not [one for one in touched if one.pod.uid == pod.uid]


def test_what_it_holds_is_given_to_no_other() -> None:
    job, pod, node = running(bad_job(), 100)
    rival = a_job("third", "three").exclusive()
    found = _aside(job, pod, node, rival, *rival.pods())
    assert found.places()["third-0"] == [gpu("node-1", 1)]


def test_the_same_snapshot_gives_the_same_plan() -> None:
    snapshot, settings = SCENES["runs-FIFO-sum"]

    def run() -> Plan:
        return decide(snapshot, NOW, settings)

    code = functions_given(BAD, run)[10]
    assert planted(BAD, code, run) == planted(BAD, code, run)


def test_a_hundred_bad_workloads_are_found_in_one_decision() -> None:
    bad = [a_job(f"bad-{at}", "one").with_(replicas=None) for at in range(100)]
    found = decided(*bad, a_gpu_node(), *others())
    assert len(found.plan.faults) == 100
    assert found.places()["third-0"]


def test_more_causes_than_passes_are_found_in_the_next_decisions() -> None:
    """Faults of different functions that change what the next workload finds, one a pass."""
    bad = [a_job(f"bad-{at}", "one").with_(cost=aim(estimated_work_s="long")) for at in range(9)]
    parts = (*bad, a_gpu_node(), a_pool(), *others())
    settings, cycles = SETTINGS, 0
    while True:
        found = decided(*parts, settings=settings)
        cycles += 1
        if found.actions:
            break
        assert found.plan.wake_at, "the next decision comes at once"
        assert len(found.plan.faults) > len(settings.aside)
        settings = replace(settings, aside=found.plan.faults)
    assert len(found.plan.faults) == 9
    assert cycles == 3
    assert found.places()["third-0"]


def test_what_is_the_fault_of_no_object_is_not_put_on_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr("ullage.scheduling.cycle.decide.cycle_digest", fail)
    with pytest.raises(RuntimeError):
        decided(bad_job(), a_gpu_node())
