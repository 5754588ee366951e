# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Phase 1 of a cycle: what stands, what every workload needs, what everyone asks for.

Nothing is given here; what does not stand any more is dropped from the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from ullage.cluster.records.snapshot import PodRecord, Snapshot, WorkloadKind, WorkloadRecord
from ullage.scheduling.assignment.conflicts import settle_conflicts
from ullage.scheduling.assignment.cycle_cache import CycleCache
from ullage.scheduling.assignment.cycle_context import CycleContext
from ullage.scheduling.assignment.digest import occupancy_digest
from ullage.scheduling.assignment.peaks import before_peaks
from ullage.scheduling.assignment.pods import release
from ullage.scheduling.assignment.probations import commit, judge_probations, spent
from ullage.scheduling.assignment.reevaluation import reevaluate, with_evictions
from ullage.scheduling.capacity.budgets import limits_of
from ullage.scheduling.capacity.capacity_choice import decide_pools
from ullage.scheduling.capacity.places import places
from ullage.scheduling.elastic import sizes
from ullage.scheduling.feasibility.occupancy import occupancy_of
from ullage.scheduling.feasibility.resource_requests import ResourceRequests
from ullage.scheduling.inventory.device_faults import isolations
from ullage.scheduling.inventory.interruptions import terminations
from ullage.scheduling.inventory.inventory import Inventory, take_inventory
from ullage.scheduling.learning.device_choice import DeviceChoices
from ullage.scheduling.learning.throughput import Throughputs
from ullage.scheduling.lifecycle.adopted import adopted_step
from ullage.scheduling.lifecycle.coordinator import with_coordinator
from ullage.scheduling.lifecycle.drain import notice_evictions
from ullage.scheduling.lifecycle.inference import inference_step
from ullage.scheduling.lifecycle.members import MemberCache, drop_refused
from ullage.scheduling.lifecycle.restated import restate
from ullage.scheduling.lifecycle.service_load import replicas_that_serve
from ullage.scheduling.lifecycle.training import training_step
from ullage.scheduling.model.faults import Blames
from ullage.scheduling.model.lifecycle_step import LifecycleStep, earliest
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.plan import DecideSettings
from ullage.scheduling.model.slice_ledger import Ledger
from ullage.scheduling.model.view import View
from ullage.scheduling.placement.feasible import Feasibility
from ullage.scheduling.placement.kept_shares import keep_shares
from ullage.scheduling.placement.placement import Placer
from ullage.scheduling.placement.predicted_figures import Predictions
from ullage.scheduling.placement.rules import rule_of
from ullage.scheduling.prediction.workload_classes import Classes


def observe(
    snapshot: Snapshot,
    now: float,
    settings: DecideSettings,
    cache: CycleCache,
) -> CycleContext:
    """What a cycle finds; arguments as of ``decide``."""
    snapshot = sizes.with_sizes(snapshot)
    ledger = Ledger(snapshot)
    view = look(snapshot, now, settings, ledger, cache.members)
    probations, capacity_choices, notices = (
        judge_probations(view),
        decide_pools(view),
        terminations(snapshot),
    )
    evictions = notice_evictions(view, notices)
    view = replace(
        view, evictions={**probations.evictions, **capacity_choices.evictions, **evictions}
    )
    inventory = take_inventory(view, cache.inventory)
    undisturbed, disturbed = cache.steady.undisturbed(view, cache.members)
    lifecycles = _lifecycles(view, inventory, undisturbed)
    drop_refused(view, cache.members.refused, ledger)
    committed = commit(view, probations, ledger)
    for life in lifecycles.values():
        for member in life.release:
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
    judged: AbstractSet[str] = snapshot.workloads.keys()
    if disturbed is not None:  # the others fit as they did
        judged = judged - undisturbed.keys() | restated
    predictions = Predictions(occupancy, placer.rule)
    findings = reevaluate(view, requests, predictions, judged, restated)
    conflicts = settle_conflicts(requests, placer, lifecycles, probations.violating)
    probations = replace(probations, wake_at=earliest(probations.wake_at, conflicts.wake_at))
    peaks = before_peaks(requests, placer, predictions, lifecycles)
    findings = {**peaks, **conflicts.findings, **findings}
    return CycleContext(
        view=with_evictions(view, findings),
        inventory=inventory,
        ledger=ledger,
        lifecycles=lifecycles,
        placer=placer,
        requests=requests,
        feasibility=Feasibility(placer.candidate_index, snapshot),
        capacity_choices=capacity_choices,
        limits=limits_of(capacity_choices, snapshot.workloads, snapshot.pools, requests.choose),
        probations=probations,
        spent_s=spent_s,
        committed=committed,
        notices=notices,
        findings=findings,
        undisturbed=undisturbed,
        devices=devices,
    )


def look(
    snapshot: Snapshot,
    now: float,
    settings: DecideSettings,
    ledger: Ledger,
    members: MemberCache | None = None,
) -> View:
    """Arrange the snapshot; slices that do not stand are dropped from the ledger on the way."""
    members = members or MemberCache()
    members.update(snapshot, settings, ledger)
    pods, workloads, index = snapshot.pods, snapshot.workloads, members.pod_index

    def known(uids: AbstractSet[str]) -> tuple[PodRecord, ...]:
        # a pod whose workload is unknown may be forged: it delays nothing, and is never taken back
        return tuple(pods[uid] for uid in sorted(uids) if pods[uid].owner.uid in workloads)

    return View(
        snapshot=snapshot,
        now=now,
        settings=settings,
        members=members.current,
        observed=dict(members.slices.observed),
        names=index.names,
        index=members.index,
        changes=members.changes,
        renewed=members.renewed,
        tried=members.node_index.tried,
        starting=len(known(index.starting)),
        orders=known(index.orders),
        coordinators={pods[uid].owner.uid: pods[uid] for uid in sorted(index.leads)},
        isolated=isolations(snapshot, now),
    )


def _lifecycles(
    view: View, inventory: Inventory, undisturbed: Mapping[str, LifecycleStep]
) -> dict[str, LifecycleStep]:
    """What every workload needs, by its uid, in order of it."""
    lifecycles: dict[str, LifecycleStep] = {}
    blames = Blames(view.snapshot)
    for uid in view.index.order:
        known = undisturbed.get(uid)
        if known is not None:
            lifecycles[uid] = known
            continue
        workload = view.snapshot.workloads[uid]
        with blames.of(workload.ref):
            lifecycles[uid] = _step(view, inventory, workload)
    blames.settle()
    return lifecycles


def _step(view: View, inventory: Inventory, workload: WorkloadRecord) -> LifecycleStep:
    if workload.aside:
        return LifecycleStep(phase=Phase.PENDING, silent=True)
    if workload.kind is WorkloadKind.TRAINING_JOB:
        return with_coordinator(view, workload, training_step(view, inventory, workload))
    if workload.kind is WorkloadKind.POD:
        return adopted_step(view, inventory, workload)
    return inference_step(view, inventory, workload)
