# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The turns of a cycle: the jobs that take part, the division, the plan and the accounts.

They exist only when the policy's objective is not FIFO. All state is in the statuses of the jobs
and of the policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ullage.api.reasons import ConditionType, Reason
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.status import (
    MOST_PARTED,
    AllocationRecord,
    Condition,
    PairRecord,
    PartedRecord,
    SolveRecord,
)
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.engines.admission.records import Refusal
from ullage.scheduling.model.lifecycle_step import LifecycleStep
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.plan import SetConditions
from ullage.scheduling.model.view import Member, View
from ullage.scheduling.placement.attempt import Refused
from ullage.scheduling.placement.placement import Placement
from ullage.scheduling.prediction.verdicts import AdmissionRule
from ullage.scheduling.times import PAIR_PARTED_S
from ullage.scheduling.timeslicing.contenders import (
    WHOLE,
    Arena,
    Runner,
    Tools,
    arena,
    began_at,
    held_type,
)
from ullage.scheduling.timeslicing.division import FIFO, Allocate, Division, divide
from ullage.scheduling.timeslicing.division_cache import DivisionCache
from ullage.scheduling.timeslicing.messages import leaves_text, turn_text, unpriced_text
from ullage.scheduling.timeslicing.pairing import paired
from ullage.scheduling.timeslicing.plan import Turnout, plan, turn_quota
from ullage.scheduling.timeslicing.problem import Goal, on_grid
from ullage.scheduling.timeslicing.round_records import Entry, closed, has_content, number, written


@dataclass(frozen=True, slots=True)
class Rounds:
    """The turns of one cycle."""

    tools: Tools
    arena: Arena
    division: Division
    turnout: Turnout

    def models(self, kinds: Iterable[str]) -> frozenset[int]:
        """Numbers of types in the inventory."""
        return frozenset(self.tools.inventory.models[kind] for kind in kinds)

    def infeasible(self, uid: str) -> Refusal | None:
        """The refusal of a job that never gets a turn; ``None`` = it may get one."""
        if uid not in self.arena.nowhere:
            return None
        replicas = self.tools.view.snapshot.workloads[uid].replicas
        return Refusal(
            Reason.NO_FEASIBLE_ACCELERATOR,
            f"no single accelerator type has room for {replicas} members, even empty, and turns"
            " never mix types",
        )

    def ended(self, uid: str, winner: str) -> str:
        """Message for a job whose turn ends for another job."""
        runner = self.arena.runners.get(uid)
        kind = f" on {runner.holds}" if runner is not None and runner.holds else ""
        return (
            f"its turn{kind} is over: {winner} is owed more time; resumes from its checkpoint in"
            " its next turn"
        )

    def leaves(self, uid: str, kind: str) -> str:
        """Message for a job that restarts on a type."""
        return leaves_text(self.arena, uid, kind, self.turnout.partners.get(uid, ""))

    def why(self, uid: str) -> str:
        """Message for a job that waits for its turn."""
        return turn_text(self.arena, self.division, self.turnout, uid)

    def books(
        self,
        job: WorkloadRecord,
        life: LifecycleStep,
        members: Sequence[Member],
        placements: Sequence[Placement],
    ) -> AllocationRecord | None:
        """The account of a job for its status; the previous object if nothing changed.

        Args:
            job: A TrainingJob.
            life: Its step in this cycle.
            members: Its pods.
            placements: Places that it got in this cycle.
        """
        view, before = self.tools.view, job.status.allocation
        runner = self.arena.runners.get(job.ref.uid)
        if runner is None:
            return closed(before, view.now)
        holds, began = self._held(runner, members, placements)
        started = life.phase is Phase.RUNNING and job.status.phase != Phase.RUNNING
        fractions = self.division.fractions[job.ref.uid]
        skipped = job.ref.uid in self.turnout.skipped and not holds
        dropped = self.division.dropped.get(job.ref.uid)
        pairs, parted = self._promises(runner), self._parted(runner)
        beside = self._partner(runner, placements) if holds else ""
        content = (holds, fractions, runner.source, skipped, dropped, beside, pairs, parted)
        if before is not None and not started and has_content(before, content):
            return before
        entry = Entry(
            fractions=fractions,
            holds=holds,
            began=began,
            effective=self.division.effective[job.ref.uid],
            normalised=self.division.normalised[job.ref.uid],
            source=runner.source,
            worth=self.division.isolated.get(job.ref.uid),
            skipped=skipped,
            started_s=max(1.0, view.now - began) if started and began else 0.0,
            dropped=dropped,
            pairs=pairs,
            beside=beside,
            parted=parted,
        )
        return written(before, entry, view.now, view.snapshot.policy.round_seconds)

    def part(self, uid: str, refused: Refused) -> None:
        """Exclude a pair for a while because a job finds no place beside its partner."""
        other, runners = self.turnout.partners[uid], self.arena.runners
        first, second = runners[uid], runners[other]
        reasons = "; ".join(line.message for line in refused.lines) or refused.reason.value
        for mine, theirs in ((first, second), (second, first)):
            self.turnout.parted[mine.uid] = PartedRecord(
                workload_class=theirs.workload.workload_class,
                accelerator=self.turnout.types[uid],
                until=whole_second(self.tools.view.now + PAIR_PARTED_S),
                message=f"{first.name} has no place beside {second.name}: {reasons}",
            )

    def _promises(self, runner: Runner) -> tuple[PairRecord, ...]:
        """Promises of the job beside others, with the predicted speeds."""
        promises: list[PairRecord] = []
        for other, kind, part in self.division.partners.get(runner.uid, ()):
            both = self.arena.pairing.together(runner.uid, other, kind)
            partner = self.arena.runners.get(other)
            if both is None or partner is None:
                continue
            speeds = [
                number(on_grid(job.speeds.get(kind, 0.0)) / slowdown)
                for job, slowdown in zip((runner, partner), both.slowdowns, strict=True)
            ]
            promises.append(
                PairRecord(
                    partner=partner.name,
                    partner_uid=other,
                    accelerator=kind,
                    fraction=part,
                    percent=both.percents[0],
                    steps_per_second=speeds[0],
                    partner_steps_per_second=speeds[1],
                )
            )
        return tuple(sorted(promises, key=lambda pair: pair.cell))

    def _partner(self, runner: Runner, placements: Sequence[Placement]) -> str:
        """Uid of the job that shares the device, or is about to; empty for none."""
        percent = placements[0].candidate.percent if placements else runner.percent
        if percent >= WHOLE:
            return ""
        return self.turnout.partners.get(runner.uid, "") or runner.beside

    def _parted(self, runner: Runner) -> tuple[PartedRecord, ...]:
        """Excluded pairs: those in force, and one that ended in this cycle."""
        books, now = runner.workload.status.allocation, self.tools.view.now
        before = books.parted if books is not None else ()
        in_force = tuple(record for record in before if record.until > now)
        fresh = self.turnout.parted.get(runner.uid) or self.arena.pairing.ended.get(runner.uid)
        cells = {(record.workload_class, record.accelerator) for record in in_force}
        if fresh is not None and (fresh.workload_class, fresh.accelerator) not in cells:
            in_force = (*in_force, fresh)[-MOST_PARTED:]
        return before if in_force == before else in_force

    def _held(
        self, runner: Runner, members: Sequence[Member], placements: Sequence[Placement]
    ) -> tuple[str, float]:
        """Type that the job holds by the plan of this cycle, and the time since when."""
        inventory, ledger, job = self.tools.inventory, self.tools.ledger, runner.workload
        drops = any(ledger.drops_on(held.node) for member in members for held in member.held)
        if runner.holds and not drops:
            return runner.holds, runner.began
        holds, seen = held_type(inventory, ledger, members)
        if not holds and placements:
            holds = inventory.model_names[inventory.model.item(placements[0].candidate.sites[0])]
            seen = self.tools.view.now
        return holds, began_at(job, holds, seen) if holds else 0.0

    @property
    def record(self) -> SolveRecord | None:
        """The record of the division for the policy's status."""
        return self.division.record


