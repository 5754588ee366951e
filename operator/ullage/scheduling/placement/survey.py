# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Why nothing fits: every device counted once, under the first reason that stops it.

The same chain that places also counts, so what a user reads is what decided. Made only for classes
that were refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from ullage.api.reasons import Reason
from ullage.engines.admission.limits import LIMITS, ceiling
from ullage.engines.admission.records import Refusal
from ullage.scheduling.feasibility.device_facts import allowed_model, columns_for
from ullage.scheduling.feasibility.lanes import joined_lanes, top_share
from ullage.scheduling.feasibility.resource_requests import ResourceRequest
from ullage.scheduling.inventory.inventory import Flags, Ints
from ullage.scheduling.inventory.node_fit import Fit
from ullage.scheduling.placement.candidates import CandidateIndex
from ullage.scheduling.prediction.effort import SEARCH

Shortfalls = npt.NDArray[np.float64] | Ints | Flags
"""By how much each device falls short, or only that it does."""


class Stage(StrEnum):
    """What exactly stopped a device, finer than the reason; in the order of judging."""

    FIT = "fit"
    POOL = "pool"
    CORDON = "cordon"
    PIN = "pin"
    RULE = "rule"
    MODEL = "model"
    OBJECTIVE = "objective"
    BLOCKED = "blocked"
    ROOM = "room"
    CHECK = "check"
    PASSED_OVER = "passed over"
    COUNT = "count"
    PREDICTION = "prediction"


@dataclass(frozen=True, slots=True)
class Tally:
    """Devices that one reason stops: how many, and the one that misses by least."""

    reason: Reason
    stage: Stage
    devices: int
    nearest: int
    """Index of the device."""


@dataclass(slots=True)
class _Count:
    """Takes devices out of the game, reason by reason."""

    alive: Flags
    tallies: dict[Reason, Tally] = field(default_factory=dict)

    def stop(self, reason: Reason, stage: Stage, short: Shortfalls) -> None:
        """Count and take out the devices that fall short."""
        at = (self.alive & (short > 0)).nonzero()[0]
        if not len(at):
            return
        nearest: int = at.item(short[at].argmin())
        before = self.tallies.pop(reason, None)
        # the later stage came closer to fitting, so its device is the one to show
        total = len(at) + (before.devices if before else 0)
        self.tallies[reason] = Tally(reason, stage, total, nearest)
        self.alive[at] = False


def survey(candidate_index: CandidateIndex, request: ResourceRequest) -> tuple[Tally, ...]:
    """Count every device under the reason that stops it; the closest miss stands last."""
    occupancy = candidate_index.occupancy
    occupancy.effort.spent += SEARCH
    inventory = occupancy.inventory
    count = _Count(np.ones(len(inventory.sites), dtype=np.bool_))
    fit = candidate_index.fit(request.shape)[inventory.node_of]
    count.stop(Reason.NO_NODE_MATCHES, Stage.FIT, fit == int(Fit.NO_MATCH))
    count.stop(Reason.NODE_AFFINITY_CONFLICT, Stage.PIN, fit == int(Fit.PIN_CONFLICT))
    if request.ruled is not None and occupancy.rules is not None:
        for reason, nodes in occupancy.rules.barred(request.ruled, request.shape):
            count.stop(reason, Stage.RULE, nodes[inventory.node_of])
    joins = joined_lanes(occupancy, request)
    facts = columns_for(occupancy, request, joins)
    if request.place is not None:
        outside = ~request.place.nodes[inventory.node_of]
        count.stop(Reason.NO_NODE_MATCHES, Stage.POOL, outside)
    for model, why in request.barred.items():
        count.stop(why.reason, Stage.OBJECTIVE, facts.model == model)
    count.stop(Reason.NO_NODE_MATCHES, Stage.MODEL, ~allowed_model(facts, request))
    count.stop(Reason.NO_NODE_MATCHES, Stage.CORDON, fit == int(Fit.CORDONED))
    # Blocked devices are counted before their tenants are looked at: else every device that comes
    # free for a moment would change what everyone in the line is told.
    count.stop(Reason.HELD_FOR_ANOTHER, Stage.BLOCKED, occupancy.held)
    count.stop(Reason.NO_CAPACITY, Stage.BLOCKED, occupancy.blocked)
    count.stop(Reason.NO_CAPACITY, Stage.ROOM, _short_of_room(candidate_index, request))
    for limit in LIMITS:
        count.stop(limit.reason, Stage.CHECK, limit.short(facts, request))
    if request.avoid:
        avoided = np.zeros(len(inventory.sites), dtype=np.int64)
        avoided[sorted(request.avoid)] = 1
        count.stop(Reason.RESERVATION_REFUSED, Stage.PASSED_OVER, avoided)
    for reason, excess in _excesses(candidate_index, request, count.alive).items():
        count.stop(reason, Stage.PREDICTION, excess)
    if request.count > 1:
        count.stop(
            Reason.NO_CAPACITY, Stage.COUNT, _short_of_count(candidate_index, request, count.alive)
        )
    return tuple(count.tallies.values())


def _short_of_room(candidate_index: CandidateIndex, request: ResourceRequest) -> Shortfalls:
    """By how much (as a fraction of what is asked) the worst amount of the node falls short."""
    occupancy = candidate_index.occupancy
    worst = np.zeros(len(occupancy.free), dtype=np.float64)
    for name, amount in request.needs:
        worst = np.maximum(worst, (amount - occupancy.free_column(name)) / amount)
    return worst[occupancy.inventory.node_of]


def _short_of_count(
    candidate_index: CandidateIndex, request: ResourceRequest, alive: Flags
) -> Ints:
    """How many more devices the node would need to have free at once."""
    node_of = candidate_index.occupancy.inventory.node_of
    free = np.bincount(node_of[alive], minlength=len(candidate_index.occupancy.free))
    short: Ints = request.count - free[node_of]
    return short


def _excesses(
    candidate_index: CandidateIndex, request: ResourceRequest, alive: Flags
) -> dict[Reason, Shortfalls]:
    """By which factor the nearest prediction on a device is beyond an objective, by reason."""
    found: dict[Reason, npt.NDArray[np.float64]] = {}
    if request.exclusive:
        return {}  # what passes for whole devices is empty
    sites = np.flatnonzero(alive)
    if not len(sites):
        return {}
    occupancy = candidate_index.occupancy
    joins = joined_lanes(occupancy, request)
    tops = ceiling(columns_for(occupancy, request, joins), request)
    asked = [top_share(joins.get(site), tops.item(site)) for site in sites.tolist()]
    numbers, answers = candidate_index.asked(request, sites, asked)
    for number, said in enumerate(answers):
        if isinstance(said, Refusal):
            excess = found.setdefault(said.reason, np.zeros(len(alive), dtype=np.float64))
            excess[sites[numbers == number]] = said.excess
    return {reason: found[reason] for reason in sorted(found)}
