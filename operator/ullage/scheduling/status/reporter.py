# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The status of every workload after a cycle, with its ruling, and an Event on change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from ullage.api.reasons import ConditionType, Reason, Standing, standing_of
from ullage.api.slices import DesiredSlice
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.status import (
    REFUSAL_LIMIT,
    DecisionRecord,
    RefusalLine,
    SchedulingState,
    WorkloadStatus,
)
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.scheduling.assignment.cycle_context import Assignments, CycleContext
from ullage.scheduling.assignment.digest import decision_digest, in_bytes
from ullage.scheduling.assignment.entry import Entry
from ullage.scheduling.assignment.moves import better_for
from ullage.scheduling.capacity.status import says_already
from ullage.scheduling.elastic.sizes import size_status
from ullage.scheduling.feasibility.resource_requests import ResourceRequest
from ullage.scheduling.inventory.exclusions import active_exclusions, with_failure
from ullage.scheduling.lifecycle.adopted import ended_well
from ullage.scheduling.lifecycle.routing import router_condition
from ullage.scheduling.lifecycle.slow_members import with_replacement
from ullage.scheduling.model.lifecycle_step import LifecycleStep
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.plan import Emit
from ullage.scheduling.model.view import Member
from ullage.scheduling.placement.attempt import Outcome, Refused
from ullage.scheduling.placement.predicted_figures import Part, Predictions, contract_exceeded
from ullage.scheduling.status import decisions, unchanged
from ullage.scheduling.status.as_recommended import as_recommended, shows_verdict
from ullage.scheduling.status.decisions import Ruling
from ullage.scheduling.status.straggler_status import straggler_condition
from ullage.scheduling.status.workload_status import StatusInputs, build_status
from ullage.scheduling.timeslicing.rounds import books_of


