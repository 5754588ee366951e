# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A toy cluster whose nodes come from pools: spot comes and goes by a trace, jobs make progress.

Only the deciding code moves jobs; the toy carries out what it asks, counts what is held and paid,
and lets a job lose what it did since its last checkpoint when its nodes are taken.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import builders
from fakes import toy_rules
from fakes.toy_cluster import ToyCluster
from fakes.toy_world import Shape
from ullage.api.slices import ObservedSlice, SlicePhase
from ullage.api.spot import SpotTerms
from ullage.api.trainingjob import CostAim
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.pool import CapacityType, PoolRecord, PoolStatus
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.cycle.decide import decide
from ullage.scheduling.cycle.diff import diff
from ullage.scheduling.model.plan import Action, DecideSettings, Emit

STEP_S = 10.0
"""Seconds of one step of a toy job."""


def a_pool(
    name: str = "spot-a",
    price: float | None = 1.0,
    *,
    spot: bool = True,
    hazard: float = 0.1,
    **fields: object,
) -> PoolRecord:
    """A pool whose nodes have the label `pool`; two devices on a node."""
    said: dict[str, object] = {
        "name": name,
        "uid": f"uid-{name}",
        "instance_type": "toy",
        "zone": "here",
        "capacity_type": CapacityType.SPOT if spot else CapacityType.ON_DEMAND,
        "accelerator": builders.MODEL,
        "gpus_per_instance": 2,
        "node_selector": {"pool": name},
        "most": 0,
        "status": PoolStatus(price=price, priced_at_s=1.0, hazard_per_hour=hazard),
    }
    return PoolRecord(**(said | fields))  # type: ignore[arg-type]


def priced(pool: PoolRecord, price: float | None) -> PoolRecord:
    """The pool at another price."""
    return replace(pool, status=replace(pool.status, price=price))


def aim(objective: str = "CostPerWork", **fields: object) -> CostAim:
    """A cost objective; with a deadline where hours are given."""
    return CostAim(objective=objective, **fields)  # type: ignore[arg-type]


