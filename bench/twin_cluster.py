# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A cluster in virtual time whose every decision is the operator's own cycle.

Records are those of ``ullage simulate``; each node has the product's agent. Time goes in windows;
in each, a tenant is as slow as its pair was measured, with noise. A queue of waiting work never
runs empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from bench.twin_data import JobClass, Tables
from bench.twin_learner import LOOK_S, Lessons
from bench.twin_node import WINDOW_S, Agent, Ran, key_of
from ullage.api.devices import GPUMode
from ullage.api.gpurequest import GPURequest, Share
from ullage.api.labels import GATE
from ullage.api.observations import LatencyObjective
from ullage.api.sharing import OfferedLoad
from ullage.api.slices import DesiredSlice
from ullage.api.words import RiskPredictor
from ullage.cluster.projection.workload_class import profile_name
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.profile import ProfileRecord, SoloEntry
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.engines.admission.model import LearnedModel
from ullage.scheduling.assignment.cycle_cache import CycleCache
from ullage.scheduling.cycle.decide import decide
from ullage.scheduling.cycle.diff import diff
from ullage.scheduling.model.phases import OVER
from ullage.scheduling.model.plan import Action, ApplyDeployment, DecideSettings, SetStatus
from ullage_simulate.founding import NAMESPACE, START, founded, job_record
from ullage_simulate.policies import POLICIES
from ullage_simulate.trace import Fleet, TraceJob
from ullage_simulate.world import World

WHOLE: Final = 100
RESTART_S: Final = 30.0
"""Work that a job loses when it is evicted."""
NOISE_SD: Final = 0.02
"""Of log slowdown, per window and tenant; the tables have one measurement per pair."""
QUEUE: Final = 20
"""Work that waits at any time."""
MOST_CYCLES: Final = 200
POLICY: Final = PolicyRecord(max_percent_sum=2 * WHOLE)
"""Two whole shares fit on a device, as in the tables."""


