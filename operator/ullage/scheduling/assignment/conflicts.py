# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Conflicts between workloads with objectives on one device, and the choice of the loser.

A guard pauses only work without an objective, so these conflicts are decided in the cycle. The
newest workload with another place moves; else a resizable one restarts with a smaller share; else
the lowest-priority one that saves its work is preempted and waits. Level-triggered: it follows from
current reports of the nodes. One workload yields at a time, and the device then has time to settle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from typing import Final

from ullage.api.reasons import ConditionType, Reason
from ullage.api.slices import DesiredSlice, SliceKey, SlicePhase
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.status import MadeRoom
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.cluster.values.device_ref import DeviceRef
from ullage.scheduling.assignment.reevaluation import Finding
from ullage.scheduling.feasibility.resource_requests import ResourceRequests
from ullage.scheduling.inventory.exclusions import active_exclusions
from ullage.scheduling.model.lifecycle_step import LifecycleStep, earliest
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.view import Member, View
from ullage.scheduling.placement.downsizing import (
    DownsizeCandidate,
    DownsizeContext,
    residents,
    smaller,
)
from ullage.scheduling.placement.placement import Placer
from ullage.scheduling.placement.preemption import priority_of
from ullage.scheduling.placement.room import elsewhere
from ullage.scheduling.prediction.effort import in_turns
from ullage.scheduling.times import CONFLICT_NEXT_S, CONFLICT_RETRY_S, NEIGHBOURS_SETTLE_S

