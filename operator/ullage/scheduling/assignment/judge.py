# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Phase 2 of a cycle: evictions, needs of each workload, and work that no longer fits.

Causes that need no placement come first (``Evictions``): needs of workloads depend on them. Then
running work is checked in place (``Finding``). Invalid slices are dropped from the ledger; nothing
is granted in this phase.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final

from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.scheduling.assignment.conflicts import settle_conflicts
from ullage.scheduling.assignment.cycle_cache import CycleCache
from ullage.scheduling.assignment.cycle_context import CycleContext
from ullage.scheduling.assignment.digest import occupancy_digest
from ullage.scheduling.assignment.observe import ObservedCluster
from ullage.scheduling.assignment.peaks import before_peaks
from ullage.scheduling.assignment.pods import release
from ullage.scheduling.assignment.probations import commit, judge_probations, spent
from ullage.scheduling.assignment.reevaluation import evictions_of, reevaluate
from ullage.scheduling.capacity.budgets import limits_of
from ullage.scheduling.capacity.capacity_choice import decide_pools
from ullage.scheduling.capacity.places import places
from ullage.scheduling.feasibility.occupancy import occupancy_of
from ullage.scheduling.feasibility.resource_requests import ResourceRequests
from ullage.scheduling.inventory.inventory import Inventory
from ullage.scheduling.learning.device_choice import DeviceChoices
from ullage.scheduling.learning.throughput import Throughputs
from ullage.scheduling.lifecycle.adopted import adopted_step
from ullage.scheduling.lifecycle.coordinator import with_coordinator
from ullage.scheduling.lifecycle.drain import notice_evictions
from ullage.scheduling.lifecycle.inference import inference_step
from ullage.scheduling.lifecycle.members import drop_refused
from ullage.scheduling.lifecycle.restated import restate
from ullage.scheduling.lifecycle.service_load import replicas_that_serve
from ullage.scheduling.lifecycle.slow_members import room_on_others, slow_members
from ullage.scheduling.lifecycle.training import busy, training_step
from ullage.scheduling.model.faults import Blames
from ullage.scheduling.model.lifecycle_step import LifecycleStep, earliest
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.view import PendingEviction, View
from ullage.scheduling.placement.feasible import Feasibility
from ullage.scheduling.placement.kept_shares import keep_shares
from ullage.scheduling.placement.placement import Placer
from ullage.scheduling.placement.predicted_figures import Predictions
from ullage.scheduling.prediction.risk import rule_of
from ullage.scheduling.prediction.workload_classes import Classes

