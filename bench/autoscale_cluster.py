# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A service that the operator scales, with training beside it, in virtual time.

Every decision is the operator's own cycle: replicas, places, who makes way. Requests of a trace go
to ready replicas at random, as a plain Service sends them; each replica answers one at a time and
is as slow as the training beside it makes it. Nodes have the product's guard and report loads.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from bench.twin_cluster import MOST_CYCLES, WHOLE, Records
from bench.twin_data import JobClass, Tables
from bench.twin_models import truth
from bench.twin_node import WINDOW_S, Agent, Ran, key_of
from ullage.api.devices import GPUMode
from ullage.api.gpurequest import GPURequest, Share
from ullage.api.loads import ObservedLoad
from ullage.api.observations import LatencyObjective
from ullage.api.slices import DesiredSlice
from ullage.cluster.projection.workload_class import profile_name
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.profile import ProfileRecord, SoloEntry
from ullage.cluster.records.spec_fields import ReplicaBounds
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.engines.scaling.forecast import Floats
from ullage.engines.scaling.pooled_queue import LatencyTarget
from ullage.engines.scaling.service_times import ServiceTime
from ullage.scheduling.assignment.cycle_cache import CycleCache
from ullage.scheduling.cycle.decide import decide
from ullage.scheduling.cycle.diff import diff
from ullage.scheduling.model.phases import OVER
from ullage.scheduling.model.plan import (
    Action,
    DecideSettings,
    EvictPod,
    ScaleWorkload,
    SetStatus,
    UngatePod,
)
from ullage_simulate.founding import NAMESPACE, START, founded, job_record
from ullage_simulate.policies import POLICIES
from ullage_simulate.trace import Fleet, TraceJob