@dataclass(frozen=True, slots=True)
class Reporter:
    """Computes statuses of workloads."""

    context: CycleContext
    assignments: Assignments
    predictions: Predictions
    _in_bytes: dict[int, bytes] = field(default_factory=dict)
    """Serialised requests by number."""

    def status(self, workload: WorkloadRecord) -> WorkloadStatus:
        """The status of a workload; the previous object if nothing changed."""
        uid = workload.ref.uid
        entry = self.assignments.entries.get(uid) or Entry(workload)
        if entry.postponed:
            return workload.status
        life, outcome = self.context.lifecycles[uid], entry.outcome
        members = entry.planned or self.context.view.members.get(uid, ())
        refused = self._bound(workload, outcome.refused if outcome is not None else None)
        placements = outcome.placements if outcome is not None else ()
        pool_choice = self.context.capacity_choices.recorded_for(uid)
        books = books_of(self.context.rounds, workload, life, members, placements)
        size = size_status(workload, life, placements, entry.size, self.context.view.now)
        scaling = entry.scaling.record if entry.scaling is not None else None
        same_records = (
            books is workload.status.allocation
            and size == (workload.status.replicas, workload.status.size)
            and scaling == workload.status.scaling
        )
        if (
            life.waiting
            and refused is not None
            and same_records
            and says_already(workload, pool_choice)
            and unchanged.still_waits(workload, life, refused)
        ):
            return workload.status
        if life.headcount is not None:  # joining and leaving members do not count
            members = [member for member in members if not (member.gated or member.pod.deleting)]
        parts = self._parts(members, outcome)
        verdict = as_recommended(
            self.context.inventory,
            workload,
            parts,
            partial(better_for, self.context, workload, members),
        )
        if (
            life.phase is Phase.RUNNING
            and not life.retry_at
            and life.restarts == workload.status.restarts
            and outcome is None
            and same_records
            and uid not in self.assignments.warnings
            and says_already(workload, pool_choice)
            and shows_verdict(workload, verdict)
            and life.passed_over is None
            and workload.status.decision is not None
            and workload.status.decision.alone == self._is_alone(workload, parts)
            and unchanged.still_runs(self.context.view, workload, parts, self.predictions)
        ):
            return workload.status
        admitted = _is_admitted(workload, life, members, parts)
        scheduling = self._scheduling(workload, life)
        decision = self._decision(entry, life, (parts, admitted, refused), scheduling)
        reason, message = _head(life, refused, admitted, decision)
        phase = life.phase
        if workload.is_gang and life.waiting and phase in (Phase.PENDING, Phase.RESERVING):
            phase = Phase.RESERVING if admitted else Phase.PENDING
        inputs = StatusInputs(
            workload=workload,
            life=life,
            phase=phase,
            members=members,
            parts=parts,
            admitted=admitted,
            reason=reason,
            message=message,
            decision=decision,
            scheduling=scheduling,
            allocation=books,
            degraded=self._degraded(entry, life, admitted) or contract_exceeded(parts),
            endpoint=self._endpoint(workload),
            pool_choice=pool_choice,
            size=size,
            made_room=entry.made_room or workload.status.made_room,
            verdict=verdict,
            scaling=scaling,
            straggler=straggler_condition(
                self.context.view, workload, self.context.kept_stragglers.get(uid, "")
            ),
            router=router_condition(self.context.view, workload),
        )
        return build_status(self.context.view, inputs, self.predictions)

    def _parts(self, members: Sequence[Member], outcome: Outcome | None) -> list[Part]:
        """Slices that the members hold by the plan, in order of members and index."""
        ledger, nodes = self.context.ledger, self.context.inventory.nodes
        fresh: dict[str, Sequence[tuple[str, DesiredSlice]]] = {}
        for placement in outcome.placements if outcome is not None else ():
            uid = placement.member.pod.uid
            fresh[uid] = ledger.added(nodes[placement.candidate.node].name, uid)
        parts: list[Part] = []
        for member in members:
            pod = member.pod
            slices = fresh.get(pod.uid)
            if slices is not None:
                parts.extend(
                    Part(pod.uid, pod.name, node, part_slice, None) for node, part_slice in slices
                )
                continue
            parts.extend(
                Part(pod.uid, pod.name, held.node, held.slice, held.seen)
                for held in member.held
                if not ledger.dropped(held.node, held.slice.key)
            )
        return parts

    def _decision(
        self,
        entry: Entry,
        life: LifecycleStep,
        placed: tuple[Sequence[Part], bool, Refused | None],
        scheduling: SchedulingState,
    ) -> DecisionRecord | None:
        """The record of this cycle's ruling, or the previous one if it is still in force."""
        workload, outcome = entry.workload, entry.outcome
        before = workload.status.decision
        parts, admitted, refused = placed
        if scheduling.exclusions is not workload.status.scheduling.exclusions:
            before = None  # a device just failed it, which is a change
        if admitted and not life.phase.terminal:
            ruling = self._placed(entry, life, parts)
            if workload.adopted and before is not None and _shows(before, ruling):
                return before  # adopted pods store no more of it
            if before is not None and outcome is None and _same_place(workload, parts):
                # the same place is no new decision, so its runner-up stays
                ruling = replace(ruling, runner_up=before.runner_up, lines=before.refusals)
        else:
            waiting = self._waits(workload, life, refused)
            if waiting is None:
                return workload.status.decision
            ruling = waiting
        request = self.context.requests.of(workload, workload.shape)
        return decisions.recorded(
            self.context.view,
            before,
            ruling,
            lambda: decision_digest(self.context.devices, workload, self._serialised(request)),
        )

    def _serialised(self, request: ResourceRequest) -> bytes:
        """The request in bytes, cached for all workloads with it."""
        encoded = self._in_bytes.get(request.number)
        if encoded is None:
            encoded = self._in_bytes[request.number] = in_bytes(request)
        return encoded

    def _placed(self, entry: Entry, life: LifecycleStep, parts: Sequence[Part]) -> Ruling:
        workload, outcome, rollout = entry.workload, entry.outcome, entry.rollout
        if rollout is not None and rollout.waits:
            return Ruling(reason=Reason.NO_ROOM_TO_SURGE, text=lambda: _WAITS_FOR_ROOM, parts=parts)
        runner_up = ""
        if outcome is not None:
            runner_up = decisions.spot_text(self.context.inventory, outcome.runner_up)
        alone = self._is_alone(workload, parts)
        return Ruling(
            reason=Reason.PLACED,
            text=lambda: decisions.placed_text(parts, alone=alone),
            parts=parts,
            runner_up=runner_up,
            lines=self._lines(workload, life),
            alone=alone,
        )

    def _is_alone(self, workload: WorkloadRecord, parts: Sequence[Part]) -> bool:
        """True when no other workload may join it until its latency is measured."""
        if workload.slo is None or workload.gpu.share is None:
            return False
        unmeasured = self.context.requests.classes.of(workload).unmeasured
        inventory = self.context.inventory
        sites = [inventory.site_index.get((part.node, part.slice.gpu)) for part in parts]
        models = {inventory.model.item(site) for site in sites if site is not None}
        return not models.isdisjoint(unmeasured.keys())

    def _waits(
        self, workload: WorkloadRecord, life: LifecycleStep, refused: Refused | None
    ) -> Ruling | None:
        """The ruling for a workload that waits; ``None`` = this cycle made none."""
        reason = life.reason if life.phase is Phase.RESTARTING else None
        if reason is not None and Standing.PREEMPTION in reason.standing:
            return Ruling(reason=reason, text=lambda: life.message)
        if refused is not None:
            lines = _joined((*refused.lines, *self._lines(workload, life)))
            return Ruling(reason=refused.reason, text=lambda: refused.text(workload), lines=lines)
        lines = self._lines(workload, life)
        if life.reason is not None and not life.phase.terminal:
            return Ruling(reason=life.reason, text=lambda: life.message, lines=lines)
        passed = life.passed_over
        if passed is None:
            return None
        return Ruling(reason=passed.reason, text=lambda: passed.message, lines=lines)

    def _bound(self, workload: WorkloadRecord, refused: Refused | None) -> Refused | None:
        """The refusal, including the reasons for devices excluded for the workload."""
        if refused is None or not workload.status.scheduling.exclusions:
            return refused
        why = {
            str(exclusion.device): exclusion
            for exclusion in active_exclusions(self.context.view, workload)
        }
        lines = tuple(
            replace(line, reason=why[line.nearest].reason, message=why[line.nearest].message)
            if line.reason is Reason.RESERVATION_REFUSED and line.nearest in why
            else line
            for line in refused.lines
        )
        if lines == refused.lines:
            return refused
        return replace(refused, reason=lines[0].reason, lines=lines)

    def _lines(self, workload: WorkloadRecord, life: LifecycleStep) -> tuple[RefusalLine, ...]:
        """Recent failures of devices for the workload that still count."""
        lines = tuple(
            RefusalLine(
                reason=exclusion.reason,
                devices=1,
                nearest=str(exclusion.device),
                message=exclusion.message,
            )
            for exclusion in active_exclusions(self.context.view, workload)
        )
        passed = life.passed_over
        if passed is None or Standing.OF_THE_NODE in passed.reason.standing:
            return _joined(lines)
        nearest = str(passed.device) if passed.device is not None else ""
        line = RefusalLine(reason=passed.reason, devices=1, nearest=nearest, message=passed.message)
        return _joined((line, *lines))

    def _scheduling(self, workload: WorkloadRecord, life: LifecycleStep) -> SchedulingState:
        """State that later cycles need; the previous object if nothing changed."""
        view, before = self.context.view, workload.status.scheduling
        exclusions = with_failure(view, workload, life.passed_over)
        replacements = with_replacement(view, workload, life)
        if replacements is not before.replacements:
            before = replace(before, replacements=replacements)
        if life.pull_again_at:
            failures = before.pull_failures + 1
            again = whole_second(life.pull_again_at)
            before = replace(before, pull_failures=failures, pull_again_at=again)
        elif before.pull_failures and life.phase in (Phase.RUNNING, Phase.READY):
            before = replace(before, pull_failures=0, pull_again_at=0.0)
        if exclusions is before.exclusions and not life.preemptions:
            return before
        if not life.preemptions:
            return replace(before, exclusions=exclusions)
        return replace(
            before,
            exclusions=exclusions,
            preemptions=life.preemptions,
            preempted_at=whole_second(view.now),
        )

    def _degraded(
        self, entry: Entry, life: LifecycleStep, admitted: bool
    ) -> tuple[Reason, str] | None:
        """The fault of work that runs nevertheless."""
        workload, rollout = entry.workload, entry.rollout
        fault = self.assignments.warnings.get(workload.ref.uid)
        if workload.is_gang:
            return fault if admitted else None
        if rollout is not None and rollout.waits:
            return Reason.NO_ROOM_TO_SURGE, _WAITS_FOR_ROOM
        if admitted and life.reason is not None:
            return life.reason, life.message
        return fault

    def _endpoint(self, workload: WorkloadRecord) -> str:
        if workload.is_gang:
            return ""
        ref = workload.ref
        service = self.context.view.snapshot.services.get((ref.namespace, ref.name))
        if service is None or service.owner_uid != ref.uid or not service.ports:
            return ""
        return f"{ref.name}.{ref.namespace}.svc:{service.ports[0]}"


