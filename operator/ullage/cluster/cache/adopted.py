# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Workloads that are pods of other controllers: built from the pods, kept while one lives.

A unit is one pod, or the pods of a gang. It is assembled when a snapshot needs it, so that ten
thousand pods of one gang cost as much as ten thousand separate ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from ullage.api.reasons import ConditionType, Reason
from ullage.cluster.cache.overlay import StatusSet
from ullage.cluster.cache.stores import Context, Table
from ullage.cluster.projection.adopted import AdoptedPod, run_of
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.pod_shape import PodShape
from ullage.cluster.records.status import Exclusion, SchedulingState, WorkloadStatus
from ullage.cluster.records.workload import AdoptedMember, WorkloadRecord, ended_in_wave
from ullage.cluster.values.bounded import Memo

INHERITED_BYTES: Final = 4 * 2**20
"""Maximum of deleted pods whose device failures are stored; dropping one costs another attempt."""


class AdoptedPods:
    """Adopted pods by unit."""

    def __init__(
        self,
        context: Context,
        workloads: Table[str, WorkloadRecord],
        groups: Table[tuple[str, str], int],
        judge_claims: Callable[[str], None],
    ) -> None:
        """``judge_claims`` is called with the uid of every unit that comes or goes.

        ``groups`` are the PodGroups of Kubernetes, with their minimum of members.
        """
        self._context = context
        self._workloads = workloads
        self._groups = groups
        self._judge_claims = judge_claims
        self._pods: dict[str, AdoptedPod] = {}
        self._units: dict[str, set[str]] = {}
        self._inherited: Memo[tuple[str, str, str], tuple[Exclusion, ...]] = Memo(INHERITED_BYTES)
        self._changed: set[str] = set()
        """Units that differ from the table."""
        self._runs: dict[tuple[str, str], set[str]] = {}
        """Pods of gangs, by uid of the gang's name and of their controller."""
        self._run_of: dict[str, tuple[str, str]] = {}
        """The same by pod."""
        self._whole: set[tuple[str, str]] = set()
        """Runs that form a gang of their own."""

    def join(self, adopted: AdoptedPod) -> tuple[AdoptedPod, Sequence[str]]:
        """A pod in its gang.

        A controller that has had as many pods as the gang's size forms a gang of its own, until the
        last of them is gone: a run of a CronJob is independent of the previous run. Pods of
        controllers with fewer form one gang.

        Returns:
            The pod, and the uids of the others that belong to the same gang from now on.
        """
        uid, gang = adopted.pod.uid, adopted.terms.ref
        run = (gang.uid, adopted.controller)
        if self._run_of.get(uid) != run:
            self._leave(uid)
        if not (adopted.gang and adopted.controller) or gang.uid != _pool_uid(gang):
            return adopted, ()
        self._run_of[uid] = run
        pods = self._runs.setdefault(run, set())
        pods.add(uid)
        moved: Sequence[str] = ()
        if run not in self._whole and len(pods) >= adopted.terms.replicas > 1:
            self._whole.add(run)
            moved = sorted(pods - {uid})
        return (_in_run(adopted) if run in self._whole else adopted), moved

    def move_to_run(self, uid: str) -> AdoptedPod | None:
        """A pod in the gang of its controller's pods; ``None`` = no pod."""
        held = self._pods.get(uid)
        if held is None:
            return None
        moved = _in_run(held)
        self.put(moved)
        return moved

    def _leave(self, uid: str) -> None:
        run = self._run_of.pop(uid, None)
        if run is None:
            return
        self._runs[run].discard(uid)
        if not self._runs[run]:
            del self._runs[run]
            self._whole.discard(run)

    def put(self, adopted: AdoptedPod) -> bool:
        """Store a pod; returns True when more changed than its status."""
        uid = adopted.pod.uid
        held = self._pods.get(uid)
        if held == adopted:
            return False
        if held is not None and held.terms.ref.uid != adopted.terms.ref.uid:
            self._forget(uid)
        if adopted.leaving:
            self._remember(adopted)
        self._pods[uid] = adopted
        self._units.setdefault(adopted.terms.ref.uid, set()).add(uid)
        self._touch(adopted.terms.ref.uid)
        return held is None or replace(held, status=adopted.status) != adopted

    def move(self, uid: str, unit: ObjectRef) -> None:
        """Move a pod to a unit, or refresh its own after a change of its PodGroup."""
        held = self._pods.get(uid)
        if held is not None:
            self.put(replace(held, terms=replace(held.terms, ref=unit)))
            self._touch(unit.uid)

    def drop(self, uid: str) -> None:
        """Remove a pod, if it is one of these."""
        self._leave(uid)
        self._forget(uid)

    def _forget(self, uid: str) -> None:
        """Remove a pod from its unit."""
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
        """Update the table of workloads."""
        changed, self._changed = self._changed, set()
        for unit in sorted(changed):
            everyone = [self._pods[uid] for uid in self._units.get(unit, ())]
            pods = [adopted for adopted in everyone if not adopted.finished]
            before = self._workloads.get(unit)
            if not pods:
                self._context.overlay.drop_target(StatusSet, unit)
                self._context.refusals.owner_changed(unit, None)
                if self._workloads.pop(unit) is not None:
                    self._judge_claims(unit)
                continue
            # ungated ones come first, then the oldest
            pods.sort(key=lambda pod: (pod.gated, pod.terms.created, pod.pod.name))
            ended = [adopted.controller for adopted in everyone if adopted.succeeded]
            inherited = self._inherited.get(_kind_of_work(pods[0])) or ()
            record = _unit(pods, ended, self._groups, inherited)
            self._context.overlay.drop(StatusSet(uid=unit, status=record.status))
            if record != before:
                self._workloads.put(unit, record)
            if before is None:
                self._judge_claims(unit)

    def _remember(self, adopted: AdoptedPod) -> None:
        """Keep a pod's failed devices for its successor."""
        assumed = self._context.overlay.get(StatusSet, adopted.terms.ref.uid)
        status = adopted.status if assumed is None else assumed[0].status
        if adopted.controller and status.scheduling.exclusions:
            self._inherited.put(_kind_of_work(adopted), status.scheduling.exclusions)

    def _touch(self, unit: str) -> None:
        self._changed.add(unit)
        self._context.touch()


