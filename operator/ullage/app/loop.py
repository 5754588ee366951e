# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The control loop: snapshot -> decision -> difference -> writes.

Only this module knows state, decision and writer at once. It never decides on a partial view and
never without the Lease; it records assumptions before it writes, so that the next snapshot already
includes pending writes.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog
from prometheus_client import Histogram

from ullage.api.reasons import ConditionType, Reason
from ullage.app.outcomes import Outcomes
from ullage.app.solver import Solver, SolverCrashed, SolverTimeout
from ullage.app.times import CYCLE_BLOCKED_S, CYCLE_RETRY_FIRST_S, CYCLE_RETRY_MOST_S
from ullage.app.trigger import Trigger
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.snapshot import RefusedWrite, Snapshot
from ullage.cluster.records.status import Condition
from ullage.kube.backoff import Backoff
from ullage.kube.errors import FAILED, Refused
from ullage.kube.failure_streak import Streak
from ullage.kube.writer.writer import Writer
from ullage.metrics.collector import SectionGuard
from ullage.metrics.histograms import decision_seconds, division_seconds
from ullage.metrics.turns import preempted
from ullage.ports import ApiError, Clock
from ullage.process.faults import fault_text, shortened
from ullage.scheduling.model.plan import (
    Action,
    ApplyGPUNode,
    DecideSettings,
    Plan,
    SetConditions,
    SetStatus,
)

log = structlog.get_logger("ullage.loop")
_INVALID: Final = 422
_REFUSED_SLICE: Final = re.compile(r"\bspec\.slices\[([0-9]{1,4})\]")
"""Path of a slice in an API refusal."""


@dataclass(slots=True)
class LoopStats:
    """Figures of the loop, read by the metrics collector and the health check."""

    cycles: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    """Cycles without a decision, by the name of the error."""
    seconds: Histogram = field(default_factory=decision_seconds)
    divisions: Histogram = field(default_factory=division_seconds)
    """Durations of dividing the cluster, seconds."""
    preemptions: Counter[str] = field(default_factory=Counter)
    """Evictions of jobs from their devices, by cause."""
    actions: Counter[str] = field(default_factory=Counter)
    expired: int = 0
    obstacle: str = ""
    """Reason why the last cycle made no decision; "" = it did."""
    last_begun: float = 0.0
    """Monotonic time when the last cycle began."""
    last_completed: float = 0.0
    """Monotonic time of the last cycle with a decision, or of the loop's start."""


