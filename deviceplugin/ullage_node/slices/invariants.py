# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Invariants of every device, checked by the node itself, whatever the operator requests.

A chain of small checks judges one newcomer against the held slices, including admission's own rules
(``last_word``); :func:`violations` states the same rules over a whole table. Pure. Percentages are
ceilings and may sum to more than 100; overcommitment is the operator's decision. So is a slice with
an unknown trust domain (recognised from a status of an older agent).

The operator decides on data that may be seconds old; memory, contexts, trust and the proof of all
limits are checked again on the node, by the same code. Risk is not: that needs models and profiles,
which are not on the wire, and missing data is no reason to refuse. The node may refuse, never
enlarge.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ullage.api.reasons import Reason
from ullage.api.slices import DesiredSlice, SlicePhase
from ullage.engines.admission import filters
from ullage.engines.admission.records import Tenant
from ullage.engines.lanes.assignment import assignment_of, counted_mib
from ullage_node.model.devices import ContainerBinding, ContainerKey
from ullage_node.model.slices import (
    WHOLE_PERCENT,
    HeldSlice,
    NodeDevice,
    SliceRefusal,
    context_costs_mib,
    trust_domain_of,
)


def last_word(
    device: NodeDevice, newcomer: DesiredSlice, neighbours: Sequence[HeldSlice]
) -> SliceRefusal | None:
    """The refusal of a slice on its device, by the engine's rules; ``None`` = it may join.

    Args:
        device: The device of the slice.
        newcomer: The operator's decision.
        neighbours: All other slices with room on the device, wanted or not.
    """
    if newcomer.memory_mib < 1:
        # in the engine 0 means "no own limit"; on the wire it is the limit
        text = f"{newcomer.memory_mib} MiB beside its context on {device.uuid} is no memory"
        return SliceRefusal(reason=Reason.CAPACITY_EXCEEDED, message=text)
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
        filters.check_newcomer(asked)
    except ValueError as error:  # invalid figures of a device or decision
        return SliceRefusal(reason=Reason.CAPACITY_EXCEEDED, message=str(error))
    refusal = filters.first_refusal(asked, seen)
    if refusal is None:
        return None
    message = f"{device.uuid}: {refusal.text}"
    return SliceRefusal(reason=_of_the_node(refusal.reason), message=message)


def _of_the_node(reason: Reason) -> Reason:
    """The node's reason for an engine's reason; all others are about room."""
    match reason:
        case Reason.TRUST_DOMAIN:
            return reason
        case Reason.ENFORCEMENT_MISSING:
            return Reason.UNENFORCED
        case _:
            return Reason.CAPACITY_EXCEEDED


def _seen(
    device: NodeDevice, domain: str, neighbours: Sequence[HeldSlice], takes: Sequence[int]
) -> filters.CheckedDevice:
    """The device as the engine sees it; ``domain`` replaces an unknown one.

    The engine counts every context at the newcomer's cost; a neighbour's difference is added to its
    memory. The memory of a lane is counted for one of its tenants.
    """
    return filters.CheckedDevice(
        uuid=device.uuid,
        memory_mib=device.memory_mib,
        contexts=device.contexts,
        context_overhead_mib=device.overhead_mib,
        percent_limit=WHOLE_PERCENT * (len(neighbours) + 1),
        residents=tuple(
            _resident(part, domain, mib) for part, mib in zip(neighbours, takes, strict=True)
        ),
    )


def _resident(part: HeldSlice, domain: str, mib: int) -> filters.Resident:
    # an older agent's status may lack the share: then it counts as the whole device
    percent = part.desired.percent or WHOLE_PERCENT
    return filters.Resident(
        tenant=Tenant(name=part.name, percent=percent),
        memory_mib=max(0, mib),
        trust_domain=trust_domain_of(part.desired) or domain,
        enforced=not part.unproven,
    )


def _asked(newcomer: DesiredSlice, domain: str, mib: int) -> filters.Newcomer:
    """The slice as a newcomer, without its objective, which only the operator weighs."""
    name = f"{newcomer.pod_namespace}/{newcomer.pod_name}"
    return filters.Newcomer(
        tenant=Tenant(name=name, percent=newcomer.percent),
        min_percent=newcomer.percent,
        max_percent=newcomer.percent,
        memory_mib=max(1, mib),  # 0 would be no own limit
        trust_domain=domain,
    )


_WITHOUT_PROCESS: Final = frozenset({SlicePhase.RESERVED, SlicePhase.PREPARED})


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceCandidate:
    """A newcomer with its device, neighbours and siblings."""

    newcomer: DesiredSlice
    device: NodeDevice | None
    neighbours: tuple[HeldSlice, ...]
    """Slices that hold room on the same device."""
    siblings: tuple[DesiredSlice, ...]
    """Other slices of the same container."""


Check = Callable[[SliceCandidate], SliceRefusal | None]


def device_is_here(candidate: SliceCandidate) -> SliceRefusal | None:
    """Check that the device exists on this node."""
    if candidate.device is not None:
        return None
    return SliceRefusal(
        reason=Reason.DEVICE_LOST, message=f"device {candidate.newcomer.gpu} is not on this node"
    )


def device_is_usable(candidate: SliceCandidate) -> SliceRefusal | None:
    """Check that the device has no fault."""
    return candidate.device.refusal if candidate.device else None


def admission_confirms(candidate: SliceCandidate) -> SliceRefusal | None:
    """I1 to I3 and proven neighbours: the operator's admission holds on the node too."""
    device = candidate.device
    return last_word(device, candidate.newcomer, candidate.neighbours) if device else None


