# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Evictions from a node under notice: their order, their time and their grace.

Gangs leave at once, because a checkpoint takes time and a lost member stops the others anyway.
Replicas leave when their replacements serve, at the latest just before the end. Best-effort work
leaves last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import floor

from ullage.api.interruptions import Interruption
from ullage.api.reasons import Reason
from ullage.api.words import OnNotice
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.workload import WorkloadRecord
from ullage.cluster.values.device_ref import DeviceRef
from ullage.scheduling.inventory.interruptions import left_s, termination, words
from ullage.scheduling.inventory.pool_membership import pool_of
from ullage.scheduling.model.lifecycle_step import LifecycleStep, evict
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.plan import Action, EvictPod
from ullage.scheduling.model.view import Member, PendingEviction, View
from ullage.scheduling.times import DRAIN_MARGIN_S


def notice_evictions(view: View, notices: Mapping[str, Interruption]) -> dict[str, PendingEviction]:
    """Evictions from nodes under notice, by uid of the pod."""
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
    """True when its owner wants it to run until the machine terminates."""
    owner = view.snapshot.workloads.get(pod.owner.uid)
    bounds = owner.elasticity if owner is not None else None
    return bounds is not None and bounds.on_notice is OnNotice.IGNORE


def interruption_of(view: View, members: Sequence[Member]) -> PendingEviction | None:
    """The eviction of a gang with a member on a node under notice; ``None`` = there is none."""
    if not view.evictions:
        return None
    for member in members:
        eviction = view.evictions.get(member.pod.uid)
        if eviction is not None and eviction.reason is Reason.SPOT_INTERRUPTED and not member.gated:
            return eviction
    return None


def with_evictions(
    view: View, job: WorkloadRecord, members: Sequence[Member], life: LifecycleStep
) -> LifecycleStep:
    """The step of an interrupted gang, with evictions in this cycle so that members checkpoint.

    Nothing is lost if this process dies before the status is written: a member that is being
    deleted ends the start as well, and does not count as a failure either.
    """
    if life.phase is not Phase.RESTARTING or life.reason is not Reason.SPOT_INTERRUPTED:
        return life
    steps = tuple(
        within_notice(
            view, evict(job, member, view.settings.epoch, life.reason, life.message), member
        )
        for member in members
        if member.live and not member.gated and not member.pod.deleting
    )
    return replace(life, steps=(*life.steps, *steps))


def within_notice(view: View, step: EvictPod, member: Member) -> EvictPod:
    """The eviction with a shorter grace period where the pod's own would outlive its machine."""
    node = member.pod.node or (member.held[0].node if member.held else "")
    remaining_s = left_s(view.snapshot, node, view.now)
    if remaining_s is None:
        remaining_s = _usual_s(view.snapshot, node)
    if remaining_s is None:
        return step
    most = max(1, floor(remaining_s - DRAIN_MARGIN_S))
    return replace(step, grace_s=most) if most < member.pod.grace_s else step


def _usual_s(snapshot: Snapshot, name: str) -> float | None:
    """Notice period of a node's pool, seconds, for a termination without a time."""
    node = snapshot.nodes.get(name)
    if node is None or termination(snapshot, name) is None:
        return None
    pool = pool_of(node.labels, snapshot.pools)
    return pool.notice_s if pool is not None else None


def least_loss_order(steps: Sequence[Action], snapshot: Snapshot) -> tuple[Action, ...]:
    """The steps with their drain evictions ordered: work that can save its state goes first."""
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