LAUNCH_S: Final = 45.0
"""From the gate of a replica until it answers."""
START_S: Final = 30.0
"""From the gate of a job until it goes on from its checkpoint."""
LEAVE_S: Final = 10.0
"""From being asked to leave until a job has saved its work and is gone."""
LOST_S: Final = 30.0
"""Work that a job loses with each stop, in seconds alone."""
REPORT_S: Final = 15.0
"""Over which a node tells a replica's load."""
WAITING: Final = 4
"""Jobs that wait at any time."""
MEAN_WORK_S: Final = 2400.0
SERVICE: Final = "serve"


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A service of the bench: what a request takes alone, what is promised, whom it acts as."""

    time: ServiceTime
    target: LatencyTarget
    acts_as: str
    """Job type of the tables whose contention it has."""


@dataclass(slots=True)
class Harvest:
    """What came of a run; seconds of devices."""

    latency_s: list[float] = field(default_factory=list)
    trained_s: float = 0.0
    """Steps of training in seconds alone on a device, without those that were lost."""
    replica_s: float = 0.0
    most_replicas: int = 0
    evictions: int = 0
    paused_s: float = 0.0
    cycles: int = 0

    def attained(self, limit_s: float) -> float:
        """The part of requests within a latency; 1 where there was none."""
        return float(np.mean(np.asarray(self.latency_s) <= limit_s)) if self.latency_s else 1.0


class ServedRecords(Records):
    """Records of a cluster whose pods take their time to start and to leave."""

    leaving: dict[str, float]
    """When each pod is gone that was asked to leave, by uid."""

    def apply(self, actions: Iterable[Action]) -> None:
        """Do what the actions say; evictions and starts take their time."""
        if not hasattr(self, "leaving"):
            self.leaving = {}
        now: list[Action] = []
        for action in actions:
            match action:
                case EvictPod() if self._saves(action.pod.uid):
                    self._ask(action.pod.uid)
                case ScaleWorkload():
                    self._scale(action)
                case _:
                    now.append(action)
        super().apply(now)
        for one in now:
            if isinstance(one, UngatePod) and one.pod.uid in self.starting:
                job = self.workloads[self.pods[one.pod.uid].owner.uid]
                serves = job.kind is WorkloadKind.INFERENCE_DEPLOYMENT
                self.starting[one.pod.uid] = self.now + (LAUNCH_S if serves else START_S)

    def pass_time(self) -> bool:
        """Pods start and leave whose time has come; whether any did."""
        due = [uid for uid, at in self.starting.items() if at <= self.now]
        self.start()
        for uid in due:
            self.pods[uid] = replace(self.pods[uid], ready_since=self.now)
        gone = [uid for uid, at in getattr(self, "leaving", {}).items() if at <= self.now]
        for uid in gone:
            del self.leaving[uid]
            self.remove_pod(uid)
        return bool(due or gone)

    def _saves(self, uid: str) -> bool:
        pod = self.pods.get(uid)
        job = self.workloads.get(pod.owner.uid) if pod is not None else None
        return job is not None and job.kind is WorkloadKind.TRAINING_JOB

    def _ask(self, uid: str) -> None:
        self.pods[uid] = replace(self.pods[uid], deleting=True)
        self.leaving.setdefault(uid, self.now + LEAVE_S)

    def _scale(self, action: ScaleWorkload) -> None:
        job = self.workloads.get(action.owner.uid)
        if job is not None and job.resource_version == action.resource_version:
            self.workloads[job.ref.uid] = replace(
                job,
                replicas=action.replicas,
                generation=job.generation + 1,
                resource_version=str(int(job.resource_version) + 1),
            )


@dataclass(slots=True)
class _Job:
    work: JobClass
    left_s: float


class ServedCluster:
    """One service on a fleet, with or without training beside it."""

    def __init__(
        self,
        tables: Tables,
        served: Served,
        *,
        gpus: int,
        first: int,
        trains: bool,
        seed: int,
    ) -> None:
        """``first`` replicas serve from the beginning."""
        self.served, self.gpus, self.found = served, gpus, Harvest()
        self.serving = _class_of(served)
        self.tables = replace(tables, classes=(*_training(tables), self.serving))
        self._trains = itertools.cycle(_training(tables)) if trains else iter(())
        fleet = Fleet(devices={tables.accelerator: gpus})
        base = founded(fleet, POLICIES["fifo"], PolicyRecord(max_percent_sum=2 * WHOLE))
        profiles = [_profile(one, tables.accelerator, served) for one in self.tables.classes]
        base = replace(
            base,
            profiles={(one.namespace, one.name): one for one in profiles},
            models={tables.accelerator: truth(self.tables)},
        )
        self.world = ServedRecords(base=base, now=START, start_s=LAUNCH_S)
        self._agents = {
            name: Agent(name, {device.uuid: device.model for device in record.devices})
            for name, record in base.gpu_nodes.items()
        }
        self._draw = np.random.default_rng([seed, 3])
        self._jobs: dict[str, _Job] = {}
        self._number = itertools.count()
        self._free_at: dict[str, float] = {}
        """When each replica has answered all that it was sent, by uid of the pod."""
        self._ended: list[tuple[float, str, float]] = []
        """(end, pod, latency) of requests whose end has not been told yet."""
        self._told: dict[str, list[tuple[float, float]]] = {}
        """(end, latency) of requests of the last seconds, by uid of the pod."""
        self._cache, self._wake_at = CycleCache(), 0.0
        service = _service(self.serving, served, tables.accelerator, gpus)
        self.service_uid = service.ref.uid
        self.world.workloads[self.service_uid] = replace(service, replicas=first)
        self._settle()
        while len(self._ready()) < first:
            self.world.now = self.world.next_start()
            self.world.pass_time()
            self._settle()

    def run(self, arrival_s: Floats, service_s: Floats) -> Harvest:
        """Play requests in order of arrival; seconds from now."""
        began, at = self.world.now, 0
        windows = math.ceil(float(arrival_s[-1]) / WINDOW_S) + 1
        slowed: dict[str, float] = {}
        news = False
        for number in range(1, windows + 1):
            until = began + number * WINDOW_S
            ready = self._ready()
            while at < arrival_s.size and began + float(arrival_s[at]) < until:
                self._serve(ready, began + float(arrival_s[at]), float(service_s[at]), slowed)
                at += 1
            self.world.now = until
            changed, news = news, self._window(slowed) | self._finish()
            changed |= self.world.pass_time()
            if changed or 0 < self._wake_at <= self.world.now:
                self._settle()
        return self.found

    # -- requests ----------------------------------------------------------------------------------

    def _ready(self) -> list[str]:
        return sorted(
            pod.uid
            for pod in self.world.members(self.service_uid)
            if pod.stage is PodStage.RUNNING and not pod.deleting
        )

    def _serve(
        self, ready: list[str], arrives: float, service_s: float, slowed: Mapping[str, float]
    ) -> None:
        """A request goes to a replica at random; each answers one at a time."""
        pod = ready[int(self._draw.integers(len(ready)))]
        begins = max(arrives, self._free_at.get(pod, 0.0))
        ends = begins + service_s * slowed.get(pod, 1.0)
        self._free_at[pod] = ends
        self.found.latency_s.append(ends - arrives)
        self._ended.append((ends, pod, ends - arrives))

    def _answered(self) -> dict[str, list[float]]:
        """Latencies of what ended in the window, by replica."""
        now, found = self.world.now, dict[str, list[float]]()
        left = []
        for ends, pod, latency in self._ended:
            if ends <= now:
                found.setdefault(pod, []).append(latency)
                self._told.setdefault(pod, []).append((ends, latency))
            else:
                left.append((ends, pod, latency))
        self._ended = left
        for pod, told in self._told.items():
            self._told[pod] = [one for one in told if one[0] > now - REPORT_S]
        return found

    def _load(self, pod: str) -> ObservedLoad:
        """What a node tells of a replica."""
        told = [latency for _, latency in self._told.get(pod, [])]
        if not told:
            return ObservedLoad(seconds=round(REPORT_S))
        target = self.served.target
        return ObservedLoad(
            seconds=round(REPORT_S),
            requests_milli=round(len(told) / REPORT_S * 1e3),
            request_micros=round(float(np.mean(told)) * 1e6),
            latency_micros=round(float(np.quantile(told, target.quantile)) * 1e6),
            late_milli=round(1e3 * float(np.mean(np.asarray(told) > target.limit_s))),
        )

    # -- devices -----------------------------------------------------------------------------------

    def _window(self, slowed: dict[str, float]) -> bool:
        """Let one window pass; whether a guard has something new to say."""
        changed, answered = False, self._answered()
        slowed.clear()
        live = self._ready()
        self.found.replica_s += WINDOW_S * len(self.world.members(self.service_uid))
        self.found.most_replicas = max(self.found.most_replicas, len(live))
        for name, record in self.world.gpu_nodes.items():
            agent = self._agents[name]
            by_gpu: dict[str, list[DesiredSlice]] = {}
            for part in record.desired:
                pod = self.world.pods.get(part.key.pod_uid)
                if pod is not None and pod.stage is PodStage.RUNNING:
                    by_gpu.setdefault(part.gpu, []).append(part)
            ran = [
                one
                for parts in by_gpu.values()
                for one in self._ran(agent, parts, answered, slowed)
            ]
            changed |= agent.window(ran, self.world.now)
            self._slow(agent, by_gpu.values(), slowed)
        return changed

    def _ran(
        self,
        agent: Agent,
        parts: list[DesiredSlice],
        answered: Mapping[str, list[float]],
        slowed: dict[str, float],
    ) -> Iterator[Ran]:
        """How those who share a device did in the window that ends."""
        self._slow(agent, [parts], slowed)
        trained_s = 0.0
        for part in parts:
            pod = part.key.pod_uid
            if self._serves(part):
                latency = answered.get(pod, [])
                at = float(np.quantile(latency, self.served.target.quantile)) if latency else 0.0
                yield Ran(
                    desired=part,
                    workload_class=self.serving,
                    slowdown=slowed[pod],
                    requests=len(latency),
                    latency_s=at,
                )
                continue
            job = self._jobs[self.world.pods[pod].owner.uid]
            slowdown = slowed[pod]
            going = self.world.pods[pod].deleting
            if math.isinf(slowdown):
                self.found.paused_s += WINDOW_S
            elif not going:
                job.left_s -= WINDOW_S / slowdown
                trained_s += WINDOW_S / slowdown
            yield Ran(desired=part, workload_class=job.work, slowdown=slowdown)
        # two jobs may do more on a device than one alone: no second of it counts twice
        self.found.trained_s += min(WINDOW_S, trained_s)

    def _slow(
        self, agent: Agent, groups: Iterable[list[DesiredSlice]], slowed: dict[str, float]
    ) -> None:
        """How slow everyone is from now on, by uid of the pod; infinite while it stands still."""
        for parts in groups:
            stopped = [key_of(part) in agent.frozen for part in parts]
            for at, part in enumerate(parts):
                slowdown = math.inf if stopped[at] else 1.0
                for other, mate in enumerate(parts):
                    if other != at and not stopped[other]:
                        pair = self.tables.together(self._class(part), self._class(mate))
                        slowdown *= pair[0]
                slowed[part.key.pod_uid] = slowdown

    def _serves(self, part: DesiredSlice) -> bool:
        return self.world.pods[part.key.pod_uid].owner.uid == self.service_uid

    def _class(self, part: DesiredSlice) -> JobClass:
        if self._serves(part):
            return self.serving
        return self._jobs[self.world.pods[part.key.pod_uid].owner.uid].work

    def _finish(self) -> bool:
        done = [uid for uid, job in self._jobs.items() if job.left_s <= 0]
        for uid in done:
            self.world.finish(uid)
            del self._jobs[uid]
        return bool(done)

    # -- the operator ------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Decide and carry out until nothing is left to do at this moment."""
        world = self.world
        for _ in range(MOST_CYCLES):
            self._arrive()
            self._report()
            snapshot = world.snapshot()
            plan = decide(snapshot, world.now, DecideSettings(epoch=1), cache=self._cache)
            if plan.faults:
                raise RuntimeError(f"no decision: {plan.faults[0].text}")
            self.found.cycles += 1
            actions = diff(plan, snapshot)
            world.apply(actions)
            if all(isinstance(action, SetStatus) and action.passing for action in actions):
                break
        else:
            kinds = sorted({type(action).__name__ for action in actions})
            raise RuntimeError(f"decisions never rest: {', '.join(kinds)}")
        for uid in world.gone:
            if uid in self._jobs:
                self.found.evictions += 1
                self._jobs[uid].left_s += LOST_S
                self.found.trained_s -= LOST_S
        world.gone.clear()
        self._wake_at = plan.wake_at

    def _report(self) -> None:
        """What agents say now, loads included."""
        world = self.world
        for name, record in world.gpu_nodes.items():
            told = self._agents[name].report(record)
            observed = tuple(
                replace(part, load=self._load(part.key.pod_uid))
                if part.phase.started
                and part.key.pod_uid in world.pods
                and world.pods[part.key.pod_uid].owner.uid == self.service_uid
                else part
                for part in told.observed
            )
            world.gpu_nodes[name] = replace(told, observed=observed)

    def _arrive(self) -> None:
        """As much training as is to wait, after what is over was deleted."""
        for uid, workload in list(self.world.workloads.items()):
            if workload.status.phase in OVER and uid not in self._jobs:
                self.world.forget(uid)
        waiting = sum(not self.world.bound(uid) for uid in self._jobs)
        for _ in range(WAITING - waiting):
            work = next(self._trains, None)
            if work is None:
                return
            name = f"{next(self._number):06d}"
            record = _job(name, work, self.tables.accelerator, self.world.now)
            left_s = float(self._draw.exponential(MEAN_WORK_S))
            self._jobs[record.ref.uid] = _Job(work, left_s)
            self.world.workloads[record.ref.uid] = record


