# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the TuningJobs, as one task beside the scheduling loop, which never waits for it.

Only changed TuningJobs are evaluated, within a fraction of one core however many there are. Writes
not yet visible in the API are not repeated for a while.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog

from ullage import ports
from ullage.api.reasons import Reason
from ullage.app.suggestions import PointsBySearch, Requests
from ullage.app.times import BACKGROUND_LOOK_S, TUNING_ECHO_S
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.codecs.status import tuning_as_stored
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.tuning import TuningRecord, TuningStatus
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.tuning.suggestions import SuggestionRequest
from ullage.ports import Clock
from ullage.process.faults import fault_text
from ullage.scheduling.model.plan import Action, CreateTrial, Emit, SetTuningStatus
from ullage.scheduling.tuning.step import Around, TuningStep, next_step

log = structlog.get_logger("ullage.tuning")

MOST_CREATES: Final = 16
"""TrainingJobs requested per check and namespace: their creation is as urgent as that of pods, so
other writes are interleaved."""
REST: Final = 3.0
"""Pause of the others after a check of one TuningJob, as a multiple of its time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundHooks:
    """Interfaces of the service to the rest of the operator.

    Attributes:
        synced: The snapshot is complete.
        epoch: Epoch of this leader; ``None`` where this replica does not lead.
        submit: Queues writes.
        poke: Asks for a decision, with the name of its cause.
    """

    synced: Callable[[], bool]
    epoch: Callable[[], int | None]
    submit: Callable[[Sequence[Action]], None]
    poke: Callable[[str], None] = lambda _: None


@dataclass(frozen=True, slots=True, kw_only=True)
class _StatusWrite:
    """The last requested status, and the version that it is based on."""

    status: TuningStatus
    resource_version: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inputs:
    """Inputs of a check of a TuningJob, without the time."""

    job: TuningRecord
    around: Around
    until: float = math.inf
    """Time from which the result changes by time alone, seconds since the epoch."""

    def stands(self, other: _Inputs) -> bool:
        """True when nothing has changed since: records are immutable."""
        mine, its = self.around, other.around
        return (
            its.now < self.until
            and self.job is other.job
            and mine.epoch == its.epoch
            and mine.runs.keys() == its.runs.keys()
            and all(run is its.runs[name] for name, run in mine.runs.items())
            and mine.refused == its.refused
            and mine.suggested == its.suggested
        )


class TuningService:
    """Runs every TuningJob, one step per check."""

    def __init__(self, state: ClusterState, hooks: BackgroundHooks, *, clock: Clock) -> None:
        self._state = state
        self._hooks = hooks
        self._clock = clock
        self._seen = -1
        self._look_again_at = 0.0
        self._asked: dict[tuple[str, str], float] = {}
        """Namespace and name of requested TrainingJobs, and the time of the request."""
        self._creates: Counter[str] = Counter()
        """Requests of this check, by namespace."""
        self._status_writes: dict[str, _StatusWrite] = {}
        self._faults: dict[str, str] = {}
        self._done: dict[str, _Inputs] = {}
        """TuningJobs without action until one of these changes, by uid."""
        self._suggested: PointsBySearch = {}
        self.requests: Requests = {}
        """Points that searches need, by uid of the TuningJob."""
        self.failures = 0
        """Checks of one TuningJob that raised."""

    async def run(self) -> None:
        """Check until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            for _ in self._looks():
                await asyncio.sleep(REST * (loop.time() - began))
                began = loop.time()
            await asyncio.sleep(BACKGROUND_LOOK_S)

    def look(self) -> None:
        """Take one step of each TuningJob, if this replica leads and something changed."""
        for _ in self._looks():
            pass

    def _looks(self) -> Iterator[None]:
        """The steps of :meth:`look`, one TuningJob after the other."""
        epoch = self._hooks.epoch()
        if epoch is None or not self._hooks.synced():
            return
        now = self._clock.monotonic()
        if self._state.version == self._seen and now < self._look_again_at:
            return
        self._seen, self._look_again_at = self._state.version, now + TUNING_ECHO_S
        self._creates.clear()
        jobs = self._state.tuning_jobs()
        self._forget_all_but({job.ref.uid for job in jobs.values()})
        if not jobs:
            return
        snapshot = self._state.freeze(self._clock.now())
        for at in sorted(jobs):
            job = jobs[at]
            uids = self._state.trials_of(job.ref.uid)
            runs = [run for uid in uids if (run := snapshot.workloads.get(uid)) is not None]
            around = _around(snapshot, job, runs, epoch)
            points = {item.trial: item.point for item in self._suggested.get(job.ref.uid, ())}
            around = replace(around, suggested=points)
            done = self._done.get(job.ref.uid)
            if done is not None and done.stands(_Inputs(job=job, around=around)):
                continue
            self._look_at(job, around, now)
            yield
            if self._hooks.epoch() != epoch:
                return

    def suggested(self, points: PointsBySearch) -> None:
        """Store points from a sampler; the next check makes trials of them."""
        self._suggested = points
        self._look_again_at = 0.0

    def wanted(self) -> Requests | None:
        """Points that searches need, if this replica leads."""
        return None if self._hooks.epoch() is None else self.requests

    def end_term(self) -> None:
        """Reset the state of this leadership: its last writes may have been lost."""
        self._suggested, self.requests = {}, {}
        self._asked, self._status_writes, self._faults, self._done, self._seen = {}, {}, {}, {}, -1

    def _look_at(self, job: TuningRecord, around: Around, now: float) -> None:
        self._done.pop(job.ref.uid, None)
        try:
            step = next_step(job, around)
            self._want(job.ref.uid, step.asks)
            writes = self._writes(job, step, around, now)
        except Exception as error:  # the other TuningJobs are still checked
            self._failed(job, error)
            return
        self._faults.pop(job.ref.uid, None)
        if step.status == job.status and not (step.creates or step.deletes or step.asks):
            until = step.again_at or math.inf
            self._done[job.ref.uid] = _Inputs(job=job, around=around, until=until)
        if step.deletes:
            self._state.assume(step.deletes, self._clock.now())
        if writes:
            self._hooks.submit(writes)

    def _writes(
        self, job: TuningRecord, step: TuningStep, around: Around, now: float
    ) -> list[Action]:
        writes: list[Action] = list(step.deletes)
        for create in step.creates:
            at = (create.owner.namespace, create.name)
            if now - self._asked.get(at, -TUNING_ECHO_S) < TUNING_ECHO_S:
                continue
            if self._creates[at[0]] >= MOST_CREATES:
                self._look_again_at = 0.0
                break
            self._creates[at[0]] += 1
            self._asked[at] = now
            writes += [create, _created_event(create)]
        last = self._status_writes.get(job.ref.uid)
        status = tuning_as_stored(step.status)
        if status == job.status or _resize_is_on_its_way(job, last, now):
            return writes
        news = last is None or last.status != status
        if last is None or news or last.resource_version != job.resource_version:
            due = True
        else:
            due = now - last.at >= TUNING_ECHO_S
        if due:
            self._status_writes[job.ref.uid] = _StatusWrite(
                status=status, resource_version=job.resource_version, at=now
            )
            writes.append(_apply(job, status, around.epoch))
            writes += step.events if news else ()
        return writes

    def _want(self, uid: str, asks: SuggestionRequest | None) -> None:
        """Keep the request of a search; points without trials yet stay requested."""
        self.requests = {key: request for key, request in self.requests.items() if key != uid}
        if asks is not None:
            self.requests[uid] = asks

    def _failed(self, job: TuningRecord, error: Exception) -> None:
        """Log a failure, once while it stays the same."""
        self.failures += 1
        text = fault_text(error)
        if self._faults.get(job.ref.uid) != text:
            self._faults[job.ref.uid] = text
            where = f"{job.ref.namespace}/{job.ref.name}"
            log.error("TuningJob not decided", job=where, error=text, exc_info=error)

    def _forget_all_but(self, uids: set[str]) -> None:
        self.requests = {uid: request for uid, request in self.requests.items() if uid in uids}
        self._status_writes = {
            uid: write for uid, write in self._status_writes.items() if uid in uids
        }
        self._faults = {uid: text for uid, text in self._faults.items() if uid in uids}
        self._done = {uid: done for uid, done in self._done.items() if uid in uids}
        now = self._clock.monotonic()
        self._asked = {at: when for at, when in self._asked.items() if now - when < TUNING_ECHO_S}


