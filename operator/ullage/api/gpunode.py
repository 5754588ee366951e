# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""GPUNode: the contract between operator and node agent, one object per managed node.

The operator writes ``spec`` (desired, ``nodespec.py``), the agent ``status`` (observed). The lists
of the status are declared by the records that are read and written. The long ones are atomic: each
has one writer that always writes all of it, and with keys the API server would store the field
names of every entry a second time (``metadata.managedFields``).
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ullage.api.base import (
    AGE,
    Column,
    Count,
    Epoch,
    KindInfo,
    LongCount,
    Model,
    Resource,
    Time,
    Word,
    condition_column,
    record,
    records,
)
from ullage.api.checks import MAX_CHECKS
from ullage.api.dataio import MAX_STARVATIONS
from ullage.api.faults import MAX_FAULTS
from ullage.api.nodespec import MAX_SLICES
from ullage.api.observations import MAX_OBSERVATIONS
from ullage.api.readers import JsonObject
from ullage.api.rules import EPOCH_RISES, validations
from ullage.api.traces import MAX_TRACES


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
    devices: Annotated[tuple[JsonObject, ...], records("ObservedDevice", 64)] = ()
    """Devices of the node."""
    slices: Annotated[tuple[JsonObject, ...], records("ObservedSlice", MAX_SLICES)] = ()
    """Slices on the node; each counts against its device until its container is gone."""
    lanes: Annotated[tuple[JsonObject, ...], records("ObservedLane", MAX_SLICES)] = ()
    """Lanes of the devices, where programs take turns."""
    observations: Annotated[tuple[JsonObject, ...], records("Observation", MAX_OBSERVATIONS)] = ()
    """Observations that the operator has not stored yet, oldest first; the operator copies them to
    WorkloadProfiles and acknowledges them in spec.observationsRead."""
    faults: Annotated[tuple[JsonObject, ...], records("DeviceFault", MAX_FAULTS)] = ()
    """Faults of the devices that the driver told of in the last seven days, oldest first; the
    newest are kept."""
    interruption: Annotated[JsonObject | None, record("Interruption")] = None
    """Interruption notice in force; absent = none."""
    traces: Annotated[tuple[JsonObject, ...], records("ObservedTrace", MAX_TRACES)] = ()
    """Orders of spec.traces, and what ranks of their pods answered."""
    starvations: Annotated[
        tuple[JsonObject, ...], records("ObservedStarvation", MAX_STARVATIONS)
    ] = ()
    """Containers of any pod that get too little of a volume of the node, because another takes
    more than its fair share."""
    checks: Annotated[tuple[JsonObject, ...], records("NodeCheck", MAX_CHECKS)] = ()
    """Checks of the agent on this node, their results and remedies, as `kubectl ullage doctor`
    prints them."""
    conditions: Annotated[tuple[JsonObject, ...], records("Condition", 32, "type")] = ()
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
    spec: Annotated[
        JsonObject, record("GPUNodeSpec"), Field(json_schema_extra=validations(EPOCH_RISES))
    ]
    """Desired state of the node, written by the operator."""
    status: GPUNodeStatus | None = None
    """Observed state of the node, written by the agent."""
