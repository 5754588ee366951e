# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Members of every workload with the slices that they keep.

They are cached between cycles: a member is built again when its pod, its workload or a GPUNode with
a slice of it changed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields

from ullage.cluster.records.snapshot import PodRecord, Snapshot
from ullage.cluster.values.device_ref import DeviceRef
from ullage.scheduling.inventory.slices_by_pod import SlicesByPod
from ullage.scheduling.lifecycle.adopt import Located, settle
from ullage.scheduling.model.changes import Changes, Renewed
from ullage.scheduling.model.node_index import NodeIndex
from ullage.scheduling.model.plan import DecideSettings
from ullage.scheduling.model.pod_index import PodIndex
from ullage.scheduling.model.slice_ledger import Ledger
from ullage.scheduling.model.view import Held, Member, matching
from ullage.scheduling.model.workload_index import WorkloadIndex

Devices = tuple[DeviceRef, ...]


@dataclass(slots=True)
class MemberCache:
    """Members of the last cycle."""

    slices: SlicesByPod = field(default_factory=SlicesByPod)
    members: dict[str, Sequence[Member]] = field(default_factory=dict)
    """By uid of the workload, in order of rank, then name."""
    devices: dict[str, Devices] = field(default_factory=dict)
    """Devices of which a workload holds slices, by its uid."""
    devices_before: dict[str, Devices] = field(default_factory=dict)
    """The devices of the last cycle for workloads whose members were built again."""
    index: WorkloadIndex = field(default_factory=WorkloadIndex)
    pod_index: PodIndex = field(default_factory=PodIndex)
    node_index: NodeIndex = field(default_factory=NodeIndex)
    changes: Changes = field(default_factory=Changes)
    """Between this snapshot and the last one."""
    current: Mapping[str, Sequence[Member]] = field(default_factory=dict)
    """The members of this snapshot; a copy that is never changed."""
    renewed: Renewed[str] = field(default_factory=Renewed)
    """Workloads whose members changed since the last snapshot."""
    refused: set[str] = field(default_factory=set)
    """Workloads with a slice that a node refused for good."""
    _last: Snapshot | None = None
    _unsettled: set[str] = field(default_factory=set)
    """Pods whose slices differ from their specs, or whose slices have no known age yet."""

    def update(self, snapshot: Snapshot, settings: DecideSettings, ledger: Ledger) -> None:
        """Take in a snapshot, and drop slices that do not stay from the ledger."""
        last, self._last = self._last, None
        if last is None:  # the last cycle failed and left an incomplete cache
            empty = MemberCache()
            for attribute in fields(self):
                setattr(self, attribute.name, getattr(empty, attribute.name))
        self.changes = Changes.between(last, snapshot)
        self.index.update(self.changes.workloads, snapshot.workloads)
        self.node_index.update(self.changes.gpu_nodes, snapshot.gpu_nodes)
        before = last.pods if last is not None else {}
        self.pod_index.update(self.changes.pods, before, snapshot.pods)
        pods = self._affected(snapshot)
        owners = _owners(before, pods) | _owners(snapshot.pods, pods)
        self._unsettled = set()
        self.devices_before = {uid: self.devices[uid] for uid in owners if uid in self.devices}
        fresh: dict[str, list[Member]] = {uid: [] for uid in owners}
        for uid in pods:
            settled = settle(snapshot, settings, self.slices, uid)
            settled.enter(ledger)
            pod = snapshot.pods.get(uid)
            is_member = pod is not None and not pod.order and not pod.lead
            if pod is not None and is_member:
                fresh[pod.owner.uid].append(self._member(snapshot, pod, settled.kept))
            ages_known = all(
                part.key in snapshot.gpu_nodes[node].desired_since for node, part in settled.kept
            )
            settles = settled.is_written and ages_known
            if not settles or (settled.kept and not is_member):
                self._unsettled.add(uid)
        for uid, new in fresh.items():
            group = [member for member in self.members.get(uid, ()) if member.pod.uid not in pods]
            group.extend(new)
            group.sort(key=lambda member: (member.pod.rank, member.pod.name, member.pod.uid))
            self._enter(uid, group)
        previous, self.current = self.current, dict(self.members)
        self.renewed = Renewed(previous, self.current, tuple(fresh))
        self._last = snapshot

    def _enter(self, uid: str, group: Sequence[Member]) -> None:
        """Enter the members of a workload into the tables."""
        held = [held for member in group for held in member.held]
        for table in (self.members, self.devices):
            table.pop(uid, None)
        self.refused.discard(uid)
        if group:
            self.members[uid] = group
        if held:
            self.devices[uid] = tuple(DeviceRef(held.node, held.slice.gpu) for held in held)
        if any(held.refused for held in held):
            self.refused.add(uid)

    def _affected(self, snapshot: Snapshot) -> set[str]:
        """Pods of which a record changed, with those that are gone."""
        pods = self.slices.update(self.changes.gpu_nodes, snapshot.gpu_nodes) | self._unsettled
        pods.update(self.changes.pods)
        for uid in self.changes.workloads:
            pods.update(member.pod.uid for member in self.members.get(uid, ()))
        return pods

    def _member(self, snapshot: Snapshot, pod: PodRecord, kept: Sequence[Located]) -> Member:
        reports = self.slices.observed.get(pod.uid, ())
        return Member(
            pod,
            tuple(
                Held(
                    node,
                    wanted,
                    matching(node, wanted, reports),
                    snapshot.gpu_nodes[node].desired_since.get(wanted.key, snapshot.taken_at),
                )
                for node, wanted in kept
            ),
        )


def _owners(pods: Mapping[str, PodRecord], uids: Collection[str]) -> set[str]:
    return {pods[uid].owner.uid for uid in uids if uid in pods}