@dataclass(slots=True)
class Job:
    """One arrival; ``left_s`` is the work it still has, in seconds alone on the device."""

    name: str
    workload_class: JobClass
    left_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How devices are shared."""

    predictor: str = RiskPredictor.LEARNED
    """Of the SchedulingPolicy."""
    shares: bool = True
    """Work asks for a share, not for a whole device."""
    model: LearnedModel | None = None
    """What is known from the beginning, in place of what is learned."""
    agents: bool = True
    """Nodes have agents: a guard, and rows to learn from."""
    learns: bool = False
    knows_use: bool = False
    """Profiles state how much of a device a class uses."""


@dataclass(slots=True)
class Tally:
    """What came of a rule; windows are of tenants, those of trials counted apart."""

    windows: int = 0
    violations: int = 0
    shared_windows: int = 0
    trial_windows: int = 0
    trial_violations: int = 0
    goodput: float = 0.0
    finished: int = 0
    evictions: int = 0
    cycles: int = 0


class Records(World):
    """The records, and the Deployment controller: pods of a service are as many as it says."""

    def apply(self, actions: Iterable[Action]) -> None:
        """Do what the actions say, and what a controller then does."""
        carried_out = list(actions)
        super().apply(carried_out)
        for action in carried_out:
            if isinstance(action, ApplyDeployment):
                self._roll(action.owner.uid)

    def remove_pod(self, uid: str) -> None:
        """A pod goes; one of a service is replaced."""
        pod = self.pods.get(uid)
        super().remove_pod(uid)
        if pod is not None:
            self._roll(pod.owner.uid)

    def _roll(self, uid: str) -> None:
        job = self.workloads.get(uid)
        kept = [one for one in self.base.deployments.values() if one.owner_uid == uid]
        if job is None or not kept:
            return
        here = sorted(self.members(uid), key=lambda pod: (pod.ready, pod.uid))
        for pod in here[: max(0, len(here) - kept[0].replicas)]:
            super().remove_pod(pod.uid)
        for _ in range(kept[0].replicas - len(here)):
            self.version += 1
            name = f"{job.ref.name}-{self.version}"
            self._keep(
                PodRecord(
                    uid=f"pod-{name}",
                    namespace=job.ref.namespace,
                    name=name,
                    owner=job.ref,
                    created=self.now,
                    stage=PodStage.GATED,
                    stage_since=self.now,
                    shape=job.shape,
                    gates=(GATE,),
                    template_hash=job.template_hash,
                )
            )

    def delete(self, uid: str) -> None:
        """Its user deletes a workload."""
        job = self.workloads.pop(uid)
        for pod in self.members(uid):
            super().remove_pod(pod.uid)
        self.forget(uid)
        key = (job.ref.namespace, job.ref.name)
        deployments = {at: one for at, one in self.base.deployments.items() if at != key}
        self.base = replace(self.base, deployments=deployments)


class Cluster:
    """One rule over one list of arrivals."""

    def __init__(
        self, tables: Tables, rule: Rule, arrivals: Iterator[Job], *, gpus: int, seed: int
    ) -> None:
        self.tables, self.rule, self.tally = tables, rule, Tally()
        self.models: Mapping[str, LearnedModel] = {}
        fleet = Fleet(devices={tables.accelerator: gpus})
        risk = replace(POLICY.risk, predictor=rule.predictor)
        base = founded(fleet, POLICIES["fifo"], replace(POLICY, risk=risk))
        profiles = [_profile(one, tables.accelerator, rule) for one in tables.classes]
        base = replace(base, profiles={(one.namespace, one.name): one for one in profiles})
        self.world = Records(base=base, now=START)
        self._agents = {
            name: Agent(name, {device.uuid: device.model for device in record.devices})
            for name, record in base.gpu_nodes.items()
        }
        self._lessons = Lessons()
        self._arrivals, self._jobs = arrivals, dict[str, Job]()
        self._noise = np.random.default_rng([seed, 7])
        self._cache, self._wake_at, self._news = CycleCache(), 0.0, False
        if rule.model is not None:
            self._know({tables.accelerator: rule.model})
        self._settle()

    def run(self, hours: float) -> Tally:
        """Play so many hours more; what came of all so far."""
        for _ in range(round(hours * 3600 / WINDOW_S)):
            self.world.now += WINDOW_S
            # a guard stops neighbours at once; the operator hears of it one window later
            changed, self._news = self._news, self._window() | self._finish()
            if self.rule.learns and (self.world.now - START) % LOOK_S == 0:
                found = self._lessons.look(self.world.snapshot(), self.world.now)
                if found is not None:
                    changed = True
                    self._know(found)
            if changed or 0 < self._wake_at <= self.world.now:
                self._settle()
        return self.tally

    def _know(self, models: Mapping[str, LearnedModel]) -> None:
        self.models = models
        self.world.base = replace(self.world.base, models=models)

    # -- what happens ------------------------------------------------------------------------------

    def _window(self) -> bool:
        """Let one window pass; whether a guard has something new to say."""
        changed = False
        for name, record in self.world.gpu_nodes.items():
            agent = self._agents[name]
            by_gpu: dict[str, list[DesiredSlice]] = {}
            for part in record.desired:
                pod = self.world.pods.get(part.key.pod_uid)
                if pod is not None and pod.stage is PodStage.RUNNING:
                    by_gpu.setdefault(part.gpu, []).append(part)
            ran = [one for parts in by_gpu.values() for one in self._ran(agent, parts)]
            if self.rule.agents:
                changed |= agent.window(ran, self.world.now)
        return changed

    def _ran(self, agent: Agent, parts: list[DesiredSlice]) -> Iterator[Ran]:
        """How those who share a device did; their work goes on and is counted."""
        jobs = [self._job(part) for part in parts]
        noise = np.exp(self._noise.normal(0.0, NOISE_SD, len(parts)))
        stopped = [key_of(part) in agent.frozen for part in parts]
        for at, (part, job) in enumerate(zip(parts, jobs, strict=True)):
            slowdown = 1.0
            for other, mate in enumerate(jobs):
                if other != at and not stopped[other]:
                    pair = self.tables.together(job.workload_class, mate.workload_class)
                    slowdown *= pair[0]
            if stopped[at]:
                slowdown = float("inf")
            job.left_s -= WINDOW_S / slowdown
            seen = slowdown * float(noise[at])
            self._count(part, seen, job.workload_class.allowed, shared=len(parts) > 1)
            yield Ran(desired=part, workload_class=job.workload_class, slowdown=seen)

    def _count(self, part: DesiredSlice, seen: float, allowed: float, *, shared: bool) -> None:
        tally, above = self.tally, seen > allowed
        if not above:
            tally.goodput += 1 / seen
        if part.probation:
            tally.trial_windows += 1
            tally.trial_violations += above
        else:
            tally.windows += 1
            tally.violations += above
            tally.shared_windows += shared

    def _job(self, part: DesiredSlice) -> Job:
        return self._jobs[self.world.pods[part.key.pod_uid].owner.uid]

    def _finish(self) -> bool:
        """Work that is done ends; servers are deleted by their users."""
        done = [uid for uid, job in self._jobs.items() if job.left_s <= 0]
        for uid in done:
            self.tally.finished += 1
            if self._jobs[uid].workload_class.serving:
                self.world.delete(uid)
            else:
                self.world.finish(uid)
            del self._jobs[uid]
        return bool(done)

    # -- the operator ------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Decide and carry out until nothing is left to do at this moment."""
        world = self.world
        self._arrive()
        for name, record in world.gpu_nodes.items():
            world.gpu_nodes[name] = self._agents[name].report(record)
        for _ in range(MOST_CYCLES):
            snapshot = world.snapshot()
            plan = decide(snapshot, world.now, DecideSettings(epoch=1), cache=self._cache)
            if plan.faults:
                raise RuntimeError(f"no decision: {plan.faults[0].text}")
            self.tally.cycles += 1
            actions = diff(plan, snapshot)
            world.apply(actions)
            self._arrive()
            if all(isinstance(action, SetStatus) and action.passing for action in actions):
                break
        else:
            kinds = sorted({type(action).__name__ for action in actions})
            raise RuntimeError(f"decisions never rest: {', '.join(kinds)}")
        for uid in dict.fromkeys(world.gone):
            if uid in self._jobs:
                self.tally.evictions += 1
                self._jobs[uid].left_s += RESTART_S
        world.gone.clear()
        self._wake_at = plan.wake_at

    def _arrive(self) -> None:
        """As much work as is to wait, after what is over was deleted."""
        for uid, workload in list(self.world.workloads.items()):
            if workload.status.phase in OVER and uid not in self._jobs:
                self.world.forget(uid)
        waiting = sum(not self.world.bound(uid) for uid in self._jobs)
        for _ in range(QUEUE - waiting):
            job = next(self._arrivals)
            record = _record(job, self.rule, self.tables.accelerator, self.world.now)
            self._jobs[record.ref.uid] = job
            self.world.workloads[record.ref.uid] = record