class DecisionLoop:
    """Runs decisions for the whole cluster, one at a time."""

    def __init__(
        self,
        *,
        state: ClusterState,
        writer: Writer,
        solver: Solver,
        trigger: Trigger,
        clock: Clock,
        may_decide: Callable[[], str],
        settings: Callable[[], DecideSettings],
        outcomes: Outcomes | None = None,
        guard: SectionGuard | None = None,
        stats: LoopStats | None = None,
    ) -> None:
        """``may_decide`` returns the obstacle to a decision ("" = none)."""
        self._state = state
        self._writer = writer
        self._solver = solver
        self._trigger = trigger
        self._clock = clock
        self._may_decide = may_decide
        self._settings = settings
        self.outcomes = outcomes or Outcomes()
        self._guard = guard or SectionGuard()
        self.last_plan: Plan | None = None
        self.last_inputs: tuple[Snapshot, float, DecideSettings] | None = None
        self.stats = stats or LoopStats()
        self.streak = Streak()
        """Consecutive cycles that raised; a failing solver is no fault of the loop."""
        self._backoff = Backoff(first_s=CYCLE_RETRY_FIRST_S, max_s=CYCLE_RETRY_MOST_S)

    async def run(self) -> None:
        """Decide whenever the trigger fires, until cancelled."""
        self.stats.obstacle = ""
        self.stats.last_begun = self.stats.last_completed = self._clock.monotonic()
        self._trigger.retry_in(0.0)  # whatever the leadership before waited for
        while True:
            reasons = await self._trigger.wait()
            try:
                await self.cycle(reasons)
            except Exception as error:  # the next cycle follows anyway
                log.exception("cycle failed")
                self.streak.failed(self._clock.monotonic(), error)
                self._failed(error)

    async def cycle(self, reasons: frozenset[str]) -> None:
        """Decide for the whole cluster; return early rather than decide on a partial view."""
        self.stats.last_begun = self._clock.monotonic()
        obstacle = self._may_decide()
        if obstacle:
            self.stats.skipped[obstacle] += 1
            self.stats.obstacle = obstacle
            self.streak.worked(self.stats.last_begun)  # nothing failed
            self._trigger.wake_in(CYCLE_BLOCKED_S)
            return
        now = self._clock.now()
        settings = self._settings()
        self.stats.expired += self._state.expire(now, settings.backpressure_ended_at)
        started = time.perf_counter()
        snapshot = self._state.freeze(now)
        try:
            plan, actions = await self._solver.run(snapshot, now, settings)
        except (SolverTimeout, SolverCrashed) as error:
            log.error("decision failed; the last good plan stands", error=str(error))
            condition = self._solver_condition(snapshot, now, settings.epoch, error)
            self._carry_out(snapshot, condition, now)
            self._failed(error)
            return
        self.last_plan, self.last_inputs = plan, (snapshot, now, settings)
        actions = (*actions, *self._solver_condition(snapshot, now, settings.epoch, None))
        self._carry_out(snapshot, actions, now)
        if plan.division_seconds:
            self.stats.divisions.observe(plan.division_seconds)
        due = [at for at in (plan.wake_at, self._state.next_retry() or 0.0) if at]
        if due:  # a timeout, a back-off or a refused write
            self._trigger.wake_in(min(due) - now)
        seconds = time.perf_counter() - started
        self._guard("outcomes", lambda: self._count(snapshot, actions, seconds), None)
        self._finish(seconds, reasons, actions, snapshot)

    def written(self, action: Action, error: ApiError | None) -> None:
        """Process the writer's result: a failed write is no longer assumed and is planned again."""
        if error is None:
            return
        self._state.forget(action)
        if isinstance(error, Refused):
            self._state.refuse(
                (error.kind, error.namespace, error.name),
                RefusedWrite(reason=error.verdict, message=error.message),
                now=self._clock.now(),
                owner_uid=owner_uid(action),
            )
        self._blame(action, error)
        self._trigger.poke("write-failed")

    def _blame(self, action: Action, error: ApiError) -> None:
        """Set a workload aside if its status cannot be built or the API refuses it, or its slice.

        A GPUNode has slices of many: one that is refused would block all of them.
        """
        if self.last_inputs is None:
            return
        snapshot, uid = self.last_inputs[0], ""
        if isinstance(action, SetStatus) and isinstance(error, Refused):
            uid = action.owner.uid if error.reason == FAILED or error.status == _INVALID else ""
        elif isinstance(action, ApplyGPUNode) and (match := _REFUSED_SLICE.search(error.message)):
            uid = _owner_of_slice(snapshot, action, int(match[1]))
        if uid:
            self._solver.aside.blame(snapshot, uid, shortened(error.message), self._clock.now())

    def _carry_out(self, snapshot: Snapshot, actions: Sequence[Action], now: float) -> None:
        assumed = [action for action in actions if self._assume(snapshot, action, now)]
        self._writer.submit(assumed)
        self.stats.actions.update(type(action).__name__ for action in assumed)

    def _assume(self, snapshot: Snapshot, action: Action, now: float) -> bool:
        """Count a completed action; returns False when it cannot be executed."""
        try:
            self._state.assume((action,), now)
        except Exception as error:  # its workload is set aside
            log.exception("action not assumed", action=type(action).__name__)
            self._solver.aside.blame(snapshot, owner_uid(action), fault_text(error), now)
            self._trigger.poke("set-aside")
            return False
        return True

    def _count(self, snapshot: Snapshot, actions: Sequence[Action], seconds: float) -> None:
        """Counts this cycle for the metrics."""
        self.stats.preemptions.update(preempted(snapshot, actions))
        self.outcomes.look(snapshot, actions, seconds)

    def _finish(
        self,
        seconds: float,
        reasons: frozenset[str],
        actions: Sequence[Action],
        snapshot: Snapshot,
    ) -> None:
        self.stats.cycles += 1
        self.stats.seconds.observe(seconds)
        self.stats.obstacle = ""
        self.stats.last_completed = self._clock.monotonic()
        self.streak.worked(self.stats.last_completed)
        self._trigger.rest(seconds)
        if actions:
            log.info(
                "decided",
                seconds=round(seconds, 4),
                reasons=sorted(reasons),
                actions=dict(Counter(type(action).__name__ for action in actions)),
                workloads=len(snapshot.workloads),
                pods=len(snapshot.pods),
            )

    def _failed(self, error: Exception) -> None:
        """Count a cycle without a decision; the next one follows after a pause."""
        self.stats.failed[type(error).__name__] += 1
        self.stats.obstacle = fault_text(error)
        self._trigger.retry_in(self._backoff.pause(self._clock.monotonic()))

    def _solver_condition(
        self,
        snapshot: Snapshot,
        now: float,
        epoch: int,
        failure: SolverTimeout | SolverCrashed | None,
    ) -> tuple[Action, ...]:
        """The condition of the SchedulingPolicy on decisions, only when it changes."""
        policy = snapshot.policy
        before = next(
            (c for c in policy.conditions if c.type == ConditionType.SOLVER_DEGRADED), None
        )
        status = "False" if failure is None else "True"
        if not policy.uid or (before is None and failure is None):
            return ()
        if before is not None and before.status == status:
            return ()
        reason, message = _cycle_condition(failure)
        condition = Condition(
            type=ConditionType.SOLVER_DEGRADED,
            status=status,
            reason=reason,
            message=message,
            since=now,
            observed_generation=policy.generation,
        )
        others = tuple(c for c in policy.conditions if c.type != condition.type)
        return (
            SetConditions(
                target=ObjectRef(
                    kind="SchedulingPolicy", namespace="", name="default", uid=policy.uid
                ),
                generation=policy.generation,
                conditions=(*others, condition),
                last_solve=policy.last_solve,
                epoch=epoch,
                reason=reason,
                text=condition.message,
            ),
        )


def _owner_of_slice(snapshot: Snapshot, action: ApplyGPUNode, number: int) -> str:
    """Uid of the workload of the slice at this index of the applied list."""
    slices = sorted(action.slices, key=lambda part: part.key)
    pod = snapshot.pods.get(slices[number].key.pod_uid) if number < len(slices) else None
    return pod.owner.uid if pod is not None else ""


def owner_uid(action: Action) -> str:
    """Uid of the workload of an action; empty without one."""
    owner = getattr(action, "owner", None)
    return owner.uid if isinstance(owner, ObjectRef) else ""


def _cycle_condition(failure: SolverTimeout | SolverCrashed | None) -> tuple[Reason, str]:
    match failure:
        case None:
            return Reason.COMPLETED, "decisions come in time again"
        case SolverTimeout():
            return Reason.SOLVER_TIMEOUT, str(failure)
        case SolverCrashed():
            return Reason.SOLVER_CRASHED, str(failure)
