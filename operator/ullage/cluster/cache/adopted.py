# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Workloads that are pods of other controllers: made from the pods, kept as long as one lives.

A unit is one pod, or the pods of a gang. It is put together when a snapshot asks for it, so that
ten thousand pods of one gang cost as much as ten thousand of none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from ullage.api.contract import Reason
from ullage.api.reasons import ConditionType
from ullage.cluster.cache.assume import StatusSet
from ullage.cluster.cache.stores import Context
from ullage.cluster.cache.table import Table
from ullage.cluster.projection.adopted import AdoptedPod
from ullage.cluster.records.pod_shape import PodShape
from ullage.cluster.records.snapshot import AdoptedMember, WorkloadRecord
from ullage.cluster.records.status import Exclusion, SchedulingState, WorkloadStatus
from ullage.cluster.values.bounded import Memo

INHERITED_BYTES: Final = 4 * 2**20
"""Memory of which devices failed pods that are gone; forgetting costs another try."""


class AdoptedPods:
    """Adopted pods by unit."""

    def __init__(
        self,
        context: Context,
        workloads: Table[str, WorkloadRecord],
        judge_claims: Callable[[str], None],
    ) -> None:
        """``judge_claims`` is told of every unit that comes or goes, by its uid."""
        self._context = context
        self._workloads = workloads
        self._judge_claims = judge_claims
        self._pods: dict[str, AdoptedPod] = {}
        self._units: dict[str, set[str]] = {}
        self._inherited: Memo[tuple[str, str, str], tuple[Exclusion, ...]] = Memo(INHERITED_BYTES)
        self._changed: set[str] = set()
        """Units that are not as the table shows them."""

    def put(self, adopted: AdoptedPod) -> bool:
        """Keep a pod as it is now; says whether a decision could see more than its own word."""
        uid = adopted.pod.uid
        held = self._pods.get(uid)
        if held == adopted:
            return False
        if held is not None and held.terms.ref.uid != adopted.terms.ref.uid:
            self.drop(uid)
        if adopted.leaving:
            self._remember(adopted)
        self._pods[uid] = adopted
        self._units.setdefault(adopted.terms.ref.uid, set()).add(uid)
        self._touch(adopted.terms.ref.uid)
        return held is None or replace(held, status=adopted.status) != adopted

    def drop(self, uid: str) -> None:
        """Let a pod go, if it is one of these."""
        held = self._pods.pop(uid, None)
        if held is None:
            return
        self._remember(held)
        unit = held.terms.ref.uid
        self._units[unit].discard(uid)
        if not self._units[unit]:
            del self._units[unit]
        self._touch(unit)

    def settle(self) -> None:
        """Bring the table of workloads up to date."""
        changed, self._changed = self._changed, set()
        for unit in sorted(changed):
            pods = [self._pods[uid] for uid in self._units.get(unit, ())]
            pods = [one for one in pods if not one.finished]
            before = self._workloads.get(unit)
            if not pods:
                self._let_go(unit)
                continue
            pods.sort(key=_place)
            record = _unit(pods, self._inherited.get(_kind_of_work(pods[0])) or ())
            self._context.overlay.drop(StatusSet(uid=unit, status=record.status))
            if record != before:
                self._workloads.put(unit, record)
            if before is None:
                self._judge_claims(unit)

    def _remember(self, adopted: AdoptedPod) -> None:
        """Keep for the successor of a pod which devices failed it."""
        assumed = self._context.overlay.get(StatusSet, adopted.terms.ref.uid)
        status = adopted.status if assumed is None else assumed[0].status
        if adopted.controller and status.scheduling.exclusions:
            self._inherited.put(_kind_of_work(adopted), status.scheduling.exclusions)

    def _touch(self, unit: str) -> None:
        self._changed.add(unit)
        self._context.touch()

    def _let_go(self, unit: str) -> None:
        self._context.overlay.drop_target(StatusSet, unit)
        self._context.refusals.owner_changed(unit, None)
        if self._workloads.pop(unit) is not None:
            self._judge_claims(unit)


def _place(adopted: AdoptedPod) -> tuple[bool, float, str]:
    """Those that were let go come first, then the oldest."""
    return adopted.gated, adopted.terms.created, adopted.pod.name


def _kind_of_work(adopted: AdoptedPod) -> tuple[str, str, str]:
    """What a pod and its successor have in common: namespace, controller and class.

    Anyone may write any controller into a pod of his own namespace, and no other.
    """
    return adopted.pod.namespace, adopted.controller, adopted.terms.workload_class


def _unit(pods: Sequence[AdoptedPod], inherited: tuple[Exclusion, ...]) -> WorkloadRecord:
    """The workload of some pods, at least one, in the order of their places.

    One that was told nothing yet begins without the devices that failed those before it. Where
    not all of them tell the same status it counts as not told, and is told again.
    """
    first = pods[0].terms
    whole, others = pods[: first.replicas], pods[first.replicas :]
    fresh = WorkloadStatus(scheduling=SchedulingState(exclusions=inherited))
    told = next((one.status for one in whole if one.status.observed_generation), fresh)
    members = (
        *(AdoptedMember(pod=one.pod, told=one.status == told) for one in whole),
        *(AdoptedMember(pod=one.pod, told=_knows(one), too_many=True) for one in others),
    )
    if not all(one.told for one in members):
        told = replace(told, observed_generation=0)
    record = replace(first, adopted=members, status=told)
    invalid = next((one for one in pods if one.terms.invalid), None)
    if invalid is not None:
        return _refused(record, f"{invalid.pod.name}: {invalid.terms.invalid}")
    other = next((one for one in pods if _asked(one.terms) != _asked(first)), None)
    if other is not None:
        return _refused(
            record,
            f"{pods[0].pod.name} and {other.pod.name} of one gang ask for different things: give"
            " all its pods the same keys of ullage.dev",
        )
    return record


def _knows(adopted: AdoptedPod) -> bool:
    """Whether a pod tells that it is one too many."""
    condition = adopted.status.condition(ConditionType.ADMITTED)
    return condition is not None and condition.reason == Reason.GANG_COMPLETE


def _refused(record: WorkloadRecord, why: str) -> WorkloadRecord:
    return replace(record, shape=PodShape(device_container=""), invalid=why)


def _asked(terms: WorkloadRecord) -> WorkloadRecord:
    """What pods of a gang must agree in: all that their keys say, not what their templates are."""
    return replace(
        terms,
        shape=PodShape(device_container=""),
        created=0.0,
        priority=0,
        workload_class="",
        family="",
    )
