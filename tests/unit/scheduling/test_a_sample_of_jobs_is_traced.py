# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The policy's sample: the same choice everywhere, within its budget, and users come first."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import NOW, a_gpu_node, a_job, a_policy, a_slice, a_snapshot, gpu
from builders_nodes import reported
from fakes.toy_books import on
from fakes.trace_world import a_request
from ullage.api.profiling import Profiling
from ullage.api.readers import WireError
from ullage.api.schedulingpolicy import read_policy_spec
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.trace import ProfileRequestRecord, ProfileRequestStatus
from ullage.scheduling.observation.profile_requests import MOST_OF_CLUSTER
from ullage.scheduling.observation.profiling import (
    STEPS_LEAST,
    BegunTrace,
    SampledJob,
    due_jobs,
    is_sampled,
    moment_in_period,
    sampled_name,
)
from ullage.scheduling.times import SAMPLED_SHOWN_S

DAY = 86_400
LATE = NOW // DAY * DAY + DAY - 1
"""The last second of a day: every trace of the day is due."""
ALL = Profiling(sample_percent=100, max_concurrent=16)


def a_cluster(
    jobs: int = 1,
    terms: Profiling = ALL,
    *,
    hooked: bool = True,
    steps: int = STEPS_LEAST,
    phase: str = "Running",
    spaces: int = 100,
    heartbeat: float = LATE,
) -> Snapshot:
    """Jobs of one pod each, spread over namespaces, at the last second of a day."""
    parts: list[object] = [a_policy(profiling=terms)]
    for at in range(jobs):
        name, node = f"job-{at}", f"node-{at}"
        job = a_job(name, f"team-{at % spaces}")
        job = job.status(phase=phase, placement=(on(node, pod=f"{name}-0"),))
        wanted = replace(a_slice(f"uid-{name}-0", device=gpu(node, 0), percent=100), inject=hooked)
        seen = replace(reported(wanted), steps=steps)
        parts += [
            job,
            a_gpu_node(node, desired=(wanted,), observed=(seen,), heartbeat=heartbeat),
        ]
    return a_snapshot(*parts, now=LATE)  # type: ignore[arg-type]


def due(
    snapshot: Snapshot,
    *requests: ProfileRequestRecord,
    made: dict[str, BegunTrace] | None = None,
    now: float = LATE,
    by_template: bool | None = None,
) -> tuple[SampledJob, ...]:
    return due_jobs(snapshot, requests, made or {}, now, lambda _: by_template)


def request_of(
    snapshot: Snapshot, at: int = 0, created: float = LATE, **fields: object
) -> ProfileRequestRecord:
    """The request of the sample about a job."""
    job = list(snapshot.workloads.values())[at].ref
    name = sampled_name(job, created)
    ref = replace(a_request(name).ref, namespace=job.namespace)
    return a_request(name, ref=ref, created=created, job_name=job.name, **fields)


def test_nothing_is_traced_unless_the_policy_asks() -> None:
    assert not Profiling().is_on
    assert due(a_cluster(terms=Profiling())) == ()


def test_a_running_job_with_the_hook_is_traced_once_in_a_period() -> None:
    snapshot = a_cluster(terms=replace(ALL, steps=7))
    (chosen,) = due(snapshot)
    (job,) = snapshot.workloads.values()
    assert (chosen.job, chosen.steps) == (job.ref, 7)
    assert chosen.ttl_s >= DAY
    made = {chosen.name: BegunTrace(job=job.ref, at=LATE)}
    assert due(snapshot, made=made) == ()
    over = ProfileRequestStatus(phase="Done", completion_time=LATE)
    assert due(snapshot, request_of(snapshot, status=over)) == ()


def test_a_trace_that_a_user_asked_for_is_the_one_of_the_period() -> None:
    snapshot = a_cluster()
    over = ProfileRequestStatus(phase="Done", completion_time=LATE)
    own = request_of(snapshot, created=LATE - 100, status=over)
    own = replace(own, ref=replace(own.ref, name="mine"))
    assert due(snapshot, own) == ()
    assert due(snapshot, replace(own, created=LATE - 2 * DAY)) != ()


@pytest.mark.parametrize(
    "changes",
    [
        {"hooked": False},
        {"steps": STEPS_LEAST - 1},
        {"phase": "Pending"},
        {"phase": "Succeeded"},
        {"heartbeat": LATE - 10_000},
    ],
)
def test_a_job_that_cannot_be_traced_is_not_asked_for(changes: dict[str, object]) -> None:
    assert due(a_cluster(**changes)) == ()  # type: ignore[arg-type]


def test_the_hook_may_come_with_the_template_of_the_job() -> None:
    snapshot = a_cluster(hooked=False)
    assert due(snapshot, by_template=False) == ()
    assert len(due(snapshot, by_template=True)) == 1


def test_a_gang_is_traced_when_every_member_has_the_hook() -> None:
    first, second = a_slice("uid-a-0", device=gpu("node-1", 0)), a_slice("uid-a-1", device=gpu())
    for hooked in (True, False):
        desired = (replace(first, inject=True), replace(second, inject=hooked))
        observed = tuple(replace(reported(part), steps=50) for part in desired)
        placement = (on("node-1", pod="a-0"), on("node-1", device=1, pod="a-1"))
        job = a_job("a").gang(2).status(phase="Running", placement=placement)
        node = a_gpu_node("node-1", desired=desired, observed=observed, heartbeat=LATE)
        snapshot = a_snapshot(a_policy(profiling=ALL), job, node, now=LATE)
        assert bool(due(snapshot)) is hooked


