# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Refusals for users: every device counted under its first obstacle, and the texts.

The chain that places also counts, so the text names the actual obstacle. Every text has the
request, the obstacle with figures, and the remedy. Built only for refused classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from ullage.api.devices import GPUMode
from ullage.api.labels import SLOT_RESOURCE
from ullage.api.reasons import Reason
from ullage.cluster.records.status import RefusalLine
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.admission.limits import (
    LIMIT_OF,
    LIMITS,
    MIXED,
    WHOLE_PERCENT,
    ceiling,
    refusal_text,
)
from ullage.engines.admission.records import Refusal
from ullage.scheduling.feasibility.device_facts import allowed_model, columns_for, figures_for
from ullage.scheduling.feasibility.lanes import joined_lane, joined_lanes, top_share
from ullage.scheduling.feasibility.occupancy import Occupancy
from ullage.scheduling.feasibility.resource_requests import ResourceRequest
from ullage.scheduling.inventory.inventory import Flags, Ints
from ullage.scheduling.inventory.node_fit import Fit, shortages, why_not
from ullage.scheduling.inventory.trust_domains import why_apart
from ullage.scheduling.placement.candidates import CandidateIndex
from ullage.scheduling.prediction.effort import SEARCH

MOST_LINES: Final = 8
_GIB: Final = 2**30
Shortfalls = npt.NDArray[np.float64] | Ints | Flags
"""The shortfall of each device, or only a flag."""


class Stage(StrEnum):
    """The test that a device fails, finer than the reason; in the order of evaluation."""

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
    """Devices with one reason: their number, and the one with the closest miss."""

    reason: Reason
    stage: Stage
    devices: int
    nearest: int
    """Index of the device."""


@dataclass(slots=True)
class _Tallies:
    """Counts devices, each under the first reason that excludes it."""

    alive: Flags
    tallies: dict[Reason, Tally] = field(default_factory=dict)

    def stop(self, reason: Reason, stage: Stage, short: Shortfalls) -> None:
        """Count and remove the devices that fall short."""
        at = (self.alive & (short > 0)).nonzero()[0]
        if not len(at):
            return
        nearest: int = at.item(short[at].argmin())
        before = self.tallies.pop(reason, None)
        # the later stage is a closer miss, so its device is the one to show
        total = len(at) + (before.devices if before else 0)
        self.tallies[reason] = Tally(reason, stage, total, nearest)
        self.alive[at] = False


def wanted(workload: WorkloadRecord) -> str:
    """Text of the request of a workload: ``4 x 30-60 % of one emulated``."""
    gpu = workload.gpu
    kinds = " or ".join(workload.accelerators) or "GPU"
    if gpu.mode is GPUMode.EXCLUSIVE:
        each = f"{gpu.count} whole {kinds}"
    elif gpu.share is not None and gpu.share.min_percent == gpu.share.max_percent:
        each = f"{gpu.share.min_percent} % of one {kinds}"
    elif gpu.share is not None:
        each = f"{gpu.share.min_percent}-{gpu.share.max_percent} % of one {kinds}"
    else:
        each = f"a share of one {kinds}"
    if gpu.memory_mib:
        each += f" with {gpu.memory_mib} MiB"
    if workload.max_slowdown is not None:
        each += f", slowdown <= {workload.max_slowdown:g}"
    if workload.min_throughput is not None:
        each += f", >= {workload.min_throughput:g} steps/s"
    if workload.slo is not None:
        each += f", p{workload.slo.percentile} <= {workload.slo.latency_ms} ms"
    return each if workload.replicas == 1 else f"{workload.replicas} x {each}"


def refusal_lines(
    candidate_index: CandidateIndex, request: ResourceRequest
) -> tuple[RefusalLine, ...]:
    """One line per reason that excludes devices, the closest miss first."""
    tallies = _survey(candidate_index, request)
    return tuple(
        RefusalLine(
            reason=tally.reason,
            devices=tally.devices,
            nearest=candidate_index.occupancy.inventory.place_name(tally.nearest),
            message=_why(candidate_index, request, tally),
        )
        for tally in reversed(tallies[-MOST_LINES:])
    )


