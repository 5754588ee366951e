# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A trace under the operator itself: every decision is one of ``decide``, on a whole snapshot.

Slower than the events over bare rounds by the cost of a decision, and exact: gates, gangs, slices,
statuses and guards are those of a live cluster. A start takes its configured time. Waiting for
machines is not simulated: nodes answer at once, and only devices fail.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field, replace
from typing import Final

from ullage.api.devices import Health
from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.scheduling.assignment.cycle_cache import CycleCache
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.plan import DecideSettings
from ullage_simulate.company import STALLED, models_of
from ullage_simulate.cycle import carried_out, is_at_rest
from ullage_simulate.events import TraceSettings
from ullage_simulate.failures import Failures
from ullage_simulate.founding import (
    NAMESPACE,
    START,
    founded,
    job_record,
    objective_of,
    priced,
    profile_record,
)
from ullage_simulate.outcome import JobOutcome, PolicyOutcome, UsageSample
from ullage_simulate.policies import SimulatedPolicy
from ullage_simulate.progress import Tell
from ullage_simulate.speeds import SpeedTable, built_in
from ullage_simulate.trace import Fleet, JobTrace, JobTraceError
from ullage_simulate.work import JobWork, begun
from ullage_simulate.world import World

_MOST_CYCLES: Final = 200
"""Maximum cycles at one time; a decision that never settles is a fault to report."""
_IDLE_WAKES: Final = 10_000
_PATIENCE_S: Final = 30.0
"""Interval of decisions without a known next one: the operator's own resync."""
_SOON_S: Final = 0.05


def run_decided(
    trace: JobTrace,
    fleet: Fleet,
    policy: SimulatedPolicy,
    settings: TraceSettings | None = None,
    tell: Tell | None = None,
    *,
    table: SpeedTable | None = None,
    ages: bool = True,
    rules: PolicyRecord | None = None,
) -> PolicyOutcome:
    """Run a trace to its end under the operator's decisions.

    Args:
        trace: Fitted to the fleet.
        fleet: The cluster.
        policy: A policy that SchedulingPolicy has as an objective, ``fifo``, or ``agnostic-las``:
            the operator under MaxMinFairness with profiles in which all types are equal.
        settings: Costs, failures, rounds; with pairs, jobs of one device allow pairing, and the
            operator knows the table's values of them. Gaps are the operator's own.
        tell: Called with the number of finished jobs, after every end.
        table: Slowdowns by neighbours; the built-in one by default.
        ages: Agents report the age of checkpoints; otherwise, victims are chosen by recency.
        rules: All other settings of the SchedulingPolicy; its defaults by default.

    Raises:
        TraceError: SchedulingPolicy has no such objective, or nothing runs any more.
    """
    how = settings or TraceSettings()
    play = begun_play(trace, fleet, policy, how, table or built_in(), rules)
    play.ages, play.tell = ages, tell
    play.to_the_end()
    return play.outcome(policy.name)


def begun_play(
    trace: JobTrace,
    fleet: Fleet,
    policy: SimulatedPolicy,
    settings: TraceSettings,
    table: SpeedTable,
    rules: PolicyRecord | None = None,
) -> ClusterPlay:
    """A trace before its first event, on an empty cluster; arguments as of :func:`run_decided`."""
    rounds = settings.rounds
    rules = replace(
        rules or PolicyRecord(),
        round_seconds=max(1, round(rounds.round_s)),
        gang_skip_limit=rounds.gang_skip_limit,
    )
    base = founded(fleet, policy, rules)
    if settings.pairs:
        scope = rules.knowledge.scope(NAMESPACE)
        base = replace(base, models=models_of(table, trace.jobs, fleet.devices, scope))
    return ClusterPlay(
        world=World(base=base, now=START, start_s=settings.costs.restart_s),
        trace=trace,
        fleet=fleet,
        settings=settings,
        aware=policy.aware or policy.name == "fifo",
        failures=Failures(fleet.devices, settings.failures, random.Random(settings.seed)),
        table=table,
    )


