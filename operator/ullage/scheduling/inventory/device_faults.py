# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Classes that caused device faults, and their isolation.

A class is charged only where it is certain: a program's fault, and no pod of another class had a
slice of the device. Nothing a tenant can write counts: nodes report, the operator's status of a
profile stores, the policy clears. Pure and level-triggered: faults that nodes still report count
even where a profile was deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ullage.api.faults import DeviceFault, Suspect
from ullage.api.xids import Cause, xid_of
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.profile import ChargedFault
from ullage.cluster.records.snapshot import Snapshot
from ullage.scheduling.model.view import Class, Isolation
from ullage.scheduling.times import CLOCK_AHEAD_MOST_S, HOUR_S

_NO_ONE: Final = Suspect(pod_uid="", namespace="", pod="")


def charges(snapshot: Snapshot, now: float) -> dict[Class, tuple[ChargedFault, ...]]:
    """Reported faults that are attributed to a class and not yet counted in its profile.

    By class, oldest first. Counted faults cost next to nothing, however many nodes report.
    """
    counted, counted_to = _counted(snapshot)
    uncounted: dict[Class, dict[str, ChargedFault]] = {}
    for node in snapshot.gpu_nodes.values():
        for fault in node.faults:
            first = fault.suspects[0] if fault.suspects else _NO_ONE
            at = (first.namespace, first.workload_class)
            if (at, fault.id) in counted or fault.at_s <= counted_to.get(at, 0.0):
                continue
            is_due = fault.at_s <= now + CLOCK_AHEAD_MOST_S
            if is_due and culprit_of(fault) == at and _could_be_there(fault, node, snapshot):
                uncounted.setdefault(at, {}).setdefault(fault.id, _charged(fault, node))
    return {
        at: tuple(sorted(faults.values(), key=lambda fault: (fault.at_s, fault.id)))
        for at, faults in uncounted.items()
    }


def _counted(snapshot: Snapshot) -> tuple[set[tuple[Class, str]], dict[Class, float]]:
    """Faults listed in profiles, by class and identity, and the time up to which each counted."""
    counted: set[tuple[Class, str]] = set()
    counted_to: dict[Class, float] = {}
    for profile in snapshot.profiles.values():
        at, status = (profile.namespace, profile.workload_class), profile.status
        counted.update((at, fault.id) for fault in status.recent_faults)
        if status.faults_counted_to:
            counted_to[at] = max(status.faults_counted_to, counted_to.get(at, 0.0))
    return counted, counted_to


def culprit_of(fault: DeviceFault) -> Class | None:
    """The class to charge; ``None`` = not a program's fault, or no class is certain.

    With pods of several classes on the device any of them may have caused it: the driver names no
    process, and under MPS all of them end together.
    """
    if xid_of(fault.xid).cause is not Cause.APPLICATION:
        return None
    classes = {(suspect.namespace, suspect.workload_class) for suspect in fault.suspects}
    if len(classes) != 1:
        return None
    ((namespace, workload_class),) = classes
    return (namespace, workload_class) if namespace and workload_class else None


def isolations(snapshot: Snapshot, now: float) -> dict[Class, Isolation]:
    """The currently isolated classes.

    Args:
        snapshot: Reports of nodes, statuses of profiles, and the policy.
        now: Seconds since the epoch.
    """
    terms = snapshot.policy.faults
    if not terms.isolation_hours:
        return {}
    lasts_s = terms.isolation_hours * HOUR_S
    faults: dict[Class, dict[str, ChargedFault]] = {}
    for at, charged in _remembered(snapshot, now):
        faults.setdefault(at, {}).update({fault.id: fault for fault in charged})
    isolated: dict[Class, Isolation] = {}
    for at, by_id in faults.items():
        since = terms.cleared.get(at, 0.0)
        counted = [fault for fault in by_id.values() if fault.at_s > since]
        newest = max(counted, key=lambda fault: (fault.at_s, fault.id), default=None)
        if newest is not None and now < newest.at_s + lasts_s:
            isolated[at] = Isolation(
                faults=len(counted), newest=newest, until=newest.at_s + lasts_s
            )
    return isolated


def _remembered(snapshot: Snapshot, now: float) -> Iterator[tuple[Class, Iterable[ChargedFault]]]:
    for profile in snapshot.profiles.values():
        if profile.status.recent_faults:
            yield (profile.namespace, profile.workload_class), profile.status.recent_faults
    yield from charges(snapshot, now).items()


def _could_be_there(fault: DeviceFault, node: GPUNodeRecord, snapshot: Snapshot) -> bool:
    """True unless a suspect is known to be of another namespace or on another node."""
    pods = ((suspect, snapshot.pods.get(suspect.pod_uid)) for suspect in fault.suspects)
    return all(
        pod is None or (pod.namespace == suspect.namespace and pod.node in ("", node.name))
        for suspect, pod in pods
    )


def _charged(fault: DeviceFault, node: GPUNodeRecord) -> ChargedFault:
    return ChargedFault(
        id=fault.id,
        xid=fault.xid,
        node=node.name,
        gpu=fault.gpu,
        pod=min(suspect.pod for suspect in fault.suspects),
        at_s=fault.at_s,
    )
