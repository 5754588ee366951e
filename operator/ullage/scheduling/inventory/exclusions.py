# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Devices that failed a workload and are excluded for it for a while.

They are stored in ``status.scheduling.exclusions``; the snapshot has the latest refusals of nodes.
This module keeps no state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ullage.api.reasons import Reason, Standing
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.status import MOST_EXCLUSIONS, Exclusion
from ullage.cluster.records.workload import WorkloadRecord
from ullage.cluster.values.device_ref import DeviceRef
from ullage.scheduling.inventory.inventory import Inventory
from ullage.scheduling.model.lifecycle_step import Passed, earliest
from ullage.scheduling.model.view import Member, View
from ullage.scheduling.times import (
    DEVICE_REFUSED_S,
    NODE_STUCK_FIRST_S,
    NODE_STUCK_FORGOTTEN_S,
    NODE_STUCK_MOST_S,
    SLOW_NODE_S,
)

REFUSALS_UNTIL_EXCLUDED: Final = 3
"""Refusals of one pod by one device after which it is excluded for long (not measured)."""
UNTIL_THE_AGENT_SPEAKS: Final = 0.0

_NO_DEVICE: Final[frozenset[int]] = frozenset()


def active_exclusions(view: View, workload: WorkloadRecord) -> tuple[Exclusion, ...]:
    """Exclusions of a workload in force."""
    exclusions = workload.status.scheduling.exclusions
    return (
        tuple(exclusion for exclusion in exclusions if _holds(view, exclusion))
        if exclusions
        else ()
    )


def with_failure(
    view: View, workload: WorkloadRecord, passed: Passed | None
) -> tuple[Exclusion, ...]:
    """Exclusions for the status after a device failed the workload, or none did.

    Expired exclusions stay until there is a new one: removing them alone is not worth a write.
    """
    before = workload.status.scheduling.exclusions
    device = passed.device if passed is not None else None
    stuck = passed is not None and passed.reason is Reason.STUCK_UNSCHEDULED
    lasts_s = excluded_s(passed.reason) if passed is not None else None
    if passed is None or device is None or (lasts_s is None and not stuck):
        return before
    active = active_exclusions(view, workload)
    if any(_is_of(exclusion, passed.reason, device) for exclusion in active):
        return before
    since = whole_second(view.now)
    if stuck:
        lasts_s = _stuck_s(view, before, device)
    active = tuple(
        exclusion
        for exclusion in before
        if exclusion in active
        or (_counts(view, exclusion) and not _is_of(exclusion, passed.reason, device))
    )
    new = Exclusion(
        reason=passed.reason,
        node=device.node,
        gpu=device.gpu,
        since=since,
        until=since + lasts_s if lasts_s else 0.0,
        message=passed.message,
    )
    return (*active, new)[-MOST_EXCLUSIONS:]


def excluded_s(reason: Reason) -> float | None:
    """Seconds of exclusion after a failure for this reason; ``None`` = none.

    Not measured: a refusal passes soon, a silent agent may stay so for long, and a guard's verdict
    lasts five minutes. A peak load may fall and rise again: five minutes of training are worth a
    restart. A node on which a rank was slow may be so for long. For a node to which kube-scheduler
    did not bind a pod see :func:`_stuck_s`.
    """
    match reason:
        case Reason.RESERVATION_REFUSED:
            return 10.0
        case Reason.RESERVATION_EXPIRED:
            return UNTIL_THE_AGENT_SPEAKS
        case Reason.STRAGGLER_REPLACED:
            return SLOW_NODE_S
        case _:
            return 300.0 if Standing.BLAMES_DEVICE in reason.standing else None


def _is_of(exclusion: Exclusion, reason: Reason, device: DeviceRef) -> bool:
    """True when an exclusion is of this device, or of its whole node, for this reason."""
    if exclusion.reason is not reason:
        return False
    if Standing.LEAVES_NODE in reason.standing:
        return exclusion.node == device.node
    return exclusion.device == device


def _counts(view: View, exclusion: Exclusion) -> bool:
    """True when the length of an earlier exclusion decides that of the next one."""
    stuck = exclusion.reason is Reason.STUCK_UNSCHEDULED
    return stuck and view.now < exclusion.until + NODE_STUCK_FORGOTTEN_S


def _stuck_s(view: View, before: Sequence[Exclusion], device: DeviceRef) -> float:
    """Seconds for which a node is excluded after kube-scheduler did not bind a pod to it."""
    last = max(
        (
            exclusion.until - exclusion.since
            for exclusion in before
            if _counts(view, exclusion) and exclusion.node == device.node
        ),
        default=0.0,
    )
    return min(max(NODE_STUCK_FIRST_S, 2 * last), NODE_STUCK_MOST_S)


def excluded_devices(
    view: View, inventory: Inventory, workload: WorkloadRecord, members: Sequence[Member]
) -> frozenset[int]:
    """Indices of the devices that are excluded for members of a workload."""
    exclusions = active_exclusions(view, workload)
    if not exclusions and not view.snapshot.node_refusals:
        return _NO_DEVICE
    indices: set[int] = set()
    for gpu, _ in _refused_often(view, members):
        indices.update(at for at, site in enumerate(inventory.sites) if site.uuid == gpu)
    for exclusion in exclusions:
        node = inventory.node_index.get(exclusion.node)
        if node is not None and exclusion.is_of_node:
            indices.update(inventory.sites_on[node])
        elif exclusion.device in inventory.site_index:
            indices.add(inventory.site_index[exclusion.device])
    return frozenset(indices)


def next_end(view: View, workload: WorkloadRecord, members: Sequence[Member]) -> float:
    """Time at which the first excluded device may be retried; 0 = none, or unknown."""
    if not workload.status.scheduling.exclusions and not view.snapshot.node_refusals:
        return 0.0
    refused = (until for _, until in _refused_often(view, members))
    return earliest(*refused, *(exclusion.until for exclusion in active_exclusions(view, workload)))


def _holds(view: View, exclusion: Exclusion) -> bool:
    if exclusion.until:
        return view.now < exclusion.until
    node = view.snapshot.gpu_nodes.get(exclusion.node)
    return node is not None and node.heartbeat <= exclusion.since


def _refused_often(view: View, members: Sequence[Member]) -> Iterator[tuple[str, float]]:
    """Devices that refused a member too often, with the end of their exclusion."""
    uids = {member.pod.uid for member in members}
    for (pod_uid, gpu), times in view.snapshot.node_refusals.items():
        until = times[-1] + DEVICE_REFUSED_S
        if pod_uid in uids and len(times) >= REFUSALS_UNTIL_EXCLUDED and view.now < until:
            yield gpu, until
