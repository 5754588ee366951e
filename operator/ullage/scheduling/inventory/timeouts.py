# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What is stuck, since when, and what to stay clear of: the clock rules of placement.

Times come from the snapshot, memory of refusals too; nothing is remembered here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ullage.api.contract import Reason, SlicePhase
from ullage.cluster.records.snapshot import PodRecord, PodStage, WorkloadRecord
from ullage.cluster.records.status import RefusalLine
from ullage.scheduling.inventory.inventory import Inventory
from ullage.scheduling.model.lifecycle_step import earliest
from ullage.scheduling.model.view import Held, Member, View

REFUSALS_UNTIL_EXCLUDED: Final = 3
EXCLUSION_S: Final = 600.0
"""How long a device is left out for a pod that it refused that often (start value)."""
PAUSE_S: Final = 10.0
"""How long a device is passed over after one refusal (our choice, keeps retries slow)."""

AWAY_S: Final = 300.0
"""How long a device is left out for a workload that had to leave it; a guard blames as long."""
_REST_S: Final[Mapping[Reason, float]] = {
    Reason.RESERVATION_REFUSED: PAUSE_S,
    Reason.INTERFERING: AWAY_S,
    Reason.PROBATION_ROLLED_BACK: AWAY_S,
}
"""How long a device rests after a line of this reason."""

STARTS_AT_ONCE: Final = 20
"""Pods that the nodes and the API server bring up in a second, at least (our choice): when more
start at once, each gets more time."""
MOST_LAG_S: Final = 600.0
"""Lag of the API server that excuses a node or a pod, at most (our choice): a server that is always
slow must not keep the stuck where they are for ever."""

_NOWHERE: Final[frozenset[int]] = frozenset()
_PULLING: Final = frozenset(
    {
        "ContainerCreating",
        "PodInitializing",
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "ImageInspectError",
        "InvalidImageName",
        "RegistryUnavailable",
    }
)
"""Waiting reasons that are about the image, or may be: slow or wrong, but not ours to cure."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A member that will not get further by itself."""

    reason: Reason
    message: str
    where: str = ""
    """Node/device that it must not come back to for a while."""


def trouble(view: View, member: Member) -> Trouble | None:
    """What is wrong with a pod whose gate is gone; ``None`` while there is hope."""
    pod = member.pod
    if member.gated or not member.live or pod.deleting:
        return None
    for held in member.held:
        if held.seen is not None and held.seen.phase is SlicePhase.FAILED:
            return Trouble(_reason_of(held, Reason.UNENFORCED), _node_says(held))
    eviction = view.evictions.get(pod.uid)
    if eviction is not None:
        return Trouble(eviction.reason, eviction.message, eviction.where)
    if pod.stage is PodStage.RUNNING:
        return None
    for held in member.held:
        if held.refused:
            return Trouble(Reason.RESERVATION_REFUSED, _node_says(held))
    if not member.held:
        return Trouble(Reason.PLACEMENT_MISSING, f"{pod.name} was let go and has no slice any more")
    if pod.stage is PodStage.UNSCHEDULED and view.now >= _schedule_ends(view, pod):
        said = pod.scheduling_message or "kube-scheduler said nothing"
        return Trouble(Reason.STUCK_UNSCHEDULED, f"{pod.name} was not scheduled: {said}")
    if pod.stage is PodStage.BOUND and view.now >= _start_ends(view, pod) and _ours(member):
        return Trouble(
            Reason.STUCK_NOT_STARTED, f"{pod.name} did not start on {pod.node}: {_why(member)}"
        )
    return None


def next_look(view: View, member: Member) -> float:
    """When a pod that is on its way must be looked at again; 0 = not before something changes."""
    pod = member.pod
    if member.gated or pod.deleting:
        return 0.0
    if pod.stage is PodStage.UNSCHEDULED:
        return _schedule_ends(view, pod)
    if pod.stage is PodStage.BOUND and _ours(member):
        return _start_ends(view, pod)
    return 0.0


def counted_from(view: View, since: float) -> float:
    """From when on a wait counts: while the API server lags, no one can be blamed for silence."""
    return max(since, min(view.settings.backpressure_ended_at, since + MOST_LAG_S))


def _schedule_ends(view: View, pod: PodRecord) -> float:
    return counted_from(view, pod.stage_since) + view.settings.schedule_timeout_s + _crowd_s(view)


def _start_ends(view: View, pod: PodRecord) -> float:
    return counted_from(view, pod.stage_since) + view.settings.start_timeout_s + _crowd_s(view)


