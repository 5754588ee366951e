# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A toy cluster of several accelerator types on which jobs take turns, in virtual time.

Only the deciding code itself moves jobs here; the toy carries out what it asks, with a second for
every step, and counts who had which devices by looking at the devices.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import builders
from fakes import toy_rules
from fakes.toy_cluster import ToyCluster
from fakes.toy_world import Shape
from ullage.cluster.codecs.status import solve_from_wire, solve_to_wire
from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.profile import SoloEntry
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.cycle.decide import decide
from ullage.scheduling.cycle.diff import diff
from ullage.scheduling.model.plan import (
    Action,
    DecideSettings,
    Emit,
    EvictPod,
    SetConditions,
    SetQuotaStatus,
)

FAST, SLOW = "fast", "slow"


def rates(workload_class: str, fast: float, slow: float) -> builders.ProfileRecord:
    """A class of work with declared speeds on both types."""
    rows = [
        SoloEntry(device=kind, share=100, steps_per_second=speed)
        for kind, speed in ((FAST, fast), (SLOW, slow))
    ]
    return builders.a_profile(f"p-{workload_class}", *rows, workload_class=workload_class)


def a_turn_policy(objective: str = "MaxMinFairness", **fields: object) -> PolicyRecord:
    """A policy in force, with short rounds."""
    said: dict[str, object] = {"uid": "uid-policy", "round_seconds": 60, "gang_skip_limit": 2}
    return builders.a_policy(objective=objective, **(said | fields))


@dataclass
class Turns:
    """One closed loop: a cluster, its jobs, and the deciding code."""

    toy: ToyCluster
    counts: Counter[str] = field(default_factory=Counter)
    had_s: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    events: list[tuple[str, str]] = field(default_factory=list)
    prices: dict[str, float] = field(default_factory=dict)
    """Of one device for an hour, by type."""

    @classmethod
    def of(
        cls,
        nodes: Mapping[str, str],
        *profiles: builders.ProfileRecord,
        policy: PolicyRecord | None = None,
        devices: int = 1,
    ) -> Turns:
        """A cluster with these nodes, by name with the type of its devices."""
        shape = Shape(nodes=0, devices=devices, policy=policy or a_turn_policy(), profiles=profiles)
        toy = ToyCluster(1, shape)
        for name, model in nodes.items():
            toy.add_node(name)
            agent = toy.agents[name]
            agent.devices = {
                uuid: replace(device, model=model) for uuid, device in agent.devices.items()
            }
        turns = cls(toy)
        turns.settle()
        return turns

    def add(self, *jobs: builders.WorkloadBuilder) -> None:
        """Users apply jobs."""
        for job in jobs:
            self.toy.add(replace(job.build(), created=self.toy.now))

    def settle(self, most: int = 12) -> None:
        """Cycles until nothing is left to do, in no time."""
        for _ in range(most):
            if not self.cycle():
                return

    def run(self, seconds: float) -> None:
        """Let time pass; a cycle follows every second in which something moves, and every wish."""
        end = self.toy.now + seconds
        while self.toy.now < end:
            busy = self.cycle()
            step = 1.0 if busy or self._moving() else max(1.0, self._wake_at - self.toy.now)
            if not self._wake_at and not busy:
                step = 30.0
            step = min(step, end - self.toy.now)
            for key, kind in self.holding().items():
                self.had_s[key, kind] += step
            self.toy.now += step
        self.cycle()

    def cycle(self) -> tuple[Action, ...]:
        """The world moves by one step, then one decision lands in full."""
        self.toy.move()
        toy = self.toy
        snapshot = toy.snapshot()
        declared = {
            kind: replace(builders.a_device_profile(kind), price_per_hour=price)
            for kind, price in self.prices.items()
        }
        snapshot = replace(snapshot, device_profiles={**snapshot.device_profiles, **declared})
        plan = decide(snapshot, toy.now, DecideSettings(epoch=toy.epoch))
        actions = diff(plan, snapshot)
        toy_rules.check_actions(snapshot, actions)
        toy.apply(actions, lambda _: True)
        self._wake_at = plan.wake_at
        for one in actions:
            self.counts[type(one).__name__] += 1
            if isinstance(one, EvictPod):
                self.counts["evicted " + one.owner.name] += 1
            if isinstance(one, Emit):
                self.events.append((one.target.name, one.reason.value))
            if isinstance(one, SetQuotaStatus):
                toy.shape.policy = replace(toy.shape.policy, quota_status=one.status)
            if isinstance(one, SetConditions):
                solve = one.last_solve
                toy.shape.policy = replace(
                    toy.shape.policy,
                    conditions=one.conditions,
                    last_solve=solve_from_wire(solve_to_wire(solve)) if solve else None,
                )
        toy_rules.check_devices(toy)
        return tuple(one for one in actions if not isinstance(one, Emit))

    _wake_at: float = 0.0

    @property
    def wakes_at(self) -> float:
        """When the last cycle asked to be called again; 0 = by news alone."""
        return self._wake_at

    def job(self, name: str) -> WorkloadRecord:
        """A job as it reads now."""
        return self.toy.workloads[f"uid-default-{name}"]

    def fraction(self, name: str) -> dict[str, float]:
        """What a job is promised."""
        allocation = self.job(name).status.allocation
        assert allocation is not None
        return {kind: float(part) for kind, part in allocation.fractions}

    def holding(self) -> dict[str, str]:
        """Type of the devices that each job has, by name of the job."""
        found: dict[str, str] = {}
        for node, record in self.toy.gpu_nodes.items():
            models = {uuid: one.model for uuid, one in self.toy.agents[node].devices.items()}
            for one in record.desired:
                pod = self.toy.pods.get(one.key.pod_uid)
                if pod is not None:
                    found[pod.owner.name] = models[one.gpu]
        return found

    def writes(self) -> int:
        """Statuses of jobs and of the policy that were written so far."""
        return self.counts["SetStatus"] + self.counts["SetConditions"]

    def _moving(self) -> bool:
        return any(
            pod.deleting or pod.stage.value in ("Unscheduled", "Bound")
            for pod in self.toy.pods.values()
        )
