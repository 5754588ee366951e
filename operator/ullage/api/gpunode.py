# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""GPUNode: the contract between operator and node agent, one object per managed node.

The operator writes ``spec`` (desired), the agent ``status`` (observed). Field names equal those of
the wire records in ``contract.py``; a test compares the two. The long lists are atomic: each has
one writer that always writes all of it, and with keys the API server would store the field names
of every entry a second time (``metadata.managedFields``).
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
    """A share of one device, or a whole device, for one container."""

    pod_uid: Word
    """UID of the pod."""
    container: Annotated[str, Field(max_length=63)]
    """Container that gets the device."""
    index: Count = 0
    """Index of the device within the container, from 0."""
    pod_namespace: AnyName
    """Namespace of the pod."""
    pod_name: AnyName
    """Name of the pod."""
    gpu: AnyName
    """UUID of the device."""
    percent: Percent
    """Share of the device's compute, in percent; a whole device has 100 and no neighbours."""
    memory_mib: MemoryMiB
    """Device memory that the container may allocate, in MiB, without the overhead of its
    context."""
    priority: Annotated[int, Field(json_schema_extra={"format": "int32"})] = 0
    """Priority of the pod."""
    protected: bool = False
    """The workload has an objective, so the guard never freezes it for a neighbour."""
    workload_class: ClassOfWork | None = None
    """Workload class of the container; learned data is kept by class."""
    family: ClassOfWork | None = None
    """Family of models that the class belongs to."""
    trust_domain: Word | None = None
    """Trust domain; only tenants of one domain share a device."""
    max_slowdown_percent: Annotated[int, Field(ge=100, le=100000)] | None = None
    """Slowdown objective relative to running alone on the whole device, in percent (130 = 1.3
    times)."""
    solo_step_micros: LongCount | None = None
    """Step time alone on the whole device, in microseconds."""
    slo: LatencySLO | None = None
    """Latency objective, as the user wrote it."""
    probation: bool = False
    """The class is new, so the guard freezes this container first when an objective breaks."""
    alert_only: bool = False
    """A broken objective is only reported; no neighbour is frozen for it
    (`onViolation: Alert`)."""
    context_overhead_mib: Annotated[int, Field(ge=1, le=65536)] | None = None
    """Device memory that each context of the container uses beside memoryMiB, in MiB, from the
    DeviceProfile; absent = the setting of the node's agent."""
    epoch: Epoch
    """Term of the leader that decided this slice."""


class GPUNodeSpec(Model):
    """Desired state of the node, written by the operator."""

    model_config = ConfigDict(json_schema_extra=validations(EPOCH_RISES))

    epoch: Epoch
    """Term of the leader that wrote this spec; it never decreases."""
    retire: bool = False
    """Retire the node: the operator places nothing new on it, and the agent removes its files and
    withdraws. Set it back to false to use the node again."""
    slices: Annotated[
        tuple[Slice, ...], Field(max_length=_MAX_SLICES, json_schema_extra=ATOMIC)
    ] = ()
    """Every slice that the node must hold, unique by podUID, container and index."""
    observations_read: Word | None = None
    """Newest observation of the node that the operator has stored; the agent stops reporting it
    and all before it."""


class NodeMPS(Model):
    """The MPS server of one device."""

    protocol: Count
    """Version of the control protocol: 2 or 3."""
    state: MpsState
    """State of the server; only an Active server takes new clients."""
    server_pid: Annotated[int, Field(ge=1)] | None = None
    """Process id of the server on the host."""
    contexts: Count = 0
    """Clients attached now."""
    context_limit: Count = 0
    """Maximum number of clients that the server takes."""


class NodeDevice(Model):
    """One device of the node."""

    uuid: AnyName
    """UUID of the device."""
    model: Annotated[str, Field(max_length=63)]
    """Accelerator key, as in spec.accelerators of a workload."""
    product_name: AnyName | None = None
    """Product name, as the driver reports it."""
    memory_mib: MemoryMiB
    """Memory in MiB."""
    contexts: Count
    """Maximum number of containers that may share the device at once."""
    modes: Annotated[tuple[GPUMode, ...], Field(max_length=8, json_schema_extra=SET)] = ()
    """Modes in which workloads may request the device."""
    health: Health
    """Whether the device may be assigned."""
    backend: Backend
    """Backend that enforces shares on the device."""
    mps: NodeMPS | None = None
    """MPS server of the device, if there is one."""