def _resize_is_on_its_way(job: TuningRecord, last: _StatusWrite | None, now: float) -> bool:
    """True while the API does not show a resize yet: a new decision would have another time."""
    return (
        last is not None
        and last.resource_version == job.resource_version
        and last.status.resizes != job.status.resizes
        and now - last.at < TUNING_ECHO_S
    )


def _around(
    snapshot: Snapshot, job: TuningRecord, runs: Iterable[WorkloadRecord], epoch: int
) -> Around:
    space = job.ref.namespace
    return Around(
        runs={run.ref.name: run for run in runs if run.ref.namespace == space},
        refused={
            name: refused
            for (kind, namespace, name), refused in snapshot.refused_writes.items()
            if kind == ports.TRAINING_JOB.kind and namespace == space
        },
        now=snapshot.taken_at,
        epoch=epoch,
    )


def _apply(job: TuningRecord, status: TuningStatus, epoch: int) -> SetTuningStatus:
    reason = status.conditions[0].reason if status.conditions else ""
    return SetTuningStatus(
        target=job.ref,
        resource_version=job.resource_version,
        status=status,
        epoch=epoch,
        reason=Reason(reason) if reason else Reason.TRIALS_RUN,
        text=status.message,
    )


def _created_event(create: CreateTrial) -> Emit:
    return Emit(
        target=create.owner,
        warning=False,
        epoch=create.epoch,
        reason=create.reason,
        text=create.text,
    )