_UNDECIDED: Final = LifecycleStep(phase=Phase.PENDING)
"""Holds the place of a step in the order of uids until it is decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evictions:
    """Pods that must leave their device, by uid, for each cause.

    Attributes:
        notices: The machine is terminated.
        pools: Other capacity meets the job's objective better.
        guards: A node's guard, or a failed probation, requests the eviction.
        stragglers: Its node makes a rank slow.
        findings: A replica no longer fits its device.
    """

    notices: Mapping[str, PendingEviction]
    pools: Mapping[str, PendingEviction]
    guards: Mapping[str, PendingEviction]
    stragglers: Mapping[str, PendingEviction]
    findings: Mapping[str, PendingEviction]

    def by_pod(self) -> dict[str, PendingEviction]:
        """One eviction per pod: of several causes, the first in the order of the attributes.

        A terminated machine leaves no choice; released capacity evicts all of its pods.
        """
        return {
            **self.findings,
            **self.stragglers,
            **self.guards,
            **self.pools,
            **self.notices,
        }


def judge(observed: ObservedCluster, cache: CycleCache) -> CycleContext:
    """Evaluate running and waiting work; ``cache`` is from the last cycle."""
    inventory, ledger = observed.inventory, observed.ledger
    view, snapshot = observed.view, observed.view.snapshot
    probations, capacity_choices = judge_probations(view), decide_pools(view)
    evictions = Evictions(
        notices=notice_evictions(view, observed.notices),
        pools=capacity_choices.evictions,
        guards=probations.evictions,
        stragglers={},
        findings={},
    )
    view = replace(view, evictions=evictions.by_pod())
    undisturbed, disturbed = cache.steady.undisturbed(view, cache.members)
    lifecycles = _lifecycles(view, inventory, undisturbed)
    drop_refused(view, cache.members.refused, ledger)
    committed = commit(view, probations, ledger)
    for uid in busy(lifecycles):
        for member in lifecycles[uid].release:
            release(ledger, member)
    spent_s = spent(view, probations)
    same_cycle = cache.occupants.snapshot is cache.steady.snapshot
    if not same_cycle or (spent_s, view.isolated) != (cache.steady.spent_s, cache.steady.isolated):
        disturbed = None
    classes = Classes(
        snapshot, inventory, spent_s, replicas_that_serve(view), cache.classes, view.isolated
    )
    restated = restate(view, classes, ledger, disturbed)
    occupancy = occupancy_of(view, inventory, ledger, classes, cache.occupants, disturbed)
    devices = occupancy_digest(occupancy)
    speeds = Throughputs(snapshot)
    requests = ResourceRequests(
        view,
        occupancy,
        classes,
        places(capacity_choices, inventory),
        cache.requests,
        DeviceChoices(speeds).of,
    )
    placer = Placer(
        occupancy, rule_of(snapshot, cache.usual.update(view, classes), cache.judgements)
    )
    keep_shares(view, requests, occupancy, lifecycles)
    slow = slow_members(view, room_on_others(placer, requests))
    if slow.evictions:
        evictions = replace(evictions, stragglers=slow.evictions)
        view = replace(view, evictions=evictions.by_pod())
        lifecycles.update(_steps(view, inventory, slow.jobs))
    judged: AbstractSet[str] = snapshot.workloads.keys()
    if disturbed is not None:  # the others still fit
        judged = judged - undisturbed.keys() | restated
    predictions = Predictions(occupancy, placer.rule)
    reevaluated = reevaluate(view, requests, predictions, judged, restated)
    conflicts = settle_conflicts(requests, placer, lifecycles, probations.violating)
    peaks = before_peaks(requests, placer, predictions, lifecycles)
    # an edit has precedence over a broken objective, and that over a predicted violation
    findings = {**peaks, **conflicts.findings, **reevaluated}
    evictions = replace(evictions, findings=evictions_of(findings, snapshot))
    return CycleContext(
        view=replace(view, evictions=evictions.by_pod()),
        inventory=inventory,
        ledger=ledger,
        lifecycles=lifecycles,
        placer=placer,
        requests=requests,
        feasibility=Feasibility(placer.candidate_index, snapshot),
        capacity_choices=capacity_choices,
        limits=limits_of(capacity_choices, snapshot.workloads, snapshot.pools, requests.choose),
        probations=replace(
            probations, wake_at=earliest(probations.wake_at, conflicts.wake_at, slow.wake_at)
        ),
        spent_s=spent_s,
        committed=committed,
        notices=observed.notices,
        kept_stragglers=slow.kept,
        findings=findings,
        undisturbed=undisturbed,
        devices=devices,
    )


def _lifecycles(
    view: View, inventory: Inventory, undisturbed: Mapping[str, LifecycleStep]
) -> dict[str, LifecycleStep]:
    """The next step of every workload, by its uid, in order of uid."""
    lifecycles = dict.fromkeys(view.index.order, _UNDECIDED)
    lifecycles.update(undisturbed)
    lifecycles.update(_steps(view, inventory, sorted(lifecycles.keys() - undisturbed.keys())))
    return lifecycles


def _steps(view: View, inventory: Inventory, uids: Sequence[str]) -> dict[str, LifecycleStep]:
    """The next steps of some workloads."""
    steps: dict[str, LifecycleStep] = {}
    blames = Blames(view.snapshot)
    for uid in uids:
        workload = view.snapshot.workloads[uid]
        with blames.of(workload.ref):
            steps[uid] = _step(view, inventory, workload)
    blames.settle()
    return steps


def _step(view: View, inventory: Inventory, workload: WorkloadRecord) -> LifecycleStep:
    if workload.aside:
        return LifecycleStep(phase=Phase.PENDING, silent=True)
    if workload.kind is WorkloadKind.TRAINING_JOB:
        return with_coordinator(view, workload, training_step(view, inventory, workload))
    if workload.kind is WorkloadKind.POD:
        return adopted_step(view, inventory, workload)
    return inference_step(view, inventory, workload)
