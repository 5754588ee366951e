# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The indexed snapshot: members of every workload and their slices.

Built once per cycle; later phases look up its indices instead of searching the snapshot. Immutable
records only, nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ullage.api.labels import GATE
from ullage.api.reasons import Reason
from ullage.api.slices import DesiredSlice, ObservedSlice, SlicePhase
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.profile import ChargedFault
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.workload import WorkloadRecord
from ullage.cluster.values.device_ref import DeviceRef
from ullage.scheduling.model.changes import Changes, Renewed
from ullage.scheduling.model.plan import DecideSettings
from ullage.scheduling.model.workload_index import WorkloadIndex

Class: TypeAlias = tuple[str, str]
"""Namespace and key of a class of work."""


@dataclass(frozen=True, slots=True)
class Held:
    """A slice of a member in the spec, and its node's report on exactly this decision."""

    node: str
    slice: DesiredSlice
    seen: ObservedSlice | None
    """``None`` until the node answers to this device, share and epoch."""
    since: float
    """Time at which this process first observed the slice in the spec."""

    @property
    def acknowledged(self) -> bool:
        """True if the node reserved it for the pod."""
        return self.seen is not None and self.seen.phase is not SlicePhase.REFUSED

    @property
    def refused(self) -> bool:
        """True if the node refused it for good."""
        return self.seen is not None and self.seen.phase is SlicePhase.REFUSED

    @property
    def started(self) -> bool:
        """True if a container may have been created with it."""
        return self.seen is not None and self.seen.phase.started

    @property
    def device(self) -> DeviceRef:
        """The device of the slice."""
        return DeviceRef(self.node, self.slice.gpu)


@dataclass(frozen=True, slots=True)
class Member:
    """A pod of a workload with its slices, in order of their index."""

    pod: PodRecord
    held: tuple[Held, ...]

    @property
    def gated(self) -> bool:
        """True if our gate still keeps it from kube-scheduler."""
        return GATE in self.pod.gates and not self.pod.stage.finished

    @property
    def foreign_gates(self) -> tuple[str, ...]:
        """Gates of other controllers that keep it from kube-scheduler beside ours.

        Until they are removed, no device is reserved for the pod and no time limit of ours runs.
        """
        return tuple(gate for gate in self.pod.gates if gate != GATE) if self.live else ()

    @property
    def live(self) -> bool:
        """True if a process of it may run now or later."""
        return not self.pod.stage.finished

    @property
    def runs(self) -> bool:
        """True if its containers run, or ran to their end."""
        return self.pod.stage in (PodStage.RUNNING, PodStage.SUCCEEDED)

    @property
    def settled(self) -> bool:
        """True if it is bound to a node and has no slice: only that node can provide one."""
        return bool(self.pod.node) and not self.held

    @property
    def reserved(self) -> bool:
        """True if it has slices and its node acknowledged all of them."""
        return bool(self.held) and all(part.acknowledged for part in self.held)


@dataclass(frozen=True, slots=True)
class PendingEviction:
    """An eviction of a running pod; ``device`` is the one that it must leave."""

    reason: Reason
    message: str
    device: DeviceRef | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """A class that shares devices only with itself.

    ``faults`` is their number, ``newest`` the last of them, ``until`` seconds since the epoch.
    """

    faults: int
    newest: ChargedFault
    until: float


@dataclass(frozen=True, slots=True)
class View:
    """One cycle's snapshot."""

    snapshot: Snapshot
    now: float
    settings: DecideSettings
    members: Mapping[str, Sequence[Member]]
    """By uid of the workload, in order of rank, then name."""
    observed: Mapping[str, Sequence[tuple[str, ObservedSlice]]]
    """Reports of nodes, by uid of the pod: (node, slice)."""
    names: Mapping[tuple[str, str], PodRecord]
    """Our pods by (namespace, name)."""
    index: WorkloadIndex
    changes: Changes = field(default_factory=Changes, compare=False)
    """Since the last snapshot."""
    renewed: Renewed[str] = field(default_factory=Renewed, compare=False)
    """Workloads whose members changed since the last snapshot."""
    tried: Collection[str] = ()
    """GPUNodes with a slice on trial, one that breaks its objective, or one to be moved."""
    starting: int = 0
    """Ungated pods of known workloads that do not run yet."""
    evictions: Mapping[str, PendingEviction] = field(default_factory=dict)
    """Pods that have to leave their device, by uid."""
    isolated: Mapping[Class, Isolation] = field(default_factory=dict)
    """Classes that share devices only with themselves, because their programs caused faults."""
    orders: Sequence[PodRecord] = ()
    """Placeholder pods that request nodes for known jobs."""
    coordinators: Mapping[str, PodRecord] = field(default_factory=dict)
    """Coordinator pods of jobs in tiers, by uid of the job."""

    def members_of(self, workload: WorkloadRecord) -> Sequence[Member]:
        """The existing pods of a workload."""
        return self.members.get(workload.ref.uid, ())

    def lingering_nodes(self, member: Member) -> frozenset[str]:
        """Nodes that still report a slice of the pod which is no longer in the spec.

        Such a slice may conflict with a new one of the same name, so nothing is placed there.
        """
        reports = self.observed.get(member.pod.uid)
        if not reports:
            return frozenset()
        current = {(part.node, part.slice.key) for part in member.held}
        return frozenset(node for node, seen in reports if (node, seen.key) not in current)


def matching(
    node: str, wanted: DesiredSlice, reports: Sequence[tuple[str, ObservedSlice]]
) -> ObservedSlice | None:
    """The report on exactly this decision, if any.

    The report of a started slice stays valid when only its epoch was renewed; that of a waiting one
    does not.
    """
    for where, seen in reports:
        if where != node or seen.key != wanted.key or seen.gpu != wanted.gpu:
            continue
        if seen.phase.started:
            return seen
        if (seen.percent, seen.epoch) == (wanted.percent, wanted.epoch):
            return seen
    return None
