# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""GPUNode: the contract between operator and node agent, one object per managed node.

The operator writes ``spec`` (what shall be), the agent ``status`` (what it made of it). The field
names are those of the wire records in ``contract.py``; a test holds the two together. Its long
lists are atomic: each has one writer that always writes all of it, and with keys the API server
would store the names of their fields once more with every entry (``metadata.managedFields``).
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from ullage.api.base import (
    AGE,
    ATOMIC,
    SET,
    AnyName,
    Column,
    Count,
    Epoch,
    KindInfo,
    Line,
    LongCount,
    MemoryMiB,
    Model,
    Percent,
    Resource,
    Time,
    Word,
    condition_column,
)
from ullage.api.conditions import Conditions
from ullage.api.contract import (
    Backend,
    GPUMode,
    Health,
    InterruptionKind,
    MpsState,
    Proof,
    SlicePhase,
)
from ullage.api.nodeobservation import ClassOfWork, NodeObservation
from ullage.api.objective import LatencySLO
from ullage.api.observations import MAX_OBSERVATIONS
from ullage.api.rules import EPOCH_RISES, validations

_MAX_SLICES = 2048


class Slice(Model):
    """A share of one device, or a whole one, that one container shall get."""

    pod_uid: Word
    """uid of the pod."""
    container: Annotated[str, Field(max_length=63)]
    """Container that gets the device."""
    index: Count = 0
    """Which of the container's devices, from 0."""
    pod_namespace: AnyName
    """Namespace of the pod."""
    pod_name: AnyName
    """Name of the pod."""
    gpu: AnyName
    """uuid of the device."""
    percent: Percent
    """Share of the device's compute; 100 without neighbours for a whole device."""
    memory_mib: MemoryMiB
    """Device memory that the container may allocate, in MiB, without its context's overhead."""
    priority: Annotated[int, Field(json_schema_extra={"format": "int32"})] = 0
    """Priority of the pod."""
    protected: bool = False
    """The workload has an objective, so it is never frozen for a neighbour."""
    workload_class: ClassOfWork | None = None
    """Class of work that the container is; what was learned is kept by it."""
    family: ClassOfWork | None = None
    """Family of models that the class belongs to."""
    trust_domain: Word | None = None
    """Trust domain; only tenants of one domain share a device."""
    max_slowdown_percent: Annotated[int, Field(ge=100, le=100000)] | None = None
    """Objective as a slowdown against the whole device alone, in percent (130 = 1.3 times)."""
    solo_step_micros: LongCount | None = None
    """What a step takes alone on the whole device, in microseconds."""
    slo: LatencySLO | None = None
    """Latency objective, as the user wrote it."""
    probation: bool = False
    """The class is new: the first to be frozen when someone's objective is broken."""
    alert_only: bool = False
    """A broken objective is reported, and no neighbour is frozen for it (`onViolation: Alert`)."""
    context_overhead_mib: Annotated[int, Field(ge=1, le=65536)] | None = None
    """Device memory that each of the container's contexts costs beside memoryMiB, in MiB, as the
    DeviceProfile says; absent = what the node's agent is set to."""
    epoch: Epoch
    """Term of the leader that decided this slice."""


class GPUNodeSpec(Model):
    """What the operator wants of the node."""

    model_config = ConfigDict(json_schema_extra=validations(EPOCH_RISES))

    epoch: Epoch
    """Term of the leader that wrote this; never goes down."""
    retire: bool = False
    """Take the node out: nothing new is placed, the agent removes its files and leaves. Set it
    back to false to use the node again."""
    slices: Annotated[
        tuple[Slice, ...], Field(max_length=_MAX_SLICES, json_schema_extra=ATOMIC)
    ] = ()
    """Every slice that the node shall hold, each once by podUID, container and index."""
    observations_read: Word | None = None
    """Newest of the node's observations that the operator has taken in; the agent no longer
    reports it, nor those before it."""


class NodeMPS(Model):
    """The MPS server of one device."""

    protocol: Count
    """Version of the control protocol: 2 or 3."""
    state: MpsState
    """How the server is; only an Active one takes new clients."""
    server_pid: Annotated[int, Field(ge=1)] | None = None
    """Process id of the server on the host."""
    contexts: Count = 0
    """Clients that are attached now."""
    context_limit: Count = 0
    """Most clients that the server takes."""


class NodeDevice(Model):
    """One device of the node."""

    uuid: AnyName
    """Identity of the device."""
    model: Annotated[str, Field(max_length=63)]
    """Accelerator key, as in spec.accelerators of a workload."""
    product_name: AnyName | None = None
    """Name of the product as its driver says it."""
    memory_mib: MemoryMiB
    """Memory in MiB."""
    contexts: Count
    """How many containers may share the device at once."""
    modes: Annotated[tuple[GPUMode, ...], Field(max_length=8, json_schema_extra=SET)] = ()
    """How the device may be asked for."""
    health: Health
    """Whether the device may be given to someone."""
    backend: Backend
    """What enforces shares on the device."""
    mps: NodeMPS | None = None
    """The MPS server, where there is one."""


