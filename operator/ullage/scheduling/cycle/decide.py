# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""One scheduling cycle for the whole cluster: from a snapshot to a plan.

Pure: the same snapshot, time and settings give the same plan, byte for byte. No I/O, no clock, no
randomness. An object whose data makes its decision fail is set aside (``set_aside``), and the rest
is decided. ``_cycle`` reads top to bottom in seven numbered phases.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from ullage.cluster.records.snapshot import Snapshot
from ullage.scheduling.assignment.assign import assign
from ullage.scheduling.assignment.cycle_cache import CycleCache
from ullage.scheduling.assignment.cycle_context import Assignments, CycleContext
from ullage.scheduling.assignment.digest import cycle_digest
from ullage.scheduling.assignment.entry import Entries
from ullage.scheduling.assignment.events import lane_news, sharing_news
from ullage.scheduling.assignment.judge import judge
from ullage.scheduling.assignment.nominate import nominate, with_turns
from ullage.scheduling.assignment.observe import observe
from ullage.scheduling.assignment.probations import bookings
from ullage.scheduling.assignment.reconcile import reconcile
from ullage.scheduling.cycle.set_aside import failed_status, without
from ullage.scheduling.cycle.wake import follows, resumed_at, timeouts_end
from ullage.scheduling.learning.loop import ProfileUpdates, profiles_to_write
from ullage.scheduling.learning.operations import OpTimeFits
from ullage.scheduling.learning.written_speeds import with_estimates
from ullage.scheduling.lifecycle.coordinator import on_their_machines
from ullage.scheduling.lifecycle.drain import least_loss_order
from ullage.scheduling.lifecycle.taints import eviction_notices, node_taints
from ullage.scheduling.lifecycle.training import busy
from ullage.scheduling.model.faults import WORKLOADS, Fault, faults_of
from ullage.scheduling.model.lifecycle_step import earliest
from ullage.scheduling.model.plan import DecideSettings, Plan
from ullage.scheduling.status.policies import unread_news, void_policies
from ullage.scheduling.status.quota_status import quota_news
from ullage.scheduling.status.report import report
from ullage.scheduling.times import RECHECK_S
from ullage.scheduling.timeslicing.division import Allocate
from ullage.scheduling.timeslicing.rounds import division_news, next_turn

MOST_PASSES: Final = 4
"""Passes of one decision; each sets aside the faulty objects of the one before."""


def decide(
    snapshot: Snapshot,
    now: float,
    settings: DecideSettings,
    allocate: Allocate | None = None,
    cache: CycleCache | None = None,
) -> Plan:
    """Decide the desired state of the whole cluster.

    Args:
        snapshot: The snapshot, observed and assumed.
        now: The time of the decision, seconds since the epoch.
        settings: Epoch and timeouts of this leader.
        allocate: Divides the cluster's time; the engine's function where it is ``None``.
        cache: Results of the last cycle; they change the cost of this one, never its plan.
    """
    cache = cache or CycleCache()
    cache.leftovers.clear()
    aside = {fault.subject: fault for fault in settings.aside}
    for _ in range(MOST_PASSES):
        try:
            here = without(snapshot, aside.values())
            plan = _cycle(here, now, settings, allocate, cache)
        except Exception as error:  # a fault of one object must not stop the decisions about others
            cache.steady.forget()
            fresh = {
                fault.subject: fault
                for fault in faults_of(error, snapshot)
                if fault.subject not in aside
            }
            if not fresh:
                raise  # it is no object's fault, or setting it aside does not help
            aside |= fresh
        else:
            return _with_faults(plan, snapshot, aside.values(), now)
    return _undecided(snapshot, settings, aside.values(), now)


def _with_faults(plan: Plan, snapshot: Snapshot, aside: Iterable[Fault], now: float) -> Plan:
    """The plan, with the reports to owners of objects that are set aside."""
    faults = tuple(fault for fault in aside if fault.text)
    if not faults:
        return plan
    jobs = {fault.key: fault for fault in faults if fault.table == WORKLOADS}
    statuses = {
        uid: failed_status(workload, jobs[uid], now)
        for uid, workload in snapshot.workloads.items()
        if uid in jobs and not workload.deleting
    }
    return replace(plan, statuses={**plan.statuses, **statuses}, faults=faults)


