# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Who gets what in a cycle: by turns, by admission, by what their objectives allow.

Pure but for the ledger of the scene, which it writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ullage.decide.digest import board_digest
from ullage.decide.learning.loop import Class
from ullage.decide.lives.restated import restate
from ullage.decide.lives.serving import replicas_that_serve
from ullage.decide.placement.allot import allot
from ullage.decide.placement.board import set_up
from ullage.decide.placement.desk import Allotment, Desk
from ullage.decide.placement.feasible import Feasibility
from ullage.decide.placement.placement import Placer
from ullage.decide.placement.want import Wants
from ullage.decide.rounds.division import Allocate
from ullage.decide.rounds.runners import Tools, Typed
from ullage.decide.rounds.turns import take_turns
from ullage.decide.scene import Scene
from ullage.decide.sharing.classes import Classes
from ullage.decide.sharing.kept_rooms import keep_rooms
from ullage.decide.sharing.rejudged import move, rejudge, with_marks
from ullage.decide.sharing.ruling import rule_of
from ullage.decide.sharing.trials import spent
from ullage.decide.spending.limits import limits_of
from ullage.decide.spending.orders import Ordering, order_nodes
from ullage.decide.spending.places import places
from ullage.decide.telling.figures import Predictions
from ullage.decide.telling.report import Reporter
from ullage.engines.admission.prediction import Predictor
from ullage.engines.admission.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Award:
    """What was given, and why.

    Attributes:
        desk: What it was decided with.
        allotment: The outcome for everybody.
        ordering: Nodes that are ordered for whom none was free.
        reporter: Tells everybody their outcome.
        devices: Digest of the devices as they were found.
        spent_s: Seconds of trials, by class.
    """

    desk: Desk
    allotment: Allotment
    ordering: Ordering
    reporter: Reporter
    devices: bytes
    spent_s: Mapping[Class, float]


def award(scene: Scene, predictor: Predictor, allocate: Allocate | None) -> Award:
    """Who gets what; arguments as of ``decide``."""
    view, ground, ledger, lives = scene.view, scene.ground, scene.ledger, scene.lives
    snapshot, spending = view.snapshot, scene.spending
    spent_s = spent(view, scene.trials)
    classes = Classes(snapshot, ground, spent_s, replicas_that_serve(view))
    restated = restate(view, classes, ledger)
    board = set_up(view, ground, ledger, classes)
    devices = board_digest(board)
    wants = Wants(view, board, classes, places(spending, ground))
    placer = Placer(board, rule_of(view, wants, predictor))
    keep_rooms(view, wants, board, lives)
    findings = rejudge(view, board, wants, placer.rule, restated)
    feasibility = Feasibility(placer.scout, snapshot)
    tools = Tools(view, ground, board, ledger, Typed(wants, feasibility))
    desk = Desk(
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
    allotment = allot(desk, lives)
    told = move(desk, allotment, findings)
    predictions = Predictions(board, placer.rule, _verdicts(allotment))
    return Award(
        desk=desk,
        allotment=allotment,
        ordering=order_nodes(view, spending, allotment.outcomes),
        reporter=Reporter(desk, allotment, predictions, devices, told),
        devices=devices,
        spent_s=spent_s,
    )


def _verdicts(allotment: Allotment) -> dict[str, Verdict]:
    """What admission said of who was given a place, by uid of the pod."""
    return {
        seat.asked.member.pod.uid: seat.spot.grant.verdict
        for outcome in allotment.outcomes.values()
        for seat in outcome.seats
        if seat.spot.grant.verdict is not None
    }
