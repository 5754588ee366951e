# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The node's decision before a container starts, as pure functions over gathered facts.

:func:`owner_of` returns the owner of the slots, :func:`decide` the start of that container and its
slices, or a refusal. Every fact was gathered before (see ``binder``); nothing here waits, reads or
writes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ullage.api.reasons import Reason
from ullage.api.slices import DesiredSlice, SlicePhase
from ullage_node.kubelet.pod_resources import Listing, SlotOwner
from ullage_node.model.devices import ContainerBinding, ContainerKey
from ullage_node.model.slices import HeldSlice, NodeDevice, Pod, SliceRefusal, same_share
from ullage_node.slices.invariants import candidate_for, first_refusal
from ullage_node.slices.table import binding_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """A previous binding of the slots or the container."""

    binding: ContainerBinding
    live: bool
    """kubelet still lists it as owner; always false for an earlier start of this container."""
    pids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerStart:
    """All inputs of the decision on one container start."""

    slots: tuple[str, ...]
    """Slot ids from kubelet, sorted: they are matched to the slices in index order."""
    container: ContainerKey
    pod: str
    """``namespace/name``, for the texts."""
    wanted: tuple[DesiredSlice, ...]
    held: tuple[HeldSlice, ...]
    everyone: tuple[HeldSlice, ...]
    devices: Mapping[str, NodeDevice]
    leftovers: tuple[Leftover, ...] = ()


Check = Callable[[ContainerStart], SliceRefusal | None]


def owner_of(
    slots: Sequence[str], listing: Listing, pods: Collection[Pod]
) -> SlotOwner | SliceRefusal:
    """The live container to which kubelet allocated all these slots.

    Some kubelets list finished pods too: owners all of whose known pods are terminal are dropped.
    """
    dead = _only_terminal(pods)
    owners = {
        owner
        for slot in slots
        for owner in listing.owners.get(slot, ())
        if (owner.namespace, owner.pod) not in dead
    }
    holders = sorted(owner for owner in owners if set(slots) <= listing.slots_of(owner))
    if len(holders) == 1:
        return holders[0]
    names = ", ".join(f"{owner.namespace}/{owner.pod}" for owner in sorted(owners))
    listed = f"kubelet lists {names} for it" if owners else "kubelet lists no pod for it"
    return SliceRefusal(reason=Reason.SLOT_UNKNOWN, message=f"{' '.join(slots)}: {listed}")


def _only_terminal(pods: Iterable[Pod]) -> set[tuple[str, str]]:
    pods = tuple(pods)
    alive = {(pod.namespace, pod.name) for pod in pods if not pod.terminal}
    return {(pod.namespace, pod.name) for pod in pods} - alive


def placement_exists(start: ContainerStart) -> SliceRefusal | None:
    """Check that the operator placed this container, and this node applied it."""
    if start.wanted and start.held:
        return None
    return SliceRefusal(
        reason=Reason.PLACEMENT_MISSING,
        message=f"no slice for container {start.container.container} of {start.pod} on this node",
    )


def not_refused_before(start: ContainerStart) -> SliceRefusal | None:
    """Check that no slice was refused permanently, under the operator's current decision."""
    for part in start.held:
        if part.phase is SlicePhase.REFUSED:
            return SliceRefusal(reason=Reason(part.reason), message=part.message)
    return None


def epochs_agree(start: ContainerStart) -> SliceRefusal | None:
    """Checks that the spec still holds what this node reserved."""
    held = {part.desired.key: part.desired for part in start.held}
    for wanted in start.wanted:
        mine = held.get(wanted.key)
        if mine is None or mine.epoch != wanted.epoch or not same_share(mine, wanted):
            have = f"reserved is epoch {mine.epoch}" if mine else "nothing is reserved"
            return SliceRefusal(
                reason=Reason.EPOCH_STALE,
                message=f"slice {wanted.key.index} is decided in epoch {wanted.epoch}, {have}",
            )
    return None


def slots_match_slices(start: ContainerStart) -> SliceRefusal | None:
    """Checks that there are as many slots as slices."""
    if len(start.slots) == len(start.wanted) == len(start.held):
        return None
    return SliceRefusal(
        reason=Reason.SLOT_COUNT,
        message=f"{start.pod} brings {len(start.slots)} slots for {len(start.wanted)} slices",
    )


def drained(start: ContainerStart) -> SliceRefusal | None:
    """Check that no other container uses the slots, nor an earlier start the devices."""
    for left in start.leftovers:
        name = f"{left.binding.pod_namespace}/{left.binding.pod_name}"
        if left.live:
            return SliceRefusal(
                reason=Reason.DRAINING,
                message=f"{' '.join(start.slots)} still belongs to live pod {name}",
            )
        if left.pids:
            return SliceRefusal(
                reason=Reason.DRAINING,
                message=f"{len(left.pids)} processes of {name} have not ended",
            )
    return None


def room_is_left(start: ContainerStart) -> SliceRefusal | None:
    """Check the invariants with these slices, each against all others."""
    for wanted in start.wanted:
        refusal = first_refusal(candidate_for(wanted, start.everyone, start.devices))
        if refusal is not None:
            return refusal
    return None


CHECKS: Final[tuple[Check, ...]] = (
    placement_exists,
    drained,
    not_refused_before,
    epochs_agree,
    slots_match_slices,
    room_is_left,
)
"""``drained`` precedes every lasting refusal, because those free room."""


def decide(
    start: ContainerStart, checks: Sequence[Check] = CHECKS
) -> ContainerBinding | SliceRefusal:
    """Bind slots to slices, or refuse with the reason that the container must wait."""
    first_refusal = next((refusal for check in checks if (refusal := check(start))), None)
    return first_refusal or binding_of(list(zip(start.wanted, start.slots, strict=True)))
