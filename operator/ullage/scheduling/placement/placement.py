# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""All members or nothing: seats members on the board, and takes everything back when one fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ullage.api.contract import DesiredSlice, SliceKey
from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.cluster.records.status import RefusalLine
from ullage.engines.admission.limits import memory_of_share_mib
from ullage.scheduling.feasibility.occupancy import Occupancy, Occupant
from ullage.scheduling.feasibility.resource_requests import ResourceRequest
from ullage.scheduling.feasibility.slices import priority_held, said_of
from ullage.scheduling.model.view import Member
from ullage.scheduling.placement.candidates import Candidate, CandidateIndex, CandidateList
from ullage.scheduling.placement.messages import refusal_lines
from ullage.scheduling.placement.survey import survey
from ullage.scheduling.prediction.verdicts import AdmissionRule

_MOST_SHARERS: Final = 16
"""Smallest part of a device that a gang is held to when its members crowd one another out."""


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """One member and the class of what it asks for."""

    workload: WorkloadRecord
    member: Member
    want: ResourceRequest


@dataclass(frozen=True, slots=True)
class Placement:
    """A member in its place."""

    asked: PlacementRequest
    spot: Candidate


@dataclass(frozen=True, slots=True)
class Placements:
    """Every member in its place; ``runner_up`` is what the first would have got instead."""

    seats: tuple[Placement, ...]
    runner_up: Candidate | None = None


@dataclass(frozen=True, slots=True)
class NoRoom:
    """Not all members fit: how many would, and what stops the next one."""

    placed: int
    lines: tuple[RefusalLine, ...]


@dataclass(slots=True)
class Placer:
    """Seats members on one board."""

    board: Occupancy
    rule: AdmissionRule
    scout: CandidateIndex = field(init=False)
    _shortlists: dict[int, CandidateList] = field(default_factory=dict)
    _narrowed: dict[tuple[int, int], ResourceRequest] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.scout = CandidateIndex(self.board, self.rule)

    def seat(
        self, unit: Sequence[PlacementRequest], near: set[int], *, explain: bool
    ) -> Placements | NoRoom:
        """Seat all members, or none.

        Each gets the largest share that its device grants. Where the first then leave too little
        for the last, all are held to the largest equal part of a device (a half, a third, ...) at
        which everybody fits.

        Args:
            unit: members that stand or fall together.
            near: nodes that the rest of the gang is on already.
            explain: find out what stops the first member that does not fit.
        """
        found = self._seat(unit, near, explain=explain)
        want = unit[0].want
        if isinstance(found, Placements) or not found.placed or len(unit) == 1 or want.exclusive:
            return found  # where there is no place for one, nobody crowds anybody out
        for sharers in range(2, _MOST_SHARERS + 1):
            cap = want.percent_limit // sharers
            if cap < want.min_percent:
                break
            if cap < want.max_percent:
                trial = self._seat(self._held_to(unit, cap), near, explain=False)
                if isinstance(trial, Placements):
                    return trial
        return found

    def _held_to(self, unit: Sequence[PlacementRequest], cap: int) -> list[PlacementRequest]:
        """The same members, content with less."""
        return [replace(one, want=self._narrower(one.want, cap)) for one in unit]

    def _narrower(self, want: ResourceRequest, cap: int) -> ResourceRequest:
        known = self._narrowed.get((want.number, cap))
        if known is None:
            number = -1 - len(self._narrowed)
            known = replace(want, number=number, max_percent=min(cap, want.max_percent))
            self._narrowed[want.number, cap] = known
        return known

    def _seat(
        self, unit: Sequence[PlacementRequest], near: set[int], *, explain: bool
    ) -> Placements | NoRoom:
        """Seat all members at the largest shares, one after the other, or none."""
        seats: list[Placement] = []
        runner_up: Candidate | None = None
        near = set(near)
        for asked in unit:
            shortlist = self._shortlist(asked.want)
            spot = shortlist.best(near)
            if spot is None:
                lines = self._explain(asked.want) if explain else ()
                self.unseat(seats)
                return NoRoom(len(seats), lines)
            if not seats and explain:
                runner_up = shortlist.second(spot)
            seats.append(Placement(asked, spot))
            self.take(seats[-1])
            near.add(spot.node)
        return Placements(tuple(seats), runner_up)

    def has_room(self, want: ResourceRequest) -> bool:
        """Whether one more member of a class would fit."""
        return self._shortlist(want).best(set()) is not None

    def knows(self, want: ResourceRequest) -> bool:
        """Whether all devices were judged for a class in this cycle."""
        return want.number in self._shortlists

    def take(self, seat: Placement) -> None:
        """Put a seated member on the board."""
        for site in seat.spot.sites:
            self.board.put(site, self.occupant(seat, site))
        self.board.charge(seat.spot.node, seat.asked.member.pod.shape.requests)

    def unseat(self, seats: Sequence[Placement]) -> None:
        """Take members off the board again."""
        for seat in reversed(seats):
            for site in seat.spot.sites:
                self.board.lift(site, self.occupant(seat, site))
            self.board.refund(seat.spot.node, seat.asked.member.pod.shape.requests)

    def occupant(self, seat: Placement, site: int) -> Occupant:
        """A seated member as it stands on one of its devices."""
        want, workload = seat.asked.want, seat.asked.workload
        model = self.board.ground.model.item(site)
        return Occupant(
            pod_uid=seat.asked.member.pod.uid,
            owner_uid=workload.ref.uid,
            tenant=want.tenant(
                f"{workload.ref.namespace}/{workload.ref.name}",
                model,
                seat.spot.percent,
                probation=seat.spot.grant.trial,
            ),
            memory_mib=memory_mib(self.board, want, site, seat.spot.percent),
            domain=want.domain,
            whole=want.lonely,
            unmeasured=want.unmeasured.get(model, ""),
        )

    def _shortlist(self, want: ResourceRequest) -> CandidateList:
        known = self._shortlists.get(want.number)
        if known is None:
            known = CandidateList(self.scout, want)
            self._shortlists[want.number] = known
        return known

    def _explain(self, want: ResourceRequest) -> tuple[RefusalLine, ...]:
        return refusal_lines(self.scout, want, survey(self.scout, want))


def memory_mib(board: Occupancy, want: ResourceRequest, site: int, percent: int) -> int:
    """What the container may allocate: what it asked for, else its part less the context's cost."""
    if want.memory_mib:
        return want.memory_mib
    one = board.ground.sites[site]
    return memory_of_share_mib(one.device.memory_mib, percent) - one.overhead_mib


def slices_of(placer: Placer, seat: Placement, epoch: int) -> tuple[tuple[str, DesiredSlice], ...]:
    """The slices that a seated member gets: (node, slice), in order of their index."""
    ground = placer.board.ground
    pod, workload, want = seat.asked.member.pod, seat.asked.workload, seat.asked.want
    return tuple(
        (
            ground.nodes[seat.spot.node].name,
            replace(
                said_of(workload, want.known, ground.model.item(site)),
                key=SliceKey(pod_uid=pod.uid, container=pod.shape.device_container, index=index),
                pod_namespace=pod.namespace,
                pod_name=pod.name,
                gpu=ground.sites[site].uuid,
                percent=seat.spot.percent,
                memory_mib=memory_mib(placer.board, want, site, seat.spot.percent),
                epoch=epoch,
                priority=priority_held(pod.priority),
                probation=seat.spot.grant.trial,
                context_overhead_mib=ground.sites[site].overhead_mib,
            ),
        )
        for index, site in enumerate(seat.spot.sites)
    )
