# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Who gets what in a cycle: by turns, by admission, by what their objectives allow.

Pure but for the ledger of the scene, which it writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ullage.api.contract import Reason
from ullage.engines.admission.verdict import Verdict
from ullage.scheduling.assignment.assign import assign
from ullage.scheduling.assignment.cycle_cache import CycleCache
from ullage.scheduling.assignment.cycle_context import Assignments, CycleContext
from ullage.scheduling.assignment.cycle_state import CycleState
from ullage.scheduling.assignment.digest import board_digest
from ullage.scheduling.assignment.reevaluation import move, rejudge, with_evictions
from ullage.scheduling.assignment.trials import spent
from ullage.scheduling.capacity.budgets import limits_of
from ullage.scheduling.capacity.node_requests import Ordering, order_nodes
from ullage.scheduling.capacity.places import places
from ullage.scheduling.feasibility.occupancy import occupancy_of
from ullage.scheduling.feasibility.resource_requests import ResourceRequests
from ullage.scheduling.learning.loop import Class
from ullage.scheduling.lifecycle.restated import restate
from ullage.scheduling.lifecycle.serving import replicas_that_serve
from ullage.scheduling.placement.feasible import Feasibility
from ullage.scheduling.placement.kept_shares import keep_rooms
from ullage.scheduling.placement.placement import Placer
from ullage.scheduling.placement.predicted_figures import Predictions
from ullage.scheduling.placement.rules import rule_of
from ullage.scheduling.prediction.workload_classes import Classes
from ullage.scheduling.timeslicing.contenders import Tools, Typed
from ullage.scheduling.timeslicing.division import Allocate
from ullage.scheduling.timeslicing.rounds import take_turns


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleAssignment:
    """What was given, and why.

    Attributes:
        context: What it was decided with.
        assignments: The outcome for everyone.
        ordering: Nodes that are ordered for whom none was free.
        predictions: What was predicted for pods, and by which rule.
        told: What speaks against running work and lets it run, by uid of the workload.
        devices: Digest of the devices as they were found.
        spent_s: Seconds of trials, by class.
    """

    context: CycleContext
    assignments: Assignments
    ordering: Ordering
    predictions: Predictions
    told: Mapping[str, tuple[Reason, str]]
    devices: bytes
    spent_s: Mapping[Class, float]


def assign_resources(
    cycle: CycleState, allocate: Allocate | None, cache: CycleCache
) -> CycleAssignment:
    """Who gets what; arguments as of ``decide``."""
    view, inventory, ledger, lifecycles = (
        cycle.view,
        cycle.inventory,
        cycle.ledger,
        cycle.lifecycles,
    )
    snapshot, spending = view.snapshot, cycle.spending
    spent_s = spent(view, cycle.trials)
    classes = Classes(snapshot, inventory, spent_s, replicas_that_serve(view), cache.classes)
    same_cycle = cache.occupants.snapshot is cache.steady.snapshot
    disturbed = cycle.disturbed if same_cycle and spent_s == cache.steady.spent_s else None
    restated = restate(view, classes, ledger, disturbed)
    occupancy = occupancy_of(view, inventory, ledger, classes, cache.occupants, disturbed)
    devices = board_digest(occupancy)
    requests = ResourceRequests(view, occupancy, classes, places(spending, inventory))
    usual = cache.usual.update(view, classes)
    placer = Placer(occupancy, rule_of(snapshot, usual, cache.judgements))
    keep_rooms(view, requests, occupancy, lifecycles)
    judged = set(snapshot.workloads) if disturbed is None else _judged(cycle) | restated
    findings = rejudge(view, requests, Predictions(occupancy, placer.rule), judged, restated)
    feasibility = Feasibility(placer.candidate_index, snapshot)
    tools = Tools(view, inventory, occupancy, ledger, Typed(requests, feasibility))
    context = CycleContext(
        view=with_evictions(view, findings),
        inventory=inventory,
        ledger=ledger,
        placer=placer,
        requests=requests,
        feasibility=feasibility,
        rounds=take_turns(tools, lifecycles, allocate, cache.division),
        spending=spending,
        limits=limits_of(spending, snapshot.workloads, snapshot.pools),
    )
    assignments = assign(context, lifecycles)
    told = move(context, assignments, findings)
    return CycleAssignment(
        context=context,
        assignments=assignments,
        ordering=order_nodes(view, spending, assignments.outcomes),
        predictions=Predictions(occupancy, placer.rule, _verdicts(assignments)),
        told=told,
        devices=devices,
        spent_s=spent_s,
    )


def _judged(cycle: CycleState) -> set[str]:
    """Workloads that something happened to: the others fit as they did."""
    return cycle.view.snapshot.workloads.keys() - cycle.undisturbed.keys()


def _verdicts(assignments: Assignments) -> dict[str, Verdict]:
    """What admission said of who was given a place, by uid of the pod."""
    return {
        placement.asked.member.pod.uid: placement.candidate.grant.verdict
        for outcome in assignments.outcomes.values()
        for placement in outcome.placements
        if placement.candidate.grant.verdict is not None
    }
