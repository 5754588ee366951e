# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Work whose objective was edited while it runs is judged again where it is.

What is predicted to break the new objective starts again elsewhere where that loses nothing (a job
at its checkpoint, a replica beside its replacement) and where a place is predicted to keep it; else
its owner is told why it stays. Nobody is moved because a prediction drifted: only an edit asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from ullage.api.contract import Reason
from ullage.api.reasons import ConditionType
from ullage.decide.allot import Allotment, Desk
from ullage.decide.board import Board
from ullage.decide.figures import Predictions
from ullage.decide.judging import TOLERANCE, Rule
from ullage.decide.life import Life
from ullage.decide.phases import Phase
from ullage.decide.room import elsewhere
from ullage.decide.view import Held, Mark, Member, View
from ullage.decide.want import Wants
from ullage.state.records import PodStage, WorkloadKind, WorkloadRecord

_TOLD: Final = (
    Reason.PREDICTED_SLO_BREACH,
    Reason.SLO_INFEASIBLE,
    Reason.LOAD_INFEASIBLE,
    Reason.NEED_PROFILE,
)
"""What an edited objective is told to be, as condition ``Degraded``, while it is so."""

Told = tuple[Reason, str]


@dataclass(frozen=True, slots=True)
class Finding:
    """Why an edited objective cannot be kept, or not be judged, where the work runs."""

    reason: Reason
    text: str
    pods: Mapping[str, str]
    """Pods that another place may serve better, by uid: node/device where they are."""


def rejudge(
    view: View, board: Board, wants: Wants, rule: Rule, restated: frozenset[str]
) -> dict[str, Finding]:
    """What is foretold to work with an edited objective, by uid; nothing where it is kept.

    Args:
        view: the cycle's picture.
        board: who is where.
        wants: knows what each objective allows.
        rule: foretells.
        restated: uids of workloads whose objective the nodes did not know yet.
    """
    predictions = Predictions(board, rule)
    found: dict[str, Finding] = {}
    for uid, workload in view.snapshot.workloads.items():
        if uid in restated or _is_news(workload) or _shown(workload):
            finding = _judge(view, wants, predictions, workload)
            if finding is not None:
                found[uid] = finding
    return found


def move(desk: Desk, allotment: Allotment, findings: Mapping[str, Finding]) -> dict[str, Told]:
    """Let jobs start again where their objective is predicted to be kept.

    Comes after everybody who waits was served, so that nobody is moved to a place that is given
    away in the same cycle.

    Returns:
        What is told to those who stay, by uid.
    """
    told: dict[str, Told] = {}
    for uid, finding in sorted(findings.items()):
        workload = desk.view.snapshot.workloads[uid]
        life = allotment.lives[uid]
        if life.silent or life.phase.terminal:
            continue
        if workload.kind is not WorkloadKind.TRAINING_JOB:
            told[uid] = (finding.reason, f"{finding.text}; {_replaced(allotment, uid)}")
        elif life.phase is Phase.RUNNING and not life.waiting:
            stays = _stays(desk, workload, finding)
            if stays:
                told[uid] = (finding.reason, f"{finding.text}; {stays}")
                continue
            message = f"{finding.text}; it starts again from its checkpoint elsewhere"
            allotment.lives[uid] = Life(
                phase=Phase.RESTARTING,
                reason=finding.reason,
                message=message,
                restarts=workload.status.restarts,
            )
    return told


def with_marks(view: View, findings: Mapping[str, Finding]) -> View:
    """The picture in which replicas that another place may serve better are to leave theirs."""
    marks = dict(view.marks)
    for uid, finding in findings.items():
        if view.snapshot.workloads[uid].kind is WorkloadKind.INFERENCE_SERVICE:
            for pod in finding.pods:
                marks.setdefault(pod, Mark(finding.reason, finding.text, ""))
    return replace(view, marks=marks) if findings else view


def _replaced(allotment: Allotment, uid: str) -> str:
    """What is done about a service."""
    leaving = allotment.leaving.get(uid)
    if leaving is not None and leaving.under_way:
        return "replicas move to other places, one after the other"
    return "it stays, because no other place is predicted to keep it now"


def _stays(desk: Desk, job: WorkloadRecord, finding: Finding) -> str:
    """Why a job is not moved; empty when it is."""
    if not finding.pods:
        return "no other place changes that: loosen the objective"
    if not job.checkpoint:
        return "it stays, because without spec.checkpoint a restart would lose its work"
    members = desk.view.members_of(job)
    if not elsewhere(desk.placer, desk.wants, job, members, here_too=job.sharing.resizable):
        return "it stays, because no other place is predicted to keep it now"
    return ""


def _is_news(workload: WorkloadRecord) -> bool:
    """Whether the object was edited since its status was last written."""
    return 0 < workload.status.observed_generation < workload.generation


def _shown(workload: WorkloadRecord) -> bool:
    """Whether its owner is being told; the bad conditions stand last."""
    return any(
        one.type == ConditionType.DEGRADED and one.reason in _TOLD
        for one in workload.status.conditions[-2:]
    )


def _judge(
    view: View, wants: Wants, predictions: Predictions, workload: WorkloadRecord
) -> Finding | None:
    """The worst of its members; ``None`` where all keep the objective, or none runs."""
    worst, reason, text = 0.0, None, ""
    pods: dict[str, str] = {}
    known = wants.classes.of(workload)
    ground = wants.board.ground
    for member, held in _running(view, workload):
        site = ground.site_index.get((held.node, held.slice.gpu))
        if site is None:
            continue
        model, place = ground.model.item(site), ground.place_name(site)
        barred = known.barred.get(model)
        if barred is not None:
            return Finding(barred.reason, barred.text, {})
        allowed = known.tenants[model].max_slowdown
        predicted = predictions.of(held.node, held.slice.gpu, member.pod.uid)
        if allowed is None or predicted <= allowed + TOLERANCE:
            continue
        pods[member.pod.uid] = place
        if predicted / allowed > worst:
            worst, reason = predicted / allowed, Reason.PREDICTED_SLO_BREACH
            text = (
                f"at {held.slice.percent} % of {place} {member.pod.name} would run"
                f" {predicted:.2f} times slower than alone, its edited objective allows"
                f" {allowed:g} (predicted)"
            )
    return Finding(reason, text, pods) if reason is not None else None


def _running(view: View, workload: WorkloadRecord) -> list[tuple[Member, Held]]:
    return [
        (member, held)
        for member in view.members_of(workload)
        if member.pod.stage is PodStage.RUNNING and not member.pod.deleting
        for held in member.held
        if not held.slice.probation
    ]
