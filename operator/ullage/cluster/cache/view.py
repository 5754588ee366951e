# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""One record as a decision sees it: the observed object with assumed writes on top.

The same functions serve whole snapshots and the check whether an event changed anything, so
the two can never disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Generic, TypeVar

from ullage.api.labels import GATE
from ullage.cluster.cache.assume import (
    Assumption,
    Effect,
    Overlay,
    PodLeaving,
    PodUngated,
    ProfileSet,
    SlicesSet,
    StatusSet,
    WorkloadLeaving,
)
from ullage.cluster.projection.node import first_wanted, slices_since
from ullage.cluster.records.snapshot import (
    GPUNodeRecord,
    PodRecord,
    PodStage,
    ProfileRecord,
    WorkloadRecord,
)

Record = TypeVar("Record")


class Overlaid(Generic[Record]):
    """Records with assumptions on top, the same objects as long as neither changes.

    A snapshot is compared with the last one by identity: a new record would be sent again.
    """

    def __init__(
        self,
        overlay: Overlay,
        kinds: tuple[type[Effect], ...],
        see: Callable[[Record, Overlay], Record],
    ) -> None:
        """``see`` lays assumptions of these kinds over a record."""
        self._overlay = overlay
        self._kinds = kinds
        self._see = see
        self._kept: dict[str, tuple[Record, tuple[Assumption | None, ...], Record]] = {}

    def view(self, observed: Mapping[str, Record]) -> Mapping[str, Record]:
        """The observed records, with the assumptions about them on top."""
        kept: dict[str, tuple[Record, tuple[Assumption | None, ...], Record]] = {}
        for uid in self._overlay.targets(*self._kinds):
            record = observed.get(uid)
            if record is None:
                continue
            assumptions = self._overlay.assumptions(uid, *self._kinds)
            entry = self._kept.get(uid)
            if entry is None or entry[0] is not record or not _same(entry[1], assumptions):
                entry = record, assumptions, self._see(record, self._overlay)
            kept[uid] = entry
        self._kept = kept
        if not kept:
            return observed
        return {**observed, **{uid: seen for uid, (_, _, seen) in kept.items()}}


def _same(before: tuple[object, ...], after: tuple[object, ...]) -> bool:
    return all(a is b for a, b in zip(before, after, strict=True))


def seen_pod(record: PodRecord, overlay: Overlay) -> PodRecord:
    """A pod with its assumed ungating and leaving."""
    ungated = overlay.get(PodUngated, record.uid)
    if ungated is not None and GATE in record.gates:
        gates = tuple(gate for gate in record.gates if gate != GATE)
        stage, since = record.stage, record.stage_since
        if stage is PodStage.GATED and not gates:
            stage, since = PodStage.UNSCHEDULED, ungated[1]
        record = replace(record, gates=gates, stage=stage, stage_since=since)
    if overlay.get(PodLeaving, record.uid) is not None and not record.deleting:
        record = replace(record, deleting=True)
    return record


def seen_gpu_node(
    name: str, record: GPUNodeRecord | None, overlay: Overlay
) -> GPUNodeRecord | None:
    """A GPUNode with its assumed slice list; one that is only asked for has no uid yet."""
    assumed = overlay.get(SlicesSet, name)
    if assumed is None:
        return record
    wanted, since_assumed = assumed
    wanted_since = first_wanted(record) if record is not None else {}
    since = slices_since(wanted.slices, wanted_since, since_assumed)
    if record is None:
        return GPUNodeRecord(
            name=name,
            uid="",
            epoch=wanted.epoch,
            retire=False,
            desired=wanted.slices,
            lane_policy=wanted.lane_policy,
            desired_since=since,
        )
    return replace(
        record,
        epoch=wanted.epoch,
        desired=wanted.slices,
        desired_since=since,
        observations_read=wanted.observations_read,
        lane_policy=wanted.lane_policy,
    )


def seen_profile(record: ProfileRecord | None, assumed: ProfileSet) -> ProfileRecord | None:
    """A WorkloadProfile with its assumed status; one that is only asked for has no uid yet."""
    if assumed.status is not None:
        return replace(record, status=assumed.status) if record is not None else None
    namespace, name = assumed.target
    return record or ProfileRecord(
        namespace=namespace, name=name, workload_class=assumed.workload_class
    )


def seen_workload(record: WorkloadRecord, overlay: Overlay) -> WorkloadRecord:
    """A workload with its assumed status and deletion."""
    status = overlay.get(StatusSet, record.ref.uid)
    if status is not None:
        record = replace(record, status=status[0].status)
    if overlay.get(WorkloadLeaving, record.ref.uid) is not None and not record.deleting:
        record = replace(record, deleting=True)
    return record
