# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Phase 6 of a cycle: statuses of workloads and Events about their changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ullage.api.slices import DesiredSlice
from ullage.cluster.codecs.status import as_stored
from ullage.cluster.records.status import WorkloadStatus
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.scheduling.accounting import efficiency
from ullage.scheduling.accounting.account import Accountant, cost_news
from ullage.scheduling.assignment.cycle_context import Assignments, CycleContext
from ullage.scheduling.assignment.steady import SteadyCache, is_steady, standing, untouched
from ullage.scheduling.capacity.status import spend_news, with_savings
from ullage.scheduling.elastic import sizes
from ullage.scheduling.learning.recommend import Advisor
from ullage.scheduling.learning.recommendation import advice_news, advised
from ullage.scheduling.lifecycle.scaling_record import scaling_news
from ullage.scheduling.lifecycle.tier_status import tier_news, with_tier
from ullage.scheduling.model.faults import Blames
from ullage.scheduling.model.lifecycle_step import LifecycleStep
from ullage.scheduling.model.plan import Emit
from ullage.scheduling.model.view import View
from ullage.scheduling.placement.predicted_figures import Predictions
from ullage.scheduling.status.reporter import Reporter, event
from ullage.scheduling.status.straggler_status import straggler_news
from ullage.scheduling.timeslicing.messages import turn_news


def report(
    context: CycleContext,
    result: Assignments,
    slices: Mapping[str, tuple[DesiredSlice, ...]],
    steady: SteadyCache,
) -> tuple[dict[str, WorkloadStatus], list[Emit]]:
    """Compute the statuses that change, and their Events.

    Args:
        context: Inputs of the cycle.
        result: Its decisions.
        slices: Slices that every node is to hold.
        steady: Cache of jobs that the next cycle may skip.
    """
    accountant = Accountant.of(context.view.snapshot, slices, context.view.now)
    predictions = Predictions(
        context.placer.occupancy, context.placer.rule, result.entries.verdicts()
    )
    changed = context.ledger.changed_devices()
    left_alone: Mapping[str, LifecycleStep] = {}
    if (context.spent_s, context.view.isolated) == (steady.spent_s, steady.isolated):
        left_alone = untouched(
            context.undisturbed, context.lifecycles, context.view.snapshot, changed
        )
    workloads = context.view.snapshot.workloads
    others = context.lifecycles.keys() - left_alone.keys()
    # those left alone keep running, or wait for the same reasons
    refusals, newly_refused = standing(
        left_alone, result.entries.outcomes(), workloads, steady.refusals
    )
    others.update(newly_refused)
    reporter = Reporter(context, result, predictions)
    statuses, events = _report(reporter, accountant, sorted(others))
    timed = accountant.rates.any_price or context.rounds is not None
    # costs and debts of turns change with time
    kept = {} if timed else _steady(context, result, statuses, left_alone)
    steady.keep(context.view, context.spent_s, kept, changed, refusals)
    return statuses, events


def _steady(
    context: CycleContext,
    result: Assignments,
    statuses: Mapping[str, WorkloadStatus],
    untouched: Mapping[str, LifecycleStep],
) -> dict[str, LifecycleStep]:
    """Steps of jobs that the next cycle may reuse while nothing near them changes."""
    workloads, lifecycles = context.view.snapshot.workloads, context.lifecycles
    steady = {
        uid: lifecycles[uid]
        for uid in lifecycles.keys() - untouched.keys() - statuses.keys() - result.warnings.keys()
        if is_steady(workloads[uid], lifecycles[uid])
        and uid not in (context.view.snapshot.stragglers or ())  # time decides about those
    }
    return {**untouched, **steady}


def _report(
    reporter: Reporter, accountant: Accountant, uids: Sequence[str]
) -> tuple[dict[str, WorkloadStatus], list[Emit]]:
    """The statuses that change among these workloads, by uid, and their Events.

    An object that is being deleted has none.
    """
    context, view = reporter.context, reporter.context.view
    statuses: dict[str, WorkloadStatus] = {}
    events: list[Emit] = []
    advisor = Advisor.of(view.snapshot)
    blames = Blames(view.snapshot)
    usage = efficiency.UsageReports(view.snapshot.gpu_nodes, view.now, view.snapshot.traces)
    for uid in uids:
        workload = view.snapshot.workloads[uid]
        if context.lifecycles[uid].silent:
            continue
        with blames.of(workload.ref):
            status = advised(advisor, workload, reporter.status(workload))
            status = with_tier(view, workload, accountant.booked(workload, status))
            status = with_savings(context.capacity_choices, workload, status)
            if status is not workload.status:  # a row is never written for its own sake
                rate = accountant.rates.held(status.placement)
                status = efficiency.entered(workload, status, usage, rate, view.now)
            if workload.adopted and status is not workload.status:
                status = _in_pods(workload, status)
            if status is not workload.status:
                statuses[uid] = status
                events.extend(_news(view, reporter, advisor, workload, status))
    blames.settle()
    return statuses, events


def _in_pods(unit: WorkloadRecord, status: WorkloadStatus) -> WorkloadStatus:
    """The status as adopted pods store it; the previous object if nothing changed.

    Observed figures of a gang change with every step of its slowest member and would be written
    into each of its pods; they are in the GPUNodes alone.
    """
    before, sharing = unit.status, status.sharing
    if unit.replicas > 1 and sharing is not None and sharing.observed:
        status = replace(status, sharing=replace(sharing, observed=""))
    stored = as_stored(WorkloadKind.POD, status)
    return before if stored == before else stored


def _news(
    view: View,
    reporter: Reporter,
    advisor: Advisor,
    workload: WorkloadRecord,
    status: WorkloadStatus,
) -> Iterator[Emit]:
    """Events of a status that changed."""
    epoch = view.settings.epoch
    entry = reporter.assignments.entries.get(workload.ref.uid)
    size = entry.size if entry is not None else None
    news = sizes.news(workload, size, epoch) or event(workload, status, epoch)
    advice = advice_news(advisor, workload, status, epoch)
    yield from (emit for emit in (news, advice) if emit is not None)
    kept = reporter.context.kept_stragglers.get(workload.ref.uid, "")
    yield from straggler_news(view, workload, status, kept)
    yield from turn_news(workload, status, epoch)
    yield from spend_news(workload, status, epoch)
    yield from cost_news(workload, status, epoch)
    yield from tier_news(workload, status, epoch)
    yield from scaling_news(workload, status, epoch)
