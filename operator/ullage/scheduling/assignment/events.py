# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Events of those who join others on a device: that they were admitted, or are tried out.

Said once, when they are placed; what came of a trial is told where it ends.
"""

from __future__ import annotations

import math
from operator import itemgetter

from ullage.api.contract import Reason
from ullage.scheduling.assignment.cycle_context import Assignments, CycleContext
from ullage.scheduling.model.plan import Emit
from ullage.scheduling.placement.placement import Placement
from ullage.scheduling.prediction.verdicts import Admission


def sharing_news(context: CycleContext, assignments: Assignments) -> list[Emit]:
    """One Event for every workload that now joins others."""
    news: list[Emit] = []
    placed = [one for one in assignments.entries.outcomes() if one[1].placements]
    for _, outcome in sorted(placed, key=itemgetter(0)):
        shared = [placement for placement in outcome.placements if _joins(placement)]
        tried = [placement for placement in shared if placement.candidate.grant.trial]
        if shared:
            news.append(_told(context, (tried or shared)[0]))
    return news


def _joins(placement: Placement) -> bool:
    verdict = placement.candidate.grant.verdict
    return verdict is not None and len(verdict.tenants) > 1


def _told(context: CycleContext, placement: Placement) -> Emit:
    """Names come from the device itself: a verdict may have been made on another one like it."""
    grant, site = placement.candidate.grant, placement.candidate.sites[0]
    uid = placement.asked.member.pod.uid
    beside = ", ".join(
        occupant.tenant.name
        for occupant in context.placer.occupancy.occupants[site]
        if occupant.pod_uid != uid
    )
    return Emit(
        target=placement.asked.workload.ref,
        warning=False,
        epoch=context.view.settings.epoch,
        reason=Reason.PROBATION_STARTED if grant.trial else Reason.SHARING_ADMITTED,
        text=(
            f"{grant.percent} % of {context.inventory.place_name(site)} beside {beside}: "
            f"{_why(grant)}"
        ),
    )


def _why(grant: Admission) -> str:
    verdict = grant.verdict
    assert verdict is not None  # only those who join others are told of
    own = verdict.tenants[-1]
    text = f"predicted {own.predicted:.2f}x (upper {own.upper:.2f}x) by {verdict.rung}"
    if grant.trial:
        rows = f"rows {verdict.rows} of {verdict.rows_needed}" if verdict.rows_needed else "no rows"
        return f"{text}, on probation: {rows} to certify {verdict.group}"
    if math.isfinite(verdict.z):
        text += f", margin {verdict.z:.2f} of {verdict.required:.2f} asked"
    return f"{text}, {verdict.group}"
