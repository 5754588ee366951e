# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What users read: phase, conditions, placement and the decision with its reason.

A status is the record of before, to the very object, as long as nothing in it changed. Nothing is
decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ullage.api.reasons import ConditionType, Reason, Standing, standing_of
from ullage.api.slices import SlicePhase
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.metrics import EpochValue
from ullage.cluster.records.snapshot import PodStage, WorkloadRecord
from ullage.cluster.records.status import (
    AllocationRecord,
    DecisionRecord,
    MadeRoom,
    Placement,
    Progress,
    ScalingRecord,
    SchedulingState,
    SizeRecord,
    WorkloadStatus,
)
from ullage.scheduling.capacity.capacity_choice import PoolChoice
from ullage.scheduling.capacity.status import deadline_said, spend_of
from ullage.scheduling.lifecycle.node_losses import noted
from ullage.scheduling.lifecycle.scaling_record import scaling_said
from ullage.scheduling.lifecycle.termination import counted_steps
from ullage.scheduling.model.conditions import Said, merged
from ullage.scheduling.model.lifecycle_step import LifecycleStep
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.selectors import selector_text
from ullage.scheduling.model.view import Member, View
from ullage.scheduling.placement import predicted_figures
from ullage.scheduling.placement.predicted_figures import Part, Predictions

