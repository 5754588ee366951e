# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Stores of the kinds that decisions act on: nodes, GPUNodes, workloads, CapacityPools.

They know the overlay: an observed object ends its assumption, and the echo of our own write, which
the last snapshot already included, is no change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ullage import ports
from ullage.api.readers import WireError
from ullage.api.slices import DesiredSlice
from ullage.cluster.cache.overlay import (
    SlicesSet,
    StatusSet,
    WorkloadLeaving,
    seen_gpu_node,
    seen_workload,
)
from ullage.cluster.cache.pods import PodStore, drop_from
from ullage.cluster.cache.stores import Context, PlainStore, Store, Table, name_of, uid_of
from ullage.cluster.projection.node import first_wanted, project_gpu_node, project_node
from ullage.cluster.projection.pod_template import Blueprint
from ullage.cluster.projection.pool import project_pool
from ullage.cluster.projection.trace import project_node_traces
from ullage.cluster.projection.workload import project_workload
from ullage.cluster.records.node import GPUNodeRecord, NodeRecord
from ullage.cluster.records.pool import PoolRecord, PoolStatus
from ullage.cluster.records.trace import NodeTraces
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.ports import JsonObject

GPU_NODE = "GPUNode"


class NodeStore(PlainStore[str, NodeRecord]):
    """Kubernetes nodes; a change of an unmanaged node triggers no decision."""

    def __init__(self, stream: str, context: Context) -> None:
        super().__init__(stream, context, name_of, project_node, lambda node: node.uid)

    def put(self, raw: JsonObject, now: float) -> bool:
        """Store a node."""
        key = self.key(raw)
        was_ours = self.managed(key)
        return super().put(raw, now) and (was_ours or self.managed(key))

    def drop(self, key: str) -> bool:
        """Remove a node."""
        was_ours = self.managed(key)
        return super().drop(key) and was_ours

    def managed(self, name: str) -> bool:
        """True when the node has our label."""
        held = self.table.get(name)
        return held is not None and held.managed

    def ours(self) -> set[str]:
        """Names of the nodes with our label."""
        return {record.name for record in self.table.values() if record.managed}


class GPUNodeStore(Store[str]):
    """GPUNodes; heartbeats and observations of classes of work trigger no decision."""

    def __init__(self, stream: str, context: Context) -> None:
        super().__init__(stream, context)
        self.table: Table[str, GPUNodeRecord] = Table()
        self._beats: dict[str, float] = {}
        """By name: the time written by the agent into its last heartbeat."""
        self.traces: Table[str, NodeTraces] = Table()
        """Step traces, by name of the node."""

    def __len__(self) -> int:
        return len(self.table)

    def keys(self) -> Iterable[str]:
        """Name of every GPUNode."""
        return self.table.keys()

    def key(self, raw: JsonObject) -> str:
        """Name of the GPUNode."""
        return name_of(raw)

    def held_uid(self, key: str) -> str:
        """Uid of the stored GPUNode."""
        held = self.table.get(key)
        return held.uid if held else ""

    def put(self, raw: JsonObject, now: float) -> bool:
        """Store a GPUNode."""
        name = self.key(raw)
        overlay = self.context.overlay
        held = self.table.get(name)
        before = seen_gpu_node(name, held, overlay)
        wanted_since: dict[DesiredSlice, float] = {}
        for earlier in (before, held):
            if earlier is not None and earlier.uid in ("", uid_of(raw)):
                wanted_since |= first_wanted(earlier)
        record, traces = project_gpu_node(raw, now, wanted_since), project_node_traces(raw)
        heard = self._heard(record, held, now)
        if heard != record.heartbeat:
            record = replace(record, heartbeat=heard)
        assumed = overlay.get(SlicesSet, name)
        confirmed = assumed is not None and (
            record.epoch > assumed[0].epoch
            or SlicesSet(
                node=name,
                epoch=record.epoch,
                slices=record.desired,
                observations_read=record.observations_read,
                lane_policy=record.lane_policy,
                io_fairness=record.io_fairness,
            )
            == assumed[0]
        )
        if confirmed:
            overlay.drop_target(SlicesSet, name)
        self.context.node_refusals.compare(
            held.observed if held else (),
            record.observed,
            (*(held.desired if held else ()), *record.desired),
            now,
        )
        if record != held:
            self.table.put(name, record)
        traced = traces != self.traces.get(name)
        if traced:
            self.traces.put(name, traces)
        if record != held or confirmed or traced:
            self.context.touch()
        self.context.remember(GPU_NODE, raw)
        after = seen_gpu_node(name, record, overlay)
        return before is None or _as_later(before, record) != after

    def drop(self, key: str) -> bool:
        """Remove a GPUNode."""
        self.context.seen.pop((GPU_NODE, "", key), None)
        self.context.overlay.drop_target(SlicesSet, key)
        self._beats.pop(key, None)
        self.traces.pop(key)
        if self.table.pop(key) is None:
            return False
        self.context.touch()
        return True

    def _heard(self, record: GPUNodeRecord, held: GPUNodeRecord | None, now: float) -> float:
        """Time of the agent's last heartbeat by our clock, because its own may jump.

        For a heartbeat from before the first observation, only the agent's own time is known, which
        is capped at now.
        """
        stamp, before = record.heartbeat, self._beats.get(record.name)
        self._beats[record.name] = stamp
        if held is None or before is None or held.uid != record.uid or stamp <= 0:
            return min(stamp, now)
        return held.heartbeat if stamp == before else now


