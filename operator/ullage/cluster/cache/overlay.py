# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes that were sent and not yet observed, and records with these on top for decisions.

A pending placement counts as used, so that no slot is granted twice. Every assumption ends by
itself: when the watch shows its result, when the write failed, or after its time to live; the
durable record of a decision is always the API's. The same ``seen_*`` functions serve whole
snapshots and the test if an event changed anything, so the two can never disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import is_not
from typing import Generic, TypeVar

from ullage.api.dataio import IoFairness
from ullage.api.labels import GATE
from ullage.api.lanes import IterationPolicy
from ullage.api.slices import DesiredSlice
from ullage.cluster.projection.node import first_wanted, slices_since
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.profile import ProfileRecord, ProfileStatus
from ullage.cluster.records.status import WorkloadStatus
from ullage.cluster.records.workload import WorkloadRecord
from ullage.cluster.times import ASSUME_TTL_S


@dataclass(frozen=True, slots=True, kw_only=True)
class PodCreated:
    """A pod with this name was requested."""

    namespace: str
    name: str

    @property
    def target(self) -> Hashable:
        """The object of the assumption."""
        return (self.namespace, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _UidEffect:
    """An effect on the object with a uid."""

    uid: str

    @property
    def target(self) -> Hashable:
        """The object of the assumption."""
        return self.uid


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUngated(_UidEffect):
    """Our gate was removed from this pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLeaving(_UidEffect):
    """This pod was deleted or evicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadLeaving(_UidEffect):
    """This workload was deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusSet(_UidEffect):
    """This workload's status was written."""

    status: WorkloadStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicesSet:
    """A GPUNode's slice list was written; ``slices`` in the order of their keys."""

    node: str
    epoch: int
    slices: tuple[DesiredSlice, ...]
    observations_read: str = ""
    lane_policy: IterationPolicy = IterationPolicy.FAIR
    io_fairness: IoFairness = IoFairness.OBSERVE

    @property
    def target(self) -> Hashable:
        """The object of the assumption."""
        return self.node


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSet:
    """A WorkloadProfile was requested (``status`` ``None``), or its status was written.

    ``target`` is its namespace and name.
    """

    target: tuple[str, str]
    workload_class: str
    status: ProfileStatus | None


Effect = PodCreated | PodUngated | PodLeaving | SlicesSet | WorkloadLeaving | StatusSet | ProfileSet
"""Effect of one action on the next snapshot."""

Kept = TypeVar(
    "Kept",
    PodCreated,
    PodUngated,
    PodLeaving,
    SlicesSet,
    WorkloadLeaving,
    StatusSet,
    ProfileSet,
)

Record = TypeVar("Record")

EffectOf = Callable[[object], Effect | None]
"""Function from an action to its effect; ``None`` where the snapshot need not change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """An effect and the time of its assumption."""

    effect: Effect
    since: float


class Overlay:
    """Assumptions by kind of effect and target; the newest of a target counts."""

    def __init__(self, ttl_s: float = ASSUME_TTL_S) -> None:
        self._kept: dict[type[Effect], dict[Hashable, Assumption]] = {}
        self._ttl_s = ttl_s

    def __len__(self) -> int:
        return sum(len(kept) for kept in self._kept.values())

    def add(self, effect: Effect, now: float) -> None:
        """Assume an effect from now on."""
        kept = self._kept.setdefault(type(effect), {})
        kept[effect.target] = Assumption(effect=effect, since=now)

    def drop(self, effect: Effect) -> bool:
        """Drop an effect, but not a newer one on the same target; True if it was in force."""
        kept = self._kept.get(type(effect), {})
        assumption = kept.get(effect.target)
        if assumption is None or assumption.effect != effect:
            return False
        del kept[effect.target]
        return True

    def drop_target(self, kind: type[Effect], target: Hashable) -> bool:
        """Drop all assumptions about a target; returns True if there were any."""
        return self._kept.get(kind, {}).pop(target, None) is not None

    def get(self, kind: type[Kept], target: Hashable) -> tuple[Kept, float] | None:
        """The assumption about a target, and its time."""
        assumption = self._kept.get(kind, {}).get(target)
        if assumption is None or not isinstance(assumption.effect, kind):
            return None
        return assumption.effect, assumption.since

    def assumptions(self, target: Hashable, *kinds: type[Effect]) -> tuple[Assumption | None, ...]:
        """Assumptions about a target, by kind; the same objects as long as nothing changed."""
        return tuple(self._kept.get(kind, {}).get(target) for kind in kinds)

    def all(self, kind: type[Kept]) -> Iterator[Kept]:
        """Everything assumed of one kind."""
        for assumption in self._kept.get(kind, {}).values():
            if isinstance(assumption.effect, kind):
                yield assumption.effect

    def targets(self, *kinds: type[Effect]) -> set[str]:
        """Objects, by uid or name, with assumptions of these kinds."""
        return {
            target
            for kind in kinds
            for target in self._kept.get(kind, {})
            if isinstance(target, str)
        }

    def clear(self) -> None:
        """Drop everything."""
        self._kept.clear()

    def expire(self, now: float, backpressure_ended_at: float = 0.0) -> int:
        """Drop assumptions not observed within the time to live; returns their number.

        Time before ``backpressure_ended_at`` does not count, up to ten times the time to live: a
        queued write cannot be observed.
        """
        ttl_s = self._ttl_s if now - backpressure_ended_at >= self._ttl_s else 10 * self._ttl_s
        late = [
            (kept, target)
            for kept in self._kept.values()
            for target, assumption in kept.items()
            if now - assumption.since >= ttl_s
        ]
        for kept, target in late:
            del kept[target]
        return len(late)


class Overlaid(Generic[Record]):
    """Records with assumptions on top, the same objects while neither changes.

    A snapshot is compared with the last one by identity: a new record would be sent again.
    """

    def __init__(
        self,
        overlay: Overlay,
        kinds: tuple[type[Effect], ...],
        see: Callable[[Record, Overlay], Record],
    ) -> None:
        """``see`` applies assumptions of these kinds to a record."""
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
            if entry is None or entry[0] is not record or any(map(is_not, entry[1], assumptions)):
                entry = record, assumptions, self._see(record, self._overlay)
            kept[uid] = entry
        self._kept = kept
        if not kept:
            return observed
        return {**observed, **{uid: seen for uid, (_, _, seen) in kept.items()}}


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
    """A GPUNode with its assumed slice list; one only requested has no uid yet."""
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
            io_fairness=wanted.io_fairness,
            desired_since=since,
        )
    return replace(
        record,
        epoch=wanted.epoch,
        desired=wanted.slices,
        desired_since=since,
        observations_read=wanted.observations_read,
        lane_policy=wanted.lane_policy,
        io_fairness=wanted.io_fairness,
    )


def seen_profile(record: ProfileRecord | None, assumed: ProfileSet) -> ProfileRecord | None:
    """A WorkloadProfile with its assumed status; one only requested has no uid yet."""
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
