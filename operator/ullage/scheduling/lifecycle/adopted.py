# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The lifecycle of adopted pods: placed and ungated by the operator, created by others.

A pod is never deleted. It is evicted only when that loses nothing: its controller creates another,
or its annotation says that it saves its work. A pod without a controller that kube-scheduler does
not bind keeps no slice; it gets one on its node once it is bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ullage.api.reasons import Reason
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.workload import WorkloadRecord, ended_in_wave
from ullage.scheduling.inventory import timeouts
from ullage.scheduling.inventory.inventory import Inventory
from ullage.scheduling.inventory.timeouts import Trouble
from ullage.scheduling.lifecycle.drain import within_notice
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
_UNTIL_PULLED: Final = (
    "its share is given back, and it gets one on its node again once kubelet has the image; it has"
    " no controller that would create it again: correct the image or the pull secret, or create it"
    " again yourself"
)


def adopted_step(view: View, inventory: Inventory, unit: WorkloadRecord) -> LifecycleStep:
    """The next step of an adopted pod or gang."""
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
    late = [member for member in let_go if _was_bound_late(unit, member)]
    if late:
        return LifecycleStep(phase=Phase.STARTING, waiting=tuple(late))
    troubles = [
        (member, trouble) for member in let_go if (trouble := timeouts.trouble(view, member))
    ]
    if troubles:
        return _cured(view, unit, troubles)
    gated = [member for member in members if member.gated]
    # members with a place first, then the oldest: a surplus pod waits
    gated.sort(key=lambda member: (not member.held, member.pod.created, member.pod.name))
    if not gated:
        return _under_way(view, let_go)
    wanted = unit.replicas - len(let_go) - ended_well(unit, everyone)
    if len(gated) < wanted:
        missing = wanted - len(gated)
        return LifecycleStep(
            phase=Phase.PENDING,
            reason=Reason.PODS_MISSING,
            message=(
                f"{missing} of {unit.replicas} pods missing; the gang starts when all exist"
                " (pods of another run or revision do not count)"
            ),
            release=tuple(member for member in gated if member.held),
        )
    if wanted <= 0:
        return _under_way(view, let_go)
    return advance(view, inventory, unit, [*let_go, *gated[:wanted]])


def _was_bound_late(unit: WorkloadRecord, member: Member) -> bool:
    """True when a pod without a controller was bound after it had lost its slice.

    It needs a slice on the node to which it is bound.
    """
    pod = member.pod
    alone = not (pod.controlled or unit.checkpoint)
    waits = pod.stage is PodStage.BOUND and not member.held
    return alone and waits and not timeouts.lacks_image(pod)


def _gives_back(member: Member, trouble: Trouble) -> bool:
    """True when a pod that is left alone cannot use its slices for now.

    kubelet requests them when it has the image, and the node refuses a start without any.
    """
    match trouble.reason:
        case Reason.STUCK_UNSCHEDULED:
            return True
        case Reason.IMAGE_PULL_FAILED:
            return all(held.acknowledged and not held.started for held in member.held)
        case _:
            return False


def ended_well(unit: WorkloadRecord, members: Sequence[Member]) -> int:
    """Number of members that succeeded in this run of the gang.

    Args:
        unit: Adopted pods.
        members: All of its pods.
    """
    ended = [member.pod.controller for member in members if member.pod.stage is PodStage.SUCCEEDED]
    live = {member.pod.controller for member in members if member.live}
    return ended_in_wave(unit.replicas, ended, live)


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
    """Evict pods that are stuck or must leave, where that loses nothing."""
    epoch = view.settings.epoch
    steps: list[Action] = []
    lasting: list[tuple[Trouble, str]] = []
    release = []
    for member, trouble in troubles:
        if member.pod.controlled or unit.checkpoint:
            step = evict(unit, member, epoch, trouble.reason, trouble.message)
            steps.append(within_notice(view, step, member))
        else:
            given_back = _gives_back(member, trouble)
            if given_back and member.held:
                release.append(member)
            pulls = given_back and trouble.reason is Reason.IMAGE_PULL_FAILED
            lasting.append((trouble, _UNTIL_PULLED if pulls else _LEFT_ALONE))
    trouble, advice = lasting[0] if lasting else (troubles[0][1], "")
    message = f"{trouble.message}; {advice}" if lasting else trouble.message
    return LifecycleStep(
        phase=Phase.STARTING,
        reason=trouble.reason,
        message=message,
        steps=tuple(steps),
        release=tuple(release),
        passed_over=Passed(reason=trouble.reason, device=trouble.device, message=trouble.message),
    )
