# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""One scheduling cycle for the whole cluster: from a snapshot to a plan.

Pure: the same snapshot, moment and settings give the same plan, byte for byte. No I/O,
no clock, no randomness. An object whose data makes its decision fail is set aside (``set_aside``),
and the rest is decided. Read it top to bottom: what stands and what each workload needs
(``begin_cycle``), who gets what (``assign_resources``), what owners are told (``tell``), when to
decide again (``wake``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import WorkloadStatus
from ullage.scheduling.accounting.account import Accountant
from ullage.scheduling.assignment.assignment import CycleAssignment, assign_resources
from ullage.scheduling.assignment.cycle_cache import CycleCache
from ullage.scheduling.assignment.cycle_state import CycleState, begin_cycle
from ullage.scheduling.assignment.digest import cycle_digest
from ullage.scheduling.assignment.events import sharing_news
from ullage.scheduling.assignment.steady import SteadyCache, is_steady, refusal_stands, untouched
from ullage.scheduling.assignment.trials import bookings
from ullage.scheduling.cycle.gpu_nodes import missing_gpu_nodes
from ullage.scheduling.cycle.set_aside import told, without
from ullage.scheduling.cycle.wake import follows, guards_end, resumed_at
from ullage.scheduling.learning.loop import Lessons, profiles_to_write
from ullage.scheduling.learning.written_speeds import with_estimates
from ullage.scheduling.lifecycle.coordinator import on_their_machines
from ullage.scheduling.lifecycle.drain import by_class
from ullage.scheduling.lifecycle.taints import eviction_notices, node_taints
from ullage.scheduling.model.faults import WORKLOADS, Fault, faults_of
from ullage.scheduling.model.lifecycle_step import LifecycleStep, earliest
from ullage.scheduling.model.plan import Action, DecideSettings, Plan
from ullage.scheduling.status.invalid_objects import unread_news
from ullage.scheduling.status.policies import void_policies
from ullage.scheduling.status.report import Reporter
from ullage.scheduling.status.statuses import tell
from ullage.scheduling.timeslicing.division import Allocate
from ullage.scheduling.timeslicing.rounds import division_news, next_turn

MOST_PASSES: Final = 4
"""Passes of one decision; each sets aside what the one before found at fault."""
_AT_ONCE_S: Final = 0.05


def decide(
    snapshot: Snapshot,
    now: float,
    settings: DecideSettings,
    allocate: Allocate | None = None,
    cache: CycleCache | None = None,
) -> Plan:
    """What should be, for the whole cluster.

    Args:
        snapshot: the snapshot, observed and assumed.
        now: the moment of the decision, seconds since the epoch.
        settings: epoch of this leader and the clock values of the guards.
        allocate: divides the cluster's time; the engine's own where it is ``None``.
        cache: what the last cycle left; it changes nothing but the cost of this one.
    """
    cache = cache or CycleCache()
    aside = {one.subject: one for one in settings.aside}
    for _ in range(MOST_PASSES):
        try:
            here = without(snapshot, aside.values())
            cycle = begin_cycle(here, now, settings, cache)
            plan = _plan(cycle, assign_resources(cycle, allocate, cache), cache.steady)
        except Exception as error:  # the seam of one object's decision
            cache.steady.forget()
            fresh = {
                one.subject: one for one in faults_of(error, snapshot) if one.subject not in aside
            }
            if not fresh:
                raise  # it is no object's fault, or setting it aside does not help
            aside |= fresh
        else:
            return _with_faults(plan, snapshot, aside.values(), now)
    return _undecided(snapshot, settings, aside.values(), now)


def _with_faults(plan: Plan, snapshot: Snapshot, aside: Iterable[Fault], now: float) -> Plan:
    """The plan, and what owners are told of what is set aside."""
    faults = tuple(one for one in aside if one.text)
    if not faults:
        return plan
    jobs = {one.key: one for one in faults if one.table == WORKLOADS}
    statuses = {
        uid: told(workload, jobs[uid], now)
        for uid, workload in snapshot.workloads.items()
        if uid in jobs and not workload.deleting
    }
    return replace(plan, statuses={**plan.statuses, **statuses}, faults=faults)


def _undecided(
    snapshot: Snapshot, settings: DecideSettings, aside: Iterable[Fault], now: float
) -> Plan:
    """Everything stays as it is; the next decision knows whom to set aside."""
    return Plan(
        version=snapshot.version,
        epoch=settings.epoch,
        inputs_hash="",
        faults=tuple(one for one in aside if one.text),
        wake_at=now + _AT_ONCE_S,
    )


def _plan(cycle: CycleState, given: CycleAssignment, steady: SteadyCache) -> Plan:
    """All that is to be done and said."""
    view, lifecycles, snapshot = cycle.view, cycle.lifecycles, cycle.view.snapshot
    now, epoch = view.now, view.settings.epoch
    assignments, rounds, ordering = given.assignments, given.context.rounds, given.ordering
    waiting = [snapshot.workloads[uid] for uid, life in lifecycles.items() if life.waiting]
    slices = cycle.ledger.slices() | dict.fromkeys(missing_gpu_nodes(snapshot), ())
    accountant = Accountant.of(snapshot, slices, now)
    reporter = Reporter(given.context, assignments, given.predictions, given.devices, given.told)
    left_alone = _untouched(cycle, given, steady)
    unchanged = _unchanged(cycle, given, left_alone)
    statuses, events = tell(view, reporter, lifecycles, accountant, unchanged)
    timed = accountant.rates.any_price or given.context.rounds is not None
    # what each job has cost, or is owed in turns, changes with time
    steps_kept = {} if timed else _steady(cycle, given, statuses, left_alone)
    steady.keep(view, given.spent_s, steps_kept, cycle.ledger.changed_nodes())
    steps: list[Action] = [step for life in lifecycles.values() for step in life.steps]
    taints = node_taints(snapshot, cycle.notices, epoch)
    lessons = _lessons(cycle, given)
    return Plan(
        version=snapshot.version,
        epoch=epoch,
        inputs_hash=cycle_digest(view, given.devices, waiting),
        slices=slices,
        observations_read=lessons.observations_read,
        steps=(
            *by_class(on_their_machines((*steps, *assignments.steps), snapshot), snapshot),
            *taints,
            *ordering.steps,
            *void_policies(snapshot, now, epoch),
            *unread_news(snapshot, now, epoch),
            *division_news(view, rounds),
            *lessons.actions,
        ),
        statuses=statuses,
        events=(
            *events,
            *eviction_notices(view, cycle.notices, taints),
            *ordering.events,
            *cycle.committed,
            *sharing_news(given.context, assignments),
            *lessons.events,
        ),
        dropped={reason.value: count for reason, count in lessons.dropped.items()},
        wake_at=earliest(
            resumed_at(snapshot, now, assignments.postponed),
            guards_end(view, lifecycles),
            follows(view, statuses),
            lessons.wake_at,
            cycle.trials.wake_at,
            next_turn(rounds),
            cycle.spending.wake_at,
            ordering.wake_at,
        ),
    )


def _untouched(
    cycle: CycleState, given: CycleAssignment, steady: SteadyCache
) -> dict[str, LifecycleStep]:
    """What jobs need to whom nothing happened, neither before this cycle nor in it."""
    if given.spent_s != steady.spent_s:
        return {}
    nodes = cycle.ledger.changed_nodes()
    return untouched(cycle.undisturbed, cycle.lifecycles, cycle.view.snapshot, nodes)


def _unchanged(
    cycle: CycleState, given: CycleAssignment, untouched: Mapping[str, LifecycleStep]
) -> set[str]:
    """Jobs whose status says all there is to say: they run on, or wait for the same reasons."""
    workloads, outcomes = cycle.view.snapshot.workloads, given.assignments.outcomes
    return {
        uid
        for uid, step in untouched.items()
        if not step.waiting or refusal_stands(workloads[uid].status, outcomes.get(uid))
    }


def _steady(
    cycle: CycleState,
    given: CycleAssignment,
    statuses: Mapping[str, WorkloadStatus],
    untouched: Mapping[str, LifecycleStep],
) -> dict[str, LifecycleStep]:
    """What jobs need that the next cycle need not ask again while all near them stays as it is."""
    found = dict(untouched)
    workloads, lifecycles = cycle.view.snapshot.workloads, cycle.lifecycles
    for uid, status in statuses.items():
        if uid in found or uid in given.told:
            continue
        if is_steady(workloads[uid], status, lifecycles[uid]):
            found[uid] = lifecycles[uid]
    return found


def _lessons(cycle: CycleState, given: CycleAssignment) -> Lessons:
    """What profiles learn from what was seen."""
    snapshot, now, epoch = cycle.view.snapshot, cycle.view.now, cycle.view.settings.epoch
    booked = bookings(given.spent_s, tuple(snapshot.profiles.values()))
    lessons = profiles_to_write(snapshot, now, epoch, booked)
    return with_estimates(snapshot, now, epoch, lessons)
