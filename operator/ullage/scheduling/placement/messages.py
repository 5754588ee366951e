# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Refusals in words that somebody who never saw a scheduler understands.

Every text says what was wanted, what stands in the way with numbers, and what would help. Nothing
is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ullage.api.contract import SLOT_RESOURCE, GPUMode, Reason
from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.cluster.records.status import RefusalLine
from ullage.engines.admission.limits import WHOLE_PERCENT
from ullage.scheduling.feasibility.checks import ceiling, figures, memory_needed
from ullage.scheduling.feasibility.occupancy import Occupancy
from ullage.scheduling.feasibility.resource_requests import ResourceRequest
from ullage.scheduling.inventory.node_fit import shortages, why_not
from ullage.scheduling.placement.candidates import CandidateIndex
from ullage.scheduling.placement.survey import Stage, Tally
from ullage.scheduling.prediction.verdicts import SLOViolation

MOST_LINES: Final = 8
_GIB: Final = 2**30

HELP: Final[Mapping[Reason, str]] = {
    Reason.NO_CAPACITY: "wait for a device, ask for less, or add nodes",
    Reason.NO_NODE_MATCHES: "change the template's node rules or accelerators, or label a node",
    Reason.NODE_AFFINITY_CONFLICT: "take matchFields and empty terms out of the node affinity",
    Reason.NODE_UNHEALTHY: "see to the node or its agent",
    Reason.DEVICE_UNHEALTHY: "see to the device, or allow other accelerators",
    Reason.MODE_UNSUPPORTED: "use gpu.mode Exclusive, or allow other accelerators",
    Reason.TRUST_DOMAIN: "name the same trustDomain on both, or wait for an empty device",
    Reason.TRUST_DOMAIN_NOT_GRANTED: (
        "leave trustDomain out to share within your namespace, or ask your administrator to list "
        "it in spec.trustDomains of the SchedulingPolicy"
    ),
    Reason.CONTEXT_LIMIT: "wait for a tenant to leave, or add nodes",
    Reason.MEMORY_WOULD_OVERFLOW: "lower gpu.memory.limit or gpu.share.minPercent, or wait",
    Reason.PERCENT_LIMIT: "lower gpu.share.minPercent, or wait for a tenant to leave",
    Reason.PREDICTED_SLO_BREACH: (
        "raise slo.maxSlowdown, ask for another share, declare a WorkloadProfile, or wait"
    ),
    Reason.NEED_PROFILE: (
        "wait until it is tried or measured, declare or import a WorkloadProfile, or ask alone"
    ),
    Reason.NOT_WORTH_SHARING: "wait for another device, or ask for another share",
    Reason.SLO_INFEASIBLE: "raise the objective above the solo time, or allow other accelerators",
    Reason.LOAD_INFEASIBLE: "add replicas, lower spec.load, or raise the objective",
    Reason.MPS_NOT_READY: "wait: the agent starts the server again, or look at its log",
    Reason.ENFORCEMENT_MISSING: "wait until its limits are verified or it has gone",
    Reason.RESERVATION_REFUSED: "wait: the device is tried again later",
    Reason.HELD_FOR_ANOTHER: "wait until the older one runs",
    Reason.UNKNOWN_ACCELERATOR: "use a key of `kubectl get deviceprofiles.ullage.dev`",
    Reason.GANG_TOO_LARGE: "lower spec.replicas or gpu.count, or add nodes",
}


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
    scout: CandidateIndex, want: ResourceRequest, tallies: Sequence[Tally]
) -> tuple[RefusalLine, ...]:
    """One line per reason, the closest miss first."""
    return tuple(
        RefusalLine(
            reason=tally.reason,
            devices=tally.devices,
            nearest=scout.board.ground.place_name(tally.nearest),
            message=_why(scout, want, tally),
        )
        for tally in reversed(tallies[-MOST_LINES:])
    )


def headline(workload: WorkloadRecord, placed: int, lines: Sequence[RefusalLine]) -> str:
    """The one sentence for a workload that waits."""
    members = f" (room for {placed} of {workload.replicas} members)" if placed else ""
    if not lines:
        return f"needs {wanted(workload)}{members}; no node of ours has reported a device yet"
    first = lines[0]
    return (
        f"needs {wanted(workload)}{members}; nearest is {first.nearest}: {first.message}; "
        f"to help: {HELP.get(first.reason, 'see kubectl ullage why')}"
    )