def headline(workload: WorkloadRecord, placed: int, lines: Sequence[RefusalLine]) -> str:
    """The message for a waiting workload."""
    members = f" (room for {placed} of {workload.replicas} members)" if placed else ""
    if not lines:
        return (
            f"needs {wanted(workload)}{members}; no node labelled ullage.dev/node=true has "
            "reported a device yet"
        )
    first = lines[0]
    nearest = f"nearest is {first.nearest}: " if first.nearest else ""
    return (
        f"needs {wanted(workload)}{members}; {nearest}{first.message}; "
        f"to help: {first.reason.in_short}"
    )


def for_good(workload: WorkloadRecord, refusal: Refusal) -> str:
    """The message for a workload that can never run here."""
    return f"needs {wanted(workload)}; {refusal.text}; to help: {refusal.reason.in_short}"


def _why(candidate_index: CandidateIndex, request: ResourceRequest, tally: Tally) -> str:
    occupancy, site = candidate_index.occupancy, tally.nearest
    inventory = occupancy.inventory
    node = inventory.sites[site].node
    match tally.stage:
        case Stage.FIT | Stage.PIN | Stage.CORDON:
            return why_not(request.shape, inventory.nodes[node])
        case Stage.RULE if occupancy.rules is not None and request.ruled is not None:
            return occupancy.rules.why(request.ruled, request.shape, node)
        case Stage.RULE:
            return "a rule about other pods keeps it away"
        case Stage.POOL:
            pools = request.place.names if request.place is not None else "any"
            return f"it is of none of the pools that were chosen: {pools}"
        case Stage.MODEL:
            return f"its accelerator {inventory.sites[site].device.model} is not among the allowed"
        case Stage.OBJECTIVE:
            return request.barred[inventory.model.item(site)].text
        case Stage.ROOM:
            lacks = shortages(request.shape.requests, occupancy.free[node])
            text = "the node lacks " + ", ".join(_amount(*lack) for lack in lacks)
            holders = occupancy.slot_holders.get(node, "")
            if holders and any(name == SLOT_RESOURCE for name, _, _ in lacks):
                text += f", {holders}, which Ullage did not place"
            return text
        case Stage.COUNT:
            return f"fewer than {request.count} devices of the node are free at once"
        case Stage.PASSED_OVER:
            return "its node refused or did not answer lately"
        case Stage.BLOCKED:
            before = occupancy.blocker.get(site, "another")
            return f"kept for {before}, which is before it in the queue"
        case Stage.PREDICTION:
            return _breach(candidate_index, request, site)
        case Stage.CHECK:
            facts = figures_for(occupancy, request, site, joined_lane(occupancy, request, site))
            names = _OccupantNames(occupancy, request, site, tally.reason)
            return refusal_text(LIMIT_OF[tally.reason], facts, request, names)


@dataclass(frozen=True, slots=True)
class _OccupantNames:
    """Names for the text about a device; see :class:`~ullage.engines.admission.limits.Names`."""

    occupancy: Occupancy
    request: ResourceRequest
    site: int
    reason: Reason

    @property
    def tenants(self) -> str:
        return _tenants(self.occupancy, self.site)

    @property
    def loose(self) -> str:
        occupants = self.occupancy.occupants[self.site]
        return ", ".join(occupant.tenant.name for occupant in occupants if occupant.loose)

    @property
    def apart(self) -> str:
        present = {occupant.domain for occupant in self.occupancy.occupants[self.site]}
        if MIXED in present:
            return "the slice of a pod that is just gone is still on it, for a moment"
        domain = self.request.domain
        return why_apart(*self.occupancy.domains.names((domain, min(present - {domain}))))

    @property
    def unmeasured(self) -> str:
        for occupant in self.occupancy.occupants[self.site]:
            if occupant.unmeasured:
                return f"{occupant.tenant.name} is being measured alone: {occupant.unmeasured}"
        missing = self.request.unmeasured[self.occupancy.inventory.model.item(self.site)]
        return f"taken by {self.tenants}, and it starts alone: {missing}"

    @property
    def server(self) -> str:
        mps = self.occupancy.inventory.sites[self.site].device.mps
        return mps.state if mps is not None else "away"

    @property
    def node(self) -> str:
        inventory = self.occupancy.inventory
        trouble = inventory.node_troubles[inventory.sites[self.site].node]
        if trouble is not None:
            return trouble.text
        is_silent = self.reason is Reason.NODE_UNHEALTHY
        return "its node is not heard" if is_silent else self.reason.meaning


