# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""One decision for the whole cluster: from a picture to a plan.

Pure: the same snapshot, moment, settings and predictor give the same plan, byte for byte. No I/O,
no clock, no randomness. Read it top to bottom: what stands, what everybody needs, who gets what,
what everybody is told.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Final

from ullage.decide.accounting.account import Accountant
from ullage.decide.accounting.news import cost_news
from ullage.decide.adopt import drop_refused, settle
from ullage.decide.advice.recommend import Advisor
from ullage.decide.advice.recommended import advice_news, advised
from ullage.decide.digest import board_digest, cycle_digest
from ullage.decide.elastic import sizes
from ullage.decide.guards import rest_ends
from ullage.decide.learning.loop import profiles_to_write
from ullage.decide.ledger import Ledger
from ullage.decide.lives.inference import inference_life
from ullage.decide.lives.life import Life, earliest
from ullage.decide.lives.restated import restate
from ullage.decide.lives.serving import replicas_that_serve
from ullage.decide.lives.training import training_life
from ullage.decide.model import Action, DecideSettings, Emit, Plan
from ullage.decide.nodes import missing_gpu_nodes
from ullage.decide.notices.drain import by_class, notice_marks
from ullage.decide.notices.reading import terminations
from ullage.decide.notices.taints import eviction_notices, node_taints
from ullage.decide.phases import Phase
from ullage.decide.placement.allot import allot, release
from ullage.decide.placement.board import set_up
from ullage.decide.placement.desk import Desk
from ullage.decide.placement.feasible import Feasibility
from ullage.decide.placement.ground import Ground, lay_out
from ullage.decide.placement.placement import Placer
from ullage.decide.placement.want import Wants
from ullage.decide.rounds.division import Allocate
from ullage.decide.rounds.news import turn_news
from ullage.decide.rounds.runners import Tools, Typed
from ullage.decide.rounds.turns import division_news, next_turn, take_turns
from ullage.decide.sharing.classes import Classes
from ullage.decide.sharing.kept_rooms import keep_rooms
from ullage.decide.sharing.news import sharing_news
from ullage.decide.sharing.rejudged import move, rejudge, with_marks
from ullage.decide.sharing.ruling import rule_of
from ullage.decide.sharing.trials import bookings, commit, look_at_trials, spent
from ullage.decide.speeds.written import with_estimates
from ullage.decide.spending.limits import limits_of
from ullage.decide.spending.orders import order_nodes
from ullage.decide.spending.places import places
from ullage.decide.spending.spending import decide_pools
from ullage.decide.spending.telling import spend_news
from ullage.decide.telling.figures import Predictions
from ullage.decide.telling.policies import void_policies
from ullage.decide.telling.report import Reporter, event
from ullage.decide.tiers.leading import leads_of, led, on_their_machines
from ullage.decide.tiers.telling import tier_news, with_tier
from ullage.decide.view import View, members_by_owner
from ullage.engines.admission.prediction import Predictor
from ullage.state.records import PodStage, Snapshot, WorkloadKind
from ullage.state.status.records import WorkloadStatus

_STARTING: Final = (PodStage.UNSCHEDULED, PodStage.BOUND)
_IN_TURN_S: Final = 1.0
"""When it should come if only those were left out who know why they wait."""
_AT_ONCE_S: Final = 0.05
"""When the next cycle should come if this one left something undone."""


def decide(
    snapshot: Snapshot,
    now: float,
    settings: DecideSettings,
    predictor: Predictor,
    allocate: Allocate | None = None,
) -> Plan:
    """What should be, for the whole cluster.

    Args:
        snapshot: the picture, observed and assumed.
        now: the moment of the decision, seconds since the epoch.
        settings: epoch of this leader and the clock values of the guards.
        predictor: foresees slowdowns where the policy chooses the utilisation sum.
        allocate: divides the cluster's time; the engine's own where it is ``None``.
    """
    snapshot = sizes.with_sizes(snapshot)
    ledger = Ledger(snapshot)
    view = look(snapshot, now, settings, ledger)
    trials = look_at_trials(view)
    spending = decide_pools(view)
    notices = terminations(snapshot)
    marks = notice_marks(view, notices)
    view = replace(view, marks={**trials.marks, **spending.marks, **marks})
    ground = lay_out(view)
    lives = _live(view, ground)
    drop_refused(view, ledger)
    committed = commit(view, trials, ledger)
    for life in lives.values():
        for member in life.release:
            release(ledger, member)
    spent_s = spent(view, trials)
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
    rounds = take_turns(tools, lives, allocate)
    desk = Desk(
        view=with_marks(view, findings),
        ground=ground,
        ledger=ledger,
        placer=placer,
        wants=wants,
        feasibility=feasibility,
        rounds=rounds,
        spending=spending,
        limits=limits_of(spending, snapshot.workloads, snapshot.pools),
    )
    allotment = allot(desk, lives)
    told = move(desk, allotment, findings)
    ordering = order_nodes(view, spending, allotment.outcomes)
    admissions = {
        seat.asked.member.pod.uid: seat.spot.grant.verdict
        for outcome in allotment.outcomes.values()
        for seat in outcome.seats
        if seat.spot.grant.verdict is not None
    }
    predictions = Predictions(board, placer.rule, admissions)
    reporter = Reporter(desk, allotment, predictions, devices, told)
    waiting = [snapshot.workloads[uid] for uid, life in lives.items() if life.waiting]
    inputs_hash = cycle_digest(view, devices, waiting)
    slices = ledger.slices() | dict.fromkeys(missing_gpu_nodes(snapshot), ())
    accountant = Accountant.of(snapshot, slices, now)
    statuses, events = _tell(view, reporter, lives, accountant)
    steps: list[Action] = [step for uid in sorted(lives) for step in lives[uid].steps]
    taints = node_taints(snapshot, notices, settings.epoch)
    events += eviction_notices(view, notices, taints)
    events += ordering.events
    profiles = tuple(snapshot.profiles.values())
    lessons = profiles_to_write(snapshot, now, settings.epoch, bookings(spent_s, profiles))
    lessons = with_estimates(snapshot, now, settings.epoch, lessons)
    return Plan(
        version=snapshot.version,
        epoch=settings.epoch,
        inputs_hash=inputs_hash,
        slices=slices,
        steps=(
            *by_class(on_their_machines((*steps, *allotment.steps), snapshot), snapshot),
            *taints,
            *ordering.steps,
            *void_policies(snapshot, now, settings.epoch),
            *division_news(view, rounds),
            *lessons.actions,
        ),
        statuses=statuses,
        events=(*events, *committed, *sharing_news(desk, allotment), *lessons.events),
        dropped={reason.value: count for reason, count in lessons.dropped.items()},
        wake_at=earliest(
            _resumed_at(snapshot, now, allotment.postponed),
            _wake_at(view, lives),
            _follows(view, statuses),
            lessons.wake_at,
            trials.wake_at,
            next_turn(rounds),
            spending.wake_at,
            ordering.wake_at,
        ),
    )