def resume(
    snapshot: Snapshot,
    trace: JobTrace,
    fleet: Fleet,
    policy: SimulatedPolicy,
    settings: TraceSettings | None = None,
    tell: Tell | None = None,
) -> PolicyOutcome:
    """Continue from a live snapshot under another objective; running jobs keep running.

    Args:
        snapshot: The live snapshot; its profiles, services and slices are kept as they are.
        trace: The remaining work of its jobs, by their names as ``namespace/name``.
        fleet: Its devices.
        policy: As for :func:`run_decided`; speeds are those of its profiles.
        settings: As for :func:`run_decided`.
        tell: Called with the number of finished jobs, after every end.

    Raises:
        TraceError: SchedulingPolicy has no such objective, or nothing runs any more.
    """
    how = settings or TraceSettings()
    base = replace(snapshot, policy=replace(snapshot.policy, objective=objective_of(policy)))
    if policy.priced:
        # prices of the command line replace those of pools as well
        prices = priced(snapshot.device_profiles, fleet.prices)
        base = replace(base, device_profiles=prices, pools={})
    play = ClusterPlay(
        world=World(base=base, now=snapshot.taken_at, start_s=how.costs.restart_s),
        trace=trace,
        fleet=fleet,
        settings=how,
        failures=Failures(fleet.devices, how.failures, random.Random(how.seed)),
        table=built_in(),
        start=snapshot.taken_at,
        epoch=max((gpu_node.epoch for gpu_node in snapshot.gpu_nodes.values()), default=1),
        arrived=len(trace.jobs),
        tell=tell,
    )
    uids = {
        f"{workload.ref.namespace}/{workload.ref.name}": uid
        for uid, workload in snapshot.workloads.items()
    }
    for order, job in enumerate(trace.jobs):
        play.active[uids[job.name]] = begun(job, order, fleet)
    play.go_on()
    play.to_the_end()
    return play.outcome(policy.name)


