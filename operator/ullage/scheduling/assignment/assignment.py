# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Who gets what in a cycle: by turns, by admission, by what their objectives allow.

Pure but for the ledger of the scene, which it writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ullage.api.contract import Reason
from ullage.engines.admission.prediction import Predictor
from ullage.engines.admission.verdict import Verdict
from ullage.scheduling.assignment.assign import assign
from ullage.scheduling.assignment.cycle_context import Assignments, CycleContext
from ullage.scheduling.assignment.cycle_state import CycleState
from ullage.scheduling.assignment.digest import board_digest
from ullage.scheduling.assignment.reevaluation import move, rejudge, with_marks
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
        desk: What it was decided with.
        allotment: The outcome for everybody.
        ordering: Nodes that are ordered for whom none was free.
        predictions: What was predicted for pods, and by which rule.
        told: What speaks against running work and lets it run, by uid of the workload.
        devices: Digest of the devices as they were found.
        spent_s: Seconds of trials, by class.
    """

    desk: CycleContext
    allotment: Assignments
    ordering: Ordering
    predictions: Predictions
    told: Mapping[str, tuple[Reason, str]]
    devices: bytes
    spent_s: Mapping[Class, float]


def assign_resources(
    scene: CycleState, predictor: Predictor, allocate: Allocate | None
) -> CycleAssignment:
    """Who gets what; arguments as of ``decide``."""
    view, ground, ledger, lives = scene.view, scene.ground, scene.ledger, scene.lives
    snapshot, spending = view.snapshot, scene.spending
    spent_s = spent(view, scene.trials)
    classes = Classes(snapshot, ground, spent_s, replicas_that_serve(view))
    restated = restate(view, classes, ledger)
    board = occupancy_of(view, ground, ledger, classes)
    devices = board_digest(board)
    wants = ResourceRequests(view, board, classes, places(spending, ground))
    placer = Placer(board, rule_of(view, wants, predictor))
    keep_rooms(view, wants, board, lives)
    findings = rejudge(view, board, wants, placer.rule, restated)
    feasibility = Feasibility(placer.scout, snapshot)
    tools = Tools(view, ground, board, ledger, Typed(wants, feasibility))
    desk = CycleContext(
        view=with_marks(view, findings),
        ground=ground,
        ledger=ledger,
        placer=placer,
        wants=wants,
        feasibility=feasibility,
        rounds=take_turns(tools, lives, allocate),
        spending=spending,
        limits=limits_of(spending, snapshot.workloads, snapshot.pools),
    )
    allotment = assign(desk, lives)
    told = move(desk, allotment, findings)
    return CycleAssignment(
        desk=desk,
        allotment=allotment,
        ordering=order_nodes(view, spending, allotment.outcomes),
        predictions=Predictions(board, placer.rule, _verdicts(allotment)),
        told=told,
        devices=devices,
        spent_s=spent_s,
    )


def _verdicts(allotment: Assignments) -> dict[str, Verdict]:
    """What admission said of who was given a place, by uid of the pod."""
    return {
        seat.asked.member.pod.uid: seat.spot.grant.verdict
        for outcome in allotment.outcomes.values()
        for seat in outcome.seats
        if seat.spot.grant.verdict is not None
    }