MOST_JUDGED: Final = 16
"""Conflicts settled per cycle; the others follow in the next ones (not measured)."""
CONFLICT: Final = Reason.OBJECTIVES_CONFLICT
_finding = partial(Finding, reason=CONFLICT, because=CONFLICT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflicts:
    """Workloads that yield in this cycle, and those that cannot, with the reason."""

    findings: Mapping[str, Finding] = field(default_factory=dict)
    """By uid of the workload."""
    wake_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _CoRunner:
    """A workload on a device whose objectives conflict."""

    workload: WorkloadRecord
    member: Member
    since: float
    broken: bool
    """True when its objective is broken."""


def settle_conflicts(
    requests: ResourceRequests,
    placer: Placer,
    lifecycles: Mapping[str, LifecycleStep],
    nodes: Sequence[str],
) -> Conflicts:
    """Select the workloads that yield in this cycle.

    Args:
        requests: Requests of members.
        placer: Tries places in the current occupancy, and leaves it unchanged.
        lifecycles: The next step of every workload, by uid.
        nodes: Names of the nodes that report a broken objective.
    """
    return _Judge(requests.view, requests, placer, lifecycles).settle(nodes)


@dataclass
class _Judge:
    """Settles the conflicts of one cycle."""

    view: View
    requests: ResourceRequests
    placer: Placer
    lifecycles: Mapping[str, LifecycleStep]

    def settle(self, nodes: Sequence[str]) -> Conflicts:
        """Select the workloads that yield on some nodes."""
        findings: dict[str, Finding] = {}
        moments: list[float] = []
        ready: list[tuple[DeviceRef, list[_CoRunner]]] = []
        for device, parties in chain.from_iterable(map(self._conflicts, nodes)):
            ready_at = self._ready_at(device, parties)
            if ready_at > self.view.now:
                moments.append(ready_at)
            else:
                ready.append((device, parties))
        moves = False
        for number, (device, parties) in enumerate(in_turns(ready, self.view.now)):
            if any(party.workload.ref.uid in findings for party in parties):
                continue
            victim = next(party for party in parties if party.broken)
            text = _in_words(device, parties)
            if number < MOST_JUDGED and not moves:
                uid, finding = self._settled(device, parties, victim, text)
                findings[uid] = finding
                moves = bool(finding.pods)
            elif _is_told(victim.workload):
                uid, finding = self._unsettled(victim, text)
                findings[uid] = finding
        if len(ready) > 1 and moves:
            moments.append(self.view.now + CONFLICT_NEXT_S)
        elif len(ready) > MOST_JUDGED:
            moments.append(self.view.now + CONFLICT_RETRY_S)
        return Conflicts(findings=findings, wake_at=earliest(*moments))

    def _conflicts(self, name: str) -> Iterator[tuple[DeviceRef, list[_CoRunner]]]:
        """Devices of a node with objectives of all tenants and at least one broken."""
        record = self.view.snapshot.gpu_nodes[name]
        seen = {part.key: part for part in record.observed}
        broken = {
            key
            for key, part in seen.items()
            if part.phase is SlicePhase.VIOLATING and part.reason != Reason.SELF_VIOLATING
        }
        for gpu in sorted({seen[key].gpu for key in broken}):
            here = [part for part in record.desired if part.gpu == gpu]
            binding = {part.key for part in here if part.protected and not part.alert_only}
            if len(here) < 2 or not binding & broken:
                continue
            if not all(part.protected and not part.probation for part in here):
                continue  # the guard pauses the others, or a trial ends
            parties = [self._party(record, part, binding & broken) for part in here]
            if None not in parties:
                yield DeviceRef(name, gpu), [party for party in parties if party is not None]

    def _party(
        self, record: GPUNodeRecord, part: DesiredSlice, broken: set[SliceKey]
    ) -> _CoRunner | None:
        """A tenant that runs and stays; ``None`` = it is starting or leaving, so wait."""
        snapshot = self.view.snapshot
        pod = snapshot.pods.get(part.key.pod_uid)
        job = snapshot.workloads.get(pod.owner.uid) if pod is not None else None
        if pod is None or job is None or pod.deleting or pod.stage is not PodStage.RUNNING:
            return None
        life = self.lifecycles.get(job.ref.uid)
        if pod.uid in self.view.evictions or life is None or life.phase is not Phase.RUNNING:
            return None
        members = self.view.members_of(job)
        member = next((member for member in members if member.pod.uid == pod.uid), None)
        if member is None:
            return None
        since = max(pod.stage_since, record.desired_since.get(part.key, 0.0))
        return _CoRunner(workload=job, member=member, since=since, broken=part.key in broken)

    def _ready_at(self, device: DeviceRef, parties: Sequence[_CoRunner]) -> float:
        """Time at which the device has settled after a tenant arrived or yielded."""
        gave_way = self._gave_way.get(device, 0.0)
        return max(gave_way, *(party.since for party in parties)) + NEIGHBOURS_SETTLE_S

    @cached_property
    def _gave_way(self) -> Mapping[DeviceRef, float]:
        """Time at which a tenant last yielded, by device."""
        times: dict[DeviceRef, float] = {}
        for _, job in self.view.index.those(self.view.index.excluding):
            for exclusion in active_exclusions(self.view, job):
                if exclusion.reason is CONFLICT:
                    device = exclusion.device
                    times[device] = max(times.get(device, 0.0), exclusion.since)
        return times

    def _settled(
        self, device: DeviceRef, parties: Sequence[_CoRunner], victim: _CoRunner, text: str
    ) -> tuple[str, Finding]:
        """The workload that yields, and how; else the victim with the reason why none does."""
        newest = sorted(parties, key=lambda party: (-party.since, party.workload.ref.uid))
        return (
            self._moved(device, newest, text)
            or self._resized(device, parties, victim, text)
            or self._stopped(device, newest, text)
            or self._unsettled(victim, text)
        )

    def _moved(
        self, device: DeviceRef, newest: Sequence[_CoRunner], text: str
    ) -> tuple[str, Finding] | None:
        """The newest workload that loses nothing by a restart and has another place."""
        for party in newest:
            job = party.workload
            service = job.kind is WorkloadKind.INFERENCE_DEPLOYMENT
            members = [party.member] if service else self.view.members_of(job)
            if not service and (job.adopted or not job.checkpoint):
                continue
            if elsewhere(self.placer, self.requests, job, members, here_too=False):
                pods = frozenset({party.member.pod.uid})
                return job.ref.uid, _finding(text=text, pods=pods, device=device)
        return None

    @cached_property
    def _residents(self) -> Sequence[DownsizeCandidate]:
        return residents(self.view, self.requests, self.placer.occupancy, self.lifecycles)

    def _resized(
        self, device: DeviceRef, parties: Sequence[_CoRunner], victim: _CoRunner, text: str
    ) -> tuple[str, Finding] | None:
        """A workload whose own objective is met restarts with a smaller share."""
        occupancy = self.placer.occupancy
        site = occupancy.inventory.site_index.get((device.node, device.gpu))
        kept = {party.workload.ref.uid for party in parties if not party.broken}
        asking = DownsizeContext(placer=self.placer, requests=self.requests, unit=())
        for resident in self._residents:
            if resident.site != site or resident.uid not in kept:
                continue
            shares = smaller(asking, resident)
            if not shares:
                continue
            percent = shares[-1].tenant.percent  # the smallest reduction
            room = MadeRoom(
                time=whole_second(self.view.now),
                percent=percent,
                node=device.node,
                gpu=device.gpu,
                beneficiary=_name(victim),
                beneficiary_uid=victim.workload.ref.uid,
            )
            message = f"{text}; it goes on with {percent} % instead of {resident.percent} %"
            return resident.uid, _finding(text=message, made_room=room)
        return None

    def _stopped(
        self, device: DeviceRef, newest: Sequence[_CoRunner], text: str
    ) -> tuple[str, Finding] | None:
        """Preempt the lowest-priority workload that saves its work, for one of higher priority.

        With equal priority only for one of its own namespace: a container's untrusted report of its
        steps must not stop work of another tenant.
        """

        def rank(party: _CoRunner) -> int:
            return priority_of(party.workload, self.view.members_of(party.workload))

        for party in sorted(newest, key=rank):
            job = party.workload
            if job.kind is not WorkloadKind.TRAINING_JOB or not job.checkpoint:
                continue
            for other in newest:
                alike = other.workload.ref.namespace == job.ref.namespace
                above = rank(other) > rank(party) or (alike and rank(other) == rank(party))
                if other.broken and other is not party and above:
                    message = f"{text}; it is the least important there and waits for another place"
                    return job.ref.uid, _finding(text=message, device=device, waits=True)
        return None

    def _unsettled(self, victim: _CoRunner, text: str) -> tuple[str, Finding]:
        stays = (
            "no one there can move, be resized (sharing.resizable) or be stopped without loss"
            " (spec.checkpoint)"
        )
        return victim.workload.ref.uid, _finding(text=text, stays=stays)


def _name(party: _CoRunner) -> str:
    return f"{party.workload.ref.namespace}/{party.workload.ref.name}"


def _in_words(device: DeviceRef, parties: Sequence[_CoRunner]) -> str:
    """The text of a conflict on a device."""
    names = " and ".join(_name(party) for party in parties if party.broken)
    beside = " and ".join(_name(party) for party in parties if not party.broken)
    by = f"beside {beside}, which has one too" if beside else "by each other"
    return f"on {device} the objective of {names} is broken {by}"


def _is_told(workload: WorkloadRecord) -> bool:
    """True if the status of the workload shows an unsettled conflict."""
    shown = workload.status.condition(ConditionType.DEGRADED)
    return shown is not None and shown.reason == CONFLICT