@dataclass(slots=True)
class ClusterPlay:
    """A world and its clock."""

    world: World
    trace: JobTrace
    fleet: Fleet
    settings: TraceSettings
    failures: Failures
    table: SpeedTable
    start: float = START
    epoch: int = 1
    aware: bool = True
    ages: bool = True
    tell: Tell | None = None
    cache: CycleCache = field(default_factory=CycleCache)
    active: dict[str, JobWork] = field(default_factory=dict)
    held_s: dict[str, float] = field(default_factory=dict)
    done: list[JobOutcome] = field(default_factory=list)
    moments: list[UsageSample] = field(default_factory=list)
    arrived: int = 0
    decisions: int = 0
    solves: int = 0
    wake_at: float = 0.0
    idle: int = 0
    places: list[tuple[str, str, str]] = field(default_factory=list)
    _kind_of: dict[str, str] = field(default_factory=dict)
    _solved: str = ""
    _broken: list[tuple[float, str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.held_s = dict.fromkeys(self.fleet.devices, 0.0)
        for name, record in sorted(self.world.gpu_nodes.items()):
            for device in record.devices:
                self._kind_of[device.uuid] = device.model
                self.places.append((device.model, name, device.uuid))

    @property
    def now(self) -> float:
        """Seconds since the trace began."""
        return self.world.now - self.start

    def outcome(self, policy: str) -> PolicyOutcome:
        """Outcome of the run."""
        hours = {kind: seconds / 3600 for kind, seconds in self.held_s.items()}
        return PolicyOutcome(
            policy=policy,
            devices=self.fleet.devices,
            jobs=tuple(self.done),
            moments=tuple(self.moments),
            held_s=self.held_s,
            dollars=sum(self.fleet.prices.get(kind, 0.0) * held for kind, held in hours.items()),
            decisions=self.decisions,
            solves=self.solves,
        )

    def go_on(self) -> None:
        """Jobs that already run have paid for the start."""
        self._follow()
        for work in self.active.values():
            work.ready_s = min(work.ready_s, self.now)

    def to_the_end(self) -> None:
        """Simulate until all jobs are done."""
        self.settle()
        while self.arrived < len(self.trace.jobs) or self.active:
            self.step()

    def step(self) -> None:
        """Advance to the next event, process it, and let the operator decide."""
        now = self._next()
        self._advance(now)
        for uid, work in list(self.active.items()):
            if work.kind and work.end_s <= now + 1e-6:
                work.book(now, len(self.active))
                self.world.finish(uid)
                self.done.append(work.outcome(now))
                del self.active[uid]
                if self.tell is not None:
                    self.tell(len(self.done))
        self._break(now)
        jobs = self.trace.jobs
        while self.arrived < len(jobs) and jobs[self.arrived].arrival_s <= now:
            self._arrive()
        self.settle()
        self.idle = 0 if any(work.kind for work in self.active.values()) else self.idle + 1
        if self.idle > _IDLE_WAKES:
            names = ", ".join(list(self.active)[:3])
            raise JobTraceError(f"{self.trace.name}: nothing runs any more; {names} wait for ever")

    def settle(self) -> None:
        """Decide and execute until nothing is left to do at this time."""
        for uid, work in self.active.items():
            work.book(self.now, len(self.active))
            if work.kind:
                done = int(work.job.steps - work.left)
                self.world.report_steps(uid, done, 1 / work.speed, self._saved_s(work))
        for _ in range(_MOST_CYCLES):
            settings = DecideSettings(epoch=self.epoch)
            plan, actions = carried_out(self.world, settings, self.cache)
            if plan.faults:
                fault = plan.faults[0]
                raise JobTraceError(
                    f"{self.trace.name}: no decision about {fault.key}: {fault.text}"
                )
            self.decisions += 1
            self._follow()
            if is_at_rest(actions):
                break
        else:
            kinds = ", ".join(sorted({type(action).__name__ for action in actions}))
            raise JobTraceError(
                f"{self.trace.name}: decisions at {self.now:.0f} s never rest: {kinds}"
            )
        self.wake_at = plan.wake_at
        self._sweep()
        self._note()

    def _saved_s(self, work: JobWork) -> int:
        """Age of its last checkpoint, if it saves periodically and agents report it."""
        costs = self.settings.costs
        if not self.ages or costs.every_s <= 0:
            return 0
        return max(1, round(work.unsaved_s(self.now, costs)))

    def _next(self) -> float:
        moments = [work.end_s for work in self.active.values() if work.kind]
        if self.arrived < len(self.trace.jobs):
            moments.append(self.trace.jobs[self.arrived].arrival_s)
        moments.append(self.world.next_start() - self.start)
        if self.active:
            moments += [self.failures.next_s, self.failures.next_repair_s]
            if self.wake_at > self.world.now:
                moments.append(self.wake_at - self.start)
            elif self.wake_at:
                moments.append(self.now + _SOON_S)
            if not moments or min(moments) == float("inf"):
                moments.append(self.now + _PATIENCE_S)
        return max(self.now, min(moments))

    def _advance(self, now: float) -> None:
        passed = now - self.now
        for gpu in self._occupied():
            self.held_s[self._kind_of[gpu]] += passed
        self.world.now = self.start + now
        self.world.start()

    def _occupied(self) -> dict[str, list[str]]:
        """Running jobs by device."""
        tenants: dict[str, list[str]] = {}
        for uid, work in self.active.items():
            if work.kind:
                for _, seen in self.world.slices(uid):
                    tenants.setdefault(seen.gpu, []).append(uid)
        return tenants

    def _crowd(self) -> None:
        """Apply slowdowns by neighbours, from the table; a gang is as slow as its slowest."""
        factors: dict[str, float] = {}
        for gpu, tenants in self._occupied().items():
            kind = self._kind_of[gpu]
            for uid in tenants:
                own = self.active[uid].job.kind
                factor = math.prod(
                    self.table.slowdown(own, self.active[other].job.kind, kind)
                    for other in tenants
                    if other != uid
                )
                factors[uid] = max(factors.get(uid, 1.0), min(factor, STALLED))
        for uid, factor in factors.items():
            work = self.active[uid]
            speed = work.job.speeds[work.kind] / factor
            if speed != work.speed:
                work.book(self.now, len(self.active))
                work.speed = speed

    def _arrive(self) -> None:
        job = self.trace.jobs[self.arrived]
        record = job_record(job, self.world.now, packs=bool(self.settings.pairs))
        profile = profile_record(job, aware=self.aware)
        self.world.profiles.setdefault((profile.namespace, profile.name), profile)
        self.world.workloads[record.ref.uid] = record
        self.active[record.ref.uid] = begun(job, self.arrived, self.fleet)
        self.arrived += 1

    def _follow(self) -> None:
        """Start and stop jobs as their pods did."""
        world, costs = self.world, self.settings.costs
        for uid in dict.fromkeys(world.gone):
            work = self.active.get(uid)
            if work is not None and work.kind:
                work.stops += 1
                lost_s = 0.0 if costs.saves_on_stop else work.unsaved_s(self.now, costs)
                work.tear(self.now, len(self.active), lost_s)
        world.gone.clear()
        for uid, work in self.active.items():
            if not work.kind and world.bound(uid):
                kinds = {self._kind_of[seen.gpu] for _, seen in world.slices(uid)}
                slowest = min(kinds, key=lambda kind: (work.job.speeds[kind], kind))
                work.begin(slowest, work.job.speeds[slowest], self.now, costs.restart_s)
        self._crowd()

    def _break(self, now: float) -> None:
        """Fail and repair devices."""
        while self.failures.next_s <= now:
            at = self.failures.next_s
            struck = self.failures.strike()
            if struck is None:
                continue
            kind, number = struck
            broken = {gpu for _, _, gpu in self._broken}
            works = [place for place in self.places if place[0] == kind and place[2] not in broken]
            _, node, gpu = works[number]
            self._broken.append((at + self.settings.failures.repair_s, node, gpu))
            self._strike(node, gpu)
        self.failures.repair(now)
        for failure in [failure for failure in self._broken if failure[0] <= now]:
            self._broken.remove(failure)
            self.world.set_health(failure[1], failure[2], Health.HEALTHY)

    def _strike(self, node: str, gpu: str) -> None:
        for seen in self.world.gpu_nodes[node].observed:
            pod = self.world.pods.get(seen.key.pod_uid)
            if seen.gpu != gpu or pod is None:
                continue
            uid = pod.owner.uid
            work = self.active.get(uid)
            if work is not None and work.kind:
                work.failures += 1
                lost_s = work.unsaved_s(self.now, self.settings.costs)
                work.tear(self.now, len(self.active), lost_s)
                self.world.lose(uid)
        self.world.set_health(node, gpu, Health.UNHEALTHY)

    def _sweep(self) -> None:
        """Delete finished workloads, like users, once the operator has reported them."""
        for uid, job in list(self.world.workloads.items()):
            if uid not in self.active and job.status.phase == Phase.SUCCEEDED:
                self.world.forget(uid)
            elif uid in self.active and job.status.phase == Phase.FAILED:
                raise JobTraceError(f"{self.trace.name}: the operator gave {job.ref.name} up")

    def _note(self) -> None:
        busy = dict.fromkeys(self.fleet.devices, 0)
        for gpu in self._occupied():
            busy[self._kind_of[gpu]] += 1
        waiting = sum(not work.kind for work in self.active.values())
        self.moments.append(UsageSample(at_s=self.now, busy=tuple(busy.values()), waiting=waiting))
        record = self.world.base.policy.last_solve
        if record is not None and record.inputs_hash != self._solved:
            self._solved = record.inputs_hash
            self.solves += 1
