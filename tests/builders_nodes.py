# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Builders of nodes, devices and slices; :mod:`builders` re-exports them beside the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ullage.api.devices import Backend, GPUMode, Health, MpsStatus, ObservedDevice
from ullage.api.labels import SLOT_RESOURCE
from ullage.api.slices import DesiredSlice, ObservedSlice, SliceKey, SlicePhase
from ullage.cluster.records.node import GPUNodeRecord, NodeRecord
from ullage.cluster.records.pod import PodRecord
from ullage.cluster.records.pod_shape import Resources, Taint

NOW: Final = 1_000_000.0
"""The moment at which built snapshots are taken; heartbeats default to it."""
EPOCH: Final = 7
MODEL: Final = "emulated"
DEVICE_MEMORY_MIB: Final = 16_384
CONTAINER: Final = "main"
TEMPLATE_HASH: Final = "0123456789ab"


def resources(
    cpu: float = 0, gib: float = 0, pods: int = 0, slots: int = 0, **extended: int
) -> Resources:
    """Resources in whole cores and GiB; ``slots`` is the number of ``ullage.dev/slot``."""
    amounts = dict(extended) | ({SLOT_RESOURCE: slots} if slots else {})
    return Resources(
        cpu_milli=round(cpu * 1000),
        memory_bytes=round(gib * 2**30),
        pods=pods,
        extended=tuple(sorted(amounts.items())),
    )


def a_node(
    name: str = "node-1",
    *,
    cpu: float = 64,
    gib: float = 256,
    pods: int = 110,
    slots: int = 64,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Taint] = (),
    ready: bool = True,
    unschedulable: bool = False,
    managed: bool = True,
) -> NodeRecord:
    """A ready Kubernetes node of ours."""
    return NodeRecord(
        name=name,
        uid=f"uid-{name}",
        labels={"kubernetes.io/hostname": name} | dict(labels or {}),
        taints=tuple(taints),
        allocatable=resources(cpu, gib, pods, slots),
        ready=ready,
        unschedulable=unschedulable,
        managed=managed,
    )


def a_device(
    uuid: str = "GPU-node-1-0",
    *,
    model: str = MODEL,
    memory_mib: int = DEVICE_MEMORY_MIB,
    contexts: int = 8,
    modes: Sequence[GPUMode] = (GPUMode.EXCLUSIVE, GPUMode.FRACTIONAL),
    health: Health = Health.HEALTHY,
    backend: Backend = Backend.EMULATED,
    mps: MpsStatus | None = None,
    **fields: Any,
) -> ObservedDevice:
    """A healthy emulated device that offers both modes."""
    return ObservedDevice(
        uuid=uuid,
        model=model,
        product_name=model,
        memory_mib=memory_mib,
        contexts=contexts,
        modes=tuple(modes),
        health=health,
        backend=backend,
        mps=mps,
        **fields,
    )


def gpu(node: str = "node-1", index: int = 0) -> str:
    """uuid of a device as ``a_gpu_node`` names it."""
    return f"GPU-{node}-{index}"


def a_gpu_node(
    name: str = "node-1",
    *,
    devices: int | Sequence[ObservedDevice] = 2,
    desired: Sequence[DesiredSlice] = (),
    observed: Sequence[ObservedSlice] = (),
    epoch: int = EPOCH,
    heartbeat: float = NOW,
    retire: bool = False,
    desired_since: float = NOW,
    model: str = MODEL,
) -> GPUNodeRecord:
    """A GPUNode with a fresh heartbeat; ``devices`` is a number or the devices themselves."""
    listed = (
        tuple(a_device(gpu(name, index), model=model) for index in range(devices))
        if isinstance(devices, int)
        else tuple(devices)
    )
    return GPUNodeRecord(
        name=name,
        uid=f"uid-gn-{name}",
        epoch=epoch,
        retire=retire,
        desired=tuple(desired),
        devices=listed,
        observed=tuple(observed),
        heartbeat=heartbeat,
        slots=8 * len(listed),
        desired_since={item.key: desired_since for item in desired},
    )


def a_slice(
    pod: PodRecord | str = "uid-train-0",
    *,
    device: str = "GPU-node-1-0",
    percent: int = 50,
    memory_mib: int = 4096,
    epoch: int = EPOCH,
    index: int = 0,
    container: str = CONTAINER,
    priority: int = 0,
    protected: bool = False,
) -> DesiredSlice:
    """A desired slice of a pod (a record, or a uid ``uid-<name>`` in namespace default)."""
    uid = pod if isinstance(pod, str) else pod.uid
    namespace = "default" if isinstance(pod, str) else pod.namespace
    name = uid.removeprefix("uid-") if isinstance(pod, str) else pod.name
    return DesiredSlice(
        key=SliceKey(pod_uid=uid, container=container, index=index),
        pod_namespace=namespace,
        pod_name=name,
        gpu=device,
        percent=percent,
        memory_mib=memory_mib,
        epoch=epoch,
        priority=priority,
        protected=protected,
    )


def reported(
    desired: DesiredSlice,
    phase: SlicePhase = SlicePhase.RESERVED,
    *,
    reason: str = "",
    message: str = "",
    epoch: int | None = None,
    steps: int = 0,
    step_micros: int = 0,
    solo_step_micros: int = 0,
) -> ObservedSlice:
    """What the agent reports of a desired slice in this phase."""
    return ObservedSlice(
        key=desired.key,
        phase=phase,
        gpu=desired.gpu,
        percent=desired.percent,
        memory_mib=desired.memory_mib,
        epoch=desired.epoch if epoch is None else epoch,
        reason=reason,
        message=message,
        steps=steps,
        step_micros=step_micros,
        solo_step_micros=solo_step_micros,
    )
