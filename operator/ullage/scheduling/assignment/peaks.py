# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Evictions of best-effort training from a replica's device before a load peak.

A guard pauses a neighbour only once the latency is broken. Where the autoscaler of a service plans
for a load at which a neighbour is predicted to break it, the neighbour restarts in time: with a
smaller share if that is enough and its owner allows it, else wherever there is room. Admission lets
it return by the same forecast. Level-triggered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from ullage.api.reasons import Reason
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.status import MadeRoom
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.admission.records import TOLERANCE
from ullage.scheduling.assignment.reevaluation import Finding
from ullage.scheduling.feasibility.occupancy import Occupant
from ullage.scheduling.feasibility.resource_requests import ResourceRequests
from ullage.scheduling.model.lifecycle_step import LifecycleStep
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.view import View
from ullage.scheduling.placement.clearing import makes_way
from ullage.scheduling.placement.downsizing import (
    DownsizeCandidate,
    DownsizeContext,
    residents,
    smaller,
)
from ullage.scheduling.placement.placement import Placer
from ullage.scheduling.placement.predicted_figures import Predictions
from ullage.scheduling.placement.preemption import follows_load, lender, priority_of, unsaved_s
from ullage.scheduling.prediction.latency import planned_load

PEAK: Final = Reason.PEAK_AHEAD


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replica:
    """A replica that would be too slow at the planned load."""

    service: WorkloadRecord
    pod_uid: str
    site: int
    predicted: float
    allowed: float


def before_peaks(
    requests: ResourceRequests,
    placer: Placer,
    predictions: Predictions,
    lifecycles: Mapping[str, LifecycleStep],
) -> dict[str, Finding]:
    """Jobs that yield in this cycle, by uid, at most one per device.

    Args:
        requests: Requests of members.
        placer: Tries places in the current occupancy, and leaves it unchanged.
        predictions: Predicted slowdowns of residents.
        lifecycles: The next step of every workload, by uid.
    """
    return dict(_Peaks(requests.view, requests, placer, predictions, lifecycles).findings())


