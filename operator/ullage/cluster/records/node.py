# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Nodes and GPUNodes, as the operator observes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ullage.api.dataio import IoFairness, ObservedStarvation
from ullage.api.devices import ObservedDevice
from ullage.api.faults import DeviceFault
from ullage.api.interruptions import Interruption
from ullage.api.lanes import IterationPolicy
from ullage.api.observations import Observation
from ullage.api.slices import DesiredSlice, ObservedSlice, SliceKey
from ullage.cluster.records.pod_shape import Resources, Taint
from ullage.cluster.records.status import Condition


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """A Kubernetes node."""

    name: str
    uid: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    allocatable: Resources
    ready: bool
    unschedulable: bool = False
    managed: bool = False
    """Label ``ullage.dev/node=true``."""
    created: float = 0.0
    ready_since: float = 0.0
    """Time of the last change of ``ready``, seconds since the epoch; 0 = unknown."""
    deleting: bool = False
    interruption: Interruption | None = None
    """The notice that its taints give."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GPUNodeRecord:
    """A GPUNode: desired slices (assumed ones included) and the agent's report."""

    name: str
    uid: str
    epoch: int
    retire: bool
    desired: tuple[DesiredSlice, ...]
    devices: tuple[ObservedDevice, ...] = ()
    observed: tuple[ObservedSlice, ...] = ()
    heartbeat: float = 0.0
    """Last heartbeat of its agent: by our clock once we observed one, by its own before; 0 =
    never."""
    conditions: tuple[Condition, ...] = ()
    slots: int = 0
    contract: int = 0
    """Version of the records that its agent understands; 0 = unknown."""
    observations: tuple[Observation, ...] = ()
    """Recent observations of the node about classes of work, oldest first."""
    observations_read: str = ""
    """Id of the newest observation acknowledged to the node."""
    lane_policy: IterationPolicy = IterationPolicy.FAIR
    """Policy for the next step in its lanes, from its spec."""
    io_fairness: IoFairness = IoFairness.OBSERVE
    """Answer to containers that take too much of a volume, from its spec."""
    unreadable_observations: int = 0
    """Number of unreadable observations, which are skipped."""
    faults: tuple[DeviceFault, ...] = ()
    """Faults of its devices that the agent reports, oldest first."""
    interruption: Interruption | None = None
    """The provider's notice, as the agent reports it."""
    starvations: tuple[ObservedStarvation, ...] = ()
    """Containers that get too little of a volume, as the agent reports them."""
    desired_since: Mapping[SliceKey, float] = field(default_factory=dict)
    """Time at which this process first observed (or assumed) each desired slice."""