def _record(job: Job, rule: Rule, accelerator: str, now: float) -> WorkloadRecord:
    """The job, or the service, as its user applies it."""
    work, speed = job.workload_class, {accelerator: 1 / job.workload_class.step_s}
    asked = TraceJob(name=job.name, gang=1, steps=1, arrival_s=0.0, speeds=speed)
    plain = job_record(asked, now)
    share = GPURequest(
        mode=GPUMode.FRACTIONAL, share=Share(min_percent=WHOLE, max_percent=WHOLE), memory_mib=4096
    )
    record = replace(
        plain,
        gpu=share if rule.shares and not work.whole else GPURequest(),
        workload_class=work.name,
        family=work.family,
        profile_ref=profile_name(work.name),
        work_steps=0,
        checkpoint=True,
        max_slowdown=work.allowed,
    )
    if work.serving is None:
        return record
    kind = WorkloadKind.INFERENCE_DEPLOYMENT
    return replace(
        record,
        kind=kind,
        ref=replace(record.ref, kind=kind.value),
        max_slowdown=None,
        checkpoint=False,
        slo=LatencyObjective(latency_ms=work.serving.latency_ms),
        load=OfferedLoad(requests_per_s=work.serving.load.requests_per_s),
    )


def _profile(work: JobClass, accelerator: str, rule: Rule) -> ProfileRecord:
    """What a run alone tells, as its user declares it."""
    name = profile_name(work.name)
    alone = SoloEntry(
        device=accelerator,
        share=WHOLE,
        steps_per_second=1 / work.step_s,
        sm_util=min(1.0, work.utilisation) if rule.knows_use else 0.0,
        latency=((0.99, work.serving.service.quantile_s),) if work.serving else (),
    )
    return ProfileRecord(
        namespace=NAMESPACE,
        name=name,
        workload_class=work.name,
        uid=f"uid-wp-{name}",
        generation=1,
        family=work.family,
        solo=(alone,),
    )
