# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The condition ``AsRecommended``: a job has its recommended devices.

A job gets another type when the first is in use, and moves only to a much better one. Nothing is
decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ullage.api.reasons import ConditionType, Reason, Standing
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.inventory.inventory import Inventory
from ullage.scheduling.learning.device_choice import by_type
from ullage.scheduling.learning.recommend import goal_of
from ullage.scheduling.learning.reconsider import BetterChoice
from ullage.scheduling.model.conditions import DesiredCondition
from ullage.scheduling.placement.predicted_figures import Part

_OURS = ConditionType.AS_RECOMMENDED


def as_recommended(
    inventory: Inventory,
    job: WorkloadRecord,
    parts: Sequence[Part],
    moves: Callable[[Sequence[str], int], BetterChoice | None],
) -> DesiredCondition | None:
    """The verdict on a job's devices; ``None`` = without a recommendation.

    Args:
        inventory: Devices of the cycle.
        job: The job, with the recommendation in its status.
        parts: Slices of the job by the plan.
        moves: Function that returns a much better choice than a number of devices of some types.
    """
    cost, recommendation = job.cost, job.status.recommendation
    if cost is None or not recommendation or not parts:
        return None
    if goal_of(job).aim() is None and not cost.capped:
        return None
    sites = (inventory.site_index.get((part.node, part.slice.gpu)) for part in parts)
    types = sorted(
        {inventory.model_names[inventory.model.item(site)] for site in sites if site is not None}
    )
    if not types:
        return None
    rows = by_type(recommendation)
    has, first = f"has {len(parts)} x {' and '.join(types)}", recommendation[0]
    wanted = f"{first.devices} x {first.accelerator}"
    for kind in types:
        row = rows.get(kind)
        if row is None:
            return DesiredCondition(
                _OURS, False, Reason.NOT_AVAILABLE, f"{has}, which was not compared"
            )
        if Standing.RANKED not in row.reason.standing:
            return DesiredCondition(_OURS, False, row.reason, f"{has}: {row.message}")
    if first.reason is not Reason.RECOMMENDED:
        return DesiredCondition(_OURS, False, first.reason, f"{has}; {wanted}: {first.message}")
    if types == [first.accelerator] and len(parts) == first.devices:
        return DesiredCondition(_OURS, True, Reason.RECOMMENDED, has)
    better = moves(types, len(parts))
    if better is not None:
        how = (
            "it moves when there is room that no one waits for"
            if job.checkpoint
            else "it stays, because without spec.checkpoint a restart would lose its work"
        )
        return DesiredCondition(_OURS, False, Reason.BETTER_CHOICE, f"{has}; {better.text}: {how}")
    why = "one that starts takes what is free, one that runs moves only for much"
    return DesiredCondition(_OURS, False, Reason.FEASIBLE, f"{has}; {wanted} is recommended: {why}")


def shows_verdict(job: WorkloadRecord, verdict: DesiredCondition | None) -> bool:
    """True when the status of a job already has the verdict."""
    shown = job.status.condition(_OURS)
    if shown is None or verdict is None:
        return shown is None and verdict is None
    return (shown.status == "True", shown.reason) == (verdict.holds, verdict.reason)