def _as_later(before: GPUNodeRecord, now: GPUNodeRecord) -> GPUNodeRecord:
    """The record with the current heartbeat and observations: these trigger no decision."""
    return replace(
        before,
        heartbeat=now.heartbeat,
        observations=now.observations,
        observations_read=now.observations_read,
        unreadable_observations=now.unreadable_observations,
    )


class WorkloadStore(Store[str]):
    """TrainingJobs or InferenceDeployments, with the blueprints of their children."""

    def __init__(
        self,
        stream: str,
        context: Context,
        kind: WorkloadKind,
        table: Table[str, WorkloadRecord],
        pods: PodStore,
    ) -> None:
        """Both kinds share one table; uids keep them apart."""
        super().__init__(stream, context)
        self.blueprints: dict[str, Blueprint] = {}
        self._kind = kind
        self._table = table
        self._pods = pods
        self._mine: set[str] = set()
        self.named: dict[tuple[str, str], str] = {}
        """Uid of the workload of a namespace and a name."""
        self.trials: dict[str, set[str]] = {}
        """Uids of TrainingJobs by the uid of the TuningJob that they name."""

    def __len__(self) -> int:
        return len(self._mine)

    def keys(self) -> Iterable[str]:
        """Uid of every workload of the kind."""
        return self._mine

    def key(self, raw: JsonObject) -> str:
        """Uid of the workload."""
        return uid_of(raw)

    def put(self, raw: JsonObject, now: float) -> bool:
        """Store a workload."""
        overlay = self.context.overlay
        uid = self.key(raw)
        held = self._table.get(uid)
        before = seen_workload(held, overlay) if held is not None else None
        blueprint_before = self.blueprints.get(uid)
        record, blueprint = project_workload(
            self._kind, raw, held, self.context.share, blueprint_before
        )
        if record.invalid:
            self.context.failed(self.stream, WireError(record.invalid), raw)
        if blueprint is not None:
            self.blueprints[uid] = blueprint
        settled = self._settle(record)
        retry = held is not None and self.context.refusals.owner_changed(uid, record.generation)
        self._mine.add(uid)
        self.named[record.ref.namespace, record.ref.name] = uid
        if self._kind is WorkloadKind.INFERENCE_DEPLOYMENT:
            self._pods.adopt(record.ref.namespace, record.ref.name, uid)
        if record != held:
            self._table.put(uid, record)
            self._forget_trial(held)
            if record.trial is not None:
                self.trials.setdefault(record.trial.tuning_uid, set()).add(uid)
        if held is None:
            self._pods.judge_claims(uid)
        if record != held or retry or settled:
            self.context.touch()
        if before is None or retry:
            return True
        after = seen_workload(record, overlay)
        return replace(before, resource_version=record.resource_version) != after

    def drop(self, key: str) -> bool:
        """Remove a workload."""
        record = self._table.pop(key)
        self._mine.discard(key)
        self.blueprints.pop(key, None)
        self.context.overlay.drop_target(StatusSet, key)
        self.context.overlay.drop_target(WorkloadLeaving, key)
        self.context.refusals.owner_changed(key, None)
        if record is None:
            return False
        self._forget_trial(record)
        self._pods.judge_claims(key)
        ref = record.ref
        if self.named.get((ref.namespace, ref.name)) == key:
            del self.named[ref.namespace, ref.name]
        if self._kind is WorkloadKind.INFERENCE_DEPLOYMENT:
            current = self._pods.service_uid(ref.namespace, ref.name)
            if current == key:
                self._pods.adopt(ref.namespace, ref.name, "")
        self.context.touch()
        return True

    def _forget_trial(self, record: WorkloadRecord | None) -> None:
        if record is not None and record.trial is not None:
            drop_from(self.trials, record.trial.tuning_uid, record.ref.uid)

    def _settle(self, record: WorkloadRecord) -> bool:
        """End assumptions that are observed now; returns True if there were any."""
        overlay = self.context.overlay
        uid = record.ref.uid
        settled = [
            overlay.drop(StatusSet(uid=uid, status=record.status)),
            record.deleting and overlay.drop_target(WorkloadLeaving, uid),
        ]
        return any(settled)


