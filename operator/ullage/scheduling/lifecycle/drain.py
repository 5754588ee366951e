# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Who leaves a node that goes, when, and with how much grace.

Gangs at once, because a checkpoint takes its time and a member that is lost stops the others
anyway; replicas when their replacements serve, at the latest just before the end; work that loses
nothing by it last. Level-triggered, times come from the snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import floor

from ullage.api.interruptions import Interruption
from ullage.api.reasons import Reason
from ullage.api.words import OnNotice
from ullage.cluster.records.snapshot import (
    PodRecord,
    PodStage,
    Snapshot,
    WorkloadRecord,
)
from ullage.cluster.values.device_ref import DeviceRef
from ullage.scheduling.inventory.interruptions import left_s, termination, words
from ullage.scheduling.inventory.pool_membership import pool_of
from ullage.scheduling.model.lifecycle_step import LifecycleStep, evict
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.plan import Action, EvictPod
from ullage.scheduling.model.view import Member, PendingEviction, View
from ullage.scheduling.times import DRAIN_MARGIN_S


def notice_evictions(view: View, notices: Mapping[str, Interruption]) -> dict[str, PendingEviction]:
    """Who has to leave, by uid of the pod."""
    evictions: dict[str, PendingEviction] = {}
    for name in sorted(notices):
        record = view.snapshot.gpu_nodes.get(name)
        if record is None:
            continue
        text = f"{name}: {words(notices[name])}"
        for wanted in record.desired:
            pod = view.snapshot.pods.get(wanted.key.pod_uid)
            if pod is not None and pod.stage is not PodStage.SUCCEEDED and not _stays(view, pod):
                device = DeviceRef(name, wanted.gpu)
                eviction = PendingEviction(Reason.SPOT_INTERRUPTED, text, device)
                evictions.setdefault(pod.uid, eviction)
    return evictions


def _stays(view: View, pod: PodRecord) -> bool:
    """Whether its owner wants it to run until the machine is gone."""
    owner = view.snapshot.workloads.get(pod.owner.uid)
    bounds = owner.elasticity if owner is not None else None
    return bounds is not None and bounds.on_notice is OnNotice.IGNORE


def interruption_of(view: View, members: Sequence[Member]) -> PendingEviction | None:
    """Why a gang must leave because one of its members is on a node that goes."""
    if not view.evictions:
        return None
    for member in members:
        eviction = view.evictions.get(member.pod.uid)
        if eviction is not None and eviction.reason is Reason.SPOT_INTERRUPTED and not member.gated:
            return eviction
    return None


def at_once(
    view: View, job: WorkloadRecord, members: Sequence[Member], life: LifecycleStep
) -> LifecycleStep:
    """The life of an interrupted gang, whose members are asked to checkpoint in this very cycle.

    Nothing is lost if this process dies before the status is written: a member that is being
    deleted ends the start just the same, and it is not counted either.
    """
    if life.phase is not Phase.RESTARTING or life.reason is not Reason.SPOT_INTERRUPTED:
        return life
    steps = tuple(
        in_time(view, evict(job, member, view.settings.epoch, life.reason, life.message), member)
        for member in members
        if member.live and not member.gated and not member.pod.deleting
    )
    return replace(life, steps=(*life.steps, *steps))


def in_time(view: View, step: EvictPod, member: Member) -> EvictPod:
    """The same eviction with less grace, where the pod's own would outlive its machine."""
    node = member.pod.node or (member.held[0].node if member.held else "")
    left = left_s(view.snapshot, node, view.now)
    if left is None:
        left = _usual_s(view.snapshot, node)
    if left is None:
        return step
    most = max(1, floor(left - DRAIN_MARGIN_S))
    return replace(step, grace_s=most) if most < member.pod.grace_s else step


def _usual_s(snapshot: Snapshot, name: str) -> float | None:
    """The warning that a node's pool usually gives, where its notice does not say when."""
    node = snapshot.nodes.get(name)
    if node is None or termination(snapshot, name) is None:
        return None
    pool = pool_of(node.labels, snapshot.pools)
    return pool.notice_s if pool is not None else None


def least_loss_order(steps: Sequence[Action], snapshot: Snapshot) -> tuple[Action, ...]:
    """The steps with the evictions from nodes that go in the order of what each would lose."""
    drained = [step for step in steps if isinstance(step, EvictPod) and _is_drain(step)]
    if len(drained) < 2:
        return tuple(steps)
    drained.sort(key=lambda eviction: _loss_rank(snapshot.workloads.get(eviction.owner.uid)))
    following = iter(drained)
    return tuple(
        next(following) if isinstance(step, EvictPod) and _is_drain(step) else step
        for step in steps
    )


def _is_drain(step: EvictPod) -> bool:
    return step.reason is Reason.SPOT_INTERRUPTED


def _loss_rank(owner: WorkloadRecord | None) -> int:
    """0 = saves its work, 1 = has an objective, 2 = best effort."""
    if owner is None:
        return 2
    if owner.is_gang and owner.checkpoint:
        return 0
    objectives = (owner.slo, owner.max_slowdown, owner.min_throughput)
    return 1 if any(objective is not None for objective in objectives) else 2
