# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import statistics
from itertools import pairwise

import pytest

from bench.mixed_judge import Alone
from bench.mixed_plan import CLASSES, REQUESTS_PER_S, SERVICE, mixed, reference
from bench.mixed_rules import OVERCOMMIT, Body, Rule, job, policy, profiles, service
from builders_raw import raw_meta
from ullage.api.gpurequest import GPURequest
from ullage.api.inferencedeployment import read_service_spec
from ullage.api.schedulingpolicy import read_policy_spec
from ullage.api.trainingjob import read_training_spec
from ullage.cluster.projection.rest import project_profile

PLAN = mixed(1, 600.0)


def _without_sharing(body: Body) -> Body:
    spec = body["spec"]
    assert isinstance(spec, dict)
    return {name: value for name, value in spec.items() if name not in ("gpu", "slo")}


def test_a_seed_gives_one_sequence_and_another_seed_another() -> None:
    assert mixed(1, 600.0) == PLAN
    assert mixed(2, 600.0).jobs != PLAN.jobs


def test_a_longer_plan_begins_as_the_shorter_one() -> None:
    longer = mixed(1, 1200.0)
    assert longer.jobs[: len(PLAN.jobs)] == PLAN.jobs


def test_every_class_comes_with_and_without_an_objective() -> None:
    for name, workload_class in CLASSES.items():
        asked = {one.max_slowdown for one in PLAN.jobs if one.workload_class == name}
        assert asked == {None, workload_class.max_slowdown}
    assert {one.workload_class for one in PLAN.jobs[: len(CLASSES)]} == set(CLASSES)


def test_requests_come_at_random_at_the_declared_rate() -> None:
    due = PLAN.requests_s
    gaps = [later - earlier for earlier, later in pairwise(due)]
    assert len(due) / PLAN.seconds == pytest.approx(REQUESTS_PER_S, rel=0.1)
    assert statistics.pstdev(gaps) == pytest.approx(1 / REQUESTS_PER_S, rel=0.1)
    assert max(due) < PLAN.seconds


def test_no_time_is_refused() -> None:
    with pytest.raises(ValueError, match="more than 0"):
        mixed(1, 0.0)


def test_the_reference_has_every_class_once_and_time_for_all_of_them_one_by_one() -> None:
    plan = reference()
    assert sorted(one.workload_class for one in plan.jobs) == sorted(CLASSES)
    alone = sum(
        one.steps
        * (CLASSES[one.workload_class].compute_ms + CLASSES[one.workload_class].pause_ms)
        / 1000
        for one in plan.jobs
    )
    assert alone < plan.seconds


@pytest.mark.parametrize("rule", list(Rule))
def test_the_work_is_the_same_under_every_rule(rule: Rule) -> None:
    for one in PLAN.jobs:
        assert _without_sharing(job(one, rule)) == _without_sharing(job(one, Rule.OURS))
    assert _without_sharing(service(PLAN, rule)) == _without_sharing(service(PLAN, Rule.OURS))


@pytest.mark.parametrize("rule", list(Rule))
def test_the_objects_are_what_the_api_accepts(rule: Rule) -> None:
    for one in PLAN.jobs[:6]:
        read_training_spec(job(one, rule)["spec"])
    read_service_spec(service(PLAN, rule)["spec"])
    read_policy_spec(policy(rule)["spec"])
    for body in profiles():
        project_profile(body | {"metadata": raw_meta("one")})


def test_only_ours_is_told_the_objectives() -> None:
    asking = next(one for one in PLAN.jobs if one.max_slowdown is not None)
    for rule in Rule:
        told = ["slo" in (job(asking, rule)["spec"] or {}), "slo" in service(PLAN, rule)["spec"]]  # type: ignore[operator]
        assert told == [rule is Rule.OURS] * 2


def test_shares_are_the_owners_under_ours_and_whole_devices_otherwise() -> None:
    one = PLAN.jobs[0]

    def gpu(rule: Rule) -> GPURequest:
        return read_training_spec(job(one, rule)["spec"]).gpu

    ours, free = gpu(Rule.OURS).share, gpu(Rule.UNCONTROLLED).share
    assert ours is not None
    assert (ours.min_percent, ours.max_percent) == CLASSES[one.workload_class].share
    assert free is not None
    assert (free.min_percent, free.max_percent) == (100, 100)
    assert gpu(Rule.EXCLUSIVE).share is None
    limit = read_policy_spec(policy(Rule.UNCONTROLLED)["spec"]).packing
    assert limit.max_percent_sum == OVERCOMMIT


def test_what_the_profiles_say_is_the_duty_of_the_class() -> None:
    said = {body["metadata"]["name"]: body["spec"] for body in profiles()}  # type: ignore[index]
    assert set(said) == {*CLASSES, SERVICE}
    for name, workload_class in CLASSES.items():
        assert said[name]["solo"][0]["smUtil"] == pytest.approx(workload_class.duty, abs=0.005)  # type: ignore[index]


def test_classes_are_declared_as_they_were_alone_and_nothing_else_changes() -> None:
    alone = Alone(steps_per_s=dict.fromkeys(CLASSES, 40.0) | {SERVICE: 1900.0}, p99_s=0.012)
    before = {body["metadata"]["name"]: body["spec"]["solo"][0] for body in profiles()}  # type: ignore[index]
    after = {body["metadata"]["name"]: body["spec"]["solo"][0] for body in profiles(alone)}  # type: ignore[index]
    assert after[SERVICE] == before[SERVICE] | {
        "stepsPerSecond": 1900.0,
        "latencyP99Seconds": 0.012,
    }
    for name in CLASSES:
        assert after[name] == before[name] | {"stepsPerSecond": 40.0}
    for body in profiles(alone):
        project_profile(body | {"metadata": raw_meta("one")})
