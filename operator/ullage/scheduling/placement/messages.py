# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Refusal messages for users: what was requested, what prevents it, what helps.

Every text says what was wanted, what stands in the way with numbers, and what would help. Nothing
is decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ullage.api.contract import SLOT_RESOURCE, GPUMode, Reason
from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.cluster.records.status import RefusalLine
from ullage.engines.admission.limits import MIXED, WHOLE_PERCENT, ceiling, memory_needed
from ullage.scheduling.feasibility.device_facts import figures_for
from ullage.scheduling.feasibility.lanes import joined_lane, top_share
from ullage.scheduling.feasibility.occupancy import Occupancy
from ullage.scheduling.feasibility.resource_requests import ResourceRequest
from ullage.scheduling.inventory.node_fit import shortages, why_not
from ullage.scheduling.inventory.trust_domains import why_apart
from ullage.scheduling.placement.candidates import CandidateIndex
from ullage.scheduling.placement.survey import Stage, Tally
from ullage.scheduling.prediction.verdicts import SLOViolation

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
            return _check(occupancy, request, tally.reason, site)


def _check(occupancy: Occupancy, request: ResourceRequest, reason: Reason, site: int) -> str:
    inventory = occupancy.inventory
    facts = figures_for(occupancy, request, site, joined_lane(occupancy, request, site))
    match reason:
        case Reason.NODE_UNHEALTHY | Reason.NODE_LEAVES:
            trouble = inventory.node_troubles[inventory.sites[site].node]
            return trouble.text if trouble is not None else "its node is not heard"
        case Reason.DEVICE_UNHEALTHY:
            return "the device is unhealthy"
        case Reason.MODE_UNSUPPORTED:
            return f"it does not offer {request.mode}"
        case Reason.CHECKPOINT_UNAVAILABLE:
            return "its node cannot suspend programs on it"
        case Reason.NO_CAPACITY:
            return f"taken by {_tenants(occupancy, site)}"
        case Reason.MPS_NOT_READY:
            mps = inventory.sites[site].device.mps
            return f"its MPS server is {mps.state if mps is not None else 'away'}"
        case Reason.ENFORCEMENT_MISSING:
            loose = ", ".join(
                occupant.tenant.name for occupant in occupancy.occupants[site] if occupant.loose
            )
            return f"{loose} runs there without verified limits and may take the whole device"
        case Reason.NEED_PROFILE:
            return _unmeasured(occupancy, request, site)
        case Reason.TRUST_DOMAIN:
            there = {occupant.domain for occupant in occupancy.occupants[site]}
            if MIXED in there:
                return "the slice of a pod that is just gone is still on it, for a moment"
            domains = occupancy.domains
            other = min(there - {request.domain})
            return why_apart(domains.name(request.domain), domains.name(other))
        case Reason.CONTEXT_LIMIT:
            return f"{facts.sharers} of {facts.contexts} places on it are taken"
        case Reason.MEMORY_WOULD_OVERFLOW:
            asked = memory_needed(facts, request, request.min_percent)
            least = max(asked, facts.overhead + 1)
            free = facts.memory - facts.memory_used
            return (
                f"needs {least} MiB with its context, {free} of {facts.memory} MiB are free"
                f"{_beside(occupancy, site)}"
            )
        case _:
            free = request.percent_limit - facts.percent_used
            return f"needs {request.min_percent} %, {free} % are free{_beside(occupancy, site)}"


def _unmeasured(occupancy: Occupancy, request: ResourceRequest, site: int) -> str:
    """Who is being measured alone there, or that the newcomer must be."""
    occupant = next(
        (occupant for occupant in occupancy.occupants[site] if occupant.unmeasured), None
    )
    if occupant is not None:
        return f"{occupant.tenant.name} is being measured alone: {occupant.unmeasured}"
    what = request.unmeasured[occupancy.inventory.model.item(site)]
    return f"taken by {_tenants(occupancy, site)}, and it starts alone: {what}"


def _breach(candidate_index: CandidateIndex, request: ResourceRequest, site: int) -> str:
    occupancy = candidate_index.occupancy
    lane = joined_lane(occupancy, request, site)
    facts = figures_for(occupancy, request, site, lane)
    top = WHOLE_PERCENT if request.exclusive else top_share(lane, ceiling(facts, request))
    # what is remembered of like situations may name other tenants
    found = candidate_index.rule.explain(candidate_index.case(request, site, top, lane))
    text = found.text if isinstance(found, SLOViolation) else "an objective would break"
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
