# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs that run or wait undisturbed: results of the last cycle are reused for them.

Most jobs of a large cluster run or wait, and nothing near them changes from one cycle to the next.
The needs of such a job, and its status while it runs, are valid as long as every record is the very
object of the last cycle: its own, those of its pods and nodes, and those of all that share its
devices. Of a GPUNode only its report on these devices counts, and of another job not its status.
Placement of a waiting job is decided in every cycle.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import chain, compress
from operator import attrgetter, is_not
from typing import Final

from ullage.api.reasons import Reason
from ullage.api.slices import DesiredSlice, ObservedSlice
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import WorkloadStatus
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.cluster.values.device_ref import DeviceRef
from ullage.scheduling.lifecycle.members import MemberCache
from ullage.scheduling.lifecycle.training import busy, running
from ullage.scheduling.model.changes import changed
from ullage.scheduling.model.lifecycle_step import LifecycleStep
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.plan import DecideSettings
from ullage.scheduling.model.view import Class, Isolation, View
from ullage.scheduling.placement.attempt import Outcome

Refusal = tuple[Reason, frozenset[Reason]]
"""The reason of a refusal, and those of its lines."""
_reason: Final = attrgetter("reason")
_as_written: Final = attrgetter(
    *(
        attribute.name
        for attribute in fields(WorkloadRecord)
        if attribute.name not in ("status", "resource_version")
    )
)
"""All of a workload but what the operator itself writes."""
_RULES: Final = ("profiles", "device_profiles", "pools", "models", "leads")
"""Parts of a snapshot that may affect any job, beside the rules of its policy."""


@dataclass(slots=True)
class SteadyCache:
    """Inputs of the last cycle, and its undisturbed jobs."""

    snapshot: Snapshot | None = None
    settings: DecideSettings | None = None
    spent_s: Mapping[Class, float] = field(default_factory=dict)
    """Seconds of trial used by classes."""
    isolated: Mapping[Class, Isolation] = field(default_factory=dict)
    """Classes that shared only with themselves."""
    steps: dict[str, LifecycleStep] = field(default_factory=dict)
    """The step of each of the jobs, by uid."""
    written: set[DeviceRef] = field(default_factory=set)
    """Devices with granted or revoked slices; it is unknown if that was written."""
    refusals: dict[str, Refusal] = field(default_factory=dict)
    """Refusals that stood in the last cycle, by uid of the job that only waits."""

    def undisturbed(
        self, view: View, members: MemberCache
    ) -> tuple[dict[str, LifecycleStep], set[str] | None]:
        """Steps of undisturbed jobs, running or waiting, by uid, and the nodes of all others.

        The second is ``None`` after a change that may affect any node.

        Args:
            view: The snapshot.
            members: The members in it, with their changes since the last cycle.
        """
        if self.snapshot is None or not self._rules_stand(self.snapshot, view):
            return {}, None
        owners, nodes = self._disturbed(self.snapshot, view, members)
        return _less(self.steps, owners), nodes

    def keep(
        self,
        view: View,
        spent_s: Mapping[Class, float],
        steps: dict[str, LifecycleStep],
        written: set[DeviceRef],
        refusals: dict[str, Refusal],
    ) -> None:
        """Remember a cycle for the next one."""
        self.snapshot, self.settings, self.spent_s = view.snapshot, view.settings, spent_s
        self.isolated = view.isolated
        self.steps, self.written, self.refusals = steps, written, refusals

    def forget(self) -> None:
        """Remember nothing: a cycle failed half-way."""
        self.snapshot = None

    def _rules_stand(self, old: Snapshot, view: View) -> bool:
        """True if nothing changed that may affect any job."""
        new = view.snapshot
        return (
            _lasting(self.settings) == _lasting(view.settings)
            and (old.stragglers is None) == (new.stragglers is None)
            and not new.pools
            and old.policy.rules() == new.policy.rules()
            and all(_same(getattr(old, name), getattr(new, name)) for name in _RULES)
        )

    def _disturbed(
        self, old: Snapshot, view: View, members: MemberCache
    ) -> tuple[set[str], set[str]]:
        """Owners and nodes that changed, or whose devices are shared with a changed one."""
        new, changes = view.snapshot, members.changes
        whole = set(changes.nodes)
        whole.update(name for name in changes.gpu_nodes if _is_another(old, new, name))
        reported = {
            uid
            for uid in changes.workloads
            if _is_only_reported(old.workloads.get(uid), new.workloads.get(uid))
        }
        owners = set(changes.workloads) - reported
        owners.update(changed(old.stragglers or {}, new.stragglers or {}))
        for uid in changes.pods:
            owners.update(side.pods[uid].owner.uid for side in (old, new) if uid in side.pods)
        owners.update(new.pods[uid].owner.uid for uid in view.evictions if uid in new.pods)
        devices = members.slices.touched | self.written
        for held in (members.devices_before, members.devices):
            devices.update(chain.from_iterable(held.get(uid, ()) for uid in owners))
        for side in (old, new):
            owners.update(_owners_on(side, devices), _owners_in(side, whole))
        owners |= reported
        return owners, whole.union(changes.gpu_nodes, (device.node for device in devices))


def untouched(
    undisturbed: Mapping[str, LifecycleStep],
    now: Mapping[str, LifecycleStep],
    snapshot: Snapshot,
    devices: Collection[DeviceRef],
) -> dict[str, LifecycleStep]:
    """Undisturbed jobs that the cycle itself did not affect, nor their devices.

    Args:
        undisturbed: Their needs at the beginning of the cycle, by uid.
        now: Their needs after it.
        snapshot: The snapshot of the cycle.
        devices: Devices with slices that the cycle granted or revoked.
    """
    changed = map(is_not, map(now.__getitem__, undisturbed), undisturbed.values())
    return _less(undisturbed, {*compress(undisturbed, changed), *_owners_on(snapshot, devices)})