def take_turns(
    tools: Tools,
    lifecycles: Mapping[str, LifecycleStep],
    rule: AdmissionRule,
    allocate: Allocate | None,
    cache: DivisionCache,
) -> Rounds | None:
    """The turns of this cycle; ``None`` under FIFO."""
    view = tools.view
    policy = view.snapshot.policy
    if policy.objective == FIFO:
        return None
    contenders = paired(tools, arena(tools, lifecycles), rule, cache)
    division = divide(policy, contenders, view.now, allocate, cache)
    quota = turn_quota(contenders, tools.occupancy)
    return Rounds(tools, contenders, division, plan(policy, contenders, division, view.now, quota))


def next_turn(rounds: Rounds | None) -> float:
    """Time at which a turn may end without another event; 0 = never."""
    return rounds.turnout.wake_at if rounds is not None else 0.0


def books_of(
    rounds: Rounds | None,
    job: WorkloadRecord,
    life: LifecycleStep,
    members: Sequence[Member],
    placements: Sequence[Placement],
) -> AllocationRecord | None:
    """``status.allocation`` of a workload; ``None`` for services and under FIFO."""
    if rounds is None or job.kind is not WorkloadKind.TRAINING_JOB:
        return None
    return rounds.books(job, life, members, placements)


def division_news(view: View, rounds: Rounds | None) -> list[SetConditions]:
    """The write of the division into the policy's status, if it changed."""
    policy = view.snapshot.policy
    record = rounds.record if rounds is not None else None
    goal = rounds.division.goal if rounds is not None else None
    conditions = _conditions(policy, goal, view.now)
    if not policy.uid or (record is policy.last_solve and conditions == policy.conditions):
        return []
    return [
        SetConditions(
            target=ObjectRef(
                kind="SchedulingPolicy", namespace="", name=policy.name, uid=policy.uid
            ),
            generation=policy.generation,
            conditions=conditions,
            last_solve=record,
            epoch=view.settings.epoch,
            reason=Reason.ROUND_SCHEDULED,
            text=f"divided among {record.jobs} jobs" if record else "the objective is FIFO",
        )
    ]


def _conditions(policy: PolicyRecord, goal: Goal | None, now: float) -> tuple[Condition, ...]:
    """The policy's conditions, with ``Degraded`` while a price is missing."""
    before = next((c for c in policy.conditions if c.type == ConditionType.DEGRADED), None)
    if goal is None or not goal.unpriced:
        if before is None:
            return policy.conditions
        return tuple(condition for condition in policy.conditions if condition is not before)
    message = unpriced_text(goal)
    if before is not None and before.message == message:
        return policy.conditions
    condition = Condition(
        type=ConditionType.DEGRADED,
        status="True",
        reason=Reason.PRICE_MISSING,
        message=message,
        since=before.since if before is not None else whole_second(now),
        observed_generation=policy.generation,
    )
    return (*(condition for condition in policy.conditions if condition is not before), condition)
