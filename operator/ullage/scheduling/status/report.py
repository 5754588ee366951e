# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Phase 5 of a cycle: the status of each workload, and Events where it changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ullage.api.slices import DesiredSlice
from ullage.cluster.codecs.status import as_stored
from ullage.cluster.records.snapshot import WorkloadKind, WorkloadRecord
from ullage.cluster.records.status import WorkloadStatus
from ullage.scheduling.accounting.account import Accountant
from ullage.scheduling.accounting.events import cost_news
from ullage.scheduling.assignment.cycle_context import Assignments, CycleContext
from ullage.scheduling.assignment.steady import (
    SteadyCache,
    is_steady,
    refusal_stands,
    untouched,
)
from ullage.scheduling.capacity.savings import with_savings
from ullage.scheduling.capacity.status import spend_news
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
from ullage.scheduling.timeslicing.messages import turn_news


def report(
    context: CycleContext,
    result: Assignments,
    slices: Mapping[str, tuple[DesiredSlice, ...]],
    steady: SteadyCache,
) -> tuple[dict[str, WorkloadStatus], list[Emit]]:
    """Phase 5 of a cycle: the statuses that change, and Events of them.

    Args:
        context: What the cycle found.
        result: What it decided.
        slices: What every node is to hold.
        steady: Remembers jobs that need no look in the next cycle.
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
    unchanged = _unchanged(context, result, left_alone)
    reporter = Reporter(context, result, predictions)
    others = [uid for uid in context.lifecycles if uid not in unchanged]
    statuses, events = _report(reporter, accountant, others)
    timed = accountant.rates.any_price or context.rounds is not None
    # what each job has cost, or is owed in turns, changes with time
    kept = {} if timed else _steady(context, result, statuses, left_alone)
    steady.keep(context.view, context.spent_s, kept, changed)
    return statuses, events


def _unchanged(
    context: CycleContext, result: Assignments, untouched: Mapping[str, LifecycleStep]
) -> set[str]:
    """Jobs whose status says all there is to say: they run on, or wait for the same reasons."""
    workloads = context.view.snapshot.workloads
    return {
        uid
        for uid, step in untouched.items()
        if not step.waiting or refusal_stands(workloads[uid].status, result.entries.outcome(uid))
    }


def _steady(
    context: CycleContext,
    result: Assignments,
    statuses: Mapping[str, WorkloadStatus],
    untouched: Mapping[str, LifecycleStep],
) -> dict[str, LifecycleStep]:
    """What jobs need that the next cycle need not ask again while all near them stays as it is."""
    workloads, lifecycles = context.view.snapshot.workloads, context.lifecycles
    found = {
        uid: step
        for uid, step in lifecycles.items()
        if uid not in untouched
        and uid not in statuses
        and uid not in result.told
        and is_steady(workloads[uid], step)
    }
    return {**untouched, **found}


def _report(
    reporter: Reporter, accountant: Accountant, uids: Sequence[str]
) -> tuple[dict[str, WorkloadStatus], list[Emit]]:
    """The statuses that change, by workload, and Events of them; ``uids`` are those to look at.

    An object that is being deleted has none.
    """
    context, view = reporter.context, reporter.context.view
    statuses: dict[str, WorkloadStatus] = {}
    events: list[Emit] = []
    advisor = Advisor.of(view.snapshot)
    blames = Blames(view.snapshot)
    for uid in uids:
        workload = view.snapshot.workloads[uid]
        if context.lifecycles[uid].silent:
            continue
        with blames.of(workload.ref):
            status = advised(advisor, workload, reporter.status(workload))
            status = with_tier(view, workload, accountant.booked(workload, status))
            status = with_savings(context.capacity_choices, workload, status)
            if workload.adopted and status is not workload.status:
                status = _in_pods(workload, status)
            if status is not workload.status:
                statuses[uid] = status
                events.extend(_news(view, reporter, advisor, workload, status))
    blames.settle()
    return statuses, events


def _in_pods(unit: WorkloadRecord, status: WorkloadStatus) -> WorkloadStatus:
    """What adopted pods tell of a status; the very record of before if that is nothing new.

    What is observed of a gang moves with every step of its slowest member, and would be written
    into each of its pods: it stands in the GPUNodes alone.
    """
    before, sharing = unit.status, status.sharing
    if unit.replicas > 1 and sharing is not None and sharing.observed:
        status = replace(status, sharing=replace(sharing, observed=""))
    kept = as_stored(WorkloadKind.POD, status)
    return before if kept == before else kept


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
    yield from turn_news(workload, status, epoch)
    yield from spend_news(workload, status, epoch)
    yield from cost_news(workload, status, epoch)
    yield from tier_news(workload, status, epoch)
    yield from scaling_news(workload, status, epoch)