ENFORCED: Final = (SlicePhase.ATTACHED, SlicePhase.VIOLATING, SlicePhase.FROZEN)
_ON_THE_WAY: Final = (Phase.PENDING, Phase.RESERVING, Phase.STARTING, Phase.RUNNING)
_BAD: Final = (ConditionType.DEGRADED, ConditionType.INVALID, ConditionType.SLO_MET)
"""Conditions that are news whatever they say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """All that a status is made of, beside the record itself."""

    workload: WorkloadRecord
    life: LifecycleStep
    phase: Phase
    members: Sequence[Member]
    parts: Sequence[Part]
    admitted: bool
    reason: Reason
    """Why it is not further, or that it is placed."""
    message: str
    decision: DecisionRecord | None
    scheduling: SchedulingState
    """What the next cycles need to know of this one."""
    allocation: AllocationRecord | None = None
    """What it is promised and had, where jobs take turns."""
    degraded: tuple[Reason, str] | None = None
    endpoint: str = ""
    pool_choice: PoolChoice | None = None
    """What was decided of its pools."""
    size: tuple[int, SizeRecord | None] = (0, None)
    """Members of an elastic gang, and why so many."""
    made_room: MadeRoom | None = None
    """The last time that it made room for another."""
    scaling: ScalingRecord | None = None
    """How many replicas a service should have, where the operator scales it."""
    verdict: Said | None = None
    """Whether it has the devices that are recommended to it."""
    router: Said | None = None
    """Whether its router takes requests, where it has one."""


def tell(view: View, told: Told, predictions: Predictions) -> WorkloadStatus:
    """The status of a workload."""
    before = told.workload.status
    changes = _common(view, told, predictions)
    if told.workload.is_gang:
        changes |= _training(view, told)
    else:
        changes |= _serving(told)
    changed = {name: value for name, value in changes.items() if getattr(before, name) != value}
    return replace(before, **changed) if changed else before  # type: ignore[arg-type]


def is_passing(before: WorkloadStatus, after: WorkloadStatus) -> bool:
    """Whether a gang's status only says that things move: the next is expected soon.

    Anything that users must act on or wait for, and all that a restart must remember, is not.
    """
    unmet = [condition for condition in after.conditions if condition.status != "True"]
    return (
        after.phase in _ON_THE_WAY
        and before.phase in ("", *_ON_THE_WAY)
        and _remembered(before) == _remembered(after)
        and bool(unmet)
        and all(Standing.MOVING in standing_of(condition.reason) for condition in unmet)
        and not any(condition.type in _BAD for condition in after.conditions)
        and not any(condition.type in _BAD for condition in before.conditions)
    )


def _remembered(status: WorkloadStatus) -> tuple[object, ...]:
    """What the next leader must know of a job on its way."""
    decision = None if status.spend is None else status.spend.decision
    pools = decision and (decision.committed, decision.mode, decision.chosen.pools)
    return (
        status.restarts,
        status.retry_at,
        status.scheduling,
        status.made_room,
        status.last_failure,
        pools,
    )


def _common(view: View, told: Told, predictions: Predictions) -> dict[str, object]:
    workload, before = told.workload, told.workload.status
    ended = told.phase.terminal
    return {
        "observed_generation": workload.generation,
        "phase": told.phase.value,
        "placement": _placement(before.placement, told.parts),
        "decision": told.decision,
        "scheduling": told.scheduling,
        "sharing": (
            before.sharing
            if ended
            else predicted_figures.sharing(workload, told.parts, predictions)
        ),
        "gpu": None if ended else predicted_figures.lane_status(before.gpu, told.parts),
        "template_hash": next(
            (member.pod.template_hash for member in told.members if member.pod.template_hash),
            before.template_hash,
        ),
        "conditions": merged(
            before.conditions, _said(told), whole_second(view.now), workload.generation
        ),
    }


def _training(view: View, told: Told) -> dict[str, object]:
    workload, before, life = told.workload, told.workload.status, told.life
    now = whole_second(view.now)
    running = told.phase is Phase.RUNNING
    return {
        "restarts": life.restarts,
        "retry_at": whole_second(life.retry_at),
        "last_failure": noted(view, workload, life.restarts, told.members),
        # where it ran stays readable after the end
        "nodes": (
            before.nodes
            if told.phase.terminal
            else ",".join(sorted({part.node for part in told.parts}))
        ),
        "gpus": len(told.parts),
        "allocation": told.allocation,
        "spend": spend_of(workload, told.pool_choice),
        "made_room": told.made_room,
        "replicas": told.size[0],
        "size": told.size[1],
        "start_time": now if running and not before.start_time else before.start_time,
        "completion_time": (before.completion_time or now) if told.phase.terminal else 0.0,
        "metrics": before.metrics or _reported(told),
        "progress": _progress(view, told),
    }


def _progress(view: View, told: Told) -> Progress | None:
    """What was counted; all that was declared, where the program itself said that it is done."""
    workload, before = told.workload, told.workload.status
    if told.phase is not Phase.SUCCEEDED:
        return predicted_figures.progress(view, workload, told.parts)
    if before.phase == Phase.SUCCEEDED:
        return before.progress
    stopped = any(member.pod.stage is PodStage.STOPPED for member in told.members)
    if stopped and counted_steps(view, workload, told.members) < workload.work_steps:
        return before.progress
    return predicted_figures.finished(workload)


def _reported(told: Told) -> tuple[EpochValue, ...]:
    """What the program of a trial reported, once it has ended well."""
    if told.phase is not Phase.SUCCEEDED:
        return ()
    return next((member.pod.report for member in told.members if member.pod.report), ())


def _serving(told: Told) -> dict[str, object]:
    staying = [member for member in told.members if member.live and not member.pod.deleting]
    return {
        "replicas": len(staying),
        "ready_replicas": sum(member.pod.ready for member in staying),
        "selector": selector_text(told.workload.ref),
        "endpoint": told.endpoint,
        "scaling": told.scaling,
    }


def same_placement(before: tuple[Placement, ...], parts: Sequence[Part]) -> bool:
    """Whether the summary says already where the slices are."""
    if len(before) != len(parts):
        return False
    if len(parts) == 1:
        return _says(before[0], parts[0])
    return all(_says(one, part) for one, part in zip(before, parts, strict=True))


def _placement(before: tuple[Placement, ...], parts: Sequence[Part]) -> tuple[Placement, ...]:
    if same_placement(before, parts):
        return before
    return tuple(
        Placement(
            key=part.slice.key,
            pod=part.pod,
            node=part.node,
            gpu=part.slice.gpu,
            percent=part.slice.percent,
            memory_mib=part.slice.memory_mib,
            epoch=part.slice.epoch,
        )
        for part in parts
    )


def _says(placement: Placement, part: Part) -> bool:
    wanted = part.slice
    return (
        placement.key == wanted.key
        and placement.node == part.node
        and placement.gpu == wanted.gpu
        and placement.percent == wanted.percent
        and placement.memory_mib == wanted.memory_mib
        and placement.epoch == wanted.epoch
    )


def _said(told: Told) -> list[Said]:
    workload = told.workload
    if told.phase.terminal:
        said = _ended(told)
    elif not told.admitted:
        said = [
            Said(
                ConditionType.ADMITTED,
                False,
                told.reason,
                told.message,
                follows=told.reason is Reason.WAITING_FOR_GATE,
            ),
            Said(ConditionType.READY, False, told.reason),
        ]
        if not workload.is_gang and told.phase is Phase.READY:
            said[1] = Said(ConditionType.READY, True, Reason.RUNNING)
    else:
        said = _admitted(told)
    said.extend(deadline_said(told.pool_choice))
    said.extend(scaling_said(told.scaling))
    if told.router is not None:
        said.append(told.router)
    if told.degraded is not None:
        said.append(Said(ConditionType.DEGRADED, True, *told.degraded))
    if workload.invalid:
        said.append(Said(ConditionType.INVALID, True, Reason.INVALID_OBJECT, workload.invalid))
    return said


def _ended(told: Told) -> list[Said]:
    reason, message = told.reason, told.message
    before = told.workload.status.condition(ConditionType.FINISHED)
    if before is not None:
        reason, message = Reason(before.reason), before.message
    return [
        Said(ConditionType.ADMITTED, False, reason),
        Said(ConditionType.READY, False, reason),
        Said(ConditionType.FINISHED, True, reason, message),
        Said(
            ConditionType.FAILED if told.phase is Phase.FAILED else ConditionType.COMPLETE,
            True,
            reason,
            message,
        ),
    ]


def _admitted(told: Told) -> list[Said]:
    """Conditions of a workload whose members all hold slices."""
    live = [member for member in told.members if member.live and not member.pod.deleting]
    bound = all(member.pod.stage in (PodStage.BOUND, PodStage.RUNNING) for member in live)
    started = all(part.seen is not None and part.seen.phase.started for part in told.parts)
    waits = Reason.RESERVING if any(member.gated for member in live) else Reason.STARTING
    placed = bound and started
    ready = told.phase in (Phase.RUNNING, Phase.READY)
    said = [
        Said(ConditionType.ADMITTED, True, Reason.PLACED, told.message, told.workload.in_place),
        Said(ConditionType.PLACED, placed, Reason.PLACED if placed else waits, told.life.message),
        Said(ConditionType.READY, ready, Reason.RUNNING if ready else waits),
        _enforced(told, waits),
    ]
    if told.verdict is not None:
        said.append(told.verdict)
    judged = predicted_figures.objective_met(told.workload, told.parts)
    if judged is not None:
        met, text = judged
        reason = predicted_figures.slo_reason(told.parts, met)
        said.append(Said(ConditionType.SLO_MET, met, reason, text))
    return said


def _enforced(told: Told, waits: Reason) -> Said:
    loose = next(
        (part for part in told.parts if part.seen is None or part.seen.phase not in ENFORCED), None
    )
    if loose is None:
        return Said(ConditionType.ENFORCED, True, Reason.ENFORCED)
    if loose.seen is not None and loose.seen.phase is SlicePhase.FAILED:
        return Said(ConditionType.ENFORCED, False, Reason.UNENFORCED, loose.seen.message)
    return Said(ConditionType.ENFORCED, False, waits)