@dataclass
class PoolPlay:
    """One closed loop: pools, nodes, jobs, and the deciding code, in virtual time.

    Nodes are called `pool-number`. `done_s` is what each job has done, `safe_s` what its last
    checkpoint holds.
    """

    pools: dict[str, PoolRecord]
    terms: SpotTerms = field(default_factory=lambda: SpotTerms(restart_cost_s=720))
    start_s: float = 0.0
    """From a member's running to its first step: restore."""
    save_s: float = 600.0
    """Between checkpoints."""
    resumes: bool = True
    """Whether programs say which step they go on from; they count from 0 at every start."""
    counts: Counter[str] = field(default_factory=Counter)
    events: list[tuple[str, str]] = field(default_factory=list)
    paid: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    on_demand_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    done_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    safe_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    dearest: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Most dollars per hour that each job ever cost."""

    def __post_init__(self) -> None:
        policy = builders.a_policy(uid="uid-policy", spot=self.terms)
        self.toy = ToyCluster(1, Shape(nodes=0, devices=2, policy=policy))
        self._running_since: dict[str, float] = {}
        self._resumed_s: dict[str, float] = {}
        self._wake_at = 0.0

    # -- the market ------------------------------------------------------------------------------

    def give(self, pool: str, nodes: int = 1) -> None:
        """Nodes of a pool join."""
        for _ in range(nodes):
            number = sum(one.startswith(f"{pool}-n") for one in self.toy.nodes)
            name = f"{pool}-n{number}"
            while name in self.toy.nodes:
                name += "x"
            self.toy.add_node(name)
            node = self.toy.nodes[name]
            self.toy.nodes[name] = replace(node, labels={**node.labels, "pool": pool})
        self._sync()

    def take(self, pool: str) -> None:
        """All nodes of a pool go at once, their pods with them."""
        for name in [one for one in self.toy.nodes if one.startswith(f"{pool}-n")]:
            for pod in list(self.toy.pods.values()):
                if pod.node == name or self.toy.pinned.get(pod.uid) == name:
                    self.toy.forget(pod)
            for store in (self.toy.nodes, self.toy.gpu_nodes, self.toy.agents):
                store.pop(name, None)  # type: ignore[attr-defined]

    def price(self, pool: str, value: float | None) -> None:
        """Another price."""
        self.pools[pool] = priced(self.pools[pool], value)

    # -- jobs ------------------------------------------------------------------------------------

    def add(self, *jobs: builders.WorkloadBuilder) -> None:
        """Users apply jobs."""
        for job in jobs:
            self.toy.add(replace(job.build(), created=self.toy.now))

    def job(self, name: str = "train") -> WorkloadRecord:
        """A job as it reads now."""
        return self.toy.workloads[f"uid-default-{name}"]

    def here(self) -> dict[int, str]:
        """Pools of the members that run, by rank; its coordinator is none of them."""
        members = sorted(self.toy.members(self.job().ref.uid), key=lambda one: one.rank)
        return {
            one.rank: self.toy.nodes[one.node].labels["pool"]
            for one in members
            if one.stage is PodStage.RUNNING and not one.deleting and not one.lead
        }

    def chosen(self, name: str = "train") -> tuple[str, ...]:
        """Pools that were chosen for a job."""
        spend = self.job(name).status.spend
        assert spend is not None
        assert spend.decision is not None
        return tuple(one.pool for one in spend.decision.chosen.pools)

    def mode(self, name: str = "train") -> str:
        """What kind of capacity was chosen."""
        spend = self.job(name).status.spend
        assert spend is not None
        assert spend.decision is not None
        return spend.decision.mode

    def on(self, name: str = "train") -> set[str]:
        """Pools of the nodes that a job's pods run on."""
        return {
            self.toy.nodes[pod.node].labels["pool"]
            for pod in self.toy.members(self.job(name).ref.uid)
            if pod.stage is PodStage.RUNNING and pod.node in self.toy.nodes
        }

    def writes(self) -> int:
        """Statuses of jobs that were written so far."""
        return self.counts["SetStatus"]

    # -- time ------------------------------------------------------------------------------------

    def settle(self, most: int = 16) -> None:
        """Cycles until nothing is left to do, in no time."""
        for _ in range(most):
            if not self.cycle():
                return

    def run(self, seconds: float, step_s: float = 60.0) -> None:
        """Let time pass in steps."""
        end = self.toy.now + seconds
        while self.toy.now < end:
            self.settle()
            step = min(step_s, end - self.toy.now)
            if self._wake_at > self.toy.now:
                step = min(step, max(1.0, self._wake_at - self.toy.now))
            self.pass_time(step)
        self.settle()

    def pass_time(self, step: float) -> None:
        """Time passes: what runs works and is paid for."""
        toy = self.toy
        toy.now += step
        for uid, job in list(toy.workloads.items()):
            name = job.ref.name
            pods = [pod for pod in toy.members(uid) if pod.stage is PodStage.RUNNING]
            self._pay(uid, name, step)
            if len(pods) < job.replicas or any(pod.deleting for pod in pods):
                if self._running_since.pop(name, None) is not None:
                    self.done_s[name] = self.safe_s[name]
                continue
            if name not in self._running_since:
                self._resumed_s[name] = self.done_s[name]
            since = self._running_since.setdefault(name, toy.now - step)
            worked = min(step, max(0.0, toy.now - since - self.start_s))
            self.done_s[name] += worked
            whole = self.done_s[name] // self.save_s * self.save_s
            self.safe_s[name] = max(self.safe_s[name], whole)
            if job.work_steps and self.done_s[name] >= job.work_steps * STEP_S:
                for pod in pods:
                    toy.finish(pod, 0)
        self._sync()

    def _pay(self, uid: str, name: str, step: float) -> None:
        devices: dict[str, int] = defaultdict(int)
        for node, record in self.toy.gpu_nodes.items():
            for one in record.desired:
                pod = self.toy.pods.get(one.key.pod_uid)
                if pod is not None and pod.owner.uid == uid:
                    devices[self.toy.nodes[node].labels["pool"]] += 1
        # what belongs to no pool (any more) costs no one knows what
        devices = {pool: n for pool, n in devices.items() if pool in self.pools}
        per_hour = sum((self.pools[pool].status.price or 0) / 2 * n for pool, n in devices.items())
        self.dearest[name] = max(self.dearest[name], per_hour)
        self.paid[name] += per_hour * step / 3600
        if any(self.pools[one].capacity_type is CapacityType.ON_DEMAND for one in devices):
            self.on_demand_s[name] += step

    def cycle(self) -> tuple[Action, ...]:
        """The world moves by one step, then one decision lands in full."""
        self._sync()
        toy = self.toy
        snapshot = replace(toy.snapshot(), pools=dict(self.pools))
        settings = DecideSettings(epoch=toy.epoch)
        plan = decide(snapshot, toy.now, settings)
        actions = diff(plan, snapshot)
        toy_rules.check_actions(snapshot, actions)
        toy.apply(actions, lambda _: True)
        self._wake_at = plan.wake_at
        for one in actions:
            self.counts[type(one).__name__] += 1
            if isinstance(one, Emit):
                self.events.append((one.target.name, one.reason.value))
        toy_rules.check_devices(toy)
        return tuple(one for one in actions if not isinstance(one, Emit))

    def _sync(self) -> None:
        """Kubelets, agents and the scheduler do what they can at once."""
        toy = self.toy
        for name in list(toy.agents):
            toy.sync_agent(name)
        for pod in list(toy.pods.values()):
            toy.terminate(pod)
        for pod in list(toy.pods.values()):
            toy.schedule(pod)
        for pod in list(toy.pods.values()):
            toy.start(pod)
        for name in list(toy.agents):
            for key, held in toy.agents[name].held.items():
                pod = toy.pods.get(key.pod_uid)
                if pod is not None and held.phase is SlicePhase.ATTACHED:
                    toy.agents[name].held[key] = self._counted(held, pod.owner.name)
            toy.sync_agent(name)

    def _counted(self, held: ObservedSlice, name: str) -> ObservedSlice:
        """What the step record of a member says."""
        if name not in self._running_since:
            return held
        base = int(self._resumed_s[name] // STEP_S)
        steps = int(self.done_s[name] // STEP_S) - base
        return replace(held, steps=steps, resumed_at=base if self.resumes and steps else 0)


def spells(seed: int, up_h: float, down_h: float, hours: float) -> Iterator[tuple[float, bool]]:
    """When a pool comes and goes: (seconds from the start, it is there), exponential spells."""
    source = random.Random(seed)
    at, there = 0.0, source.random() < up_h / (up_h + down_h)
    while at < hours * 3600:
        yield at, there
        at += max(600.0, source.expovariate(1 / ((up_h if there else down_h) * 3600)))
        there = not there
