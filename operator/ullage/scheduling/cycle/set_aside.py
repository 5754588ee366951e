# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The snapshot without objects whose decision fails, and the status that reports it.

Only the basic facts of such an object remain: its identity and its slices. Its pods and slices stay
unchanged, nothing is placed because of it, and no action is taken on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from ullage.api.gpurequest import GPURequest
from ullage.api.reasons import ConditionType, Reason
from ullage.api.sharing import SharingRules
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.pod import PodRecord
from ullage.cluster.records.pod_shape import PodShape, Resources
from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.pool import PoolRecord, PoolStatus
from ullage.cluster.records.profile import DeviceProfileRecord, ProfileRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import WorkloadStatus
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.model.conditions import DesiredCondition, merged
from ullage.scheduling.model.faults import PODS, WORKLOADS, Fault, Subject
from ullage.scheduling.model.phases import Phase

POLICY: Final = "policy"
_TABLES: Final = ("gpu_nodes", "device_profiles", "pools", POLICY, "profiles", WORKLOADS, PODS)
"""Attributes of the snapshot whose records can be set aside: first those written by agents, then by
administrators, then by tenants. Of objects that fail together a search finds the last."""
_KINDS: Final = {
    "device_profiles": "DeviceProfile",
    "pools": "CapacityPool",
    "profiles": "WorkloadProfile",
    "gpu_nodes": "GPUNode",
    PODS: "Pod",
    POLICY: "SchedulingPolicy",
}
_MOST: Final = 2**53
"""Upper bound of a machine's resources."""


def without(snapshot: Snapshot, faults: Iterable[Fault]) -> Snapshot:
    """The snapshot with some objects set aside; the same object without any."""
    by_table: dict[str, set[str]] = {}
    for fault in faults:
        by_table.setdefault(fault.table, set()).add(fault.key)
    if not by_table:
        return snapshot
    jobs = by_table.get(WORKLOADS, set())
    by_table.setdefault(PODS, set()).update(
        uid for uid, pod in snapshot.pods.items() if pod.owner.uid in jobs
    )
    changed: dict[str, object] = {}
    if POLICY in by_table:
        changed[POLICY] = plain(snapshot.policy)
    if not jobs.isdisjoint(snapshot.leads):
        changed["leads"] = {uid: lead for uid, lead in snapshot.leads.items() if uid not in jobs}
    if not jobs.isdisjoint(snapshot.routers):
        changed["routers"] = {
            uid: load for uid, load in snapshot.routers.items() if uid not in jobs
        }
    for table in _TABLES:
        if table in by_table and table != POLICY:
            changed[table] = _with(getattr(snapshot, table), by_table[table])
    return replace(snapshot, **changed)  # type: ignore[arg-type]


def key_text(key: object) -> str:
    """The key of a record as text."""
    return "/".join(key) if isinstance(key, tuple) else str(key)


def subjects(snapshot: Snapshot) -> list[Subject]:
    """All objects that can be set aside; a workload includes its pods."""
    subjects: list[Subject] = []
    for table in _TABLES:
        if table == POLICY:
            subjects.append((POLICY, snapshot.policy.name))
            continue
        records: Mapping[object, object] = getattr(snapshot, table)
        if table == PODS:
            owners = snapshot.workloads
            strays = (uid for uid, pod in snapshot.pods.items() if pod.owner.uid not in owners)
            subjects += [(PODS, uid) for uid in strays]
        else:
            subjects += [(table, key_text(key)) for key in records]
    return subjects


def reference(snapshot: Snapshot, fault: Fault) -> ObjectRef | None:
    """The object that is set aside; ``None`` = it is gone."""
    if fault.table == WORKLOADS:
        workload = snapshot.workloads.get(fault.key)
        return workload.ref if workload is not None else None
    if fault.table == POLICY:
        record: object = snapshot.policy
    else:
        records: Mapping[object, object] = getattr(snapshot, fault.table)
        record = next((value for at, value in records.items() if key_text(at) == fault.key), None)
    if record is None:
        return None
    namespace, _, name = fault.key.rpartition("/")
    if isinstance(record, PodRecord):
        namespace, name = record.namespace, record.name
    uid = str(getattr(record, "uid", ""))
    return ObjectRef(kind=_KINDS[fault.table], namespace=namespace, name=name, uid=uid)


def failed_status(workload: WorkloadRecord, fault: Fault, now: float) -> WorkloadStatus:
    """The last status with the failed decision; the same object if it already reports it."""
    before = workload.status
    shown = before.condition(ConditionType.INVALID)
    message = (
        f"no decision can be made about it: {fault.text}; its pods and devices stay as they are"
    )
    failed = merged(
        (shown,) if shown is not None else (),
        (DesiredCondition(ConditionType.INVALID, True, Reason.DECISION_FAILED, message),),
        whole_second(now),
        workload.generation,
    )
    others = tuple(
        condition for condition in before.conditions if condition.type != ConditionType.INVALID
    )
    after = replace(
        before,
        phase=before.phase or Phase.PENDING.value,
        observed_generation=workload.generation,
        conditions=(*others, *failed),
    )
    return before if after == before else after


def _with(records: Mapping[object, object], keys: set[str]) -> dict[object, object]:
    return {
        key: plain(record) if key_text(key) in keys else record for key, record in records.items()
    }


def plain(record: object) -> object:
    """A record that is set aside: its identity, without its requests."""
    match record:
        case WorkloadRecord():
            return _workload(record)
        case PodRecord():
            return _pod(record)
        case GPUNodeRecord():
            return replace(
                record, devices=(), observations=(), unreadable_observations=0, conditions=()
            )
        case ProfileRecord(namespace=namespace, name=name, workload_class=workload_class):
            return ProfileRecord(namespace=namespace, name=name, workload_class=workload_class)
        case DeviceProfileRecord(name=name, uid=uid, generation=generation):
            return DeviceProfileRecord(name=name, uid=uid, generation=generation)
        case PoolRecord():
            return replace(record, status=PoolStatus(), most=None, notice_s=None, advisor_band=None)
        case PolicyRecord(name=name, uid=uid, generation=generation):
            return PolicyRecord(name=name, uid=uid, generation=generation)
        case _:
            raise TypeError(f"{type(record).__name__} cannot be set aside")


def _workload(workload_record: WorkloadRecord) -> WorkloadRecord:
    return WorkloadRecord(
        ref=workload_record.ref,
        kind=workload_record.kind,
        generation=workload_record.generation,
        resource_version=workload_record.resource_version,
        created=workload_record.created,
        deleting=workload_record.deleting,
        shape=PodShape(device_container=""),
        template_hash="",
        trust_domain=workload_record.trust_domain,
        gpu=GPURequest(mode=workload_record.gpu.mode),
        sharing=SharingRules(allow=workload_record.sharing.allow),
        aside=True,
    )


def _pod(pod_record: PodRecord) -> PodRecord:
    asked = pod_record.shape.requests
    requests = Resources(
        cpu_milli=_sane(asked.cpu_milli),
        memory_bytes=_sane(asked.memory_bytes),
        pods=_sane(asked.pods),
        extended=tuple((name, _sane(amount)) for name, amount in asked.extended),
    )
    return replace(
        pod_record,
        shape=PodShape(device_container="", requests=requests),
        priority=_sane(pod_record.priority),
        world_size=0,
    )


def _sane(amount: int) -> int:
    return max(-_MOST, min(_MOST, amount))