def _kind_of_work(adopted: AdoptedPod) -> tuple[str, str, str]:
    """Namespace, controller and class, which identify a pod and its successor.

    A user may write any controller into a pod, but only in the user's own namespace.
    """
    return adopted.pod.namespace, adopted.controller, adopted.terms.workload_class


def _terms(
    lead: AdoptedPod,
    pods: Sequence[AdoptedPod],
    ended: int,
    groups: Table[tuple[str, str], int],
) -> WorkloadRecord:
    """Terms of a unit: those of its leading pod, with the number of members of a PodGroup.

    The minimum of a PodGroup binds while none of them was ungated, as in kube-scheduler; later ones
    join the others. ``ended`` have succeeded.
    """
    if not lead.group:
        return lead.terms
    fewest = groups.get((lead.pod.namespace, lead.group))
    if fewest is None:
        text = f"spec.schedulingGroup: there is no PodGroup {lead.group}: create it"
        return replace(lead.terms, invalid=lead.terms.invalid or text)
    started = not all(pod.gated for pod in pods)
    return replace(lead.terms, replicas=max(1 if started else fewest, len(pods) + ended))


def _pool_uid(gang: ObjectRef) -> str:
    """Uid of a gang with pods of any controller."""
    return f"gang/{gang.namespace}/{gang.name}"


