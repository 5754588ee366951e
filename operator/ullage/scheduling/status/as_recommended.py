# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whether a job has the devices that are recommended to it, and why not.

A job takes another type where the first is taken, and moves only for one that is much better: its
condition says so. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ullage.api.reasons import ConditionType, Reason, Standing
from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.scheduling.inventory.inventory import Inventory
from ullage.scheduling.learning.device_choice import by_type
from ullage.scheduling.learning.recommend import goal_of
from ullage.scheduling.learning.reconsider import BetterChoice
from ullage.scheduling.model.conditions import Said
from ullage.scheduling.placement.predicted_figures import Part

_OURS = ConditionType.AS_RECOMMENDED


def as_recommended(
    inventory: Inventory,
    job: WorkloadRecord,
    parts: Sequence[Part],
    moves: Callable[[Sequence[str], int], BetterChoice | None],
) -> Said | None:
    """The verdict on the devices that a job has; ``None`` where nothing was asked for or compared.

    Args:
        inventory: Devices of the cycle.
        job: With the recommendation that its status holds.
        parts: Slices that it holds by the plan.
        moves: What would be much better than so many devices of these types.
    """
    cost, recommendation = job.cost, job.status.recommendation
    if cost is None or not recommendation or not parts:
        return None
    if goal_of(job).aim() is None and not cost.capped:
        return None
    sites = (inventory.site_index.get((part.node, part.slice.gpu)) for part in parts)
    held = sorted(
        {inventory.model_names[inventory.model.item(site)] for site in sites if site is not None}
    )
    if not held:
        return None
    rows = by_type(recommendation)
    has, first = f"has {len(parts)} x {' and '.join(held)}", recommendation[0]
    wanted = f"{first.devices} x {first.accelerator}"
    for kind in held:
        held_row = rows.get(kind)
        if held_row is None:
            return Said(_OURS, False, Reason.NOT_AVAILABLE, f"{has}, which was not compared")
        if Standing.RANKED not in held_row.reason.standing:
            return Said(_OURS, False, held_row.reason, f"{has}: {held_row.message}")
    if first.reason is not Reason.RECOMMENDED:
        return Said(_OURS, False, first.reason, f"{has}; {wanted}: {first.message}")
    if held == [first.accelerator] and len(parts) == first.devices:
        return Said(_OURS, True, Reason.RECOMMENDED, has)
    better = moves(held, len(parts))
    if better is not None:
        how = (
            "it moves when there is room that no one waits for"
            if job.checkpoint
            else "it stays, because without spec.checkpoint a restart would lose its work"
        )
        return Said(_OURS, False, Reason.BETTER_CHOICE, f"{has}; {better.text}: {how}")
    why = "one that starts takes what is free, one that runs moves only for much"
    return Said(_OURS, False, Reason.FEASIBLE, f"{has}; {wanted} is recommended: {why}")


def says_verdict(job: WorkloadRecord, verdict: Said | None) -> bool:
    """Whether the status of a job shows a verdict already."""
    shown = job.status.condition(_OURS)
    if shown is None or verdict is None:
        return shown is None and verdict is None
    return (shown.status == "True", shown.reason) == (verdict.holds, verdict.reason)