class NodeSlice(Model):
    """Observed state of one slice."""

    pod_uid: Word
    """UID of the pod."""
    container: Annotated[str, Field(max_length=63)]
    """Container that gets the device."""
    index: Count = 0
    """Index of the device within the container, from 0."""
    phase: SlicePhase
    """Phase of the slice on the node."""
    reason: Word | None = None
    """Reason for the phase, as one stable word."""
    message: Line | None = None
    """The limit that binds, and by how much."""
    gpu: AnyName
    """UUID of the device."""
    percent: Count
    """Share of the device's compute, in percent."""
    memory_mib: MemoryMiB
    """Device memory in MiB."""
    epoch: Epoch
    """Term of the leader that decided the slice."""
    pids: Annotated[
        tuple[Annotated[int, Field(ge=1)], ...], Field(max_length=512, json_schema_extra=ATOMIC)
    ] = ()
    """Host PIDs of the container's processes that use the device."""
    sm_count: Count | None = None
    """Multiprocessors that the container sees."""
    proof: Proof | None = None
    """How the node verified the share; absent if it is unverified or there is no share."""
    memory_used_mib: LongCount | None = None
    """Device memory in use, in MiB."""
    steps: LongCount | None = None
    """Steps since the container started, as the container reports them."""
    items: LongCount | None = None
    """Samples or tokens processed, as the container reports them."""
    step_micros: LongCount | None = None
    """Recent time of one step, in microseconds."""
    solo_step_micros: LongCount | None = None
    """Time of the same step alone on the whole device, in microseconds."""
    latency_micros: LongCount | None = None
    """Latency of the last window at the objective's percentile, in microseconds."""
    windows: LongCount | None = None
    """Windows that the guard has judged since the container started."""
    violations: LongCount | None = None
    """Windows above the objective."""
    checkpoint_age_seconds: LongCount | None = None
    """Age of the last checkpoint that the container reported, at the time of this report."""
    resumed_at_step: LongCount | None = None
    """Step of the checkpoint that the container resumed from, as it reports; steps count from
    there."""


class NodeTotals(Model):
    """Sums over the node, for columns and dashboards."""

    devices: Count
    """Number of devices."""
    slots: Count
    """Slots that the node advertises to kubelet."""
    used_slots: Count
    """Slots that containers hold."""


class NodeAgent(Model):
    """The agent that wrote this status."""

    version: Word
    """Version of Ullage."""
    contract: Count
    """Version of the wire contract that the agent uses."""
    driver: Word | None = None
    """Version of the device driver; absent for emulated devices."""


class NodeInterruption(Model):
    """The provider's interruption notice for the machine."""

    kind: InterruptionKind
    """`Terminate`: the provider takes the machine back. `Rebalance`: an interruption has become
    more likely."""
    deadline: Time | None = None
    """Time at which the machine goes; absent if the provider did not say."""
    source: Word | None = None
    """Source of the notice: EC2, GCE or Azure."""


class GPUNodeStatus(Model):
    """Observed state of the node, written by the agent."""

    observed_generation: LongCount | None = None
    """Generation of the spec that the agent has read."""
    observed_epoch: Epoch | None = None
    """Highest term that the agent has accepted; it ignores slices of a lower term."""
    heartbeat: Time | None = None
    """Time of the agent's last report; older than three minutes means that the agent is down."""
    agent: NodeAgent | None = None
    """The agent that wrote this status."""
    totals: NodeTotals | None = None
    """Sums over the node."""
    devices: Annotated[tuple[NodeDevice, ...], Field(max_length=64, json_schema_extra=ATOMIC)] = ()
    """Devices of the node."""
    slices: Annotated[
        tuple[NodeSlice, ...], Field(max_length=_MAX_SLICES, json_schema_extra=ATOMIC)
    ] = ()
    """Slices on the node; each counts against its device until its container is gone."""
    observations: Annotated[
        tuple[NodeObservation, ...],
        Field(max_length=MAX_OBSERVATIONS, json_schema_extra=ATOMIC),
    ] = ()
    """Observations that the operator has not stored yet, oldest first; the operator copies them to
    WorkloadProfiles and acknowledges them in spec.observationsRead."""
    interruption: NodeInterruption | None = None
    """Interruption notice in force; absent = none."""
    conditions: Conditions = ()
    """Ready, LateBinding, Degraded, DeviceLost and Retired."""


class GPUNode(Resource):
    """The devices of one node and their slices; users do not write it.

    The operator creates one for each Node with the label `ullage.dev/node=true` and writes the
    desired slices; the node agent reports their state.
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
                description="Slots that the node advertises.",
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
                description="The provider's interruption notice.",
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
    """Desired state of the node, written by the operator."""
    status: GPUNodeStatus | None = None
    """Observed state of the node, written by the agent."""
