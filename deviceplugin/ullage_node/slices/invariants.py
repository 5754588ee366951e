# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What must hold on every device whatever the operator asks: the node's own arithmetic.

A chain of small checks judges one newcomer against what is held already; :func:`violations` states
the same rules over a whole table. Pure. Percentages are ceilings and may sum to more than 100;
whether that is wise is admission's question, not ours. A slice whose trust domain is not known
(recognised from a status of an older agent) is left to the operator's judgement.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ullage.api.contract import DesiredSlice, Reason, SlicePhase, default_trust_domain
from ullage_node.devices.protocol import ContainerBinding, ContainerKey
from ullage_node.slices.records import Device, HeldSlice, Refusal, container_of

WHOLE_PERCENT: Final = 100
_WITHOUT_PROCESS: Final = frozenset({SlicePhase.RESERVED, SlicePhase.PREPARED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A newcomer and what it meets."""

    newcomer: DesiredSlice
    device: Device | None
    neighbours: tuple[DesiredSlice, ...]
    """Slices that hold room on the same device."""
    siblings: tuple[DesiredSlice, ...]
    """Other slices of the same container."""
    waiting: int = 0
    """Neighbours that have no process on the device yet."""
    unproven: tuple[str, ...] = ()
    """Neighbours whose limits do not hold, ``namespace/name``."""


Check = Callable[[Candidate], Refusal | None]


def device_is_here(candidate: Candidate) -> Refusal | None:
    """The device exists on this node."""
    if candidate.device is not None:
        return None
    return Refusal(
        reason=Reason.DEVICE_LOST, message=f"device {candidate.newcomer.gpu} is not on this node"
    )


def device_is_usable(candidate: Candidate) -> Refusal | None:
    """Nothing is wrong with the device."""
    return candidate.device.refusal if candidate.device else None


def memory_fits(candidate: Candidate) -> Refusal | None:
    """I1: what tenants may allocate and what their contexts cost stay inside the device."""
    device = candidate.device
    if device is None:
        return None
    everyone = (*candidate.neighbours, candidate.newcomer)
    short = memory_needed_mib(device, everyone) - device.memory_mib
    if short <= 0:
        return None
    return Refusal(
        reason=Reason.CAPACITY_EXCEEDED,
        message=f"memory short of {short} MiB on {device.uuid} ({device.memory_mib} MiB)",
    )


def contexts_fit(candidate: Candidate) -> Refusal | None:
    """I2: no more containers share the device than it has room for."""
    device = candidate.device
    if device is None or len(candidate.neighbours) < device.contexts:
        return None
    return Refusal(
        reason=Reason.CAPACITY_EXCEEDED,
        message=f"{device.uuid} is shared by {len(candidate.neighbours)} of {device.contexts}",
    )


def processes_fit(candidate: Candidate) -> Refusal | None:
    """I2: contexts, not containers: what is attached, what will be, and the newcomer's own."""
    device = candidate.device
    if device is None or not device.context_limit:
        return None
    needed = device.contexts_used + candidate.waiting + 1
    if needed <= device.context_limit:
        return None
    return Refusal(
        reason=Reason.CAPACITY_EXCEEDED,
        message=f"{needed} contexts on {device.uuid}, which takes {device.context_limit}",
    )


def same_trust_domain(candidate: Candidate) -> Refusal | None:
    """I3: who shares a device shares its faults and its memory's names: one trust domain."""
    own = trust_domain_of(candidate.newcomer)
    others = {trust_domain_of(part) for part in candidate.neighbours} - {own, ""}
    if not own or not others:
        return None
    return Refusal(
        reason=Reason.TRUST_DOMAIN,
        message=f"{candidate.newcomer.gpu} belongs to {', '.join(sorted(others))}, not to {own}",
    )


def neighbours_are_proven(candidate: Candidate) -> Refusal | None:
    """A neighbour outside its limits counts as the whole device: nobody joins it."""
    if not candidate.unproven:
        return None
    return Refusal(
        reason=Reason.UNENFORCED,
        message=f"{candidate.newcomer.gpu} is used past its limits by "
        f"{', '.join(candidate.unproven)}",
    )


def turns_suffice(candidate: Candidate) -> Refusal | None:
    """Where tenants take equal turns nobody gets more than one, and no objective holds."""
    device = candidate.device
    if device is None or not device.equal_turns:
        return None
    everyone = (*candidate.neighbours, candidate.newcomer)
    turn = WHOLE_PERCENT // len(everyone)
    if candidate.newcomer.protected and len(everyone) > 1:
        text = f"tenants of {device.uuid} take equal turns: no objective holds there"
        return Refusal(reason=Reason.MODE_UNSUPPORTED, message=text)
    most = max(part.percent for part in everyone)
    if most <= turn:
        return None
    return Refusal(
        reason=Reason.CAPACITY_EXCEEDED,
        message=f"{len(everyone)} equal turns on {device.uuid} give {turn} % each, not {most} %",
    )


def one_device_unless_whole(candidate: Candidate) -> Refusal | None:
    """I4: a container holds several slices only as whole devices, each a different one."""
    if not candidate.siblings:
        return None
    everyone = (*candidate.siblings, candidate.newcomer)
    if len({part.gpu for part in everyone}) == len(everyone) and all(
        part.percent == WHOLE_PERCENT for part in everyone
    ):
        return None
    return Refusal(
        reason=Reason.CAPACITY_EXCEEDED,
        message=f"{len(everyone)} slices of one container must be whole, different devices",
    )


CHECKS: Final[tuple[Check, ...]] = (
    device_is_here,
    device_is_usable,
    memory_fits,
    contexts_fit,
    processes_fit,
    same_trust_domain,
    neighbours_are_proven,
    turns_suffice,
    one_device_unless_whole,
)


def first_refusal(candidate: Candidate, checks: Sequence[Check] = CHECKS) -> Refusal | None:
    """The first check that speaks against the newcomer, if any."""
    return next((found for check in checks if (found := check(candidate))), None)


def trust_domain_of(part: DesiredSlice) -> str:
    """Whose faults a slice may share; "" = not known."""
    if part.trust_domain or not part.pod_namespace:
        return part.trust_domain
    return default_trust_domain(part.pod_namespace)


def memory_needed_mib(device: Device, slices: Iterable[DesiredSlice]) -> int:
    """Memory that slices take on a device: what they may allocate and their contexts."""
    return sum(part.memory_mib + device.overhead_mib for part in slices)


def candidate_for(
    newcomer: DesiredSlice, held: Iterable[HeldSlice], devices: Mapping[str, Device]
) -> Candidate:
    """What a newcomer meets; an older form of itself does not count."""
    others = [
        part for part in held if part.phase.holds_capacity and part.desired.key != newcomer.key
    ]
    own = container_of(newcomer)
    near = [part for part in others if part.desired.gpu == newcomer.gpu]
    return Candidate(
        newcomer=newcomer,
        device=devices.get(newcomer.gpu),
        neighbours=tuple(part.desired for part in near),
        siblings=tuple(part.desired for part in others if part.container == own),
        waiting=sum(part.phase in _WITHOUT_PROCESS for part in near),
        unproven=tuple(
            f"{part.desired.pod_namespace}/{part.desired.pod_name}"
            for part in near
            if part.phase is SlicePhase.FAILED and part.reason == Reason.UNENFORCED.value
        ),
    )


def violations(
    held: Iterable[HeldSlice],
    bindings: Iterable[ContainerBinding],
    devices: Mapping[str, Device],
) -> list[str]:
    """Every invariant that a table breaks, in words; empty = all hold.

    A device that vanished under running containers has no size left to exceed.
    """
    by_device: defaultdict[str, list[DesiredSlice]] = defaultdict(list)
    for part in held:
        if part.phase.holds_capacity:
            by_device[part.desired.gpu].append(part.desired)
    found: list[str] = []
    for uuid, slices in sorted(by_device.items()):
        device = devices.get(uuid)
        if device is None:
            continue
        needed = memory_needed_mib(device, slices)
        if needed > device.memory_mib:
            found.append(f"I1: {needed} MiB on {uuid} with {device.memory_mib} MiB")
        if len(slices) > device.contexts:
            found.append(f"I2: {len(slices)} containers on {uuid} for {device.contexts}")
        domains = {trust_domain_of(part) for part in slices} - {""}
        if len(domains) > 1:
            found.append(f"I3: {', '.join(sorted(domains))} on {uuid}")
    return found + _slot_violations(bindings)


def _slot_violations(bindings: Iterable[ContainerBinding]) -> list[str]:
    bindings = tuple(bindings)
    slots = Counter(slot for binding in bindings for slot in binding.slots)
    found = [f"I5: {slot} bound {count} times" for slot, count in slots.items() if count > 1]
    owners: Counter[ContainerKey] = Counter(binding.key for binding in bindings)
    found += [
        f"I5: {key.directory} bound {count} times" for key, count in owners.items() if count > 1
    ]
    for binding in bindings:
        gpus = [part.gpu for part in binding.slices]
        if len(gpus) > 1 and (
            len(set(gpus)) < len(gpus) or any(p.percent != WHOLE_PERCENT for p in binding.slices)
        ):
            found.append(f"I4: {binding.key.directory} on {sorted(gpus)}")
    return found
