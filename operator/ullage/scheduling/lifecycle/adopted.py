# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The life of adopted pods: they are placed and let go; others create, restart and end them.

A pod is never deleted, and evicted only where that loses nothing: its controller creates another
one, or it says itself that it saves its work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ullage.api.contract import Reason
from ullage.cluster.records.snapshot import PodStage, WorkloadRecord
from ullage.scheduling.inventory import timeouts
from ullage.scheduling.inventory.inventory import Inventory
from ullage.scheduling.inventory.timeouts import Trouble
from ullage.scheduling.lifecycle.drain import in_time
from ullage.scheduling.lifecycle.gang import advance
from ullage.scheduling.lifecycle.training import running
from ullage.scheduling.model.lifecycle_step import LifecycleStep, Passed, earliest, evict
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.plan import Action
from ullage.scheduling.model.view import Member, View

_LEFT_ALONE: Final = (
    "it has no controller that would create it again, so it is left alone: create it again"
    " yourself, or annotate such pods with ullage.dev/checkpoint: true where they save their work"
)


def adopted_step(view: View, inventory: Inventory, unit: WorkloadRecord) -> LifecycleStep:
    """What adopted pods need next: one pod, or a gang of them."""
    everyone = view.members_of(unit)
    members = [member for member in everyone if member.live and not member.pod.deleting]
    if not members:
        return LifecycleStep(phase=Phase.PENDING, silent=True)
    if not unit.shape.device_container:
        return LifecycleStep(
            phase=Phase.PENDING,
            reason=Reason.INVALID_OBJECT,
            message=unit.invalid,
            release=tuple(member for member in members if member.gated and member.held),
        )
    let_go = [member for member in members if not member.gated]
    troubles = [(one, found) for one in let_go if (found := timeouts.trouble(view, one))]
    if troubles:
        return _cured(view, unit, troubles)
    gated = sorted((one for one in members if one.gated), key=_by_place)
    if not gated:
        return _under_way(view, let_go)
    ended_well = sum(member.pod.stage is PodStage.SUCCEEDED for member in everyone)
    wanted = unit.replicas - len(let_go) - ended_well
    if len(gated) < wanted:
        missing = wanted - len(gated)
        return LifecycleStep(
            phase=Phase.PENDING,
            reason=Reason.PODS_MISSING,
            message=f"{missing} of {unit.replicas} pods missing; the gang starts when all exist",
            release=tuple(member for member in gated if member.held),
        )
    if wanted <= 0:
        return _under_way(view, let_go)
    return advance(view, inventory, unit, [*let_go, *gated[:wanted]])


def _by_place(member: Member) -> tuple[bool, float, str]:
    """Those that have a place come first, then the oldest: a pod too many waits."""
    return not member.held, member.pod.created, member.pod.name


def _under_way(view: View, members: Sequence[Member]) -> LifecycleStep:
    if all(member.runs for member in members):
        return running(0)
    return LifecycleStep(
        phase=Phase.STARTING,
        wake_at=earliest(*(timeouts.next_look(view, member) for member in members)),
    )


def _cured(
    view: View, unit: WorkloadRecord, troubles: Sequence[tuple[Member, Trouble]]
) -> LifecycleStep:
    """Pods that will not get further, or must leave, are evicted where that loses nothing."""
    epoch = view.settings.epoch
    steps: list[Action] = []
    left = []
    for member, trouble in troubles:
        if member.pod.controlled or unit.checkpoint:
            step = evict(unit, member, epoch, trouble.reason, trouble.message)
            steps.append(in_time(view, step, member))
        else:
            left.append(trouble)
    trouble = left[0] if left else troubles[0][1]
    message = f"{trouble.message}; {_LEFT_ALONE}" if left else trouble.message
    return LifecycleStep(
        phase=Phase.STARTING,
        reason=trouble.reason,
        message=message,
        steps=tuple(steps),
        passed_over=Passed(reason=trouble.reason, device=trouble.device, message=trouble.message),
    )
