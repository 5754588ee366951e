# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Scaling to zero: an idle service has no replica, and the first request at its router wakes it.

Only routers know about waiting requests. While one of them does not report, a service keeps its
replica, and a service without a replica gets one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ullage.api.reasons import Reason
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.pod import PodRecord
from ullage.cluster.records.router import RouterLoad
from ullage.cluster.records.status import ReplicaChoice, ScalingHistory, ScalingRecord
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.scaling.sleeping import (
    RoutersSaid,
    SleepMemory,
    SleepTerms,
    fallen_asleep,
    has_to_wake,
    idle_needed_s,
    may_sleep,
    woken,
)
from ullage.scheduling.lifecycle.routing import ready_routers
from ullage.scheduling.model.view import View
from ullage.scheduling.times import REPLICA_STARTS_S, ROUTER_STALE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Sleeper:
    """A service that may be scaled to zero.

    Attributes:
        load: Report of its routers; ``None`` = none yet.
        heard: True when all routers report, and clients reach replicas only through them.
        ready: True when a replica answers.
        answers_since_s: Time at which the first replica answered or had ``REPLICA_STARTS_S``;
            before that the service was starting, not idle. ``now`` = there is no replica.
        launch_s: Wait of a request for the first replica, seconds.
    """

    service: WorkloadRecord
    terms: SleepTerms
    memory: SleepMemory
    load: RouterLoad | None
    heard: bool
    ready: bool
    answers_since_s: float
    launch_s: float
    now: float

    @classmethod
    def of(
        cls, view: View, service: WorkloadRecord, pods: Sequence[PodRecord], launch_s: float
    ) -> Sleeper | None:
        """The service; ``None`` = it may not be scaled to zero."""
        bounds, batching = service.scaling, service.batching
        if bounds is None or bounds.min_replicas or batching is None:
            return None
        load = view.snapshot.routers.get(service.ref.uid)
        heard = (
            load is not None
            and not load.missing
            and abs(view.now - load.heard_at) <= ROUTER_STALE_S
            and load.heard >= ready_routers(view, service) > 0
        )
        since = [pod.ready_since for pod in pods if pod.ready]
        since = since or [pod.created + REPLICA_STARTS_S for pod in pods]
        return cls(
            service=service,
            terms=SleepTerms(idle_s=bounds.idle_s, hold_s=batching.hold_s),
            memory=sleep_memory(service.status.scaling),
            load=load,
            heard=heard,
            ready=any(pod.ready for pod in pods),
            answers_since_s=min(since, default=view.now),
            launch_s=launch_s,
            now=whole_second(view.now),
        )

    def step(self) -> ScalingRecord | None:
        """The record of a service that sleeps, falls asleep or wakes; ``None`` = it is awake."""
        before, report = self.service.status.scaling, self._report()
        ours = before is not None and before.reason is not Reason.LOAD_UNKNOWN
        awake_by_us = ours and before is not None and before.chosen.replicas
        set_to_zero = not self.service.replicas and not awake_by_us  # by others
        if self.memory.asleep or set_to_zero:
            return self._woken() if self._wakes(report) else self._asleep()
        if self.heard and report and may_sleep(self.memory, self.terms, report, self.now):
            text = (
                f"no request for {self.now - report.idle_since_s:.0f} s; the router holds the next"
                f" one while a replica starts, about {report.wake_s:.0f} s"
            )
            asleep = fallen_asleep(self.memory, self.now)
            return self._record(Reason.SCALED_TO_ZERO, 0, text, asleep)
        starting = before is not None and before.reason is Reason.WOKEN and not self.ready
        return before if starting else None

    def stays_awake(self) -> str:
        """Reason other than requests for which the service is not scaled to zero; empty = none."""
        report = self._report()
        if report is None or not self.heard:
            return "it does not scale to zero, because not all of its routers report their requests"
        if report.wake_s <= self.terms.hold_s:
            return ""
        return (
            f"it does not scale to zero, because a replica takes {report.wake_s:.0f} s to start and"
            f" requests wait {self.terms.hold_s:.0f} s: raise batching.holdSeconds"
        )

    def _report(self) -> RoutersSaid | None:
        """Reports of the routers that answer; ``None`` = none does."""
        load = self.load
        if load is None or not load.heard:
            return None
        return RoutersSaid(
            waiting=load.waiting,
            idle_since_s=max(load.heard_at - load.idle_s, self.answers_since_s),
            asked_s=None if load.asked_s is None else load.heard_at - load.asked_s,
            wake_s=self.launch_s,
        )

    def _wakes(self, report: RoutersSaid | None) -> bool:
        """True when a request waits, came since the sleep, or may wait at a silent router."""
        if self.load is not None and self.load.silent:
            return True
        if report is None:
            return False
        return has_to_wake(self.memory, report) if self.memory.asleep else report.waiting > 0

    def _woken(self) -> ScalingRecord:
        text = "a request waits in the router"
        if self.load is not None and not self.load.waiting:
            silent = "a router does not report whether a request waits there"
            text = silent if self.load.silent else "a request came"
        memory = woken(self.memory, self.terms, self.now)
        if memory.doublings:
            text += f"; it sleeps after {idle_needed_s(memory, self.terms):.0f} s without one"
        return self._record(Reason.WOKEN, 1, text, memory)

    def _asleep(self) -> ScalingRecord:
        """The current record, or a new one if others set the replicas to zero."""
        before = self.service.status.scaling
        if self.memory.asleep and before is not None and before.reason is Reason.SCALED_TO_ZERO:
            return before
        since = self.memory if self.memory.asleep else fallen_asleep(self.memory, self.now)
        text = "no replica is requested; the router holds the next request while one starts"
        record = self._record(Reason.SCALED_TO_ZERO, 0, text, since)
        return replace(record, last_scale_time=before.last_scale_time if before else 0.0)

    def _record(
        self, reason: Reason, replicas: int, text: str, memory: SleepMemory
    ) -> ScalingRecord:
        before = self.service.status.scaling
        history = before.history if before is not None else None
        return ScalingRecord(
            chosen=ReplicaChoice(replicas=replicas),
            share=before.share if before is not None else None,
            reason=reason,
            message=text,
            last_scale_time=self.now,
            launch_seconds=round(self.launch_s),
            history=with_sleep(history or ScalingHistory(as_of=self.now), memory),
        )


def sleep_memory(before: ScalingRecord | None) -> SleepMemory:
    """The memory of earlier sleeps in a status."""
    history = before.history if before is not None else None
    if history is None:
        return SleepMemory()
    return SleepMemory(since_s=history.asleep_since, doublings=history.idle_doublings)


def with_sleep(history: ScalingHistory, memory: SleepMemory) -> ScalingHistory:
    """The history with the memory of sleeps."""
    return replace(history, asleep_since=memory.since_s, idle_doublings=memory.doublings)
