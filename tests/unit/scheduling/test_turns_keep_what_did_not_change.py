# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What one cycle of turns leaves for the next changes its cost alone, never its plan."""

from __future__ import annotations

from dataclasses import replace

from builders import NOW, Part, a_gpu_node, a_job, a_policy
from fakes.deciding import Decided, decided
from ullage.cluster.records.policy import PolicyRecord
from ullage.engines.allocation.model import Allocation, Problem
from ullage.engines.allocation.policies import Objective, allocate
from ullage.scheduling.assignment.cycle_cache import CycleCache
from ullage.scheduling.model.plan import SetConditions

LATER = NOW + 7.0


def _picture(weight: int) -> list[Part]:
    """Four jobs for two devices; the first counts as much as its weight says."""
    jobs = [a_job(f"job-{at}").checkpointed().aged(100 - at) for at in range(4)]
    jobs[0] = jobs[0].with_(weight=weight)
    policy = a_policy(objective="MaxMinFairness", round_seconds=60, uid="uid-policy")
    return [policy, a_gpu_node(devices=2), *jobs, *(pod for job in jobs for pod in job.pods())]


def _fractions(found: Decided) -> list[object]:
    books = [status.allocation for status in found.plan.statuses.values()]
    return [one.fractions for one in books if one is not None]


def test_a_job_that_changed_is_seen_as_it_is_now() -> None:
    before, after = _picture(weight=1), _picture(weight=3)
    cold = decided(*after, at=LATER)
    cache = CycleCache()
    first = decided(*before, cache=cache)
    warm = decided(*after, at=LATER, cache=cache)
    assert warm.plan == cold.plan
    assert _fractions(first) != _fractions(warm)


def test_the_same_problem_is_solved_once_though_time_passes() -> None:
    parts, cache = _picture(weight=1), CycleCache()
    asked: list[Objective] = []

    def counted(objective: Objective, problem: Problem) -> Allocation:
        asked.append(objective)
        return allocate(objective, problem)

    for later_s in range(3):
        decided(*parts, at=NOW + later_s, cache=cache, allocate=counted)
    assert len(asked) == 1


def test_a_new_division_in_the_status_of_the_policy_is_no_new_rule() -> None:
    (policy, *rest), cache = _picture(weight=1), CycleCache()
    assert isinstance(policy, PolicyRecord)
    first = decided(policy, *rest, cache=cache)
    kept = cache.requests.kept
    (told,) = first.all(SetConditions)
    assert told.last_solve is not None
    solved = replace(policy, last_solve=told.last_solve)
    cold = decided(solved, *rest, at=LATER)
    warm = decided(solved, *rest, at=LATER, cache=cache)
    assert cache.requests.kept is kept
    assert warm.plan == cold.plan
    decided(replace(solved, max_percent_sum=90), *rest, at=LATER, cache=cache)
    assert cache.requests.kept is not kept