@given(st.uuids().map(str), st.integers(1, 99), st.integers(1, 168), st.integers(0, 4_000_000_000))
def test_the_choice_follows_from_uid_and_period_alone(
    uid: str, percent: int, hours: int, now: int
) -> None:
    terms = Profiling(sample_percent=percent, every_hours=hours)
    moment = moment_in_period(uid, terms, now)
    begin = now // (hours * 3600) * hours * 3600
    assert moment == moment_in_period(uid, terms, begin)
    if moment is not None:
        assert begin <= moment <= begin + hours * 3600
        more = replace(terms, sample_percent=100)
        assert moment_in_period(uid, more, now) == moment, "a larger sample holds the smaller one"


def test_the_sampled_part_is_as_large_as_asked_and_another_in_each_period() -> None:
    terms = Profiling(sample_percent=10)
    samples = [
        {at for at in range(5000) if moment_in_period(f"uid-{at}", terms, NOW + day * DAY)}
        for day in range(2)
    ]
    for sample in samples:
        assert 400 <= len(sample) <= 600  # 500, four standard deviations of 21 and more
    assert len(samples[0] & samples[1]) < 120


def test_traces_are_spread_over_the_period() -> None:
    terms = Profiling(sample_percent=100)
    begin = NOW // DAY * DAY
    moments = [moment_in_period(f"uid-{at}", terms, NOW) or 0.0 for at in range(2400)]
    by_hour = Counter(int(moment - begin) // 3600 for moment in moments)
    assert by_hour.keys() == set(range(24))
    assert min(by_hour.values()) > 50


def test_a_trace_is_due_when_its_moment_has_come() -> None:
    snapshot = a_cluster(jobs=40)
    begin = LATE // DAY * DAY
    live = {name: replace(node, heartbeat=begin) for name, node in snapshot.gpu_nodes.items()}
    early = replace(snapshot, gpu_nodes=live)
    terms = snapshot.policy.profiling
    assert all(
        (moment_in_period(chosen.job.uid, terms, begin) or 0.0) <= begin + 100
        for chosen in due(early, now=begin + 100)
    )


def test_budgets_hold() -> None:
    for jobs, terms, most in (
        (40, replace(ALL, max_concurrent=3), 3),
        (40, replace(ALL, max_per_day=5), 5),
        (40, ALL, 16),
    ):
        snapshot = a_cluster(jobs, terms)
        chosen = due(snapshot)
        assert len(chosen) == most
        assert len({part.job.namespace for part in chosen}) == most
        made = {part.name: BegunTrace(job=part.job, at=LATE) for part in chosen}
        assert due(snapshot, made=made) == (), "those that the API does not show yet count"
        shown = [request_of(snapshot, at) for at in range(most)]
        assert due(snapshot, *shown) == (), "and those that another replica made"


def test_a_day_counts_what_ended_in_it() -> None:
    snapshot = a_cluster(40, replace(ALL, max_per_day=5))
    over = ProfileRequestStatus(phase="Done", completion_time=LATE)
    ended = [request_of(snapshot, at, LATE - 1000, status=over) for at in range(5)]
    assert due(snapshot, *ended) == ()
    assert len(due(snapshot, *ended[:3])) == 2


def test_a_request_that_is_not_shown_for_a_minute_is_no_longer_under_way() -> None:
    snapshot = a_cluster(4, replace(ALL, max_concurrent=1))
    (chosen,) = due(snapshot)
    for age, allowed in ((SAMPLED_SHOWN_S - 1, 0), (SAMPLED_SHOWN_S, 1)):
        made = {chosen.name: BegunTrace(job=chosen.job, at=LATE - age)}
        again = due(snapshot, made=made)
        assert len(again) == allowed
        assert all(part.job != chosen.job for part in again)


def test_users_come_first() -> None:
    snapshot = a_cluster(4, spaces=1)
    assert len(due(snapshot)) == 1, "one in a namespace at a time"
    ref = replace(a_request("mine").ref, namespace="team-0")
    assert due(snapshot, a_request("mine", ref=ref, job_name="other")) == ()
    many = [a_request(f"mine-{at}", job_name="other") for at in range(MOST_OF_CLUSTER // 2)]
    assert due(snapshot, *many) == ()


def test_a_label_or_a_name_that_a_user_chose_spends_nobodys_budget() -> None:
    snapshot = a_cluster(4, replace(ALL, max_per_day=1))
    theirs = [
        request_of(snapshot, 0, LATE - 2 * 3600 - 1),
        a_request("job-1-sampled-0123456789", job_name="job-1"),
    ]
    (job, *_) = snapshot.workloads.values()
    assert is_sampled(theirs[0], job.ref)
    assert not is_sampled(replace(theirs[0], created=LATE), job.ref)
    assert not is_sampled(theirs[1], job.ref)
    assert len(due(snapshot, theirs[1])) == 1


def test_names_are_valid_whatever_the_job_is_called() -> None:
    for name in ("a", "a" * 253, "x." * 126):
        made = sampled_name(replace(a_job().build().ref, name=name), NOW)
        assert len(made) <= 253
        assert ".-" not in made


@pytest.mark.parametrize(
    "terms",
    [
        {"samplePercent": 101},
        {"samplePercent": -1},
        {"samplePercent": float("nan")},
        {"samplePercent": "10"},
        {"everyHours": 0},
        {"everyHours": 169},
        {"steps": 51},
        {"maxConcurrent": 17},
        {"maxPerDay": 10**6},
        {"maxPerDay": None, "steps": True},
    ],
)
def test_terms_out_of_bounds_are_refused(terms: dict[str, object]) -> None:
    with pytest.raises(WireError):
        read_policy_spec({"profiling": terms})
