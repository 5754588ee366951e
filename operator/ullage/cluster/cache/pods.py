# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Our pods: their owners, and foreign pods that only claim one.

Any user with permission to create pods in a namespace can write our labels and any uid into them. A
pod is ours if it is consistent in itself and the workload of the claimed uid is the named one, in
the pod's own namespace. No result depends on the order of streams.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias, TypeVar

from ullage.api.labels import GATE, SLOT_RESOURCE
from ullage.cluster.cache.adopted import AdoptedPods
from ullage.cluster.cache.foreign import ForeignStore
from ullage.cluster.cache.overlay import PodCreated, PodLeaving, PodUngated, seen_pod
from ullage.cluster.cache.reservations import Reservations
from ullage.cluster.cache.stores import Context, PlainStore, Store, Table, full_name_of, uid_of
from ullage.cluster.projection.adopted import (
    AdoptedPod,
    group_unit,
    project_adopted,
    read_pod_group,
)
from ullage.cluster.projection.ownership import Claim
from ullage.cluster.projection.pod import ForeignUse, project_pod
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.pod import ForeignPod, PodRecord, PodStage
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.ports import JsonObject

Key = TypeVar("Key", bound=Hashable)

POD: Final = "Pod"
GroupName: TypeAlias = tuple[str, str]
"""Namespace and name of a PodGroup."""


