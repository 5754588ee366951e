# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A small random cluster in which everything happens: for decisions that are made twice.

Jobs come, are edited, suspended, fail, end and go; nodes fall silent, leave and return; devices
break; a part of the actions is lost on the way; profiles, policy and leader change.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

from bench.decide_world import World, a_mixture, add_profiles
from ullage.api.devices import Health
from ullage.api.slices import SlicePhase
from ullage.app.transfer import Packer, Unpacker
from ullage.cluster.records.node import GPUNodeRecord, NodeRecord
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.allocation.policies import allocate
from ullage.scheduling.assignment.cycle_cache import CycleCache
from ullage.scheduling.cycle.decide import decide
from ullage.scheduling.cycle.diff import diff
from ullage.scheduling.model.plan import Action, DecideSettings, UngatePod
from ullage_simulate import motions

OBJECTIVES: Final = ("FIFO", "FIFO", "FIFO", "MaxMinFairness")
MOST_EVENTS: Final = 6
"""Between two decisions, about half as many on average."""
LANDING: Final = 0.95
"""Part of the actions that arrive."""


@dataclass(slots=True)
class Twice:
    """Decides on the snapshots of one cluster as the solver does, and again from nothing."""

    packer: Packer = field(default_factory=Packer)
    unpacker: Unpacker = field(default_factory=Unpacker)
    cache: CycleCache = field(default_factory=CycleCache)

    def decided(
        self, whole: Snapshot, now: float, settings: DecideSettings
    ) -> tuple[tuple[Action, ...], bool]:
        """The actions, and whether plan and actions are equal both ways, byte for byte."""
        received, *_ = self.unpacker.unpack(self.packer.pack(whole, now, settings))
        plan = decide(received, now, settings, allocate, self.cache)
        actions = diff(plan, received)
        fresh = decide(whole, now, settings, allocate)
        return actions, repr((plan, actions)) == repr((fresh, diff(fresh, whole)))


