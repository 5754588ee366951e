# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The status of a workload: phase, conditions, placement, and the decision with its reason.

The previous object is kept while nothing in it changes. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ullage.api.reasons import ConditionType, Reason, Standing, standing_of
from ullage.api.slices import SlicePhase
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.metrics import EpochValue
from ullage.cluster.records.pod import PodStage
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
from ullage.cluster.records.workload import WorkloadRecord
from ullage.cluster.values.slots import with_fields
from ullage.scheduling.capacity.capacity_choice import PoolChoice
from ullage.scheduling.capacity.status import deadline_conditions, spend_of
from ullage.scheduling.lifecycle.node_losses import failure_record
from ullage.scheduling.lifecycle.scaling_record import scaling_conditions
from ullage.scheduling.lifecycle.termination import counted_steps
from ullage.scheduling.model.conditions import DesiredCondition, merged
from ullage.scheduling.model.lifecycle_step import LifecycleStep
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.selectors import selector_text
from ullage.scheduling.model.view import Member, View
from ullage.scheduling.placement import predicted_figures
from ullage.scheduling.placement.predicted_figures import Part, Predictions

ENFORCED: Final = (SlicePhase.ATTACHED, SlicePhase.VIOLATING, SlicePhase.FROZEN)
_ON_THE_WAY: Final = (Phase.PENDING, Phase.RESERVING, Phase.STARTING, Phase.RUNNING)
_BAD: Final = (ConditionType.DEGRADED, ConditionType.INVALID, ConditionType.SLO_MET)
"""Conditions that always cause a write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusInputs:
    """Inputs of a status."""

    workload: WorkloadRecord
    life: LifecycleStep
    phase: Phase
    members: Sequence[Member]
    parts: Sequence[Part]
    admitted: bool
    reason: Reason
    """Reason of its wait, or that it is placed."""
    message: str
    decision: DecisionRecord | None
    scheduling: SchedulingState
    """State that later cycles need."""
    allocation: AllocationRecord | None = None
    """Its account of turns, under rounds."""
    degraded: tuple[Reason, str] | None = None
    endpoint: str = ""
    pool_choice: PoolChoice | None = None
    """The choice of its pools."""
    size: tuple[int, SizeRecord | None] = (0, None)
    """Number of members of an elastic gang, and its record."""
    made_room: MadeRoom | None = None
    """The last time that it was downsized for another workload."""
    scaling: ScalingRecord | None = None
    """Record of a service that the operator scales."""
    verdict: DesiredCondition | None = None
    """Condition that it has the recommended devices."""
    straggler: DesiredCondition | None = None
    """Condition on its slow rank, if it runs and has one."""
    router: DesiredCondition | None = None
    """Condition of its router, if it has one."""


def build_status(view: View, inputs: StatusInputs, predictions: Predictions) -> WorkloadStatus:
    """The status of a workload."""
    before = inputs.workload.status
    changes = _common(view, inputs, predictions)
    if inputs.workload.is_gang:
        changes |= _training(view, inputs)
    else:
        changes |= _serving(inputs)
    changed = {
        name: value
        for name, value in changes.items()
        if (held := getattr(before, name)) is not value and held != value
    }
    return with_fields(before, changed) if changed else before


def is_passing(before: WorkloadStatus, after: WorkloadStatus) -> bool:
    """True when a gang's status is transitional and the next one is expected soon.

    A status that users must act on, or that a restart must remember, is not transitional.
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
    """Fields of a starting job that the next leader needs."""
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


def _common(view: View, inputs: StatusInputs, predictions: Predictions) -> dict[str, object]:
    workload, before = inputs.workload, inputs.workload.status
    ended = inputs.phase.terminal
    return {
        "observed_generation": workload.generation,
        "phase": inputs.phase.value,
        "placement": _placement(before.placement, inputs.parts),
        "decision": inputs.decision,
        "scheduling": inputs.scheduling,
        "sharing": (
            before.sharing
            if ended
            else predicted_figures.sharing(workload, inputs.parts, predictions)
        ),
        "gpu": None if ended else predicted_figures.lane_status(before.gpu, inputs.parts),
        "template_hash": next(
            (member.pod.template_hash for member in inputs.members if member.pod.template_hash),
            before.template_hash,
        ),
        "conditions": merged(
            before.conditions, _conditions(inputs), whole_second(view.now), workload.generation
        ),
    }


def _training(view: View, inputs: StatusInputs) -> dict[str, object]:
    workload, before, life = inputs.workload, inputs.workload.status, inputs.life
    now = whole_second(view.now)
    running = inputs.phase is Phase.RUNNING
    report: tuple[EpochValue, ...] = ()
    if inputs.phase is Phase.SUCCEEDED:
        report = next((member.pod.report for member in inputs.members if member.pod.report), ())
    return {
        "restarts": life.restarts,
        "retry_at": whole_second(life.retry_at),
        "last_failure": failure_record(view, workload, life.restarts, inputs.members),
        # the nodes stay readable after the end
        "nodes": (
            before.nodes
            if inputs.phase.terminal
            else ",".join(sorted({part.node for part in inputs.parts}))
        ),
        "gpus": len(inputs.parts),
        "allocation": inputs.allocation,
        "spend": spend_of(workload, inputs.pool_choice),
        "made_room": inputs.made_room,
        "replicas": inputs.size[0],
        "size": inputs.size[1],
        "start_time": now if running and not before.start_time else before.start_time,
        "completion_time": (before.completion_time or now) if inputs.phase.terminal else 0.0,
        "metrics": before.metrics or report,
        "progress": _progress(view, inputs),
    }