@dataclass
class _Peaks:
    view: View
    requests: ResourceRequests
    placer: Placer
    predictions: Predictions
    lifecycles: Mapping[str, LifecycleStep]
    _going: set[str] = field(default_factory=set)

    def findings(self) -> Iterator[tuple[str, Finding]]:
        """The finding of each job that yields."""
        for replica in self._too_slow():
            leaver = next(iter(self._leavers(replica)), None)
            if leaver is None or leaver.ref.uid in self._going:
                continue
            self._going.add(leaver.ref.uid)
            yield leaver.ref.uid, self._way(replica, leaver)

    def _too_slow(self) -> Iterator[_Replica]:
        """Replicas beside others that are predicted to break their objective."""
        occupancy = self.placer.occupancy
        for uid, service in self.view.index.those(self.view.index.services):
            life = self.lifecycles.get(uid)
            if not follows_load(service) or planned_load(service) is None or life is None:
                continue
            known = self.requests.classes.ahead(service)
            for member in self.view.members_of(service):
                pod = member.pod
                if pod.stage is not PodStage.RUNNING or pod.deleting or not member.held:
                    continue
                held = member.held[0]
                site = occupancy.inventory.site_index.get((held.node, held.slice.gpu))
                if site is None or len(occupancy.occupants[site]) < 2:
                    continue
                model = occupancy.inventory.model.item(site)
                allowed = known.tenants[model].max_slowdown
                if allowed is None or model in known.barred:
                    continue
                predicted = self.predictions.of(held.node, held.slice.gpu, pod.uid)
                if predicted > allowed + TOLERANCE:
                    yield _Replica(
                        service=service,
                        pod_uid=pod.uid,
                        site=site,
                        predicted=predicted,
                        allowed=allowed,
                    )

    def _leavers(self, replica: _Replica) -> Sequence[WorkloadRecord]:
        """Jobs on the device that may yield to the service, in order of preference.

        Lowest priority first, then the most recent checkpoint, then the youngest.
        """
        service = replica.service
        rank = priority_of(service, self.view.members_of(service))
        candidates = []
        for occupant in self.placer.occupancy.occupants[replica.site]:
            job = self.view.snapshot.workloads.get(occupant.owner_uid)
            if job is None or occupant.leaving or not self._runs(job):
                continue
            if self._slowed(replica, {occupant.pod_uid: None}) >= replica.predicted - TOLERANCE:
                continue  # the replica is as slow without it
            members = self.view.members_of(job)
            priority = priority_of(job, members)
            if lender(job) and makes_way(job, priority, service, rank):
                order = (priority, unsaved_s(self.view, members), -job.created, job.ref.uid)
                candidates.append((order, job))
        return [job for _, job in sorted(candidates, key=lambda candidate: candidate[0])]

    def _runs(self, job: WorkloadRecord) -> bool:
        life = self.lifecycles.get(job.ref.uid)
        return (
            life is not None
            and life.phase is Phase.RUNNING
            and not life.waiting
            and not any(
                member.pod.uid in self.view.evictions for member in self.view.members_of(job)
            )
        )

    def _way(self, replica: _Replica, job: WorkloadRecord) -> Finding:
        """The way in which a job yields."""
        name = f"{replica.service.ref.namespace}/{replica.service.ref.name}"
        inventory = self.placer.occupancy.inventory
        place = inventory.sites[replica.site]
        planned = planned_load(replica.service)
        text = (
            f"{name} plans for {planned.requests_per_s if planned else 0:.3g} requests/s; beside"
            f" this job a replica on {inventory.place_name(replica.site)} would then run"
            f" {replica.predicted:.2f} times slower than alone, its objective allows"
            f" {replica.allowed:.3g} (predicted)"
        )
        node = inventory.nodes[place.node].name
        percent = self._less(replica, job)
        if percent:
            room = MadeRoom(
                time=whole_second(self.view.now),
                percent=percent,
                node=node,
                gpu=place.uuid,
                beneficiary=name,
                beneficiary_uid=replica.service.ref.uid,
            )
            message = f"{text}; it goes on with {percent} %"
            return Finding(reason=PEAK, because=PEAK, text=message, made_room=room)
        members = self.view.members_of(job)
        device = next(
            (
                held.device
                for member in members
                for held in member.held
                if (held.node, held.slice.gpu) == (node, place.uuid)
            ),
            None,
        )
        return Finding(reason=PEAK, because=PEAK, text=text, device=device, waits=True)

    @cached_property
    def _residents(self) -> Sequence[DownsizeCandidate]:
        return residents(self.view, self.requests, self.placer.occupancy, self.lifecycles)

    def _less(self, replica: _Replica, job: WorkloadRecord) -> int:
        """The largest smaller share that meets the service's objective; 0 = there is none."""
        if not job.sharing.resizable:
            return 0
        asking = DownsizeContext(placer=self.placer, requests=self.requests, unit=())
        for resident in self._residents:
            if resident.uid != job.ref.uid or resident.site != replica.site:
                continue
            for small in reversed(smaller(asking, resident)):
                slowed = self._slowed(replica, {small.pod_uid: small})
                if slowed <= replica.allowed + TOLERANCE:
                    return small.tenant.percent
        return 0

    def _slowed(self, replica: _Replica, instead: Mapping[str, Occupant | None]) -> float:
        """Predicted slowdown of a replica with some occupants replaced or removed.

        Args:
            replica: The replica.
            instead: Replacement of an occupant, by uid of its pod; ``None`` = removed.
        """
        occupancy = self.placer.occupancy
        replaced = [
            instead.get(occupant.pod_uid, occupant)
            for occupant in occupancy.occupants[replica.site]
        ]
        occupants = [occupant for occupant in replaced if occupant is not None]
        model = occupancy.inventory.sites[replica.site].device.model
        slowdowns = self.placer.rule.slowdowns(model, [occupant.tenant for occupant in occupants])
        return max(
            slowdown
            for occupant, slowdown in zip(occupants, slowdowns, strict=True)
            if occupant.pod_uid == replica.pod_uid
        )
