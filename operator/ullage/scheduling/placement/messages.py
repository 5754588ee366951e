# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Refusal messages for users: what was requested, what prevents it, what helps.

Every text says what was wanted, what stands in the way with numbers, and what would help. Nothing
is decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ullage.api.devices import GPUMode
from ullage.api.labels import SLOT_RESOURCE
from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.cluster.records.status import RefusalLine
from ullage.engines.admission.limits import LIMIT_OF, MIXED, WHOLE_PERCENT, Shortfall, ceiling
from ullage.engines.admission.records import Refusal
from ullage.scheduling.feasibility.device_facts import figures_for
from ullage.scheduling.feasibility.lanes import joined_lane, top_share
from ullage.scheduling.feasibility.occupancy import Occupancy
from ullage.scheduling.feasibility.resource_requests import ResourceRequest
from ullage.scheduling.inventory.node_fit import shortages, why_not
from ullage.scheduling.inventory.trust_domains import why_apart
from ullage.scheduling.placement.candidates import CandidateIndex
from ullage.scheduling.placement.survey import Stage, Tally

MOST_LINES: Final = 8
_GIB: Final = 2**30


def wanted(workload: WorkloadRecord) -> str:
    """What a workload asks for: ``4 x 30-60 % of one emulated``."""
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
    candidate_index: CandidateIndex, request: ResourceRequest, tallies: Sequence[Tally]
) -> tuple[RefusalLine, ...]:
    """One line per reason, the closest miss first."""
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
    """The one sentence for a workload that waits."""
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
    """The sentence for a workload that can never run here."""
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
            held = occupancy.slot_holders.get(node, "")
            if held and any(name == SLOT_RESOURCE for name, _, _ in lacks):
                text += f", {held}, which Ullage did not place"
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
            words = _Words(occupancy, request, site)
            return LIMIT_OF[tally.reason].text(Shortfall(facts, request, words))


@dataclass(frozen=True, slots=True)
class _Words:
    """Words of the limits for a device, beside its figures."""

    occupancy: Occupancy
    request: ResourceRequest
    site: int

    @property
    def trouble(self) -> str:
        inventory = self.occupancy.inventory
        trouble = inventory.node_troubles[inventory.sites[self.site].node]
        return trouble.text if trouble is not None else "its node is not heard"

    @property
    def tenants(self) -> str:
        return _tenants(self.occupancy, self.site)

    @property
    def beside(self) -> str:
        return _beside(self.occupancy, self.site)

    @property
    def apart(self) -> str:
        there = {occupant.domain for occupant in self.occupancy.occupants[self.site]}
        if MIXED in there:
            return "the slice of a pod that is just gone is still on it, for a moment"
        own, domains = self.request.domain, self.occupancy.domains
        return why_apart(domains.name(own), domains.name(min(there - {own})))

    @property
    def unmeasured(self) -> str:
        for occupant in self.occupancy.occupants[self.site]:
            if occupant.unmeasured:
                return f"{occupant.tenant.name} is being measured alone: {occupant.unmeasured}"
        what = self.request.unmeasured[self.occupancy.inventory.model.item(self.site)]
        return f"taken by {self.tenants}, and it starts alone: {what}"

    @property
    def mps(self) -> str:
        mps = self.occupancy.inventory.sites[self.site].device.mps
        return mps.state if mps is not None else "away"

    @property
    def loose(self) -> str:
        occupants = self.occupancy.occupants[self.site]
        return ", ".join(occupant.tenant.name for occupant in occupants if occupant.loose)


def _breach(candidate_index: CandidateIndex, request: ResourceRequest, site: int) -> str:
    occupancy = candidate_index.occupancy
    lane = joined_lane(occupancy, request, site)
    facts = figures_for(occupancy, request, site, lane)
    top = WHOLE_PERCENT if request.exclusive else top_share(lane, ceiling(facts, request))
    # what is remembered of like situations may name other tenants
    found = candidate_index.rule.explain(candidate_index.case(request, site, top, lane))
    text = found.text if isinstance(found, Refusal) else "an objective would break"
    return f"{text}{_beside(occupancy, site)}"


def _beside(occupancy: Occupancy, site: int) -> str:
    return f" beside {_tenants(occupancy, site)}" if occupancy.occupants[site] else ""


def _tenants(occupancy: Occupancy, site: int) -> str:
    here = occupancy.occupants[site]
    names = [f"{occupant.tenant.name} ({occupant.tenant.percent} %)" for occupant in here[:3]]
    more = f" and {len(here) - 3} more" if len(here) > 3 else ""
    return ", ".join(names) + more if names else "no one"


def _amount(name: str, need: int, free: int) -> str:
    if name == "cpu":
        return f"cpu ({need / 1000:g} asked, {max(0, free) / 1000:g} free)"
    if name == "memory":
        return f"memory ({need / _GIB:.1f} GiB asked, {max(0, free) / _GIB:.1f} free)"
    label = "device slots" if name == SLOT_RESOURCE else name
    return f"{label} ({need} asked, {max(0, free)} free)"
