# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Room for workloads that fit nowhere: waiting, downsizing, preemption, held devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ullage.api.reasons import Reason
from ullage.engines.admission.limits import HEALTHY, LIMITS
from ullage.scheduling.feasibility.device_facts import emptied
from ullage.scheduling.feasibility.resource_requests import ResourceRequest, ResourceRequests
from ullage.scheduling.inventory.reliable_machines import terms_of
from ullage.scheduling.model.view import View
from ullage.scheduling.placement.attempt import Outcome, Refused, Requeue, SchedulingAttempt
from ullage.scheduling.placement.downsizing import (
    Downsize,
    DownsizeCandidate,
    DownsizeContext,
    make_room_beside,
)
from ullage.scheduling.placement.nearest import emptiest
from ullage.scheduling.placement.placement import NoRoom, Placement, Placer
from ullage.scheduling.placement.preemption import Victim, in_words, smaller_first
from ullage.scheduling.placement.victim_selection import LaterDevices, VictimSelection

_MOST_PREEMPTORS: Final = 64
"""Workloads that may make room per cycle."""


@dataclass(slots=True)
class RoomMaker:
    """Makes room in one cycle; what it keeps or holds is blocked for the rest of the queue."""

    view: View
    requests: ResourceRequests
    placer: Placer
    selection: VictimSelection
    """Selects victims for workloads that do not fit."""
    residents: Callable[[], Sequence[DownsizeCandidate]] | None = None
    """Gives the jobs that may be downsized; ``None`` = none may."""
    holder: str = ""
    """Name of the workload that devices are held for."""
    _refused_later: dict[int, int] = field(default_factory=dict)
    _no_victims: dict[int, int] = field(default_factory=dict)
    _no_downsize: dict[int, int] = field(default_factory=dict)
    _preemptors: int = 0

    @property
    def later(self) -> LaterDevices:
        """Devices without everything that is leaving."""
        return self.selection.later

    def make(
        self, attempt: SchedulingAttempt, unit: Sequence[Placement], no_room: NoRoom
    ) -> tuple[Outcome, bool]:
        """Wait for devices that become free, make room, or hold devices.

        Returns:
            The outcome, and whether it holds for all equal requests of at most this priority.
        """
        reason = no_room.lines[0].reason if no_room.lines else Reason.NO_CAPACITY
        refused = Refused(reason, no_room.lines, no_room.placed)
        by_quota = reason is Reason.QUOTA_EXCEEDED
        if by_quota:
            refused = replace(refused, requeue=Requeue.QUOTA)
        if self._fits_later(attempt, unit):
            return Outcome(refused=_coming(refused, "what it needs is about to become free")), False
        if attempt.modest and not attempt.may_stop:
            return Outcome(refused=refused), False
        made = None if by_quota else self._ask_residents(attempt, unit)
        if made is not None:
            room = (
                f"room is made by restarting {made.name} at {made.percent} % instead of"
                f" {made.resident.percent} %"
            )
            return Outcome(refused=_coming(refused, room), downsize=made), False
        victims = self._preempt(attempt, unit)
        if victims:
            room = f"room is made by {in_words(victims)}"
            return Outcome(refused=_coming(refused, room), victims=victims), False
        if not by_quota:  # held devices do not help against a quota
            self._maybe_hold(attempt, unit)
        return Outcome(refused=refused), True

    def waited_too_long(self, attempt: SchedulingAttempt) -> bool:
        """True after the patience of the policy, which ends with devices that are held."""
        policy = self.view.snapshot.policy
        patience_s = policy.gang_skip_limit * policy.round_seconds
        return self.view.now - attempt.waiting_since > patience_s

    def keep(self, attempt: SchedulingAttempt, gang: Sequence[Placement]) -> None:
        """Block devices that the attempt is about to get for the rest of the queue."""
        name = f"{attempt.workload.ref.namespace}/{attempt.workload.ref.name}"
        sites = [site for placement in gang for site in placement.candidate.sites]
        self.placer.occupancy.block(sites, name)

    def _fits_later(self, attempt: SchedulingAttempt, unit: Sequence[Placement]) -> bool:
        """True when it fits once everything that is leaving has left; keeps those devices."""
        if not self.later.differ:
            return False
        number = class_of(unit)
        if self._refused_later.get(number, len(unit) + 1) <= len(unit):
            return False
        later = self.later.placer
        seated = later.placement(unit, set(attempt.near), explain=False)
        if isinstance(seated, NoRoom):
            self._refused_later[number] = len(unit)
            return False
        self.keep(attempt, seated)
        return True

    def _ask_residents(
        self, attempt: SchedulingAttempt, unit: Sequence[Placement]
    ) -> Downsize | None:
        """The downsizing of a resident, which costs less than a preemption."""
        number = class_of(unit)
        hopeless = self._no_downsize.get(number)
        if self.residents is None or (hopeless is not None and attempt.priority <= hopeless):
            return None
        asked = [
            resident
            for resident in self.residents()
            if resident.uid not in self.selection.evicted and resident.priority <= attempt.priority
        ]
        made: Downsize | None = None
        if asked and len(self.selection.evicted) < _MOST_PREEMPTORS:
            context = DownsizeContext(
                placer=self.later.placer, requests=self.requests, unit=unit, near=attempt.near
            )
            made = make_room_beside(context, asked)
        if made is None:
            self._no_downsize[number] = attempt.priority
            return None
        self.selection.evicted.add(made.uid)
        self.keep(attempt, made.placements)
        return made

    def _preempt(self, attempt: SchedulingAttempt, unit: Sequence[Placement]) -> tuple[Victim, ...]:
        number = class_of(unit)
        hopeless = self._no_victims.get(number)
        if self._preemptors >= _MOST_PREEMPTORS or (
            hopeless is not None and attempt.priority <= hopeless
        ):
            return ()

        def arranged(victims: list[Victim]) -> list[Victim]:
            return smaller_first(victims, attempt.priority)

        eviction = self.selection.eviction(attempt, unit, set(attempt.near), arranged)
        if eviction is None:
            self._no_victims[number] = attempt.priority
            return ()
        self._preemptors += 1
        self.selection.evicted |= {victim.uid for victim in eviction.victims}
        self.keep(attempt, eviction.placements)
        return eviction.victims

    def _maybe_hold(self, attempt: SchedulingAttempt, unit: Sequence[Placement]) -> None:
        """Hold the emptiest devices for the first attempt that waited too long."""
        if attempt.only is not None:
            return  # rounds hold devices themselves
        if self.holder or not self.waited_too_long(attempt):
            return
        self.holder = f"{attempt.workload.ref.namespace}/{attempt.workload.ref.name}"
        occupancy, request = self.placer.occupancy, freest(unit)
        facts = emptied(occupancy.inventory)
        mask = self.placer.candidate_index.reachable(request) & (
            occupancy.inventory.health == HEALTHY
        )
        if request.ruled is not None and occupancy.rules is not None:
            allowed = occupancy.rules.allowed(request.ruled, request.shape)
            mask &= allowed[occupancy.inventory.node_of]
        for limit in LIMITS:
            mask &= limit.short(facts, request) <= 0
        sites = emptiest(occupancy, request, mask.nonzero()[0].tolist(), len(unit))
        occupancy.block(sites, self.holder, held=True)
        self.later.hold(sites, self.holder)


def _coming(refused: Refused, how: str) -> Refused:
    """The refusal of a workload for which devices are kept, with the way they become free."""
    return replace(refused, prospect=f"; {how}", requeue=Requeue.ROOM_COMING)


def class_of(unit: Sequence[Placement]) -> int:
    """A number for the requests of all members; that of the first where all are equal.

    In tiers the first members need other machines than the rest, and their number counts as well.
    """
    first, last = unit[0].request.number, freest(unit).number
    if first == last:
        return first
    return hash((first, last, sum(member.request.number == first for member in unit), len(unit)))


def freest(unit: Sequence[Placement]) -> ResourceRequest:
    """The request of the members that may run on most machines: in tiers the last ones."""
    return unit[0 if terms_of(unit[0].workload) is None else -1].request