@dataclass(slots=True)
class Rough:
    """A cluster and its chance."""

    world: World
    chance: random.Random
    jobs: int
    epoch: int = 1
    away: dict[str, tuple[NodeRecord, GPUNodeRecord]] = field(default_factory=dict)
    """Nodes that left, until they return."""

    @classmethod
    def drawn(cls, chance: random.Random) -> Self:
        """A cluster of random size, load and rules."""
        world = World(own_objectives=chance.random() < 0.2)
        world.add_nodes(chance.randint(2, 8), chance.randint(1, 4))
        add_profiles(world)
        world.policy = replace(
            world.policy, uid="uid-policy", objective=chance.choice(OBJECTIVES), gang_skip_limit=1
        )
        rough = cls(world, chance, jobs=chance.randint(5, 60))
        for _ in range(rough.jobs):
            rough._come()
        return rough

    def snapshot(self) -> Snapshot:
        """The picture as it is now."""
        return self.world.snapshot()

    def go_on(self, actions: Sequence[Action]) -> None:
        """Carry out most of the actions; then some things happen."""
        for action in actions:
            landed = self.chance.random() < LANDING
            if isinstance(action, UngatePod) and action.pod.uid not in self.world.pods:
                landed = False
            if landed:
                self.world.carry_out([action])
        for _ in range(self.chance.randint(0, MOST_EVENTS)):
            self.chance.choice(_EVENTS)(self)
        if self.chance.random() < 0.1:
            self.world.now += self.chance.choice((5.0, 31.0, 61.0, 200.0))
        heard = [name for name in sorted(self.world.gpu_nodes) if self.chance.random() < 0.2]
        self.world.beat(heard)

    def _job(self) -> WorkloadRecord | None:
        jobs = list(self.world.workloads.values())
        return self.chance.choice(jobs) if jobs else None

    def _node(self) -> str:
        return self.chance.choice(sorted(self.world.gpu_nodes))

    def _come(self) -> None:
        if len(self.world.workloads) < self.jobs:
            a_mixture(self.world, self.chance.randrange(1000))
            job = list(self.world.workloads.values())[-1]
            if job.gpu.share is not None and self.chance.random() < 0.3:
                sharing = replace(job.sharing, resizable=True)
                self.world.workloads[job.ref.uid] = replace(job, sharing=sharing, checkpoint=True)

    def _end(self) -> None:
        job = self._job()
        if job is not None and job.status.phase == "Running":
            self.world.finish(job)

    def _go(self) -> None:
        job = self._job()
        if job is not None:
            self.world.forget(job)

    def _edit(self) -> None:
        """A spec changes while its job runs or waits."""
        job = self._job()
        if job is None:
            return
        changes: list[dict[str, object]] = [
            {"priority": self.chance.randint(0, 3)},
            {"suspend": not job.suspend},
            {"checkpoint": not job.checkpoint},
            {"deleting": True},
            {"workload_class": f"class-{self.chance.randint(0, 3)}"},
        ]
        if job.gpu.share is not None:
            changes.append({"max_slowdown": self.chance.choice((None, 1.3, 2.0, 5.0))})
        change = self.chance.choice(changes)
        self.world.workloads[job.ref.uid] = replace(
            job,
            generation=job.generation + 1,
            **change,  # type: ignore[arg-type]
        )

    def _pod(self) -> PodRecord | None:
        pods = list(self.world.pods.values())
        return self.chance.choice(pods) if pods else None

    def _fail(self) -> None:
        pod = self._pod()
        if pod is not None and pod.stage is PodStage.RUNNING:
            ended = motions.ended(pod, PodStage.FAILED, 1, self.world.now)
            self.world.pods[pod.uid] = ended
            node = self.world.gpu_nodes.get(pod.node)
            if node is not None:
                self.world.gpu_nodes[pod.node] = motions.freed(node, pod.uid)

    def _lose_pod(self) -> None:
        pod = self._pod()
        if pod is not None:
            self.world.end_pod(pod.uid)

    def _terminate(self) -> None:
        pod = self._pod()
        if pod is not None:
            self.world.pods[pod.uid] = replace(pod, deleting=True)

    def _report(self) -> None:
        """An agent reports another phase of a slice, or forgets it."""
        name = self._node()
        record = self.world.gpu_nodes[name]
        if not record.observed:
            return
        at = self.chance.randrange(len(record.observed))
        phase = self.chance.choice((None, *SlicePhase))
        seen = list(record.observed)
        if phase is None:
            del seen[at]
        else:
            seen[at] = replace(seen[at], phase=phase)
        self.world.gpu_nodes[name] = replace(record, observed=tuple(seen))

    def _break(self) -> None:
        """A device breaks, or is repaired."""
        name = self._node()
        record = self.world.gpu_nodes[name]
        devices = list(record.devices)
        at = self.chance.randrange(len(devices))
        healthy = devices[at].health is Health.HEALTHY
        devices[at] = replace(devices[at], health=Health.UNHEALTHY if healthy else Health.HEALTHY)
        self.world.gpu_nodes[name] = replace(record, devices=tuple(devices))

    def _ready(self) -> None:
        name = self._node()
        if name in self.world.nodes:
            node = self.world.nodes[name]
            self.world.nodes[name] = replace(node, ready=not node.ready)

    def _cordon(self) -> None:
        name = self._node()
        if name in self.world.nodes:
            node = self.world.nodes[name]
            self.world.nodes[name] = replace(node, unschedulable=not node.unschedulable)

    def _leave(self) -> None:
        """A node leaves the cluster; one that left returns."""
        world = self.world
        if self.away and self.chance.random() < 0.7:
            name, (node, record) = self.away.popitem()
            world.nodes[name] = node
            world.gpu_nodes.setdefault(name, replace(record, desired=(), observed=()))
        elif len(world.nodes) > 1:
            name = self.chance.choice(sorted(world.nodes))
            self.away[name] = world.nodes.pop(name), world.gpu_nodes[name]

    def _rules(self) -> None:
        """The policy or a profile changes."""
        if self.chance.random() < 0.5:
            most = self.chance.choice((100, 150))
            self.world.policy = replace(self.world.policy, max_percent_sum=most)
            return
        key = self.chance.choice(sorted(self.world.profiles))
        profile = self.world.profiles[key]
        row = replace(profile.solo[0], sm_util=self.chance.choice((0.2, 0.5, 0.9)))
        self.world.profiles[key] = replace(profile, solo=(row,))

    def _lead(self) -> None:
        """Another leader."""
        self.epoch += 1


_EVENTS: Final[tuple[Callable[[Rough], None], ...]] = (
    *[Rough._come] * 8,
    *[Rough._end] * 6,
    *[Rough._go] * 3,
    *[Rough._edit] * 3,
    *[Rough._fail] * 2,
    Rough._lose_pod,
    Rough._terminate,
    *[Rough._report] * 3,
    Rough._break,
    Rough._ready,
    Rough._cordon,
    Rough._leave,
    Rough._rules,
    Rough._lead,
)
"""What may happen, as often as it stands here."""
