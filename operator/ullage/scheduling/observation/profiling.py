# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs of the policy's sample whose trace is due.

The choice follows from the job's uid and the period alone, so every replica makes the same one and
a restart changes nothing. The name of a request follows from the uid and the hour of its creation:
that is how requests of the sample are recognised and counted, and a user who imitates one spends
the budget only with requests about jobs of their own.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final, NamedTuple

from ullage.api.profiling import Profiling
from ullage.api.slices import SliceKey
from ullage.api.times import DAY_S
from ullage.api.words import TracedKind
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.trace import ProfileRequestRecord
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.observation.profile_requests import MOST_OF_CLUSTER
from ullage.scheduling.times import HEARTBEAT_MAX_AGE_S, HOUR_S, SAMPLED_SHOWN_S

STEPS_LEAST: Final = 10
"""Steps before a job is traced: the first ones allocate, compile and choose kernels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledJob:
    """A job whose trace is due, and the request for it.

    Attributes:
        job: The TrainingJob.
        name: Name of the request.
        steps: Steps that are traced.
        ttl_s: Time for which the request is kept after its end: the next period has begun by then,
            so no job is traced twice in one, and a day's requests can be counted.
    """

    job: ObjectRef
    name: str
    steps: int
    ttl_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunTrace:
    """A request of the sample that this replica made.

    Attributes:
        job: The TrainingJob.
        at: When, seconds since the epoch.
    """

    job: ObjectRef
    at: float


def moment_in_period(uid: str, terms: Profiling, now: float) -> float | None:
    """Time at which a job is traced in the present period; ``None`` = it is not in the sample.

    Two halves of one hash of uid and period: the first is compared with the sampled part, the
    second is the place in the period.

    Args:
        uid: uid of the job.
        terms: The policy.
        now: Seconds since the epoch.
    """
    every_s = terms.every_hours * HOUR_S
    period = int(now // every_s)
    digest = hashlib.sha256(f"{uid}/{terms.every_hours}/{period}".encode()).digest()
    drawn = int.from_bytes(digest[:8])
    if drawn * 100 >= terms.sample_percent << 64:
        return None
    return (period + int.from_bytes(digest[8:12]) / 2**32) * every_s


def sampled_name(job: ObjectRef, moment: float) -> str:
    """Name of the request for a job that is made at a moment."""
    digest = hashlib.sha256(f"{job.uid}/{int(moment // HOUR_S)}".encode()).hexdigest()
    return f"{job.name[:200].rstrip('.-')}-sampled-{digest[:10]}"


def is_sampled(request: ProfileRequestRecord, job: ObjectRef) -> bool:
    """True for a request about a job of the sample; clocks may differ by less than an hour."""
    return any(
        request.ref.name == sampled_name(job, request.created + shift)
        for shift in (-HOUR_S, 0.0, HOUR_S)
    )


def due_jobs(
    snapshot: Snapshot,
    requests: Iterable[ProfileRequestRecord],
    made: Mapping[str, BegunTrace],
    now: float,
    injected: Callable[[str], bool | None],
) -> tuple[SampledJob, ...]:
    """Jobs to trace now, within the budget, those that wait longest first.

    Users come first: no trace begins in a namespace with one under way, or while half of the traces
    that the cluster allows are.

    Args:
        snapshot: The cluster with its policy.
        requests: All ProfileRequests.
        made: Those that this replica made, by name: the API may not show them yet, or no more.
        now: Seconds since the epoch.
        injected: By uid of a TrainingJob, whether its pods get the step hook by their template;
            ``None`` = not known.
    """
    terms = snapshot.policy.profiling
    if not terms.is_on:
        return ()
    listed = tuple(requests)
    seen = _seen(snapshot, listed, now)
    begin = now // (terms.every_hours * HOUR_S) * terms.every_hours * HOUR_S
    begun = seen.sampled | {name for name, trace in made.items() if now - trace.at < DAY_S}
    shown = {(request.ref.namespace, request.ref.name) for request in listed}
    not_shown = [
        trace
        for name, trace in made.items()
        if (trace.job.namespace, name) not in shown and now - trace.at < SAMPLED_SHOWN_S
    ]
    left = min(
        terms.max_per_day - len(begun),
        terms.max_concurrent - seen.sampled_under_way - len(not_shown),
        MOST_OF_CLUSTER // 2 - seen.under_way.total() - len(not_shown),
    )
    if left <= 0:
        return ()
    busy = {*seen.under_way, *(trace.job.namespace for trace in not_shown)}
    traced = {uid for uid, at in seen.traced_at.items() if at >= begin}
    traced |= {trace.job.uid for trace in made.values() if trace.at >= begin}
    due: list[tuple[float, str, WorkloadRecord]] = []
    for uid, job in snapshot.workloads.items():
        if job.kind is not WorkloadKind.TRAINING_JOB or job.status.phase != Phase.RUNNING:
            continue
        if job.deleting or uid in traced:
            continue
        moment = moment_in_period(uid, terms, now)
        if moment is not None and moment <= now:
            due.append((moment, uid, job))
    reports = _Steps(snapshot, now, injected)
    chosen: list[SampledJob] = []
    for _, _, job in sorted(due, key=lambda item: item[:2]):
        if len(chosen) >= left:
            break
        if job.ref.namespace in busy or not reports.has_hook_and_steps(job):
            continue
        busy.add(job.ref.namespace)
        ttl_s = max(DAY_S, terms.every_hours * int(HOUR_S))
        chosen.append(
            SampledJob(job=job.ref, name=sampled_name(job.ref, now), steps=terms.steps, ttl_s=ttl_s)
        )
    return tuple(chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PresentRequests:
    """What present requests say of jobs.

    Attributes:
        traced_at: By uid of a job, when its newest request was created.
        sampled: Names of the requests of the sample in the last 24 hours.
        sampled_under_way: Requests of the sample that are under way.
        under_way: Requests that are under way, by namespace.
    """

    traced_at: Mapping[str, float]
    sampled: Set[str]
    sampled_under_way: int
    under_way: Counter[str]


def _seen(
    snapshot: Snapshot, listed: Sequence[ProfileRequestRecord], now: float
) -> _PresentRequests:
    named = {(request.ref.namespace, request.job_name) for request in listed}
    jobs = {
        (job.ref.namespace, job.ref.name): job.ref
        for job in snapshot.workloads.values()
        if job.kind is WorkloadKind.TRAINING_JOB and (job.ref.namespace, job.ref.name) in named
    }
    traced_at: dict[str, float] = {}
    sampled: set[str] = set()
    under_way: Counter[str] = Counter()
    sampled_under_way = 0
    for request in listed:
        is_open = not (request.status.is_over or request.deleting)
        under_way[request.ref.namespace] += is_open
        if request.job_kind != TracedKind.TRAINING_JOB:
            continue
        job = jobs.get((request.ref.namespace, request.job_name))
        if job is None:
            continue
        traced_at[job.uid] = max(traced_at.get(job.uid, 0.0), request.created)
        if is_sampled(request, job):
            sampled_under_way += is_open
            if now - request.created < DAY_S:
                sampled.add(request.ref.name)
    return _PresentRequests(
        traced_at=traced_at,
        sampled=sampled,
        sampled_under_way=sampled_under_way,
        under_way=+under_way,
    )


class _HookedSteps(NamedTuple):
    """Steps of a container, and whether its slice brings the step hook."""

    steps: int
    hooked: bool


class _Steps:
    """Hooks and steps of slices by node, each node looked up once."""

    def __init__(
        self, snapshot: Snapshot, now: float, injected: Callable[[str], bool | None]
    ) -> None:
        self._snapshot = snapshot
        self._now = now
        self._injected = injected
        self._nodes: dict[str, Mapping[SliceKey, _HookedSteps]] = {}

    def has_hook_and_steps(self, job: WorkloadRecord) -> bool:
        """True when every container of a job has the step hook and is past its first steps.

        A hook without steps is one of a program that none can be counted of: a trace of it fails.
        """
        containers = [
            self._of(part.node).get(part.key)
            for part in job.status.placement
            if part.key.index == 0
        ]
        if not containers:
            return False
        by_template = bool(self._injected(job.ref.uid))
        return all(
            seen is not None and seen.steps >= STEPS_LEAST and (by_template or seen.hooked)
            for seen in containers
        )

    def _of(self, name: str) -> Mapping[SliceKey, _HookedSteps]:
        """Steps of the containers of a node; those of a silent node are not known."""
        steps = self._nodes.get(name)
        if steps is None:
            node = self._snapshot.gpu_nodes.get(name)
            steps = {}
            if node is not None and self._now - node.heartbeat <= HEARTBEAT_MAX_AGE_S:
                hooked = {part.key for part in node.desired if part.inject}
                steps = {
                    part.key: _HookedSteps(part.steps, part.key in hooked) for part in node.observed
                }
            self._nodes[name] = steps
        return steps