def look(snapshot: Snapshot, now: float, settings: DecideSettings, ledger: Ledger) -> View:
    """Arrange the snapshot; slices that do not stand are dropped from the ledger on the way."""
    settled = settle(snapshot, settings, ledger)
    return View(
        snapshot=snapshot,
        now=now,
        settings=settings,
        members=members_by_owner(snapshot, settled.kept, settled.observed),
        observed=settled.observed,
        names={(pod.namespace, pod.name): pod for pod in snapshot.pods.values()},
        starting=sum(pod.stage in _STARTING for pod in snapshot.pods.values()),
        orders=tuple(pod for pod in snapshot.pods.values() if pod.order),
        leads=leads_of(snapshot),
    )


def _live(view: View, ground: Ground) -> dict[str, Life]:
    """What every workload needs, by its uid."""
    return {
        uid: (
            led(view, workload, training_life(view, ground, workload))
            if workload.kind is WorkloadKind.TRAINING_JOB
            else inference_life(view, ground, workload)
        )
        for uid, workload in view.snapshot.workloads.items()
    }


def _tell(
    view: View, reporter: Reporter, lives: dict[str, Life], accountant: Accountant
) -> tuple[dict[str, WorkloadStatus], list[Emit]]:
    statuses: dict[str, WorkloadStatus] = {}
    events: list[Emit] = []
    advisor = Advisor.of(view.snapshot)
    for uid in sorted(lives):
        workload = view.snapshot.workloads[uid]
        if lives[uid].silent:
            continue
        status = advised(advisor, workload, reporter.status(workload))
        status = with_tier(view, workload, accountant.booked(workload, status))
        statuses[uid] = status
        if status is not workload.status:
            change = reporter.allotment.sizes.get(uid)
            news = sizes.news(workload, change, view.settings.epoch) or event(
                workload, status, view.settings.epoch
            )
            advice = advice_news(advisor, workload, status, view.settings.epoch)
            events.extend(one for one in (news, advice) if one is not None)
            events.extend(turn_news(workload, status, view.settings.epoch))
            events.extend(spend_news(workload, status, view.settings.epoch))
            events.extend(cost_news(workload, status, view.settings.epoch))
            events.extend(tier_news(workload, status, view.settings.epoch))
    return statuses, events


def _resumed_at(snapshot: Snapshot, now: float, postponed: Set[str]) -> float:
    """When what this cycle had no time for comes next: at once, if it was never told anything."""
    if not postponed:
        return 0.0
    told = all(snapshot.workloads[uid].status.decision is not None for uid in postponed)
    return now + (_IN_TURN_S if told else _AT_ONCE_S)


def _follows(view: View, statuses: Mapping[str, WorkloadStatus]) -> float:
    """When a step comes that only waits for what this cycle tells; 0 = none does.

    A status of ours that is read back is no news, and nothing else need happen before pods of a
    start that is over are taken down, those of the next are made, or made for another size.
    """
    for uid, status in statuses.items():
        job = view.snapshot.workloads[uid]
        before = job.status
        if status is before or job.kind is not WorkloadKind.TRAINING_JOB:
            continue
        turns = status.phase != before.phase and Phase.RESTARTING in (status.phase, before.phase)
        if turns or status.replicas != before.replicas:
            return view.now + _AT_ONCE_S
    return 0.0


def _wake_at(view: View, lives: dict[str, Life]) -> float:
    """When a guard or a back-off ends though nothing changes; 0 = never."""
    moments = [life.wake_at for life in lives.values() if life.wake_at]
    for uid, life in lives.items():
        if life.waiting:
            workload = view.snapshot.workloads[uid]
            moments.append(rest_ends(view, workload, view.members_of(workload)))
    return earliest(*(one for one in moments if one > view.now))
