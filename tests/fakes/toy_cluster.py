# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A whole cluster without I/O: API objects, kubelets, agents, scheduler, Deployment controller.

It carries out actions as the API would (preconditions included), some of them not, and breaks its
own rules never: whatever goes wrong on it, a real cluster can do too. Driven by a seeded random
source, so every run can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import builders
from fakes.toy_world import ToyWorld
from ullage.api.devices import GPUMode
from ullage.api.labels import GATE
from ullage.cluster.codecs.status import as_stored
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.snapshot import DeploymentRecord
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.scheduling.inventory.reliable_machines import held_to
from ullage.scheduling.model.plan import (
    Action,
    ApplyDeployment,
    ApplyGPUNode,
    ApplyService,
    CreatePod,
    CreateProfile,
    DeletePod,
    DeleteWorkload,
    EvictPod,
    SetProfile,
    SetStatus,
    UngatePod,
)


class ToyCluster(ToyWorld):
    """Everything the operator sees and touches."""

    # -- owners ------------------------------------------------------------------------------------

    def add(self, workload: WorkloadRecord) -> None:
        """A user applies a workload."""
        self.workloads[workload.ref.uid] = workload

    def delete_workload(self, uid: str) -> None:
        """A user deletes a workload; its children follow."""
        workload = self.workloads.pop(uid)
        key = (workload.ref.namespace, workload.ref.name)
        self.deployments.pop(key, None)
        self.services = {name: one for name, one in self.services.items() if one.owner_uid != uid}
        for pod in self.members(uid):
            self.delete_pod(pod)

    def control_deployments(self) -> None:
        """The Deployment controller and its ReplicaSets: one step of a rolling update."""
        for deployment in list(self.deployments.values()):
            owner = self.workloads.get(deployment.owner_uid)
            if owner is not None:
                self._roll(deployment, owner)

    def _roll(self, deployment: DeploymentRecord, owner: WorkloadRecord) -> None:
        live = [
            pod
            for pod in self.members(owner.ref.uid)
            if not pod.stage.finished and not pod.deleting
        ]
        new = [pod for pod in live if pod.template_hash == deployment.template_hash]
        old = [pod for pod in live if pod.template_hash != deployment.template_hash]
        ready = sum(pod.ready for pod in live)
        for pod in sorted(old, key=lambda one: (one.ready, one.uid)):
            if not pod.ready or ready - 1 >= deployment.replicas - deployment.max_unavailable:
                ready -= pod.ready
                live.remove(pod)
                self.delete_pod(pod)
        for pod in sorted(new, key=lambda one: (one.ready, one.uid)):
            if len(new) > deployment.replicas:
                new.remove(pod)
                live.remove(pod)
                self.delete_pod(pod)
        most = deployment.replicas + deployment.max_surge
        while len(new) < deployment.replicas and len(live) < most:
            made = self._new_pod(owner, f"{owner.ref.name}-{self._next()}", rank=-1)
            new.append(made)
            live.append(made)

    # -- the API ----------------------------------------------------------------------------------

    def apply(self, actions: Iterable[Action], lands: Callable[[Action], bool]) -> None:
        """Carry out actions; those that do not land leave no trace."""
        for action in actions:
            if lands(action):
                self._one(action)

    def _one(self, action: Action) -> None:
        match action:
            case ApplyGPUNode():
                self._apply_gpu_node(action)
            case CreatePod():
                self._create_pod(action)
            case DeletePod() | EvictPod():
                pod = self.pods.get(action.pod.uid)
                if pod is not None and isinstance(action, DeletePod) and action.at_once:
                    self.forget(pod)
                elif pod is not None:
                    self.delete_pod(pod)
            case UngatePod():
                self._ungate(action)
            case ApplyService():
                key = (action.owner.namespace, action.name)
                if action.owner.uid in self.workloads:
                    self.services[key] = builders.a_kube_service(
                        self.workloads[action.owner.uid], action.name
                    )
            case ApplyDeployment():
                self._apply_deployment(action)
            case DeleteWorkload():
                if action.owner.uid in self.workloads:
                    self.delete_workload(action.owner.uid)
            case SetStatus():
                self._set_status(action)
            case CreateProfile():
                at = (action.target.namespace, action.target.name)
                made = builders.a_profile(
                    at[1], namespace=at[0], workload_class=action.workload_class
                )
                self.profiles.setdefault(at, replace(made, uid=f"uid-{at[1]}"))
            case SetProfile():
                at = (action.target.namespace, action.target.name)
                self.profiles[at] = replace(self.profiles[at], status=action.status)
            case _:
                pass

    def _apply_gpu_node(self, action: ApplyGPUNode) -> None:
        record = self.gpu_nodes.get(action.name)
        if record is not None and (action.epoch < record.epoch or action.uid != record.uid):
            return
        if record is None:
            record = builders.a_gpu_node(action.name, devices=0, epoch=action.epoch, heartbeat=0.0)
            record = replace(record, uid=f"uid-gn-{action.name}-{self._next()}")
        since = record.desired_since
        known = set(record.desired)
        self.gpu_nodes[action.name] = replace(
            record,
            epoch=action.epoch,
            desired=action.slices,
            desired_since={
                one.key: since.get(one.key, self.now) if one in known else self.now
                for one in action.slices
            },
        )

    def _create_pod(self, action: CreatePod) -> None:
        owner = self.workloads.get(action.owner.uid)
        taken = any(
            (pod.namespace, pod.name) == (action.owner.namespace, action.name)
            for pod in self.pods.values()
        )
        if owner is not None and not taken:
            pod = self._new_pod(owner, action.name, rank=action.rank)
            tied = held_to(pod.shape, action.on)
            self.change(pod, world_size=action.world_size, shape=tied)
            if action.lead is not None:  # it runs at once, beside the devices
                self.stage(self.pods[pod.uid], PodStage.RUNNING, lead=True, gates=())

    def _ungate(self, action: UngatePod) -> None:
        pod = self.pods.get(action.pod.uid)
        if pod is None or pod.deleting or GATE not in pod.gates:
            return
        self.pinned[pod.uid] = action.node
        self.stage(pod, PodStage.UNSCHEDULED, gates=(), shape=builders.pinned(pod, action.node))

    def _apply_deployment(self, action: ApplyDeployment) -> None:
        owner = self.workloads.get(action.owner.uid)
        if owner is not None:
            key = (owner.ref.namespace, owner.ref.name)
            self.deployments[key] = builders.a_deployment(
                owner,
                replicas=action.replicas,
                surge=action.max_surge,
                unavailable=action.max_unavailable,
                template_hash=action.template_hash,
            )

    def _set_status(self, action: SetStatus) -> None:
        workload = self.workloads.get(action.owner.uid)
        if workload is not None:
            bounds, said = workload.elasticity, action.status.replicas
            self.workloads[workload.ref.uid] = replace(
                workload,
                replicas=bounds.within(said) if bounds is not None else workload.replicas,
                status=as_stored(workload.kind, action.status),
                resource_version=str(int(workload.resource_version) + 1),
            )


def is_training(workload: WorkloadRecord) -> bool:
    """Whether it is a TrainingJob."""
    return workload.kind is WorkloadKind.TRAINING_JOB


def is_exclusive(workload: WorkloadRecord) -> bool:
    """Whether it asks for whole devices."""
    return workload.gpu.mode is GPUMode.EXCLUSIVE