def _training(tables: Tables) -> tuple[JobClass, ...]:
    """Training that shares devices."""
    return tuple(one for one in tables.classes if one.serving is None and not one.whole)


def _class_of(served: Served) -> JobClass:
    return JobClass(name=SERVICE, family=SERVICE, acts_as=served.acts_as, step_s=served.time.mean_s)


_SHARE: Final = GPURequest(
    mode=GPUMode.FRACTIONAL, share=Share(min_percent=WHOLE, max_percent=WHOLE), memory_mib=4096
)


def _job(name: str, work: JobClass, accelerator: str, now: float) -> WorkloadRecord:
    """Best-effort training as its user applies it: no objective, and it saves its work."""
    asked = TraceJob(
        name=name, gang=1, steps=1, arrival_s=0.0, speeds={accelerator: 1 / work.step_s}
    )
    return replace(
        job_record(asked, now),
        gpu=_SHARE,
        workload_class=work.name,
        family=work.family,
        profile_ref=profile_name(work.name),
        work_steps=0,
        checkpoint=True,
    )


def _service(work: JobClass, served: Served, accelerator: str, most: int) -> WorkloadRecord:
    kind = WorkloadKind.INFERENCE_DEPLOYMENT
    record = _job(SERVICE, work, accelerator, START)
    return replace(
        record,
        kind=kind,
        ref=replace(record.ref, kind=kind.value),
        checkpoint=False,
        slo=LatencyObjective(
            latency_ms=round(served.target.limit_s * 1e3),
            percentile=f"{served.target.quantile * 100:g}",
        ),
        scaling=ReplicaBounds(min_replicas=1, max_replicas=most),
    )


def _profile(work: JobClass, accelerator: str, served: Served) -> ProfileRecord:
    """What a run alone tells, as its user declares it."""
    name = profile_name(work.name)
    quantile = served.target.quantile
    serves = work.name == SERVICE
    alone = SoloEntry(
        device=accelerator,
        share=WHOLE,
        steps_per_second=1 / work.step_s,
        latency=((quantile, served.time.quantile_s(quantile)),) if serves else (),
        cs2=served.time.cv2 if serves else None,
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
