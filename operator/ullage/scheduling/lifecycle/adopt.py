# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Which slices stand: released when their pod is gone, adopted when a node runs what we forgot.

A running container is never taken its slice away: what a node reports as started for a live pod
belongs into the spec, even if the spec lost it. Decides nothing about new slices.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ullage.api.contract import GATE, DesiredSlice, ObservedSlice
from ullage.cluster.records.snapshot import GPUNodeRecord, PodRecord, Snapshot
from ullage.scheduling.feasibility.slices import has_objective, priority_held, slowdown_percent
from ullage.scheduling.model.plan import DecideSettings
from ullage.scheduling.model.slice_ledger import Ledger
from ullage.scheduling.model.view import View

Located = tuple[str, DesiredSlice]


@dataclass(slots=True)
class Settled:
    """What stands after releasing and adopting; both by uid of the pod."""

    kept: dict[str, list[Located]] = field(default_factory=dict)
    observed: dict[str, list[tuple[str, ObservedSlice]]] = field(default_factory=dict)


def settle(snapshot: Snapshot, settings: DecideSettings, ledger: Ledger) -> Settled:
    """Release slices of pods that are gone, finished or elsewhere; adopt started strangers."""
    settled = Settled()
    for name in sorted(snapshot.gpu_nodes):
        record = snapshot.gpu_nodes[name]
        for wanted in record.desired:
            uid = wanted.key.pod_uid
            if _stands(snapshot, name, snapshot.pods.get(uid)):
                settled.kept.setdefault(uid, []).append((name, wanted))
            else:
                ledger.drop(name, wanted.key)
        if record.observed:
            _read_reports(snapshot, settings, record, settled, ledger)
    for uid, located in settled.kept.items():
        if len(located) > 1:
            settled.kept[uid] = _without_doubles(located, settled.observed.get(uid, []), ledger)
    return settled


def drop_refused(view: View, ledger: Ledger) -> None:
    """A refused slice leaves the spec at once: it holds nothing, and must not be taken up later."""
    for group in view.members.values():
        for member in group:
            for held in member.held:
                if held.refused:
                    ledger.drop(held.node, held.slice.key)


def _stands(snapshot: Snapshot, node: str, pod: PodRecord | None) -> bool:
    """Whether a pod may keep a slice on this node."""
    if pod is None or pod.stage.finished or pod.node not in ("", node):
        return False
    if GATE not in pod.gates:
        return True
    owner = snapshot.workloads.get(pod.owner.uid)
    return owner is not None and not owner.deleting and not pod.deleting


def _read_reports(
    snapshot: Snapshot,
    settings: DecideSettings,
    record: GPUNodeRecord,
    settled: Settled,
    ledger: Ledger,
) -> None:
    wanted_keys = {one.key for one in record.desired}
    for seen in record.observed:
        uid = seen.key.pod_uid
        settled.observed.setdefault(uid, []).append((record.name, seen))
        if seen.key in wanted_keys or not seen.phase.started or not seen.gpu:
            continue
        pod = snapshot.pods.get(uid)
        if pod is None or pod.node != record.name or not _stands(snapshot, record.name, pod):
            continue
        adopted = _adopted(snapshot, settings, pod, seen)
        ledger.add(record.name, adopted)
        settled.kept.setdefault(uid, []).append((record.name, adopted))


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
    )


def _without_doubles(
    located: list[Located], reports: list[tuple[str, ObservedSlice]], ledger: Ledger
) -> list[Located]:
    """A slice written for two nodes (a leader died between the writes) stays on one of them."""
    located.sort(key=lambda one: (one[1].key, one[0]))
    answered = {(node, seen.key, seen.gpu) for node, seen in reports if seen.phase.holds_capacity}
    nodes = {node for node, _ in located}
    if len(nodes) > 1:
        best = max(
            sorted(nodes),
            key=lambda node: sum((node, one.key, one.gpu) in answered for at, one in located),
        )
        for node, wanted in located:
            if node != best:
                ledger.drop(node, wanted.key)
        return [one for one in located if one[0] == best]
    return located
