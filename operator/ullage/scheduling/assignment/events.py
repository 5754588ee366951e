# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Events of workloads that join others on a device: admitted, or on trial.

Emitted once, at placement; the end of a trial has a separate Event.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from ullage.api.reasons import Reason
from ullage.engines.lanes.explain import gib
from ullage.scheduling.assignment.cycle_context import Assignments, CycleContext
from ullage.scheduling.model.plan import Emit
from ullage.scheduling.placement.placement import Placement
from ullage.scheduling.prediction.verdicts import Admission

_MOST_NAMED: Final = 3


def sharing_news(context: CycleContext, assignments: Assignments) -> list[Emit]:
    """One Event for every workload that now joins others."""
    news: list[Emit] = []
    for _, outcome in assignments.entries.placed():
        shared = [placement for placement in outcome.placements if _joins(placement)]
        tried = [placement for placement in shared if placement.candidate.grant.trial]
        if shared:
            news.append(_sharing_event(context, (tried or shared)[0]))
    return news


def lane_news(context: CycleContext, assignments: Assignments) -> list[Emit]:
    """One Event for every workload that now takes turns in a lane."""
    events: list[Emit] = []
    for _, outcome in assignments.entries.placed():
        in_lanes = [placement for placement in outcome.placements if placement.candidate.lane]
        if in_lanes:
            events.append(_assigned(context, in_lanes[0]))
    return events


def _assigned(context: CycleContext, placement: Placement) -> Emit:
    candidate, request = placement.candidate, placement.request
    site, uid = candidate.sites[0], placement.member.pod.uid
    occupancy = context.placer.occupancy
    occupants = [part for part in occupancy.occupants[site] if part.lane == candidate.lane]
    others = [part.tenant.name for part in occupants if part.pod_uid != uid]
    size_mib = max((part.ephemeral_mib for part in occupants), default=0)
    kept_mib = request.lane.kept_mib if request.lane is not None else 0
    return Emit(
        target=placement.workload.ref,
        warning=False,
        epoch=context.view.settings.epoch,
        reason=Reason.LANE_ASSIGNED,
        text=(
            f"lane {candidate.lane} of {context.inventory.place_name(site)} at "
            f"{candidate.percent} %: {gib(kept_mib)} resident, {gib(size_mib)} for steps in turn"
            + (f" with {_listed(others)}" if others else "")
        ),
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def _joins(placement: Placement) -> bool:
    verdict = placement.candidate.grant.verdict
    return verdict is not None and len(verdict.tenants) > 1


def _sharing_event(context: CycleContext, placement: Placement) -> Emit:
    """Names come from the device itself: a verdict may be shared by equal devices."""
    grant, site = placement.candidate.grant, placement.candidate.sites[0]
    uid = placement.member.pod.uid
    beside = ", ".join(
        occupant.tenant.name
        for occupant in context.placer.occupancy.occupants[site]
        if occupant.pod_uid != uid
    )
    return Emit(
        target=placement.workload.ref,
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
    assert verdict is not None  # the Event is only for workloads that join others
    own = verdict.tenants[-1]
    text = f"predicted {own.predicted:.2f}x (upper {own.upper:.2f}x) by {verdict.rung}"
    if grant.trial:
        rows = f"rows {verdict.rows} of {verdict.rows_needed}" if verdict.rows_needed else "no rows"
        return f"{text}, on probation: {rows} to certify {verdict.group}"
    if math.isfinite(verdict.z):
        text += f", margin {verdict.z:.2f} of {verdict.required:.2f} asked"
    return f"{text}, {verdict.group}"
