# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What a workload without a place waits for is a value, counted in every plan."""

from __future__ import annotations

from dataclasses import replace

from builders import Part, WorkloadBuilder, a_gpu_node, a_job, a_pod, a_slice, gpu, reported
from fakes.deciding import decided
from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage.cluster.records.pod import PodStage
from ullage.scheduling.assignment.entry import Entries, Entry, EntryState
from ullage.scheduling.placement.attempt import Outcome, Refused, Requeue


def running(job: WorkloadBuilder) -> list[Part]:
    record = job.build()
    pod = a_pod(f"{record.ref.name}-0", owner=record, stage=PodStage.RUNNING, node="node-1")
    wanted = a_slice(pod, device=gpu("node-1", 0), percent=100)
    seen = reported(wanted, SlicePhase.ATTACHED)
    return [job, pod, a_gpu_node("node-1", devices=1, desired=[wanted], observed=[seen])]


def waiting(job: WorkloadBuilder, priority: int = 0) -> list[Part]:
    return [job, *job.pods(priority=priority)]


def test_one_that_is_placed_waits_for_nothing() -> None:
    found = decided(a_gpu_node("node-1", devices=1), *waiting(a_job("one").exclusive()))
    assert found.plan.requeues == {}


def test_one_that_finds_no_device_free_waits_for_capacity() -> None:
    here = running(a_job("first").aged(900).status(phase="Running"))
    found = decided(*here, *waiting(a_job("second").exclusive()))
    assert found.plan.requeues == {"Capacity": 1}


def test_one_that_others_make_room_for_waits_for_what_they_leave() -> None:
    here = running(a_job("low").aged(900).checkpointed().status(phase="Running"))
    found = decided(*here, *waiting(a_job("high").exclusive().priority(5), priority=5))
    assert found.plan.requeues == {"RoomComing": 1}


def test_one_that_can_never_run_here_waits_for_a_change() -> None:
    job = a_job("huge").exclusive(9)
    found = decided(a_gpu_node("node-1", devices=1), *waiting(job))
    assert found.plan.requeues == {"Change": 1}


def test_one_in_a_domain_that_is_not_granted_waits_for_a_change() -> None:
    job = a_job("stranger").exclusive().trusting("vision")
    found = decided(a_gpu_node("node-1", devices=1), *waiting(job))
    assert found.plan.requeues == {"Change": 1}


def test_thousands_that_share_an_outcome_are_counted_one_by_one() -> None:
    jobs = {job.ref.uid: job for job in (a_job(f"job-{at}").build() for at in range(4))}
    none, quota = (
        Outcome(refused=Refused(reason, requeue=requeue))
        for reason, requeue in (
            (Reason.NO_CAPACITY, Requeue.CAPACITY),
            (Reason.QUOTA_EXCEEDED, Requeue.QUOTA),
        )
    )
    first, second, third, last = jobs
    entries = Entries(jobs)
    entries.of(first).outcome = quota
    entries.of(last).postponed = True
    entries.enter({first: none, second: none, third: quota})
    assert entries.of(second).outcome is entries.outcome(first) is none
    assert entries.outcomes() == {first: none, second: none, third: quota}
    assert entries.requeues() == {"Capacity": 2, "NextCycle": 1, "Quota": 1}
    assert (entries.postponed(), entries.placed()) == ([last], [])


def test_an_entry_says_how_far_its_workload_got() -> None:
    entry = Entry(a_job("one").build())
    assert (entry.state, entry.requeue) == (EntryState.NOMINATED, None)
    refused = Refused(Reason.NO_CAPACITY)
    entry.outcome = Outcome(refused=refused)
    assert (entry.state, entry.requeue) == (EntryState.SKIPPED, Requeue.CAPACITY)
    entry.outcome = Outcome(refused=replace(refused, requeue=Requeue.ROUND))
    assert (entry.state, entry.requeue) == (EntryState.SKIPPED, Requeue.ROUND)
    entry.postponed = True
    assert (entry.state, entry.requeue) == (EntryState.SKIPPED, Requeue.NEXT_CYCLE)
