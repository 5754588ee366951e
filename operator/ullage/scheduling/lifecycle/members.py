# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Members of every workload with the slices that they keep.

A slice is released when its pod is gone, and adopted when a node runs it and the spec lacks it: a
running container never loses its slice. New slices are not decided here. Members are cached between
cycles: one is built again when its pod, its workload or a GPUNode with a slice of it changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields

from ullage.api.labels import GATE
from ullage.api.slices import DesiredSlice, ObservedSlice
from ullage.cluster.records.pod import PodRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.workload import WorkloadRecord
from ullage.cluster.values.device_ref import DeviceRef
from ullage.scheduling.feasibility.slices import has_objective, priority_held, slowdown_percent
from ullage.scheduling.inventory.slices_by_pod import SlicesByPod
from ullage.scheduling.model.changes import Changes, Renewed
from ullage.scheduling.model.node_index import NodeIndex
from ullage.scheduling.model.plan import DecideSettings
from ullage.scheduling.model.pod_index import PodIndex
from ullage.scheduling.model.slice_ledger import Ledger
from ullage.scheduling.model.view import Held, Member, View, matching
from ullage.scheduling.model.workload_index import WorkloadIndex

Located = tuple[str, DesiredSlice]


@dataclass(frozen=True, slots=True)
class Settled:
    """The slices that a pod keeps, and the changes of specs for that."""

    kept: Sequence[Located] = ()
    dropped: Sequence[Located] = ()
    adopted: Sequence[Located] = ()

    @property
    def is_written(self) -> bool:
        """True when specs need no change."""
        return not self.dropped and not self.adopted

    def enter(self, ledger: Ledger) -> None:
        """Write the changes into the ledger."""
        for node, gone in self.dropped:
            ledger.drop(node, gone.key)
        for node, part in self.adopted:
            ledger.add(node, part)


def settle(snapshot: Snapshot, settings: DecideSettings, slices: SlicesByPod, uid: str) -> Settled:
    """Release the slices of a pod that is gone, finished or elsewhere; adopt those it runs on.

    Args:
        snapshot: The cluster.
        settings: Holds the epoch of adopted slices.
        slices: The slices of all pods.
        uid: uid of the pod.
    """
    pod, wanted = snapshot.pods.get(uid), slices.desired.get(uid, ())
    if pod is None or pod.stage.finished:
        return Settled(dropped=wanted)
    kept = [located for located in wanted if _stands(snapshot, located[0], pod)]
    dropped = [located for located in wanted if not _stands(snapshot, located[0], pod)]
    reports = slices.observed.get(uid, ())
    in_specs = {(node, part.key) for node, part in wanted}
    adopted = [
        (node, _adopted(snapshot, settings, pod, seen))
        for node, seen in reports
        if seen.phase.started
        and seen.gpu
        and node == pod.node
        and (node, seen.key) not in in_specs
        and _stands(snapshot, node, pod)
    ]
    kept.extend(adopted)
    if len(kept) > 1:
        kept.sort(key=lambda located: (located[1].key, located[0]))
        best = _best(kept, reports)
        dropped.extend(located for located in kept if located[0] != best)
        kept = [located for located in kept if located[0] == best]
    return Settled(kept, dropped, adopted)


def drop_refused(view: View, uids: Iterable[str], ledger: Ledger) -> None:
    """Drop refused slices: they hold nothing, and a node must not start them later.

    Args:
        view: The cycle's snapshot.
        uids: Workloads with refused slices.
        ledger: The slices that specs are to have.
    """
    for uid in uids:
        for member in view.members[uid]:
            for held in member.held:
                if held.refused:
                    ledger.drop(held.node, held.slice.key)


def _stands(snapshot: Snapshot, node: str, pod: PodRecord) -> bool:
    """True when a pod may keep a slice on this node."""
    if pod.stage.finished or pod.node not in ("", node):
        return False
    if GATE not in pod.gates:
        return True
    owner = snapshot.workloads.get(pod.owner.uid)
    return owner is not None and not owner.deleting and not pod.deleting


def _adopted(
    snapshot: Snapshot, settings: DecideSettings, pod: PodRecord, seen: ObservedSlice
) -> DesiredSlice:
    owner = snapshot.workloads.get(pod.owner.uid)
    return DesiredSlice(
        key=seen.key,
        pod_namespace=pod.namespace,
        pod_name=pod.name,
        gpu=seen.gpu,
        percent=seen.percent,
        memory_mib=seen.memory_mib,
        epoch=settings.epoch,
        priority=priority_held(pod.priority),
        protected=owner is not None and has_objective(owner),
        workload_class=owner.workload_class if owner else "",
        family=owner.family if owner else "",
        trust_domain=owner.trust_domain if owner else "",
        max_slowdown_percent=slowdown_percent(owner.max_slowdown if owner else None),
        slo=owner.slo if owner else None,
        alert_only=(
            owner is not None and has_objective(owner) and not owner.sharing.freeze_neighbours
        ),
        reports_load=owner is not None and owner.scaling is not None,
        lane=seen.lane,
        persistent_mib=seen.persistent_mib,
        ephemeral_mib=seen.ephemeral_mib,
        suspendable=seen.suspendable,
    )


def _best(located: Sequence[Located], reports: Sequence[tuple[str, ObservedSlice]]) -> str:
    """The node on which a pod keeps its slices: the one that reports most of them.

    A slice may be written for two nodes when a leader died between the writes.
    """
    nodes = sorted({node for node, _ in located})
    if len(nodes) == 1:
        return nodes[0]
    answered = {(node, seen.key, seen.gpu) for node, seen in reports if seen.phase.holds_capacity}
    return max(
        nodes, key=lambda node: sum((node, part.key, part.gpu) in answered for at, part in located)
    )


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
        before = self.changes.before.workloads if self.changes.before is not None else {}
        for uid in self.changes.workloads:
            if _keeps(before.get(uid)) != _keeps(snapshot.workloads.get(uid)):
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


def _keeps(workload: WorkloadRecord | None) -> bool:
    """True when gated pods of a workload may keep slices: all that matters of its record.

    Pods with slices to adopt, which carry more of it, are read again in every cycle.
    """
    return workload is not None and not workload.deleting


def _owners(pods: Mapping[str, PodRecord], uids: Collection[str]) -> set[str]:
    return {pods[uid].owner.uid for uid in uids if uid in pods}