def _shows(before: DecisionRecord, ruling: Ruling) -> bool:
    """True when a record already has the ruling about adopted pods."""
    return (
        before.reason is ruling.reason
        and before.alone == ruling.alone
        and before.chosen == decisions.chosen_text(ruling.parts)
    )


def _same_place(workload: WorkloadRecord, parts: Sequence[Part]) -> bool:
    """True when the status shows these devices and shares, in this order."""
    placement = workload.status.placement
    return len(placement) == len(parts) and all(
        (shown.node, shown.gpu, shown.percent) == (part.node, part.slice.gpu, part.slice.percent)
        for shown, part in zip(placement, parts, strict=True)
    )


_WAITS_FOR_ROOM = (
    "the new version waits for a slice beside the running replica; free a device, or scale to two"
    " replicas so that one can stop first"
)


def event(workload: WorkloadRecord, status: WorkloadStatus, epoch: int) -> Emit | None:
    """The Event for a change that matters to the user; ``None`` = there is none.

    A start as decided has no Event: the pods have their own. Nor has the place of a job that had
    not been told to wait: kube-scheduler tells it of the pod, ``kubectl ullage why`` tells it with
    the time of the decision, and how a device is shared is another Event.
    """
    before = workload.status
    was, now = before.condition(ConditionType.ADMITTED), status.condition(ConditionType.ADMITTED)
    finished = status.condition(ConditionType.FINISHED)
    if finished is not None and before.condition(ConditionType.FINISHED) is None:
        return _emit(workload, Reason(finished.reason), finished.message, epoch)
    degraded = status.condition(ConditionType.DEGRADED)
    if degraded is not None and before.condition(ConditionType.DEGRADED) is None:
        return _emit(workload, Reason(degraded.reason), degraded.message, epoch)
    notice = _alert(workload, status, epoch) or _better(workload, status, epoch)
    if notice is not None:
        return notice
    if now is not None and (was is None or was.reason != now.reason):
        reason = Reason(now.reason)
        if reason is Reason.PLACED and status.allocation is not None:
            reason = Reason.ROUND_SCHEDULED
        quiet = Standing.QUIET in reason.standing or (
            reason is Reason.PLACED
            and workload.kind is WorkloadKind.TRAINING_JOB
            and (was is None or Standing.QUIET in standing_of(was.reason))
        )
        return None if quiet else _emit(workload, reason, now.message, epoch)
    return None