def _crowd_s(view: View) -> float:
    """Extra time for a pod among many that start at once."""
    return float(max(0, view.starting - 1) // STARTS_AT_ONCE)


def reserve_ends(view: View, held: Held) -> float:
    """When a node that has not answered to a reservation is given up."""
    return counted_from(view, held.since) + view.settings.reserve_timeout_s


def overdue(view: View, member: Member) -> Held | None:
    """A slice of a gated member that its node did not answer to in time."""
    return next(
        (one for one in member.held if one.seen is None and view.now >= reserve_ends(view, one)),
        None,
    )


def node_is_lost(view: View, inventory: Inventory, member: Member) -> str:
    """Why a gated member must not be sent to the node of its slices; empty when it may."""
    for held in member.held:
        index = inventory.node_index.get(held.node)
        if index is None:
            return f"{held.node} is not one of our nodes any more"
        if inventory.standing[index]:
            return f"{held.node}: {inventory.standing[index]}"
        if inventory.nodes[index].unschedulable:
            return f"{held.node} is cordoned"
    return ""


def passed_over(
    view: View, inventory: Inventory, workload: WorkloadRecord, members: Sequence[Member]
) -> frozenset[int]:
    """Devices that failed this workload lately and get a rest from it."""
    lines = _lines_in_force(view, workload)
    if not lines and not view.snapshot.node_refusals:
        return _NOWHERE
    sites: set[int] = set()
    for (pod_uid, gpu), times in view.snapshot.node_refusals.items():
        if _excluded(view, times) and any(one.pod.uid == pod_uid for one in members):
            sites.update(at for at, site in enumerate(inventory.sites) if site.uuid == gpu)
    for line in lines:
        node, _, gpu = line.nearest.partition("/")
        index = inventory.node_index.get(node)
        if index is None:
            continue
        if line.reason is Reason.RESERVATION_EXPIRED:
            sites.update(inventory.sites_on[index])
        else:
            sites.update(at for at in inventory.sites_on[index] if inventory.sites[at].uuid == gpu)
    return frozenset(sites)


def carried(view: View, workload: WorkloadRecord) -> tuple[RefusalLine, ...]:
    """Lines of the last decision that go on binding the next one."""
    return tuple(_lines_in_force(view, workload))


def refused_pause(view: View, members: Sequence[Member]) -> float:
    """Seconds to wait before members are created again that nodes refused; 0 = none.

    A job that no node can take as it is would be created and deleted again and again, which costs
    its node and everyone who waits for a decision: each refusal in a row doubles the wait.
    """
    remembered = view.snapshot.refused_starts
    most = max(
        (len(remembered.get((one.pod.namespace, one.pod.name), ())) for one in members), default=0
    )
    settings = view.settings
    if most < 2:
        return 0.0
    return min(settings.restart_backoff_s * 2.0 ** (most - 2), settings.restart_backoff_max_s)


def rest_ends(view: View, workload: WorkloadRecord, members: Sequence[Member]) -> float:
    """When the first passed-over device is tried again; 0 = none is."""
    decision = workload.status.decision
    ends = [
        times[-1] + EXCLUSION_S
        for (uid, _), times in view.snapshot.node_refusals.items()
        if _excluded(view, times) and any(one.pod.uid == uid for one in members)
    ]
    if decision is not None:
        ends += [
            decision.time + _REST_S[line.reason]
            for line in _lines_in_force(view, workload)
            if line.reason in _REST_S
        ]
    return earliest(*ends)


def _lines_in_force(view: View, workload: WorkloadRecord) -> list[RefusalLine]:
    decision = workload.status.decision
    if decision is None:
        return []
    found = []
    for line in decision.refusals:
        rest_s = _REST_S.get(line.reason)
        if rest_s is not None:
            if view.now < decision.time + rest_s:
                found.append(line)
        elif line.reason is Reason.RESERVATION_EXPIRED:
            # an agent that spoke since then is worth another try
            record = view.snapshot.gpu_nodes.get(line.nearest.partition("/")[0])
            if record is not None and record.heartbeat <= decision.time:
                found.append(line)
    return found


def _excluded(view: View, times: Sequence[float]) -> bool:
    return len(times) >= REFUSALS_UNTIL_EXCLUDED and view.now < times[-1] + EXCLUSION_S


def _ours(member: Member) -> bool:
    return member.pod.waiting_reason not in _PULLING


def _why(member: Member) -> str:
    for held in member.held:
        if held.seen is not None and held.seen.reason:
            return _node_says(held)
    pod = member.pod
    if pod.waiting_reason:
        return f"{pod.waiting_reason} {pod.waiting_message}".strip()
    return "its node said nothing"


def _node_says(held: Held) -> str:
    seen = held.seen
    if seen is None or not seen.reason:
        return f"{held.node}/{held.slice.gpu} gave no reason"
    return f"{held.node}/{held.slice.gpu}: {seen.reason}: {seen.message}".rstrip(": ")


def _reason_of(held: Held, default: Reason) -> Reason:
    try:
        return Reason(held.seen.reason if held.seen is not None else default)
    except ValueError:
        return default


def refused_by_node(held: Held) -> str:
    """What the node said to a slice that it refused."""
    return _node_says(held)