def _breach(candidate_index: CandidateIndex, request: ResourceRequest, site: int) -> str:
    occupancy = candidate_index.occupancy
    lane = joined_lane(occupancy, request, site)
    facts = figures_for(occupancy, request, site, lane)
    top = WHOLE_PERCENT if request.exclusive else top_share(lane, ceiling(facts, request))
    # a cached answer may name the tenants of another device
    answer = candidate_index.rule.explain(candidate_index.case(request, site, top, lane))
    text = answer.text if isinstance(answer, Refusal) else "an objective would break"
    return f"{text}{_beside(occupancy, site)}"


def _beside(occupancy: Occupancy, site: int) -> str:
    return f" beside {_tenants(occupancy, site)}" if occupancy.occupants[site] else ""


def _tenants(occupancy: Occupancy, site: int) -> str:
    occupants = occupancy.occupants[site]
    names = [f"{occupant.tenant.name} ({occupant.tenant.percent} %)" for occupant in occupants[:3]]
    more = f" and {len(occupants) - 3} more" if len(occupants) > 3 else ""
    return ", ".join(names) + more


def _amount(name: str, need: int, free: int) -> str:
    if name == "cpu":
        return f"cpu ({need / 1000:g} asked, {max(0, free) / 1000:g} free)"
    if name == "memory":
        return f"memory ({need / _GIB:.1f} GiB asked, {max(0, free) / _GIB:.1f} free)"
    label = "device slots" if name == SLOT_RESOURCE else name
    return f"{label} ({need} asked, {max(0, free)} free)"


def _survey(candidate_index: CandidateIndex, request: ResourceRequest) -> tuple[Tally, ...]:
    """Count every device under the reason that excludes it; the closest miss comes last."""
    occupancy = candidate_index.occupancy
    occupancy.effort.spent += SEARCH
    inventory = occupancy.inventory
    count = _Tallies(np.ones(len(inventory.sites), dtype=np.bool_))
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
    # Blocked devices are counted before their tenants are evaluated: else every device that becomes
    # free for a moment would change the texts of all waiting workloads.
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
        free = np.bincount(inventory.node_of[count.alive], minlength=len(inventory.nodes))
        count.stop(Reason.NO_CAPACITY, Stage.COUNT, request.count - free[inventory.node_of])
    return tuple(count.tallies.values())


def _short_of_room(candidate_index: CandidateIndex, request: ResourceRequest) -> Shortfalls:
    """By device: the largest shortfall of its node, as a fraction of the requested amount."""
    occupancy = candidate_index.occupancy
    worst = np.zeros(len(occupancy.free), dtype=np.float64)
    for name, amount in request.needs:
        worst = np.maximum(worst, (amount - occupancy.free_column(name)) / amount)
    return worst[occupancy.inventory.node_of]


def _excesses(
    candidate_index: CandidateIndex, request: ResourceRequest, alive: Flags
) -> dict[Reason, Shortfalls]:
    """By reason and device: the factor by which the prediction exceeds an objective."""
    excesses: dict[Reason, npt.NDArray[np.float64]] = {}
    if request.exclusive:
        return {}  # whole devices that pass the limits are empty
    sites = np.flatnonzero(alive)
    if not len(sites):
        return {}
    occupancy = candidate_index.occupancy
    joins = joined_lanes(occupancy, request)
    tops = ceiling(columns_for(occupancy, request, joins), request)
    asked = [top_share(joins.get(site), tops.item(site)) for site in sites.tolist()]
    numbers, answers = candidate_index.asked(request, sites, asked)
    for number, answer in enumerate(answers):
        if isinstance(answer, Refusal):
            excess = excesses.setdefault(answer.reason, np.zeros(len(alive), dtype=np.float64))
            excess[sites[numbers == number]] = answer.excess
    return {reason: excesses[reason] for reason in sorted(excesses)}