def _less(steps: Mapping[str, LifecycleStep], uids: Iterable[str]) -> dict[str, LifecycleStep]:
    """All steps except some; few are removed, so a copy is cheaper than checking each."""
    left = dict(steps)
    for uid in uids:
        left.pop(uid, None)
    return left


def is_steady(workload: WorkloadRecord, step: LifecycleStep) -> bool:
    """True if only a change of records can change the step of a workload.

    The status of a waiting workload also depends on its refusal.

    Args:
        workload: The workload, whose status this cycle does not change.
        step: Its step of this cycle.
    """
    return (
        not step.silent
        and workload.is_gang
        and workload.cost is None
        and workload.elasticity is None
        and workload.status.spend is None
        and (step is running(workload.status.restarts) or _only_waits(step))
    )


def standing(
    steps: Mapping[str, LifecycleStep],
    outcomes: Mapping[str, Outcome],
    workloads: Mapping[str, WorkloadRecord],
    before: Mapping[str, Refusal],
) -> tuple[dict[str, Refusal], list[str]]:
    """Refusals of undisturbed jobs that stand, by uid, and the uids of the other waiting ones.

    Args:
        steps: Steps of jobs whose records are those of the last cycle, by uid.
        outcomes: Outcomes of this cycle, by uid.
        workloads: The workloads, by uid.
        before: Refusals that stood in the last cycle, by uid.
    """
    stand: dict[str, Refusal] = {}
    others: list[str] = []
    refusals: dict[int, Refusal | None] = {id(None): None}
    for uid in busy(steps):
        if not steps[uid].waiting:
            continue
        outcome = outcomes.get(uid)
        try:
            refusal = refusals[id(outcome)]
        except KeyError:  # thousands share few outcomes
            refusal = refusals[id(outcome)] = _refusal(outcome)
        if refusal is None:
            others.append(uid)
        elif before.get(uid) == refusal or _shown(workloads[uid].status) == refusal:
            stand[uid] = refusal
        else:
            others.append(uid)
    return stand, others


def _refusal(outcome: Outcome | None) -> Refusal | None:
    """The reasons of a refusal; ``None`` for any other outcome."""
    if outcome is None or outcome.refused is None or outcome.placements:
        return None
    return outcome.refused.reason, frozenset(map(_reason, outcome.refused.lines))


def _shown(status: WorkloadStatus) -> Refusal | None:
    """The reasons that the decision in a status states."""
    decision = status.decision
    if decision is None:
        return None
    return decision.reason, frozenset(map(_reason, decision.refusals))


def _only_waits(step: LifecycleStep) -> bool:
    """True if all pods of a gang exist and wait for slices, and nothing else is due."""
    plain = LifecycleStep(phase=Phase.PENDING, waiting=step.waiting, restarts=step.restarts)
    return bool(step.waiting) and step == plain


def _lasting(settings: DecideSettings | None) -> DecideSettings | None:
    """The settings without the parts that change from cycle to cycle and affect no running job."""
    return settings and replace(settings, backpressure_ended_at=0.0, aside=())


def _same(old: object, new: object) -> bool:
    if old is new:
        return True
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return old == new
    return len(old) == len(new) and all(new.get(key) is value for key, value in old.items())


def _is_only_reported(before: WorkloadRecord | None, after: WorkloadRecord | None) -> bool:
    """True when only the status of a job changed, as after every decision about it.

    Nothing in it affects those beside it, but for a share that it restarts with.
    """
    return (
        before is not None
        and after is not None
        and after.kind is WorkloadKind.TRAINING_JOB
        and before.status.made_room is None
        and after.status.made_room is None
        and _as_written(before) == _as_written(after)
    )


def _is_another(old: Snapshot, new: Snapshot, name: str) -> bool:
    """True if a GPUNode was added or removed, or reports a change of itself or of its devices.

    Its report of slices affects their holders and those that share their devices; its heartbeat and
    its observations affect no running work.
    """
    before, after = old.gpu_nodes.get(name), new.gpu_nodes.get(name)
    return before is None or after is None or _of_itself(before) != _of_itself(after)


def _of_itself(record: GPUNodeRecord) -> tuple[object, ...]:
    return (
        record.uid,
        record.retire,
        record.devices,
        record.conditions,
        record.slots,
        record.interruption,
    )


def _owners_in(snapshot: Snapshot, nodes: Iterable[str]) -> Iterator[str]:
    """Owners of the slices in the spec or the status of some nodes."""
    for name in nodes:
        record = snapshot.gpu_nodes.get(name)
        if record is not None:
            yield from _owners(snapshot, chain(record.desired, record.observed))


def _owners_on(snapshot: Snapshot, devices: Iterable[DeviceRef]) -> Iterator[str]:
    """Owners of the slices on some devices, in a spec or a status."""
    by_node: dict[str, set[str]] = {}
    for device in devices:
        by_node.setdefault(device.node, set()).add(device.gpu)
    for name, gpus in by_node.items():
        record = snapshot.gpu_nodes.get(name)
        if record is not None:
            desired = (part for part in record.desired if part.gpu in gpus)
            observed = (part for part in record.observed if part.gpu in gpus)
            yield from _owners(snapshot, chain(desired, observed))


def _owners(snapshot: Snapshot, slices: Iterable[DesiredSlice | ObservedSlice]) -> Iterator[str]:
    for part in slices:
        pod = snapshot.pods.get(part.key.pod_uid)
        if pod is not None:
            yield pod.owner.uid