class NodeSlice(Model):
    """What the node made of one slice."""

    pod_uid: Word
    """uid of the pod."""
    container: Annotated[str, Field(max_length=63)]
    """Container that gets the device."""
    index: Count = 0
    """Which of the container's devices, from 0."""
    phase: SlicePhase
    """How far the node has come with the slice."""
    reason: Word | None = None
    """Why it is so, in one stable word."""
    message: Line | None = None
    """What binds, and by how much."""
    gpu: AnyName
    """uuid of the device."""
    percent: Count
    """Share of the device's compute."""
    memory_mib: MemoryMiB
    """Device memory in MiB."""
    epoch: Epoch
    """Term of the leader that decided the slice."""
    pids: Annotated[
        tuple[Annotated[int, Field(ge=1)], ...], Field(max_length=512, json_schema_extra=ATOMIC)
    ] = ()
    """Processes of the container that use the device, as the host numbers them."""
    sm_count: Count | None = None
    """Multiprocessors that the container sees."""
    proof: Proof | None = None
    """How the node knows that the share holds; absent where it is not known or there is none."""
    memory_used_mib: LongCount | None = None
    """Device memory in use, in MiB."""
    steps: LongCount | None = None
    """Steps that the container says it has done since it started."""
    items: LongCount | None = None
    """Samples or tokens that the container says it has done."""
    step_micros: LongCount | None = None
    """Recent time of one step in microseconds."""
    solo_step_micros: LongCount | None = None
    """What the same step takes alone on the whole device, in microseconds."""
    latency_micros: LongCount | None = None
    """Latency of the last window at the objective's percentile, in microseconds."""
    windows: LongCount | None = None
    """Windows that the guard has judged since the container started."""
    violations: LongCount | None = None
    """Windows above the objective."""
    checkpoint_age_seconds: LongCount | None = None
    """How long ago the container said that it saved its work, when this was reported."""
    resumed_at_step: LongCount | None = None
    """Step of the checkpoint that the container says it went on from; steps count from there."""


class NodeTotals(Model):
    """Sums over the node, for columns and dashboards."""

    devices: Count
    """Devices of the node."""
    slots: Count
    """Slots that the node offers to kubelet."""
    used_slots: Count
    """Slots that containers hold."""


class NodeAgent(Model):
    """The agent that wrote this status."""

    version: Word
    """Version of the product."""
    contract: Count
    """Version of the wire contract that it speaks."""
    driver: Word | None = None
    """Version of the device driver; absent for emulated devices."""


class NodeInterruption(Model):
    """What the provider said about the machine."""

    kind: InterruptionKind
    """Terminate: the provider takes it back. Rebalance: that has become more likely."""
    deadline: Time | None = None
    """When it goes; absent where the provider did not say."""
    source: Word | None = None
    """Source of the notice: EC2, GCE or Azure."""


class GPUNodeStatus(Model):
    """What the node agent observes."""

    observed_generation: LongCount | None = None
    """Generation of the spec that the agent has taken in."""
    observed_epoch: Epoch | None = None
    """Highest term that the agent has accepted; slices of a lower one are ignored."""
    heartbeat: Time | None = None
    """When the agent last reported; older than three minutes means that no one listens."""
    agent: NodeAgent | None = None
    """The agent that wrote this status."""
    totals: NodeTotals | None = None
    """Sums over the node."""
    devices: Annotated[tuple[NodeDevice, ...], Field(max_length=64, json_schema_extra=ATOMIC)] = ()
    """Devices of the node."""
    slices: Annotated[
        tuple[NodeSlice, ...], Field(max_length=_MAX_SLICES, json_schema_extra=ATOMIC)
    ] = ()
    """Slices that the node knows; each counts against its device until its container is gone."""
    observations: Annotated[
        tuple[NodeObservation, ...],
        Field(max_length=MAX_OBSERVATIONS, json_schema_extra=ATOMIC),
    ] = ()
    """What was learned and is not taken in yet, oldest first; the operator moves it to the
    WorkloadProfiles and says so in spec.observationsRead."""
    interruption: NodeInterruption | None = None
    """The provider's notice that is in force; absent = none."""
    conditions: Conditions = ()
    """Ready, LateBinding, Degraded, DeviceLost and Retired."""


class GPUNode(Resource):
    """The devices of one node and the slices that they hold; for machines, not written by users.

    The operator creates one for each Node with the label `ullage.dev/node=true` and writes the
    slices it wants; the node agent reports what it made of them.
    """

    info: ClassVar[KindInfo] = KindInfo(
        plural="gpunodes",
        singular="gpunode",
        short_name="gn",
        namespaced=False,
        columns=(
            condition_column("Ready", "Ready", "Whether the agent serves kubelet."),
            Column(
                name="GPUs",
                path=".status.totals.devices",
                type="integer",
                description="Devices of the node.",
            ),
            Column(
                name="Slots",
                path=".status.totals.slots",
                type="integer",
                description="Slots that the node offers.",
            ),
            Column(
                name="Used",
                path=".status.totals.usedSlots",
                type="integer",
                description="Slots that containers hold.",
            ),
            Column(
                name="Epoch",
                path=".spec.epoch",
                type="integer",
                description="Term of the leader that wrote the slices.",
            ),
            AGE,
            condition_column("Degraded", "Degraded", "Whether something is wrong.", wide=True),
            Column(
                name="Interruption",
                path=".status.interruption.kind",
                description="The provider's notice about the machine.",
                wide=True,
            ),
            Column(
                name="Driver",
                path=".status.agent.driver",
                description="Version of the device driver.",
                wide=True,
            ),
            Column(
                name="Agent",
                path=".status.agent.version",
                description="Version of the node agent.",
                wide=True,
            ),
            Column(
                name="Heartbeat",
                path=".status.heartbeat",
                type="date",
                description="Time since the agent last reported.",
                wide=True,
            ),
        ),
    )

    kind: Literal["GPUNode"] = "GPUNode"
    """Kind of the object."""
    spec: GPUNodeSpec
    """What the operator wants of the node."""
    status: GPUNodeStatus | None = None
    """What the node agent observes."""
