# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Efficiency of many workloads as of a moment, for reports, commands and metrics.

Device time comes from the nodes' measurements, so a false report of a workload changes at
most its own findings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from ullage.api.slices import ObservedSlice
from ullage.api.usage import DeviceTime
from ullage.cluster.records.efficiency import EfficiencyRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import Placement, WorkloadStatus
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.efficiency.ledger import plus, total_of
from ullage.engines.efficiency.ranking import RankedRow, RowFinding
from ullage.scheduling.accounting import efficiency
from ullage.scheduling.accounting.bills import party_of
from ullage.scheduling.accounting.efficiency import UsageReports
from ullage.scheduling.model.phases import Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadEfficiency:
    """Efficiency of one workload.

    Attributes:
        workload: The workload; of adopted pods with the placement that their nodes report.
        record: Its row, with all that has grown since it was entered, and its findings now.
        accelerator: Accelerator type of its devices; empty = it holds none.
        time: Device time of all its starts.
    """

    workload: WorkloadRecord
    record: EfficiencyRecord
    accelerator: str
    time: DeviceTime


def efficiencies(
    snapshot: Snapshot, workloads: Iterable[WorkloadRecord], now: float
) -> Iterator[WorkloadEfficiency]:
    """Efficiency of the workloads that have any device time.

    Without GPUNodes in the snapshot, the rows are those that were entered last.

    Args:
        snapshot: The cluster.
        workloads: Workloads of it.
        now: Seconds since the epoch.
    """
    reports = UsageReports(snapshot.gpu_nodes, now, snapshot.traces)
    models = {
        (node.name, device.uuid): device.model
        for node in snapshot.gpu_nodes.values()
        for device in node.devices
    }
    adopted = _adopted_slices(snapshot)
    for workload in workloads:
        if workload.adopted:
            workload = _placed(workload, adopted)
        record = _record(workload, reports, now, live=bool(snapshot.gpu_nodes))
        if record is None:
            continue
        places = ((part.node, part.gpu) for part in workload.status.placement)
        accelerator = next((models[place] for place in places if place in models), "")
        yield WorkloadEfficiency(
            workload=workload,
            record=record,
            accelerator=accelerator,
            time=plus(record.earlier, record.row),
        )


def ranked_row(snapshot: Snapshot, entry: WorkloadEfficiency, time: DeviceTime) -> RankedRow:
    """A workload's row for the ranking, with its findings now."""
    ref, record = entry.workload.ref, entry.record
    return RankedRow(
        name=f"{ref.namespace}/{ref.name}",
        group=(ref.namespace, party_of(snapshot.policy, entry.workload), entry.accelerator),
        time=time,
        per_device_hour=efficiency.price_of(record),
        findings=tuple(RowFinding(row.rule, _permille(row.gain)) for row in record.findings),
        gain_permille=_permille(record.gain),
    )


@lru_cache(maxsize=1024)  # texts of three digits
def _permille(ratio: str) -> int:
    return min(1000, round(1000 * float(ratio))) if ratio else 0


def _record(
    workload: WorkloadRecord, reports: UsageReports, now: float, *, live: bool
) -> EfficiencyRecord | None:
    status = workload.status
    if not live or not status.placement:
        return status.efficiency
    held = reports.of(status.placement)
    known = [report for report in held if report is not None]
    if status.efficiency is None and not any(report.held_ms for report in known):
        return None
    claims = efficiency.claims(workload, status, reports)
    findings = efficiency.judged(workload, status, held, claims)
    if not workload.adopted:
        return efficiency.counted(workload, held, now, findings)
    # their pods store no row: all that the nodes counted
    record = EfficiencyRecord(since=efficiency.period_of(now), as_of=now, row=total_of(known))
    return efficiency.with_findings(record, findings, now)


def _adopted_slices(snapshot: Snapshot) -> Mapping[str, list[tuple[str, ObservedSlice]]]:
    """Slices by uid of the pod, with the node of each."""
    by_pod: dict[str, list[tuple[str, ObservedSlice]]] = defaultdict(list)
    if any(workload.adopted for workload in snapshot.workloads.values()):
        for node in snapshot.gpu_nodes.values():
            for part in node.observed:
                by_pod[part.key.pod_uid].append((node.name, part))
    return by_pod


def _placed(
    workload: WorkloadRecord, slices: Mapping[str, list[tuple[str, ObservedSlice]]]
) -> WorkloadRecord:
    """Adopted pods with the placement that their nodes report; pods store none."""
    placement = tuple(
        Placement(
            key=part.key,
            pod=member.pod.name,
            node=node,
            gpu=part.gpu,
            percent=max(1, min(100, part.percent)),
            memory_mib=part.memory_mib,
            epoch=part.epoch,
        )
        for member in workload.adopted
        for node, part in slices.get(member.pod.uid, ())
    )
    status: WorkloadStatus = replace(workload.status, placement=placement)
    if placement and not status.phase:
        status = replace(status, phase=Phase.RUNNING)
    return replace(workload, status=status)