class PodStore(Store[str]):
    """Our pods, and separately those that claim to be ours and are not.

    Only our pods reach a snapshot. The resources of a foreign one on its node still count.
    """

    def __init__(
        self,
        stream: str,
        context: Context,
        workloads: Table[str, WorkloadRecord],
        others: ForeignStore,
    ) -> None:
        """``workloads`` are possible owners of pods, ``others`` counts foreign pods' resources."""
        super().__init__(stream, context)
        self.table: Table[str, PodRecord] = Table()
        self._workloads = workloads
        self._others = others
        self._foreign: dict[str, tuple[PodRecord, str]] = {}
        """Foreign claimants with the contradiction to their claim, by uid."""
        self._claimed: dict[str, set[str]] = {}
        """Pods by the claimed uid of their workload."""
        self._services: dict[tuple[str, str], str] = {}
        self._serving: dict[tuple[str, str], set[str]] = {}
        self._coordinators: set[str] = set()
        self.ruled: set[str] = set()
        """Our unfinished pods with rules about others, by uid."""
        self._group_of: dict[str, GroupName] = {}
        """PodGroup named by a pod, by the pod's uid."""
        self._grouped: dict[GroupName, set[str]] = {}
        self.groups: Table[GroupName, int] = Table()
        """Minimum of members of each PodGroup; 0 = each alone."""
        self.reservations = Reservations()
        self.adopted = AdoptedPods(context, workloads, self.groups, self.judge_claims)

    def __len__(self) -> int:
        return len(self.table) + len(self._foreign)

    def keys(self) -> Iterable[str]:
        """Uid of every pod."""
        return (*self.table.keys(), *self._foreign)

    def coordinators(self) -> Iterable[PodRecord]:
        """Coordinator pods of jobs in tiers, indexed."""
        return [pod for uid in self._coordinators if (pod := self.table.get(uid)) is not None]

    def of(self, uid: str) -> Sequence[PodRecord]:
        """Our pods that claim a TrainingJob, indexed."""
        claiming = (self.table.get(pod_uid) for pod_uid in self._claimed.get(uid, ()))
        return [pod for pod in claiming if pod is not None]

    def foreign(self) -> Mapping[str, ForeignPod]:
        """Pods with our label that are not ours, by uid."""
        return {
            uid: ForeignPod(namespace=pod.namespace, name=pod.name, claims=pod.owner, why=why)
            for uid, (pod, why) in self._foreign.items()
        }

    def key(self, raw: JsonObject) -> str:
        """Uid of the pod."""
        return uid_of(raw)

    def put(self, raw: JsonObject, now: float) -> bool:
        """Store a pod."""
        uid = self.key(raw)
        held = self.table.get(uid)
        before = seen_pod(held, self.context.overlay) if held is not None else None
        record, claim = self._projected(raw, now, held, before)
        adopted: AdoptedPod | None = None
        moved: Sequence[str] = ()
        if not claim.against and record.owner.kind == WorkloadKind.POD:
            adopted, moved = self.adopted.join(project_adopted(raw, record, self.context.share))
            record = replace(record, owner=self.context.share(adopted.terms.ref))
        self._unindex(uid)
        self._index(uid, record, claim)
        changed = self._keep(record, claim.against or self._contradicted(record), before)
        if adopted is None:
            self.adopted.drop(uid)
            return changed
        for other in moved:
            self._move(other)
        return self.adopted.put(adopted) or bool(moved) or changed

    def drop(self, key: str) -> bool:
        """Remove a pod."""
        self._unindex(key)
        self.adopted.drop(key)
        if self._foreign.pop(key, None) is not None:
            return self._others.count_besides(key, None)
        return self._let_go(key)

    def _move(self, uid: str) -> None:
        """Move a pod to another gang of the same name."""
        record, moved = self.table.get(uid), self.adopted.move_to_run(uid)
        if record is None or moved is None:
            return
        self._unindex(uid)
        self._claimed.setdefault(moved.terms.ref.uid, set()).add(uid)
        self.table.put(uid, replace(record, owner=self.context.share(moved.terms.ref)))

    def adopt(self, namespace: str, name: str, uid: str) -> None:
        """Give the replicas of an InferenceDeployment its uid (empty = there is none)."""
        if uid:
            self._services[namespace, name] = uid
        else:
            self._services.pop((namespace, name), None)
        for pod_uid in self._serving.get((namespace, name), ()):
            record = self.table.get(pod_uid)
            if record is not None and record.owner.uid != uid:
                self.table.put(pod_uid, self._owned(record, uid))
                self.context.touch()

    def regroup(self, name: GroupName) -> None:
        """Regroup the pods of an added, removed or changed PodGroup."""
        for uid in tuple(self._grouped.get(name, ())):
            record = self._known(uid)
            if record is None:
                continue
            alone = ObjectRef(
                kind=WorkloadKind.POD, namespace=record.namespace, name=record.name, uid=uid
            )
            before, owned = self.table.get(uid), self._placed_with(record, name, alone)
            if owned != record:
                drop_from(self._claimed, record.owner.uid, uid)
                self._claimed.setdefault(owned.owner.uid, set()).add(uid)
                self._keep(owned, self._contradicted(owned), before)
            self.adopted.move(uid, owned.owner)

    def judge_claims(self, uid: str) -> None:
        """Recheck the claims of pods whose claimed workload was added or removed."""
        for pod_uid in tuple(self._claimed.get(uid, ())):
            record = self._known(pod_uid)
            if record is not None:
                before = self.table.get(pod_uid)
                self._keep(record, self._contradicted(record), before)

    def service_uid(self, namespace: str, name: str) -> str:
        """Uid of the InferenceDeployment of this name, empty without one."""
        return self._services.get((namespace, name), "")

    def _index(self, uid: str, record: PodRecord, claim: Claim) -> None:
        """Index a pod by its claimed group, service or workload."""
        if claim.against:
            return
        if claim.group:
            self._group_of[uid] = name = (record.namespace, claim.group)
            self._grouped.setdefault(name, set()).add(uid)
        if claim.replica:
            self._serving.setdefault((record.namespace, record.owner.name), set()).add(uid)
        else:
            self._claimed.setdefault(record.owner.uid, set()).add(uid)

    def _unindex(self, uid: str) -> None:
        """Remove a pod from the indexes."""
        name = self._group_of.pop(uid, None)
        if name is not None:
            drop_from(self._grouped, name, uid)
        record = self._known(uid)
        if record is not None:
            drop_from(self._serving, (record.namespace, record.owner.name), uid)
            drop_from(self._claimed, record.owner.uid, uid)

    def _known(self, uid: str) -> PodRecord | None:
        """The pod, ours or not."""
        foreign = self._foreign.get(uid)
        return foreign[0] if foreign is not None else self.table.get(uid)

    def _contradicted(self, record: PodRecord) -> str:
        """Contradiction by the workload of the claimed uid; empty where unknown."""
        owner = self._workloads.get(record.owner.uid)
        if owner is None or owner.ref == record.owner:
            return ""
        return "the uid that it claims is that of another workload"

    def _keep(self, record: PodRecord, against: str, before: PodRecord | None) -> bool:
        """Store a pod among ours, or separately if its claim is contradicted."""
        uid = record.uid
        if against:
            changed = self._let_go(uid)
            self._foreign[uid] = record, against
            return self._others.count_besides(uid, _use_of(record)) or changed
        if self._foreign.pop(uid, None) is not None:
            self._others.count_besides(uid, None)
        settled = self._settle(record)
        if record != self.table.get(uid):
            self.table.put(uid, record)
            self.reservations.put(record)
            if record.rules is not None and not record.stage.finished:
                self.ruled.add(uid)
            else:
                self.ruled.discard(uid)
            if record.lead:
                self._coordinators.add(uid)
            else:
                self._coordinators.discard(uid)
            self.context.touch()
        elif settled:
            self.context.touch()
        return before != seen_pod(record, self.context.overlay)

    def _let_go(self, uid: str) -> bool:
        """Remove a pod from ours; returns True if it was one."""
        self._coordinators.discard(uid)
        self.ruled.discard(uid)
        self.context.overlay.drop_target(PodUngated, uid)
        self.context.overlay.drop_target(PodLeaving, uid)
        self.context.node_refusals.forget(uid)
        gone = self.table.pop(uid)
        if gone is None:
            return False
        self.reservations.drop(gone)
        self.context.touch()
        return True

    def _settle(self, record: PodRecord) -> bool:
        """End assumptions that are observed now; returns True if there were any."""
        overlay = self.context.overlay
        name = (record.namespace, record.name)
        settled = [
            overlay.drop_target(PodCreated, name),
            self.context.refusals.settle((POD, *name), record.owner.uid),
            GATE not in record.gates and overlay.drop_target(PodUngated, record.uid),
            bool(record.reservation) and overlay.drop_target(PodUngated, record.reservation),
            record.deleting and overlay.drop_target(PodLeaving, record.uid),
        ]
        return any(settled)

    def _placed_with(self, record: PodRecord, name: GroupName, alone: ObjectRef) -> PodRecord:
        """The pod as a member of its PodGroup's gang; alone if there is none."""
        owner = group_unit(*name) if self.groups.get(name) else alone
        return replace(record, owner=self.context.share(owner))

    def _owned(self, record: PodRecord, uid: str) -> PodRecord:
        return replace(record, owner=self.context.share(replace(record.owner, uid=uid)))

    def _projected(
        self, raw: JsonObject, now: float, held: PodRecord | None, before: PodRecord | None
    ) -> tuple[PodRecord, Claim]:
        """The record with data known only to this process: owner's uid, start of the stage."""
        record, claim = project_pod(raw, now, self.context.share)
        if claim.replica and not claim.against:
            key = (record.namespace, record.owner.name)
            record = self._owned(record, self._services.get(key, ""))
        record = _as_it_ended(record, held)
        if claim.group and not claim.against:
            record = self._placed_with(record, (record.namespace, claim.group), claim.owner)
        for earlier in (held, before):
            if earlier is not None and earlier.stage is record.stage:
                return replace(record, stage_since=earlier.stage_since), claim
        return record, claim