def _progress(view: View, inputs: StatusInputs) -> Progress | None:
    """Counted steps; all declared steps once the program ended by itself."""
    workload, before = inputs.workload, inputs.workload.status
    if inputs.phase is not Phase.SUCCEEDED:
        return predicted_figures.progress(view, workload, inputs.parts)
    if before.phase == Phase.SUCCEEDED:
        return before.progress
    stopped = any(member.pod.stage is PodStage.STOPPED for member in inputs.members)
    if stopped and counted_steps(view, workload, inputs.members) < workload.work_steps:
        return before.progress
    return predicted_figures.finished(workload)


def _serving(inputs: StatusInputs) -> dict[str, object]:
    staying = [member for member in inputs.members if member.live and not member.pod.deleting]
    return {
        "replicas": len(staying),
        "ready_replicas": sum(member.pod.ready for member in staying),
        "selector": selector_text(inputs.workload.ref),
        "endpoint": inputs.endpoint,
        "scaling": inputs.scaling,
    }


def same_placement(before: tuple[Placement, ...], parts: Sequence[Part]) -> bool:
    """True when the placement already has these slices."""
    if len(before) != len(parts):
        return False
    if len(parts) == 1:
        return _shows(before[0], parts[0])
    return all(_shows(shown, part) for shown, part in zip(before, parts, strict=True))


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


def _shows(placement: Placement, part: Part) -> bool:
    wanted = part.slice
    return (
        placement.key == wanted.key
        and placement.node == part.node
        and placement.gpu == wanted.gpu
        and placement.percent == wanted.percent
        and placement.memory_mib == wanted.memory_mib
        and placement.epoch == wanted.epoch
    )


def _conditions(inputs: StatusInputs) -> list[DesiredCondition]:
    workload = inputs.workload
    if inputs.phase.terminal:
        conditions = _ended(inputs)
    elif not inputs.admitted:
        conditions = [
            DesiredCondition(
                ConditionType.ADMITTED,
                False,
                inputs.reason,
                inputs.message,
                follows=inputs.reason is Reason.WAITING_FOR_GATE,
            ),
            DesiredCondition(ConditionType.READY, False, inputs.reason),
        ]
        if not workload.is_gang and inputs.phase is Phase.READY:
            conditions[1] = DesiredCondition(ConditionType.READY, True, Reason.RUNNING)
    else:
        conditions = _admitted(inputs)
    if inputs.straggler is not None and inputs.admitted and inputs.phase is Phase.RUNNING:
        conditions.append(inputs.straggler)
    conditions.extend(deadline_conditions(inputs.pool_choice))
    conditions.extend(scaling_conditions(inputs.scaling))
    if inputs.router is not None:
        conditions.append(inputs.router)
    if inputs.degraded is not None:
        conditions.append(DesiredCondition(ConditionType.DEGRADED, True, *inputs.degraded))
    if workload.invalid:
        conditions.append(
            DesiredCondition(ConditionType.INVALID, True, Reason.INVALID_OBJECT, workload.invalid)
        )
    return conditions


def _ended(inputs: StatusInputs) -> list[DesiredCondition]:
    reason, message = inputs.reason, inputs.message
    before = inputs.workload.status.condition(ConditionType.FINISHED)
    if before is not None:
        reason, message = Reason(before.reason), before.message
    return [
        DesiredCondition(ConditionType.ADMITTED, False, reason),
        DesiredCondition(ConditionType.READY, False, reason),
        DesiredCondition(ConditionType.FINISHED, True, reason, message),
        DesiredCondition(
            ConditionType.FAILED if inputs.phase is Phase.FAILED else ConditionType.COMPLETE,
            True,
            reason,
            message,
        ),
    ]


def _admitted(inputs: StatusInputs) -> list[DesiredCondition]:
    """Conditions of a workload whose members all have slices."""
    live = [member for member in inputs.members if member.live and not member.pod.deleting]
    bound = all(member.pod.stage in (PodStage.BOUND, PodStage.RUNNING) for member in live)
    started = all(part.seen is not None and part.seen.phase.started for part in inputs.parts)
    waits = Reason.RESERVING if any(member.gated for member in live) else Reason.STARTING
    placed = bound and started
    ready = inputs.phase in (Phase.RUNNING, Phase.READY)
    conditions = [
        DesiredCondition(
            ConditionType.ADMITTED, True, Reason.PLACED, inputs.message, inputs.workload.in_place
        ),
        DesiredCondition(
            ConditionType.PLACED, placed, Reason.PLACED if placed else waits, inputs.life.message
        ),
        DesiredCondition(ConditionType.READY, ready, Reason.RUNNING if ready else waits),
        _enforced(inputs, waits),
    ]
    if inputs.verdict is not None:
        conditions.append(inputs.verdict)
    judged = predicted_figures.objective_met(inputs.workload, inputs.parts)
    if judged is not None:
        met, text = judged
        reason = predicted_figures.slo_reason(inputs.parts, met)
        conditions.append(DesiredCondition(ConditionType.SLO_MET, met, reason, text))
    return conditions


def _enforced(inputs: StatusInputs, waits: Reason) -> DesiredCondition:
    loose = next(
        (part for part in inputs.parts if part.seen is None or part.seen.phase not in ENFORCED),
        None,
    )
    if loose is None:
        return DesiredCondition(ConditionType.ENFORCED, True, Reason.ENFORCED)
    if loose.seen is not None and loose.seen.phase is SlicePhase.FAILED:
        return DesiredCondition(
            ConditionType.ENFORCED, False, Reason.UNENFORCED, loose.seen.message
        )
    return DesiredCondition(ConditionType.ENFORCED, False, waits)
