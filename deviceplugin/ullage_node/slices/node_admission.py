# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Admission's last word: the hard limits of the engine, asked with the tenants really here.

The operator judges from a picture that may be seconds old; memory, contexts, trust and the proof of
everyone's limits are judged once more where they are true, by the same code. Risk is not: that
needs models and profiles, which are not on the wire, and no one is refused for what is not known.
Whether shares sum to more than 100 is the policy's business. Pure; it may refuse, never enlarge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ullage.api.contract import DesiredSlice, Reason
from ullage.engines.admission import filters
from ullage.engines.admission.records import Tenant
from ullage.engines.lanes.assignment import assignment_of, counted_mib
from ullage_node.model.slices import (
    WHOLE_PERCENT,
    Device,
    HeldSlice,
    Refusal,
    context_costs_mib,
    trust_domain_of,
)


def last_word(
    device: Device, newcomer: DesiredSlice, neighbours: Sequence[HeldSlice]
) -> Refusal | None:
    """Why a slice must not join its device, by the engine's rules; ``None`` = it may.

    Args:
        device: The device of the slice.
        newcomer: What the operator decided.
        neighbours: Everyone else who holds room on the device, wanted or not.
    """
    if newcomer.memory_mib < 1:
        # to the engine 0 means "no limit of its own"; on the wire it is the limit
        text = f"{newcomer.memory_mib} MiB beside its context on {device.uuid} is no memory"
        return Refusal(reason=Reason.CAPACITY_EXCEEDED, message=text)
    own = trust_domain_of(newcomer)
    everyone = [newcomer, *(part.desired for part in neighbours)]
    costs = context_costs_mib(device, everyone)
    counted = counted_mib([assignment_of(part) for part in everyone])
    here = replace(device, overhead_mib=costs[0])
    takes = [mib + cost - costs[0] for mib, cost in zip(counted[1:], costs[1:], strict=True)]
    seen = _seen(here, own, neighbours, takes)
    asked = _asked(newcomer, own, counted[0])
    try:
        filters.check_device(seen)
        filters.check_newcomer(asked, seen)
    except ValueError as error:  # figures that no device or decision can have
        return Refusal(reason=Reason.CAPACITY_EXCEEDED, message=str(error))
    refusal = filters.first_refusal(asked, seen)
    if refusal is None:
        return None
    return Refusal(reason=_of_the_node(refusal.reason), message=refusal.text)


def _of_the_node(reason: Reason) -> Reason:
    """The engine's reason in the node's words; all others are about room."""
    match reason:
        case Reason.TRUST_DOMAIN:
            return reason
        case Reason.ENFORCEMENT_MISSING:
            return Reason.UNENFORCED
        case _:
            return Reason.CAPACITY_EXCEEDED


def _seen(
    device: Device, domain: str, neighbours: Sequence[HeldSlice], takes: Sequence[int]
) -> filters.Device:
    """The device as the engine sees it; ``domain`` stands for one that is not known.

    The engine counts every context with the newcomer's cost; what a neighbour's costs more or less
    is counted with its memory. Of those who take turns in a lane one counts its memory.
    """
    return filters.Device(
        uuid=device.uuid,
        accelerator="",
        memory_mib=device.memory_mib,
        contexts=device.contexts,
        context_overhead_mib=device.overhead_mib,
        percent_limit=WHOLE_PERCENT * (len(neighbours) + 1),
        residents=tuple(
            _resident(part, domain, mib) for part, mib in zip(neighbours, takes, strict=True)
        ),
    )


def _resident(part: HeldSlice, domain: str, mib: int) -> filters.Resident:
    # an older agent's status may not say the share: then it counts as the whole device
    percent = part.desired.percent or WHOLE_PERCENT
    return filters.Resident(
        tenant=Tenant(name=part.name, percent=percent),
        memory_mib=max(0, mib),
        trust_domain=trust_domain_of(part.desired) or domain,
        enforced=not part.unproven,
    )


def _asked(newcomer: DesiredSlice, domain: str, mib: int) -> filters.Newcomer:
    """The slice as a newcomer; its objective is the operator's to weigh, so it is not told."""
    name = f"{newcomer.pod_namespace}/{newcomer.pod_name}"
    return filters.Newcomer(
        tenant=Tenant(name=name, percent=newcomer.percent),
        min_percent=newcomer.percent,
        max_percent=newcomer.percent,
        memory_mib=max(1, mib),  # 0 would be no limit of its own
        trust_domain=domain,
    )
