# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Slices that were written before their pod existed, in snapshots.

A reservation is either taken, by the pod that bears it, or open, and then a planned pod stands for
it. A snapshot shows the slices of a taken one under the pod's uid, in spec and status alike, so
that no decision knows two names of a slice; the next write of the GPUNode stores that uid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from ullage.api.slices import DesiredSlice, SliceKey
from ullage.cluster.projection.node import by_key
from ullage.cluster.projection.planned import planned_pod
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.pod import PodRecord
from ullage.cluster.records.workload import WorkloadRecord
from ullage.cluster.values.names import number_of, pod_name
from ullage.cluster.values.reservations import is_reservation, is_reserved_for

PodName = tuple[str, str]
"""Namespace and name of a pod."""
_STARTED = frozenset({"Running", "Succeeded", "Failed"})
"""Phases of a job whose pods exist or existed: no reservation is open any more."""


@dataclass(frozen=True, slots=True)
class _Node:
    """A GPUNode with reservations, and the record that snapshots show for it."""

    record: GPUNodeRecord
    taken: Mapping[str, str]
    shown: GPUNodeRecord


class Reservations:
    """Resolves reservations; the same objects while nothing changes."""

    def __init__(self) -> None:
        self._taken: dict[str, PodRecord] = {}
        """Pods that bear a reservation, by its id."""
        self._names: dict[PodName, set[str]] = {}
        """Uids of our pods that exist, by name."""
        self._spent: set[str] = set()
        """Reservations whose pod is gone; in specs they are leftovers."""
        self._bare: dict[str, GPUNodeRecord] = {}
        """GPUNodes without reservations, as they were last read."""
        self._nodes: dict[str, _Node] = {}
        self._planned: dict[str, PodRecord] = {}

    def put(self, pod: PodRecord) -> None:
        """Count one of our pods, new or changed."""
        self._names.setdefault((pod.namespace, pod.name), set()).add(pod.uid)
        if is_reservation(pod.reservation):
            self._taken[pod.reservation] = pod

    def drop(self, pod: PodRecord) -> None:
        """Forget a pod that is gone; what it had taken is not open again."""
        name = (pod.namespace, pod.name)
        uids = self._names.get(name, set())
        uids.discard(pod.uid)
        if not uids:
            self._names.pop(name, None)
        taken = self._taken.get(pod.reservation)
        if taken is not None and taken.uid == pod.uid:
            del self._taken[pod.reservation]
            self._spent.add(pod.reservation)

    def shown(self, records: Mapping[str, GPUNodeRecord]) -> Mapping[str, GPUNodeRecord]:
        """The GPUNodes with the uids of pods in place of the reservations that these took."""
        changed: dict[str, GPUNodeRecord] = {}
        nodes: dict[str, _Node] = {}
        bare: dict[str, GPUNodeRecord] = {}
        named: set[str] = set()
        for name, record in records.items():
            if self._bare.get(name) is record:
                bare[name] = record
                continue
            ids = _reservations_in(record)
            if not ids:
                bare[name] = record
                continue
            named |= ids
            taken = {each: self._taken[each].uid for each in ids if self._takes(record, each)}
            node = self._nodes.get(name)
            if node is None or node.record is not record or node.taken != taken:
                node = _Node(record, taken, _renamed(record, taken) if taken else record)
            nodes[name] = node
            if node.shown is not record:
                changed[name] = node.shown
        self._bare, self._nodes = bare, nodes
        self._spent &= named
        return {**records, **changed} if changed else records

    def planned(
        self, job_of: Callable[[str, str], WorkloadRecord | None]
    ) -> Mapping[str, PodRecord]:
        """Pods that open reservations stand for, by id, after ``shown``.

        Args:
            job_of: Function from a namespace and a name to the TrainingJob.
        """
        planned: dict[str, PodRecord] = {}
        for node in self._nodes.values():
            for part in node.shown.desired:
                pod = self._planned_for(node.shown, part, job_of)
                if pod is not None:
                    planned[pod.uid] = pod
        self._planned = planned
        return planned

    def _planned_for(
        self,
        record: GPUNodeRecord,
        part: DesiredSlice,
        job_of: Callable[[str, str], WorkloadRecord | None],
    ) -> PodRecord | None:
        reservation, name = part.key.pod_uid, part.pod_name
        if not is_reservation(reservation) or reservation in self._spent:
            return None
        if (part.pod_namespace, name) in self._names:
            return None
        base, _, digits = name.rpartition("-")
        job = job_of(part.pod_namespace, base)
        if job is None or job.status.phase in _STARTED:
            return None
        rank = number_of(digits)
        if not 0 <= rank < job.replicas or name != pod_name(base, rank):
            return None
        if not is_reserved_for(reservation, job.ref.uid, job.template_hash, name):
            return None
        pod = planned_pod(job, rank, reservation, record.desired_since.get(part.key, 0.0))
        before = self._planned.get(reservation)
        return before if before == pod else pod

    def _takes(self, record: GPUNodeRecord, reservation: str) -> bool:
        """True if a pod took a reservation under the name that its slices state."""
        pod = self._taken.get(reservation)
        return pod is not None and any(
            (part.pod_namespace, part.pod_name) == (pod.namespace, pod.name)
            for part in record.desired
            if part.key.pod_uid == reservation
        )


def _reservations_in(record: GPUNodeRecord) -> set[str]:
    return {part.key.pod_uid for part in record.desired if is_reservation(part.key.pod_uid)}


def _renamed(record: GPUNodeRecord, taken: Mapping[str, str]) -> GPUNodeRecord:
    """The record with other uids; a status that has both keeps the pod's own."""

    def key(before: SliceKey) -> SliceKey:
        uid = taken.get(before.pod_uid)
        return before if uid is None else replace(before, pod_uid=uid)

    own = {part.key for part in record.observed}
    return replace(
        record,
        desired=by_key(_once(replace(part, key=key(part.key)) for part in record.desired)),
        observed=tuple(
            part if key(part.key) is part.key else replace(part, key=key(part.key))
            for part in record.observed
            if key(part.key) is part.key or key(part.key) not in own
        ),
        desired_since={key(each): since for each, since in record.desired_since.items()},
    )


def _once(parts: Iterable[DesiredSlice]) -> list[DesiredSlice]:
    """The slices, each key once."""
    return list({part.key: part for part in parts}.values())