def _undecided(
    snapshot: Snapshot, settings: DecideSettings, aside: Iterable[Fault], now: float
) -> Plan:
    """A plan without changes; the next decision has the objects to set aside."""
    return Plan(
        version=snapshot.version,
        epoch=settings.epoch,
        inputs_hash="",
        faults=tuple(fault for fault in aside if fault.text),
        wake_at=now + RECHECK_S,
    )


def _cycle(
    snapshot: Snapshot,
    now: float,
    settings: DecideSettings,
    allocate: Allocate | None,
    cache: CycleCache,
) -> Plan:
    """One cycle in its seven phases; arguments as of ``decide``."""
    # 1. Observe: index the snapshot.
    observed = observe(snapshot, now, settings, cache)
    # 2. Judge: evictions, needs of each workload, work that no longer fits.
    context = judge(observed, cache)
    view, epoch = context.view, settings.epoch
    snapshot, result = view.snapshot, Assignments(Entries(view.snapshot.workloads))
    # 3. Queue: plan turns, and nominate the workloads that are tried in this cycle.
    context = with_turns(context, allocate, cache.division)
    nominated = nominate(context, result, cache.attempts)
    # 4. Assign: place workloads and preempt for them.
    assign(context, nominated, result)
    # 5. Reconcile: Deployments, sizes of gangs, moves and node requests.
    reconcile(context, nominated, result)
    # 6. Report: status of each workload, Events, updates of profiles.
    slices = context.ledger.slices() | dict.fromkeys(_missing_gpu_nodes(snapshot), ())
    statuses, events = report(context, result, slices, cache.steady)
    taints = node_taints(snapshot, context.notices, epoch)
    updates = _profile_updates(context, cache.op_times)
    quota, quota_wakes_at = quota_news(snapshot, slices, now, epoch)
    # 7. Wake: time of the next cycle if nothing changes before.
    wake_at = earliest(
        resumed_at(snapshot, now, result.entries.postponed()),
        timeouts_end(view, context.lifecycles),
        follows(view, statuses),
        updates.wake_at,
        context.probations.wake_at,
        next_turn(context.rounds),
        context.capacity_choices.wake_at,
        result.node_requests.wake_at,
        result.moves_at,
        result.scales_at,
        quota_wakes_at,
    )
    lives = [(uid, context.lifecycles[uid]) for uid in busy(context.lifecycles)]
    steps = [step for _, life in lives for step in life.steps]
    waiting = [snapshot.workloads[uid] for uid, life in lives if life.waiting]
    cache.leftovers.extend((context, nominated, result))
    return Plan(
        version=snapshot.version,
        epoch=epoch,
        inputs_hash=cycle_digest(view, context.devices, waiting),
        slices=slices,
        observations_read=updates.observations_read,
        steps=(
            *least_loss_order(on_their_machines((*steps, *result.steps), snapshot), snapshot),
            *taints,
            *result.node_requests.steps,
            *void_policies(snapshot, now, epoch),
            *unread_news(snapshot, now, epoch),
            *division_news(view, context.rounds),
            *quota,
            *updates.actions,
        ),
        statuses=statuses,
        events=(
            *events,
            *eviction_notices(view, context.notices, taints),
            *result.node_requests.events,
            *context.committed,
            *sharing_news(context, result),
            *lane_news(context, result),
            *updates.events,
        ),
        dropped={reason.value: count for reason, count in updates.dropped.items()},
        requeues=result.entries.requeues(),
        wake_at=wake_at,
    )


def _profile_updates(context: CycleContext, fits: OpTimeFits) -> ProfileUpdates:
    """Profile writes and acknowledgements of this cycle."""
    snapshot, now, epoch = context.view.snapshot, context.view.now, context.view.settings.epoch
    booked = bookings(context.spent_s, tuple(snapshot.profiles.values()))
    updates = profiles_to_write(snapshot, now, epoch, booked, context.view.isolated)
    return with_estimates(snapshot, now, epoch, updates, fits)


def _missing_gpu_nodes(snapshot: Snapshot) -> list[str]:
    """Names of managed Nodes that have no GPUNode yet; others remove GPUNodes."""
    return sorted(
        name
        for name, node in snapshot.nodes.items()
        if node.managed and name not in snapshot.gpu_nodes
    )
