# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Slices that stay: released when their pod is gone, adopted when a node runs one the spec lacks.

A running container never loses its slice: one that a node reports as started for a live pod is
written back into the spec. New slices are not decided here.
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
    """The slices that a pod keeps, and the changes of specs for that."""

    kept: Sequence[Located] = ()
    dropped: Sequence[Located] = ()
    adopted: Sequence[Located] = ()

    @property
    def is_written(self) -> bool:
        """True when specs need no change."""
        return not self.dropped and not self.adopted

    def enter(self, ledger: Ledger) -> None:
        """Write the changes into the ledger."""
        for node, gone in self.dropped:
            ledger.drop(node, gone.key)
        for node, part in self.adopted:
            ledger.add(node, part)


def settle(snapshot: Snapshot, settings: DecideSettings, slices: SlicesByPod, uid: str) -> Settled:
    """Release the slices of a pod that is gone, finished or elsewhere; adopt those it runs on.

    Args:
        snapshot: The cluster.
        settings: Holds the epoch of adopted slices.
        slices: The slices of all pods.
        uid: uid of the pod.
    """
    pod, wanted = snapshot.pods.get(uid), slices.desired.get(uid, ())
    if pod is None or pod.stage.finished:
        return Settled(dropped=wanted)
    kept = [located for located in wanted if _stands(snapshot, located[0], pod)]
    dropped = [located for located in wanted if not _stands(snapshot, located[0], pod)]
    reports = slices.observed.get(uid, ())
    in_specs = {(node, part.key) for node, part in wanted}
    adopted = [
        (node, _adopted(snapshot, settings, pod, seen))
        for node, seen in reports
        if _is_stray(snapshot, pod, node, seen) and (node, seen.key) not in in_specs
    ]
    kept.extend(adopted)
    if len(kept) > 1:
        kept.sort(key=lambda located: (located[1].key, located[0]))
        best = _best(kept, reports)
        dropped.extend(located for located in kept if located[0] != best)
        kept = [located for located in kept if located[0] == best]
    return Settled(kept, dropped, adopted)


def drop_refused(view: View, uids: Iterable[str], ledger: Ledger) -> None:
    """Drop refused slices: they hold nothing, and a node must not start them later.

    Args:
        view: The cycle's snapshot.
        uids: Workloads with refused slices.
        ledger: The slices that specs are to have.
    """
    for uid in uids:
        for member in view.members[uid]:
            for held in member.held:
                if held.refused:
                    ledger.drop(held.node, held.slice.key)


def _stands(snapshot: Snapshot, node: str, pod: PodRecord) -> bool:
    """True when a pod may keep a slice on this node."""
    if pod.stage.finished or pod.node not in ("", node):
        return False
    if GATE not in pod.gates:
        return True
    owner = snapshot.workloads.get(pod.owner.uid)
    return owner is not None and not owner.deleting and not pod.deleting


def _is_stray(snapshot: Snapshot, pod: PodRecord, node: str, seen: ObservedSlice) -> bool:
    """True when a node runs the pod on this slice and the pod may keep it."""
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
    """The node on which a pod keeps its slices: the one that reports most of them.

    A slice may be written for two nodes when a leader died between the writes.
    """
    nodes = sorted({node for node, _ in located})
    if len(nodes) == 1:
        return nodes[0]
    answered = {(node, seen.key, seen.gpu) for node, seen in reports if seen.phase.holds_capacity}
    return max(
        nodes, key=lambda node: sum((node, part.key, part.gpu) in answered for at, part in located)
    )