class PoolStore(PlainStore[str, PoolRecord]):
    """CapacityPools by name: the API's records, with this process's newer state on top.

    The leader's own figures are newer than the written ones; a decision uses those. The echo of our
    own write triggers no decision.
    """

    tells = ports.CAPACITY_POOL.kind

    def __init__(self, stream: str, context: Context) -> None:
        super().__init__(stream, context, name_of, project_pool, lambda pool: pool.uid)
        self._told: dict[str, PoolStatus] = {}
        self._seen: dict[str, tuple[PoolRecord, PoolStatus, PoolRecord]] = {}
        self._view: dict[str, PoolRecord] = {}

    def put(self, raw: JsonObject, now: float) -> bool:
        """Store a pool; our own status read back is no change."""
        held = self.table.get(self.key(raw))
        changed = super().put(raw, now)
        record = self.table.get(self.key(raw))
        if not changed or held is None or record is None or held.uid not in self._told:
            return changed
        return replace(held, status=record.status) != record

    def written(self) -> Mapping[str, PoolRecord]:
        """Every pool as in the API, including its status."""
        return self.table.view()

    def tell(self, uid: str, status: PoolStatus) -> bool:
        """Set the known state of a pool; returns True if it changed."""
        if self._told.get(uid) == status:
            return False
        uids = {pool.uid for pool in self.table.values()}
        self._told = {uid: reported for uid, reported in self._told.items() if uid in uids}
        self._told[uid] = status
        self.context.touch()
        return True

    def forget_told(self) -> None:
        """Drop the states that are not in the API."""
        self._told = {}

    def seen(self) -> Mapping[str, PoolRecord]:
        """Every pool as seen by decisions: the same objects while nothing changes.

        Without price sources: decisions do not need them, and readers of a snapshot must not see
        their addresses.
        """
        kept: dict[str, tuple[PoolRecord, PoolStatus, PoolRecord]] = {}
        for name, record in self.table.view().items():
            status = self._told.get(record.uid, record.status)
            entry = self._seen.get(name)
            if entry is None or entry[0] is not record or entry[1] is not status:
                entry = record, status, replace(record, status=status, price_source=None)
            kept[name] = entry
        if any(kept.get(name) is not entry for name, entry in self._seen.items()) or len(
            kept
        ) != len(self._seen):
            self._view = {name: entry[2] for name, entry in kept.items()}
        self._seen = kept
        return self._view