def _in_run(adopted: AdoptedPod) -> AdoptedPod:
    """A pod in the gang of its controller's pods."""
    ref = run_of(replace(adopted.terms.ref, uid=_pool_uid(adopted.terms.ref)), adopted.controller)
    return replace(adopted, terms=replace(adopted.terms, ref=ref))


def _unit(
    pods: Sequence[AdoptedPod],
    ended: Sequence[str],
    groups: Table[tuple[str, str], int],
    inherited: tuple[Exclusion, ...],
) -> WorkloadRecord:
    """The workload of some pods, at least one, in the order of their places.

    A workload without a status inherits the failed devices of its predecessor. If the pods have
    different statuses, it counts as not written, and is written again.

    Args:
        pods: Pods that have not ended.
        ended: Controllers of those that succeeded.
        groups: The PodGroups of Kubernetes, with their minimum of members.
        inherited: Failed devices of the predecessor.
    """
    lead = _leading(pods)
    live = {pod.controller for pod in pods}
    terms = _terms(lead, pods, sum(controller in live for controller in ended), groups)
    first = replace(terms, created=pods[0].terms.created)
    let_go = sum(not pod.gated for pod in pods)
    room = max(let_go, first.replicas - ended_in_wave(first.replicas, ended, live))
    whole, others = pods[:room], pods[room:]
    fresh = WorkloadStatus(scheduling=SchedulingState(exclusions=inherited))
    reported = next((pod.status for pod in whole if pod.status.observed_generation), fresh)
    members = (
        *(AdoptedMember(pod=pod.pod, is_current=pod.status == reported) for pod in whole),
        *(AdoptedMember(pod=pod.pod, is_current=_knows(pod), too_many=True) for pod in others),
    )
    if not all(member.is_current for member in members):
        reported = replace(reported, observed_generation=0)
    record = replace(first, adopted=members, status=reported)
    complaints = ((lead, first.invalid), *((pod, pod.terms.invalid) for pod in pods))
    for complaining, complaint in complaints:
        if complaint:
            return _refused(record, f"{complaining.pod.name}: {complaint}")
    asked = _asked(lead.terms)
    other = next(
        (pod for pod in pods if _asked(pod.terms) != asked and not _may_differ(pod, lead)), None
    )
    if other is not None:
        return _refused(
            record,
            f"{lead.pod.name} and {other.pod.name} of one gang ask for different things: give"
            " all its pods the same keys of ullage.dev",
        )
    return record


def _leading(pods: Sequence[AdoptedPod]) -> AdoptedPod:
    """The pod with the terms of the gang: the first, or the newest of a newer revision.

    A StatefulSet replaces its pods one after the other: a new pod is placed by the new terms, and a
    running one keeps its place until then.
    """
    newest = max(
        (pod for pod in pods if pod.gated and pod.revision),
        key=lambda pod: (pod.terms.created, pod.pod.name),
        default=pods[0],
    )
    return newest if newest.revision != pods[0].revision else pods[0]


def _may_differ(adopted: AdoptedPod, lead: AdoptedPod) -> bool:
    """True when a pod of another revision may have a different request; its slots are its own."""
    if not adopted.revision or adopted.controller != lead.controller:
        return False
    same_slots = adopted.terms.gpu.count == lead.terms.gpu.count
    return adopted.revision != lead.revision and (same_slots or not adopted.gated)


def _knows(adopted: AdoptedPod) -> bool:
    """True when the status of a pod marks it as surplus."""
    condition = adopted.status.condition(ConditionType.ADMITTED)
    return condition is not None and condition.reason == Reason.GANG_COMPLETE


def _refused(record: WorkloadRecord, why: str) -> WorkloadRecord:
    return replace(record, shape=PodShape(device_container=""), invalid=why)


def _asked(terms: WorkloadRecord) -> WorkloadRecord:
    """Terms that pods of a gang must agree on: those of their keys, not their templates."""
    return replace(
        terms,
        shape=PodShape(device_container=""),
        created=0.0,
        priority=0,
        workload_class="",
        family="",
    )