def _alert(workload: WorkloadRecord, status: WorkloadStatus, epoch: int) -> Emit | None:
    """The Event for a missed objective under ``onViolation: Alert``."""
    met = status.condition(ConditionType.SLO_MET)
    before = workload.status.condition(ConditionType.SLO_MET)
    if workload.sharing.freeze_neighbours or met is None or met.status != "False":
        return None
    if before is not None and (before.status, before.reason) == (met.status, met.reason):
        return None
    return _emit(workload, Reason(met.reason), met.message, epoch)


def _better(workload: WorkloadRecord, status: WorkloadStatus, epoch: int) -> Emit | None:
    """The Event for another type that has become much better."""
    shown = status.condition(ConditionType.AS_RECOMMENDED)
    before = workload.status.condition(ConditionType.AS_RECOMMENDED)
    if shown is None or shown.reason != Reason.BETTER_CHOICE:
        return None
    if before is not None and before.reason == shown.reason:
        return None
    return _emit(workload, Reason.BETTER_CHOICE, shown.message, epoch)


def _emit(workload: WorkloadRecord, reason: Reason, text: str, epoch: int) -> Emit:
    return Emit(
        target=workload.ref,
        warning=Standing.GOOD not in reason.standing,
        epoch=epoch,
        reason=reason,
        text=text,
    )


def _is_admitted(
    workload: WorkloadRecord, life: LifecycleStep, members: Sequence[Member], parts: Sequence[Part]
) -> bool:
    """True when all members of a gang, or enough replicas of a service, have their slices."""
    if life.reason is not None and workload.is_gang:
        return False
    having = {part.pod_uid for part in parts}
    if workload.adopted:
        placed = sum(member.pod.uid in having and not member.pod.deleting for member in members)
        return placed > 0 and placed + ended_well(workload, members) >= workload.replicas
    settled = sum(
        (member.pod.uid in having and not member.pod.deleting) or not member.live
        for member in members
    )
    if workload.is_gang:
        wanted = len(members) if life.headcount is not None else workload.replicas
        return settled == len(members) == wanted
    live = sum(member.pod.uid in having and not member.pod.deleting for member in members)
    return live >= workload.replicas


def _head(
    life: LifecycleStep, refused: Refused | None, admitted: bool, decision: DecisionRecord | None
) -> tuple[Reason, str]:
    """The reason and message to show."""
    if admitted:
        return Reason.PLACED, decision.chosen if decision is not None else ""
    if refused is not None:
        return refused.reason, decision.message if decision is not None else ""
    if life.reason is not None:
        return life.reason, life.message
    if life.passed_over is not None:
        return life.passed_over.reason, life.passed_over.message
    return Reason.WAITING_FOR_DECISION, life.message


def _joined(lines: Sequence[RefusalLine]) -> tuple[RefusalLine, ...]:
    """The first line of each reason."""
    by_reason: dict[Reason, RefusalLine] = {}
    for line in lines:
        by_reason.setdefault(line.reason, line)
    return tuple(by_reason.values())[:REFUSAL_LIMIT]