def processes_fit(candidate: SliceCandidate) -> SliceRefusal | None:
    """I2: contexts, not containers: attached ones, expected ones, and the newcomer's own."""
    device = candidate.device
    if device is None or not device.context_limit:
        return None
    waiting = sum(part.phase in _WITHOUT_PROCESS for part in candidate.neighbours)
    needed = device.contexts_used + waiting + 1
    if needed <= device.context_limit:
        return None
    return SliceRefusal(
        reason=Reason.CAPACITY_EXCEEDED,
        message=f"{needed} contexts on {device.uuid}, which takes {device.context_limit}",
    )


def turns_suffice(candidate: SliceCandidate) -> SliceRefusal | None:
    """Check equal time slices: no tenant gets more than one, and no objective holds."""
    device = candidate.device
    if device is None or not device.equal_turns:
        return None
    everyone = (*(part.desired for part in candidate.neighbours), candidate.newcomer)
    # tenants of one lane share its turn
    parties = {part.lane or -at for at, part in enumerate(everyone, start=1)}
    turn = WHOLE_PERCENT // len(parties)
    if candidate.newcomer.protected and len(everyone) > 1:
        text = f"tenants of {device.uuid} take equal turns: no objective holds there"
        return SliceRefusal(reason=Reason.MODE_UNSUPPORTED, message=text)
    most = max(part.percent for part in everyone)
    if most <= turn:
        return None
    return SliceRefusal(
        reason=Reason.CAPACITY_EXCEEDED,
        message=f"{len(parties)} equal turns on {device.uuid} give {turn} % each, not {most} %",
    )


def one_device_unless_whole(candidate: SliceCandidate) -> SliceRefusal | None:
    """I4: a container holds several slices only as whole devices, each a different one."""
    if not candidate.siblings:
        return None
    everyone = (*candidate.siblings, candidate.newcomer)
    if len({part.gpu for part in everyone}) == len(everyone) and all(
        part.percent == WHOLE_PERCENT for part in everyone
    ):
        return None
    return SliceRefusal(
        reason=Reason.CAPACITY_EXCEEDED,
        message=f"{len(everyone)} slices of one container must be whole, different devices",
    )


CHECKS: Final[tuple[Check, ...]] = (
    device_is_here,
    device_is_usable,
    admission_confirms,
    processes_fit,
    turns_suffice,
    one_device_unless_whole,
)


def first_refusal(
    candidate: SliceCandidate, checks: Sequence[Check] = CHECKS
) -> SliceRefusal | None:
    """The first refusal of the newcomer, if any."""
    return next((refusal for check in checks if (refusal := check(candidate))), None)


def memory_needed_mib(device: NodeDevice, slices: Sequence[DesiredSlice]) -> int:
    """Memory of slices on a device, each lane counted once, plus that of their contexts."""
    counted = counted_mib([assignment_of(part) for part in slices])
    return sum(counted) + sum(context_costs_mib(device, slices))


def candidate_for(
    newcomer: DesiredSlice, held: Iterable[HeldSlice], devices: Mapping[str, NodeDevice]
) -> SliceCandidate:
    """A newcomer with its device's state, without an older version of itself."""
    own = newcomer.key
    others = [part for part in held if part.phase.holds_capacity and part.desired.key != own]
    return SliceCandidate(
        newcomer=newcomer,
        device=devices.get(newcomer.gpu),
        neighbours=tuple(part for part in others if part.desired.gpu == newcomer.gpu),
        siblings=tuple(
            part.desired
            for part in others
            if part.desired.key.pod_uid == own.pod_uid
            and part.desired.key.container == own.container
        ),
    )


def violations(
    held: Iterable[HeldSlice],
    bindings: Iterable[ContainerBinding],
    devices: Mapping[str, NodeDevice],
) -> list[str]:
    """Texts of all invariants that a table breaks; empty = all hold.

    A device that vanished under running containers has no limits to check.
    """
    by_device: defaultdict[str, list[DesiredSlice]] = defaultdict(list)
    for part in held:
        if part.phase.holds_capacity:
            by_device[part.desired.gpu].append(part.desired)
    broken: list[str] = []
    for uuid, slices in sorted(by_device.items()):
        device = devices.get(uuid)
        if device is None:
            continue
        needed = memory_needed_mib(device, slices)
        if needed > device.memory_mib:
            broken.append(f"I1: {needed} MiB on {uuid} with {device.memory_mib} MiB")
        if len(slices) > device.contexts:
            broken.append(f"I2: {len(slices)} containers on {uuid} for {device.contexts}")
        domains = {trust_domain_of(part) for part in slices} - {""}
        if len(domains) > 1:
            broken.append(f"I3: {', '.join(sorted(domains))} on {uuid}")
    return broken + _slot_violations(bindings)


def _slot_violations(bindings: Iterable[ContainerBinding]) -> list[str]:
    bindings = tuple(bindings)
    slots = Counter(slot for binding in bindings for slot in binding.slots)
    broken = [f"I5: {slot} bound {count} times" for slot, count in slots.items() if count > 1]
    owners: Counter[ContainerKey] = Counter(binding.key for binding in bindings)
    broken += [
        f"I5: {key.directory} bound {count} times" for key, count in owners.items() if count > 1
    ]
    for binding in bindings:
        gpus = [part.gpu for part in binding.slices]
        if len(gpus) > 1 and (
            len(set(gpus)) < len(gpus) or any(p.percent != WHOLE_PERCENT for p in binding.slices)
        ):
            broken.append(f"I4: {binding.key.directory} on {sorted(gpus)}")
    return broken
