# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Time limits of placement: members that are stuck, and since when.

Times come from the snapshot; this module keeps no state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.values.device_ref import DeviceRef
from ullage.scheduling.inventory.inventory import Inventory, NodeTrouble
from ullage.scheduling.model.view import Held, Member, View
from ullage.scheduling.times import LAG_EXCUSED_MOST_S

STARTS_AT_ONCE: Final = 20
"""Minimum of pods that the nodes and the API server start per second (unmeasured): when more start
at once, each gets more time."""

_PULLING: Final = frozenset({"ContainerCreating", "PodInitializing"})
"""Waiting reasons of a container whose image may still be pulled, however long it takes."""
_NOT_PULLED: Final = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "ImageInspectError",
        "InvalidImageName",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
"""Waiting reasons of a container whose image kubelet failed to pull."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Reason why a member cannot progress by itself."""

    reason: Reason
    message: str
    device: DeviceRef | None = None
    """Device that it must avoid for a while."""


def trouble(view: View, member: Member) -> Trouble | None:
    """The problem of an ungated pod; ``None`` while it may still start."""
    pod = member.pod
    if member.gated or not member.live or pod.deleting:
        return None
    for held in member.held:
        if held.seen is not None and held.seen.phase is SlicePhase.FAILED:
            return Trouble(_reason_of(held, Reason.UNENFORCED), node_says(held))
    eviction = view.evictions.get(pod.uid)
    if eviction is not None:
        return Trouble(eviction.reason, eviction.message, eviction.device)
    if pod.stage is PodStage.RUNNING:
        return None
    for held in member.held:
        if held.refused:
            return Trouble(Reason.RESERVATION_REFUSED, node_says(held))
    if pod.stage is PodStage.UNSCHEDULED and view.now >= _schedule_ends(view, pod):
        message = pod.scheduling_message or "kube-scheduler said nothing"
        device = member.held[0].device if member.held else None
        return Trouble(Reason.STUCK_UNSCHEDULED, f"{pod.name} was not scheduled: {message}", device)
    late = pod.stage is PodStage.BOUND and view.now >= _start_ends(view, pod)
    if pod.stage is PodStage.BOUND and lacks_image(pod):
        text = f"{pod.name} did not get its image on {pod.node}: {_kubelet_says(pod)}"
        return Trouble(Reason.IMAGE_PULL_FAILED, text) if late else None
    if not member.held:
        return Trouble(Reason.PLACEMENT_MISSING, f"{pod.name} was let go and has no slice any more")
    if not late or pod.waiting_reason in _PULLING:
        return None
    return Trouble(
        Reason.STUCK_NOT_STARTED, f"{pod.name} did not start on {pod.node}: {_why(member)}"
    )


def lacks_image(pod: PodRecord) -> bool:
    """True when kubelet failed to pull an image of a pod."""
    return pod.waiting_reason in _NOT_PULLED


def next_look(view: View, member: Member) -> float:
    """Time of the next check of a starting pod; 0 = not before a change."""
    pod = member.pod
    if member.gated or pod.deleting:
        return 0.0
    if pod.stage is PodStage.UNSCHEDULED:
        return _schedule_ends(view, pod)
    if pod.stage is PodStage.BOUND and pod.waiting_reason not in _PULLING:
        return _start_ends(view, pod)
    return 0.0


def counted_from(view: View, since: float) -> float:
    """Start of a counted wait: while the API server lags, silence proves nothing."""
    return max(since, min(view.settings.backpressure_ended_at, since + LAG_EXCUSED_MOST_S))


def _schedule_ends(view: View, pod: PodRecord) -> float:
    return counted_from(view, pod.stage_since) + view.settings.schedule_timeout_s + _crowd_s(view)


def _start_ends(view: View, pod: PodRecord) -> float:
    return counted_from(view, pod.stage_since) + view.settings.start_timeout_s + _crowd_s(view)


def _crowd_s(view: View) -> float:
    """Extra time for a pod among many that start at once."""
    return float(max(0, view.starting - 1) // STARTS_AT_ONCE)


def reserve_ends(view: View, held: Held) -> float:
    """Time at which an unanswered reservation expires."""
    return counted_from(view, held.since) + view.settings.reserve_timeout_s


def overdue(view: View, member: Member) -> Held | None:
    """A slice of a gated member that its node did not acknowledge in time."""
    return next(
        (
            held
            for held in member.held
            if held.seen is None and view.now >= reserve_ends(view, held)
        ),
        None,
    )


def node_is_lost(inventory: Inventory, member: Member) -> NodeTrouble | None:
    """Reason why a gated member must not be pinned to the node of its slices; ``None`` = it may."""
    for held in member.held:
        index = inventory.node_index.get(held.node)
        if index is None:
            return NodeTrouble(
                Reason.NODE_UNHEALTHY, f"{held.node} is not one of our nodes any more"
            )
        trouble = inventory.node_troubles[index]
        if trouble is not None:
            return trouble._replace(text=f"{held.node}: {trouble.text}")
        if inventory.nodes[index].unschedulable:
            return NodeTrouble(Reason.NODE_LEAVES, f"{held.node} is cordoned")
    return None


def _why(member: Member) -> str:
    for held in member.held:
        if held.seen is not None and held.seen.reason:
            return node_says(held)
    pod = member.pod
    return _kubelet_says(pod) if pod.waiting_reason else "its node said nothing"


def _kubelet_says(pod: PodRecord) -> str:
    return f"{pod.waiting_reason}: {pod.waiting_message}".rstrip(": ")


def node_says(held: Held) -> str:
    """Reason and message of a slice that its node refused or failed."""
    seen = held.seen
    if seen is None or not seen.reason:
        return f"{held.node}/{held.slice.gpu} gave no reason"
    return f"{held.node}/{held.slice.gpu}: {seen.reason}: {seen.message}".rstrip(": ")


def _reason_of(held: Held, default: Reason) -> Reason:
    try:
        return Reason(held.seen.reason if held.seen is not None else default)
    except ValueError:
        return default
