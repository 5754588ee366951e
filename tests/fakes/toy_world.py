# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Nodes, agents, kubelets and the scheduler of the toy cluster, and the objects they look at.

Whatever goes wrong here, a real cluster can do too. Driven by a seeded random source, so every run
can be repeated.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import builders
from fakes.toy_agent import ToyAgent
from ullage.api.slices import SlicePhase
from ullage.cluster.records.node import GPUNodeRecord, NodeRecord
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.profile import DeviceProfileRecord, ProfileRecord
from ullage.cluster.records.snapshot import DeploymentRecord, ServiceRecord, Snapshot
from ullage.cluster.records.straggler import StragglerRecord
from ullage.cluster.records.workload import WorkloadRecord

START = 1_000_000.0


@dataclass(slots=True)
class Shape:
    """How big the toy is."""

    nodes: int = 3
    devices: int = 2
    memory_mib: int = 16_384
    contexts: int = 4
    policy: PolicyRecord = field(default_factory=PolicyRecord)
    profiles: tuple[ProfileRecord, ...] = ()
    overhead_mib: int = 0


class ToyWorld:
    """Nodes, agents, kubelets and the scheduler, with the objects they look at."""

    def __init__(self, seed: int, shape: Shape | None = None) -> None:
        self.random = random.Random(seed)
        self.shape = shape or Shape()
        self.now = START
        self.version = 0
        self.epoch = 1
        self.pods: dict[str, PodRecord] = {}
        self.workloads: dict[str, WorkloadRecord] = {}
        self.deployments: dict[tuple[str, str], DeploymentRecord] = {}
        self.services: dict[tuple[str, str], ServiceRecord] = {}
        self.nodes: dict[str, NodeRecord] = {}
        self.gpu_nodes: dict[str, GPUNodeRecord] = {}
        self.agents: dict[str, ToyAgent] = {}
        self.refusals: dict[tuple[str, str], tuple[float, ...]] = {}
        self.profiles = {(one.namespace, one.name): one for one in self.shape.profiles}
        self.pinned: dict[str, str] = {}
        self.silent: set[str] = set()
        """Nodes that do not answer any more, though no one noticed yet."""
        self.edited_out: set[str] = set()
        """Pods whose slices someone edited out of the spec while they ran, by uid."""
        self.stragglers: Mapping[str, StragglerRecord] | None = None
        """Slow ranks by uid of the job, as the looks at ranks found them."""
        self._numbers = 0
        for index in range(self.shape.nodes):
            self.add_node(f"node-{index}")

    # -- reading -------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """What the operator's picture shows now."""
        self.version += 1
        overhead = self.shape.overhead_mib
        return Snapshot(
            version=self.version,
            taken_at=self.now,
            nodes=dict(self.nodes),
            gpu_nodes=dict(self.gpu_nodes),
            pods=dict(self.pods),
            workloads=dict(self.workloads),
            deployments=dict(self.deployments),
            services=dict(self.services),
            profiles=dict(self.profiles),
            device_profiles=(
                {
                    builders.MODEL: DeviceProfileRecord(
                        name=builders.MODEL, context_overhead_mib=overhead
                    )
                }
                if overhead
                else {}
            ),
            policy=self.shape.policy,
            node_refusals=dict(self.refusals),
            stragglers=self.stragglers,
        )

    def members(self, uid: str) -> list[PodRecord]:
        """Pods of a workload."""
        return [pod for pod in self.pods.values() if pod.owner.uid == uid]

    # -- nodes and agents ------------------------------------------------------------------------

    def add_node(self, name: str) -> None:
        """A fresh node of ours; its GPUNode is the operator's to make."""
        self.nodes[name] = builders.a_node(name)
        self.agents[name] = ToyAgent(
            {
                builders.gpu(name, index): builders.a_device(
                    builders.gpu(name, index),
                    memory_mib=self.shape.memory_mib,
                    contexts=self.shape.contexts,
                )
                for index in range(self.shape.devices)
            }
        )

    def sync_agent(self, name: str) -> None:
        """The agent reads its spec and pods, and reports."""
        record, agent = self.gpu_nodes.get(name), self.agents[name]
        if record is None or not agent.up or not self.nodes[name].ready:
            return
        agent.intake(record.epoch, record.desired)
        agent.sweep(self.pods)
        self.report(name)

    def report(self, name: str) -> None:
        """Write the GPUNode's status."""
        record, agent = self.gpu_nodes[name], self.agents[name]
        observed = tuple(agent.held[key] for key in sorted(agent.held))
        before = {one.key for one in record.observed if one.phase is SlicePhase.REFUSED}
        for one in observed:
            if one.phase is SlicePhase.REFUSED and one.key not in before:
                place = (one.key.pod_uid, one.gpu)
                self.refusals[place] = (*self.refusals.get(place, ()), self.now)
        self.gpu_nodes[name] = replace(
            record,
            observed=observed,
            devices=tuple(agent.devices.values()),
            heartbeat=self.now,
        )

    # -- kubelet and scheduler -------------------------------------------------------------------

    def schedule(self, pod: PodRecord) -> None:
        """kube-scheduler binds an ungated pod to the node it is pinned to, if it can."""
        node = self.nodes.get(self.pinned.get(pod.uid, ""))
        if pod.stage is not PodStage.UNSCHEDULED or pod.deleting:
            return
        if node is None or not node.ready or node.unschedulable:
            self.change(pod, scheduling_message="0/3 nodes are available")
            return
        self.stage(pod, PodStage.BOUND, node=node.name)

    def start(self, pod: PodRecord) -> None:
        """kubelet starts a bound pod, if the agent lets it."""
        agent = self.agents.get(pod.node)
        if pod.stage is not PodStage.BOUND or agent is None or not self.nodes[pod.node].ready:
            return
        owner = self.workloads.get(pod.owner.uid)
        if not agent.up or owner is None:
            return
        why_not = agent.prepare(pod, owner.gpu.count)
        if why_not:
            self.change(pod, waiting_reason="CreateContainerConfigError", waiting_message=why_not)
            return
        agent.attach(pod)
        self.stage(pod, PodStage.RUNNING, ready=True)

    def move(self) -> None:
        """Every agent, kubelet and the scheduler gets to do what it can do now."""
        for name in list(self.agents):
            self.sync_agent(name)
        for step in (self.terminate, self.schedule, self.start):
            for pod in list(self.pods.values()):
                step(pod)
        for name in list(self.agents):
            self.sync_agent(name)

    def finish(self, pod: PodRecord, code: int) -> None:
        """The pod's container ends."""
        stage = PodStage.SUCCEEDED if code == 0 else PodStage.FAILED
        self.stage(pod, stage, exit_code=code, ready=False)

    def lose_race(self, pod: PodRecord) -> None:
        """kubelet fails a pod that is bound and does not run yet."""
        self.stage(pod, PodStage.FAILED, lost_race=True, disrupted=True)

    def terminate(self, pod: PodRecord) -> None:
        """A pod that is being deleted is gone at last; a dead node cannot confirm it."""
        if pod.deleting and (not pod.node or self._answers(pod.node)):
            self.forget(pod)

    def delete_pod(self, pod: PodRecord) -> None:
        """Delete a pod through the API: at once where nothing runs, else with a grace."""
        if pod.deleting:
            return
        if not pod.node or pod.stage.finished:
            self.forget(pod)
        else:
            self.change(pod, deleting=True, ready=False)

    def forget(self, pod: PodRecord) -> None:
        """The pod's object is gone."""
        self.pods.pop(pod.uid, None)
        self.pinned.pop(pod.uid, None)

    def lose_node(self, name: str) -> None:
        """A node stops answering; after its toleration its pods are marked for deletion."""
        self.nodes[name] = replace(self.nodes[name], ready=False)
        for pod in list(self.pods.values()):
            if pod.node == name and not pod.stage.finished:
                self.change(pod, deleting=True, disrupted=True, ready=False)

    def return_node(self, name: str) -> None:
        """The node is back; kubelet removes what was deleted meanwhile."""
        self.nodes[name] = replace(self.nodes[name], ready=True)

    def remove_node(self, name: str) -> None:
        """The node's object goes, its pods and its GPUNode with it; a new one takes its name."""
        for pod in list(self.pods.values()):
            if pod.node == name:
                self.forget(pod)
        self.gpu_nodes.pop(name, None)
        self.add_node(name)

    def _answers(self, name: str) -> bool:
        return name in self.nodes and self.nodes[name].ready and name not in self.silent

    # -- small ones -------------------------------------------------------------------------------

    def stage(self, pod: PodRecord, stage: PodStage, **fields: object) -> None:
        """Move a pod to a stage."""
        self.change(pod, stage=stage, stage_since=self.now, **fields)

    def change(self, pod: PodRecord, **fields: object) -> None:
        """Change fields of a pod."""
        self.pods[pod.uid] = replace(self.pods[pod.uid], **fields)  # type: ignore[arg-type]

    def _new_pod(self, owner: WorkloadRecord, name: str, rank: int) -> PodRecord:
        pod = builders.a_pod(
            name,
            owner=owner,
            rank=rank,
            uid=f"pod-{self._next()}",
            since=self.now,
            created=self.now,
            priority=owner.priority,
            template_hash=owner.template_hash,
        )
        self.pods[pod.uid] = pod
        return pod

    def _next(self) -> int:
        self._numbers += 1
        return self._numbers
