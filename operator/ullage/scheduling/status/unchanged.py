# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Shortcuts for workloads whose status does not change.

Most workloads of a large cluster run, or wait for the same reason as in the last cycle. In doubt
these checks return ``False``, and the status is computed in full with the same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ullage.api.reasons import ConditionType, Reason
from ullage.cluster.records.status import Condition
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.model.lifecycle_step import LifecycleStep
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.view import View
from ullage.scheduling.placement import predicted_figures
from ullage.scheduling.placement.attempt import Refused
from ullage.scheduling.placement.predicted_figures import Part, Predictions
from ullage.scheduling.status.straggler_status import shows_no_straggler
from ullage.scheduling.status.workload_status import ENFORCED, same_placement

_WAITING: Final = (ConditionType.ADMITTED, ConditionType.READY)
_RUNNING: Final = (
    ConditionType.ADMITTED,
    ConditionType.PLACED,
    ConditionType.READY,
    ConditionType.ENFORCED,
)


def still_runs(
    view: View, workload: WorkloadRecord, parts: Sequence[Part], predictions: Predictions
) -> bool:
    """True when a running job is shown as running, in the same place and with the same figures."""
    status = workload.status
    decision = status.decision
    if (
        status.phase != Phase.RUNNING
        or status.retry_at
        or decision is None
        or decision.reason is not Reason.PLACED
        or not same_placement(status.placement, parts)
        or not _good(workload, status.conditions)
        or not shows_no_straggler(view, workload)
    ):
        return False
    if any(part.seen is None or part.seen.phase not in ENFORCED for part in parts):
        return False
    return (
        predicted_figures.sharing(workload, parts, predictions) is status.sharing
        and predicted_figures.lane_status(status.gpu, parts) is status.gpu
        and predicted_figures.progress(view, workload, parts) is status.progress
        and _objective_shown(workload, parts)
    )


def still_waits(workload: WorkloadRecord, life: LifecycleStep, refused: Refused) -> bool:
    """True when a refused workload is shown as refused, for the same reasons."""
    status = workload.status
    decision = status.decision
    if (
        status.phase != Phase.PENDING
        or status.placement
        or status.sharing is not None
        or status.gpu is not None
        or decision is None
        or decision.reason is not refused.reason
        or decision.chosen
        or workload.invalid
        or workload.generation != status.observed_generation
        or (status.restarts, status.retry_at) != (life.restarts, life.retry_at)
        or life.passed_over is not None
    ):
        return False
    shown = (ConditionType.ADMITTED,) if workload.adopted else _WAITING
    if tuple(condition.type for condition in status.conditions) != shown:
        return False
    if {refusal.reason for refusal in decision.refusals} != {line.reason for line in refused.lines}:
        return False
    return all(
        condition.status == "False"
        and condition.reason == refused.reason
        and condition.observed_generation == workload.generation
        for condition in status.conditions
    )


def _good(workload: WorkloadRecord, conditions: tuple[Condition, ...]) -> bool:
    """True when the conditions of a running job all hold for its generation."""
    generation = workload.generation
    if workload.invalid or workload.status.observed_generation != generation:
        return False
    if not 4 <= len(conditions) <= 5:
        return False
    return all(
        condition.type == type_
        and condition.status == "True"
        and condition.observed_generation == generation
        for condition, type_ in zip(conditions, _RUNNING, strict=False)
    )


def _objective_shown(workload: WorkloadRecord, parts: Sequence[Part]) -> bool:
    """True when the condition on the objective is up to date, or rightly missing."""
    conditions = workload.status.conditions
    judged = predicted_figures.objective_met(workload, parts)
    if judged is None:
        return len(conditions) == 4
    met = "True" if judged[0] else "False"
    return (
        len(conditions) == 5
        and conditions[4].type == ConditionType.SLO_MET
        and conditions[4].status == met
        and conditions[4].reason == predicted_figures.slo_reason(parts, judged[0])
        and conditions[4].observed_generation == workload.generation
    )