class PodGroupStore(PlainStore[GroupName, int]):
    """PodGroups of Kubernetes: gangs, and their minimum of members."""

    def __init__(self, stream: str, context: Context, pods: PodStore) -> None:
        """``pods`` are regrouped with every change."""
        super().__init__(stream, context, full_name_of, read_pod_group)
        self.table = pods.groups
        self._pods = pods

    def put(self, raw: JsonObject, now: float) -> bool:
        """Store a group."""
        changed = super().put(raw, now)
        if changed:
            self._pods.regroup(self.key(raw))
        return changed

    def drop(self, key: GroupName) -> bool:
        """Remove a group."""
        gone = super().drop(key)
        if gone:
            self._pods.regroup(key)
        return gone


def _as_it_ended(record: PodRecord, held: PodRecord | None) -> PodRecord:
    """Keep the end of a pod that was observed to end by itself, though it is deleted afterwards."""
    if held is None or not held.stage.finished:
        return record
    if held.stage is PodStage.SUCCEEDED and record.stage is PodStage.STOPPED:
        return replace(record, stage=held.stage, report=held.report)
    if held.stage is record.stage is PodStage.FAILED:
        return replace(record, disrupted=held.disrupted)
    return record


def _use_of(record: PodRecord) -> ForeignUse | None:
    """Requests of a pod on its node; ``None`` if it uses nothing (any more)."""
    if not record.node or record.stage.finished:
        return None
    requests = record.shape.requests
    holds = any(name == SLOT_RESOURCE and amount for name, amount in requests.extended)
    holder = f"{record.namespace}/{record.name}" if holds else ""
    return ForeignUse(node=record.node, requests=requests, slot_holder=holder, traits=record.traits)


def drop_from(index: dict[Key, set[str]], key: Key, uid: str) -> None:
    """Remove a uid from an index, and an entry that is empty then."""
    uids = index.get(key)
    if uids is not None:
        uids.discard(uid)
        if not uids:
            del index[key]
