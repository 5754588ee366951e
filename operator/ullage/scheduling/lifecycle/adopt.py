# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Which slices stand: released when their pod is gone, adopted when a node runs what we forgot.

A running container is never taken its slice away: what a node reports as started for a live pod
belongs into the spec, even if the spec lost it. Decides nothing about new slices.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ullage.api.labels import GATE
from ullage.api.slices import DesiredSlice, ObservedSlice
from ullage.cluster.records.snapshot import PodRecord, Snapshot
from ullage.scheduling.feasibility.slices import has_objective, priority_held, slowdown_percent
from ullage.scheduling.inventory.slices_by_pod import SlicesByPod
from ullage.scheduling.model.plan import DecideSettings
from ullage.scheduling.model.slice_ledger import Ledger
from ullage.scheduling.model.view import View

Located = tuple[str, DesiredSlice]


@dataclass(frozen=True, slots=True)
class Settled:
    """The slices of a pod that stand, and what has to be written for it."""

    kept: Sequence[Located] = ()
    dropped: Sequence[Located] = ()
    adopted: Sequence[Located] = ()

    @property
    def is_written(self) -> bool:
        """Whether specs say just this."""
        return not self.dropped and not self.adopted

    def enter(self, ledger: Ledger) -> None:
        """Write it."""
        for node, gone in self.dropped:
            ledger.drop(node, gone.key)
        for node, part in self.adopted:
            ledger.add(node, part)


def settle(snapshot: Snapshot, settings: DecideSettings, slices: SlicesByPod, uid: str) -> Settled:
    """Release the slices of a pod that is gone, finished or elsewhere; adopt what it runs on.

    Args:
        snapshot: the cluster.
        settings: the epoch that an adopted slice carries.
        slices: the slices of all pods.
        uid: uid of the pod.
    """
    pod, wanted = snapshot.pods.get(uid), slices.desired.get(uid, ())
    if pod is None or pod.stage.finished:
        return Settled(dropped=wanted)
    kept = [one for one in wanted if _stands(snapshot, one[0], pod)]
    dropped = [one for one in wanted if not _stands(snapshot, one[0], pod)]
    reports = slices.observed.get(uid, ())
    known = {(node, one.key) for node, one in wanted}
    adopted = [
        (node, _adopted(snapshot, settings, pod, seen))
        for node, seen in reports
        if _is_stray(snapshot, pod, node, seen) and (node, seen.key) not in known
    ]
    kept.extend(adopted)
    if len(kept) > 1:
        kept.sort(key=lambda one: (one[1].key, one[0]))
        best = _best(kept, reports)
        dropped.extend(one for one in kept if one[0] != best)
        kept = [one for one in kept if one[0] == best]
    return Settled(kept, dropped, adopted)


def drop_refused(view: View, uids: Iterable[str], ledger: Ledger) -> None:
    """A refused slice leaves the spec at once: it holds nothing, and must not be taken up later.

    Args:
        view: the cycle's snapshot.
        uids: workloads that have one.
        ledger: the slices that specs are to have.
    """
    for uid in uids:
        for member in view.members[uid]:
            for held in member.held:
                if held.refused:
                    ledger.drop(held.node, held.slice.key)


def _stands(snapshot: Snapshot, node: str, pod: PodRecord) -> bool:
    """Whether a pod may keep a slice on this node."""
    if pod.stage.finished or pod.node not in ("", node):
        return False
    if GATE not in pod.gates:
        return True
    owner = snapshot.workloads.get(pod.owner.uid)
    return owner is not None and not owner.deleting and not pod.deleting


def _is_stray(snapshot: Snapshot, pod: PodRecord, node: str, seen: ObservedSlice) -> bool:
    """Whether a node runs a pod on a slice that may be entered again, should the spec lack it."""
    started = seen.phase.started and bool(seen.gpu)
    return started and pod.node == node and _stands(snapshot, node, pod)


def _adopted(
    snapshot: Snapshot, settings: DecideSettings, pod: PodRecord, seen: ObservedSlice
) -> DesiredSlice:
    owner = snapshot.workloads.get(pod.owner.uid)
    return DesiredSlice(
        key=seen.key,
        pod_namespace=pod.namespace,
        pod_name=pod.name,
        gpu=seen.gpu,
        percent=seen.percent,
        memory_mib=seen.memory_mib,
        epoch=settings.epoch,
        priority=priority_held(pod.priority),
        protected=owner is not None and has_objective(owner),
        workload_class=owner.workload_class if owner else "",
        family=owner.family if owner else "",
        trust_domain=owner.trust_domain if owner else "",
        max_slowdown_percent=slowdown_percent(owner.max_slowdown if owner else None),
        slo=owner.slo if owner else None,
        alert_only=(
            owner is not None and has_objective(owner) and not owner.sharing.freeze_neighbours
        ),
        reports_load=owner is not None and owner.scaling is not None,
        lane=seen.lane,
        persistent_mib=seen.persistent_mib,
        ephemeral_mib=seen.ephemeral_mib,
        suspendable=seen.suspendable,
    )


def _best(located: Sequence[Located], reports: Sequence[tuple[str, ObservedSlice]]) -> str:
    """The node that keeps a pod's slices.

    A slice may be written for two nodes, where a leader died between the writes.
    """
    nodes = sorted({node for node, _ in located})
    if len(nodes) == 1:
        return nodes[0]
    answered = {(node, seen.key, seen.gpu) for node, seen in reports if seen.phase.holds_capacity}
    return max(
        nodes, key=lambda node: sum((node, one.key, one.gpu) in answered for at, one in located)
    )