def _why(scout: CandidateIndex, want: ResourceRequest, tally: Tally) -> str:
    board, site = scout.board, tally.nearest
    ground = board.ground
    node = ground.sites[site].node
    match tally.stage:
        case Stage.FIT | Stage.PIN | Stage.CORDON:
            return why_not(want.shape, ground.nodes[node])
        case Stage.POOL:
            pools = want.place.names if want.place is not None else "any"
            return f"it is of none of the pools that were chosen: {pools}"
        case Stage.MODEL:
            return f"its accelerator {ground.sites[site].device.model} is not among the allowed"
        case Stage.OBJECTIVE:
            return want.barred[ground.model.item(site)].text
        case Stage.ROOM:
            lacks = shortages(want.shape.requests, board.free[node])
            text = "the node lacks " + ", ".join(_amount(*one) for one in lacks)
            held = board.slot_holders.get(node, "")
            if held and any(name == SLOT_RESOURCE for name, _, _ in lacks):
                text += f", {held}, which Ullage did not place"
            return text
        case Stage.COUNT:
            return f"fewer than {want.count} devices of the node are free at once"
        case Stage.PASSED_OVER:
            return "its node refused or did not answer lately"
        case Stage.BLOCKED:
            return f"kept for {board.blocker.get(site, 'another')}, which is before it in the queue"
        case Stage.PREDICTION:
            return _breach(scout, want, site)
        case Stage.CHECK:
            return _check(board, want, tally.reason, site)


def _check(board: Occupancy, want: ResourceRequest, reason: Reason, site: int) -> str:
    ground = board.ground
    facts = figures(board, site)
    match reason:
        case Reason.NODE_UNHEALTHY:
            return ground.standing[ground.sites[site].node]
        case Reason.DEVICE_UNHEALTHY:
            return "the device is unhealthy"
        case Reason.MODE_UNSUPPORTED:
            return f"it does not offer {want.mode}"
        case Reason.NO_CAPACITY:
            return f"taken by {_tenants(board, site)}"
        case Reason.MPS_NOT_READY:
            mps = ground.sites[site].device.mps
            return f"its MPS server is {mps.state if mps is not None else 'away'}"
        case Reason.ENFORCEMENT_MISSING:
            loose = ", ".join(one.tenant.name for one in board.occupants[site] if one.loose)
            return f"{loose} runs there without verified limits and may take the whole device"
        case Reason.NEED_PROFILE:
            return _unmeasured(board, want, site)
        case Reason.TRUST_DOMAIN:
            return (
                f"shared inside {board.domains.name(facts.domain)}, this workload belongs to "
                f"{board.domains.name(want.domain)}"
            )
        case Reason.CONTEXT_LIMIT:
            return f"{facts.sharers} of {facts.contexts} places on it are taken"
        case Reason.MEMORY_WOULD_OVERFLOW:
            asked = memory_needed(facts, want, want.min_percent)
            least = max(asked, facts.overhead + 1)
            free = facts.memory - facts.memory_used
            return (
                f"needs {least} MiB with its context, {free} of {facts.memory} MiB are free"
                f"{_beside(board, site)}"
            )
        case _:
            free = want.percent_limit - facts.percent_used
            return f"needs {want.min_percent} %, {free} % are free{_beside(board, site)}"


def _unmeasured(board: Occupancy, want: ResourceRequest, site: int) -> str:
    """Who is being measured alone there, or that the newcomer must be."""
    one = next((one for one in board.occupants[site] if one.unmeasured), None)
    if one is not None:
        return f"{one.tenant.name} is being measured alone: {one.unmeasured}"
    what = want.unmeasured[board.ground.model.item(site)]
    return f"taken by {_tenants(board, site)}, and it starts alone: {what}"


def _breach(scout: CandidateIndex, want: ResourceRequest, site: int) -> str:
    board = scout.board
    top = WHOLE_PERCENT if want.exclusive else ceiling(figures(board, site), want)
    # what is remembered of like situations may name other tenants
    found = scout.rule.explain(scout.case(want, site, top))
    text = found.text if isinstance(found, SLOViolation) else "an objective would break"
    return f"{text}{_beside(board, site)}"


def _beside(board: Occupancy, site: int) -> str:
    return f" beside {_tenants(board, site)}" if board.occupants[site] else ""


def _tenants(board: Occupancy, site: int) -> str:
    here = board.occupants[site]
    names = [f"{one.tenant.name} ({one.tenant.percent} %)" for one in here[:3]]
    more = f" and {len(here) - 3} more" if len(here) > 3 else ""
    return ", ".join(names) + more if names else "nobody"


def _amount(name: str, need: int, free: int) -> str:
    if name == "cpu":
        return f"cpu ({need / 1000:g} asked, {max(0, free) / 1000:g} free)"
    if name == "memory":
        return f"memory ({need / _GIB:.1f} GiB asked, {max(0, free) / _GIB:.1f} free)"
    label = "device slots" if name == SLOT_RESOURCE else name
    return f"{label} ({need} asked, {max(0, free)} free)"
