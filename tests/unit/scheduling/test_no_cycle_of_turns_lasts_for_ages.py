# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Where jobs take turns and no two questions are alike, a cycle answers some and postpones others.

No one is left out for good, and what was planned for whoever waits longer is kept for them.
"""

from __future__ import annotations

import pytest

from builders import NOW, Part, WorkloadBuilder, a_gpu_node, a_job, a_policy, a_service
from fakes.deciding import Decided, decided
from ullage.engines.admission.query import AdmissionQuery
from ullage.scheduling.placement import candidates
from ullage.scheduling.placement.candidates import CandidateIndex
from ullage.scheduling.prediction import effort
from ullage.scheduling.timeslicing import serve

JOBS = 12


def _jobs() -> list[WorkloadBuilder]:
    """Each with an objective and a class of its own, the eldest first."""
    return [
        a_job(f"job-{at:02}")
        .fractional(30, 60)
        .slowdown(1.5 + at / 50)
        .checkpointed()
        .with_(workload_class=f"class-{at}")
        .aged(1000 - at)
        for at in range(JOBS)
    ]


def _picture(jobs: list[WorkloadBuilder], devices: int) -> list[Part]:
    pods = [pod for job in jobs for pod in job.pods()]
    policy = a_policy(learned=True, objective="MaxMinFairness", round_seconds=60, uid="uid-policy")
    return [policy, a_gpu_node(devices=devices), *jobs, *pods]


def _heard(found: Decided, jobs: list[WorkloadBuilder]) -> set[str]:
    """Jobs that were placed, or told why they wait."""
    said = {one.build().ref.name: found.status(one).decision for one in jobs}
    return {name for name, decision in said.items() if decision is not None}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the rule was asked, in cycles that may do next to nothing."""
    monkeypatch.setattr(effort, "MUCH", 10)
    monkeypatch.setattr(effort, "MOST", 40)
    monkeypatch.setattr(candidates, "FEW", 2)
    questions: list[str] = []
    case = CandidateIndex.case

    def counted(candidate_index: CandidateIndex, *about: object) -> AdmissionQuery:
        questions.append("")
        return case(candidate_index, *about)  # type: ignore[arg-type]

    monkeypatch.setattr(CandidateIndex, "case", counted)
    return questions


def test_a_cycle_of_turns_ends_and_says_nothing_to_whom_it_left_out(asked: list[str]) -> None:
    jobs = _jobs()
    found = decided(*_picture(jobs, devices=2))
    assert 0 < len(_heard(found, jobs)) < JOBS
    assert found.plan.wake_at == NOW + 0.05
    few = len(asked)
    assert few <= 40 * serve._FILLING[1] + 10


@pytest.mark.slow
def test_everyone_gets_an_answer_some_day(asked: list[str]) -> None:
    jobs = _jobs()
    heard: set[str] = set()
    for cycle in range(30):
        heard |= _heard(decided(*_picture(jobs, devices=2), at=NOW + 1.7 * cycle), jobs)
    assert len(heard) == JOBS
    assert asked


def test_services_leave_something_of_a_cycle_to_those_who_take_turns(asked: list[str]) -> None:
    services = [
        a_service(f"serve-{at}")
        .fractional(10, 20)
        .slowdown(2.0 + at / 50)
        .with_(workload_class=f"s-{at}")
        for at in range(JOBS)
    ]
    replicas = [pod for one in services for pod in one.pods()]
    jobs = _jobs()
    found = decided(*_picture(jobs, devices=2), *services, *replicas)
    assert _heard(found, jobs)
    assert asked


def test_the_same_hurry_gives_the_same_plan(asked: list[str]) -> None:
    parts = _picture(_jobs(), devices=3)
    first, again = decided(*parts), decided(*parts)
    assert first.plan == again.plan
    assert first.actions == again.actions
    assert asked


def test_with_effort_enough_everyone_is_answered() -> None:
    jobs = _jobs()
    found = decided(*_picture(jobs, devices=2))
    assert len(_heard(found, jobs)) == JOBS
    assert found.plan.wake_at != NOW + 0.05


def test_devices_of_those_who_come_later_are_not_filled_by_others(asked: list[str]) -> None:
    # two devices, two turns: whoever is not planned gets none of them, answered or not
    jobs = [
        a_job(f"job-{at:02}").checkpointed().with_(workload_class=f"class-{at}").aged(1000 - at)
        for at in range(JOBS)
    ]
    found = decided(*_picture(jobs, devices=2))
    taken = {wanted.pod_name.removesuffix("-0") for _, wanted in found.slices()}
    assert taken <= {"job-00", "job-01"}
    assert not asked, "whole devices need no judgement"
