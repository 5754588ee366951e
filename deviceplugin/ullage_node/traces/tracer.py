# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Carries out the orders of step traces in the spec of the GPUNode, and reports them.

An order first asks for the step that a pod has reached, then names the first step to trace. What
stands in a container's directory outlives the agent, so a restarted one goes on from there. Files
are the tenant's: each is analysed by a process of its own, one at a time, and what cannot be read
ends this order alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import structlog

from ullage.api.captures import CaptureRefusal
from ullage.api.readers import WireError
from ullage.api.reasons import Reason
from ullage.api.steps import RankRecord
from ullage.api.traces import (
    MAX_SUMMARIES,
    MAX_TEXT,
    DesiredTrace,
    ObservedTrace,
    TraceAnswer,
    TraceState,
)
from ullage.process.faults import fault_text
from ullage_node.model.devices import ContainerKey, StepProgress
from ullage_node.times import (
    TRACE_CLEAN_S,
    TRACE_CONTAINER_S,
    TRACE_IDLE_S,
    TRACE_LOOK_S,
    TRACE_STEP_AGE_S,
    TRACE_UNHOOKED_S,
)
from ullage_node.traces.collect import RankAnswer, collect
from ullage_node.traces.orders import TraceOrder, is_placed, place, placed_order, withdraw
from ullage_node.traces.retention import drop_old_answers

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

OrderKey = tuple[str, str]
"""Id of an order and uid of its pod."""
REASONS: Final[Mapping[CaptureRefusal, Reason]] = {
    CaptureRefusal.LATE: Reason.TRACE_LATE,
    CaptureRefusal.ALREADY_PROFILING: Reason.ALREADY_PROFILING,
    CaptureRefusal.NO_PROFILER: Reason.NO_PROFILER,
    CaptureRefusal.DISK_FULL: Reason.DISK_FULL,
    CaptureRefusal.FAILED: Reason.CAPTURE_FAILED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysedTrace:
    """Result of the analysis of one file.

    Attributes:
        summary: A ``RankTrace`` as JSON; empty = there is none.
        reason: Reason why there is no summary.
        message: The same with figures.
    """

    summary: str = ""
    reason: Reason | None = None
    message: str = ""


ReadRanks = Callable[[Path, int], Mapping[str, RankRecord | WireError]]
"""From a directory of records and CLOCK_MONOTONIC in nanoseconds to the records by file, each or
the reason why it is refused; raises ``OSError`` where there is no such directory."""
Analyse = Callable[[Path], Awaitable[AnalysedTrace]]
"""Analyses a file that a tenant wrote; never raises but on cancellation."""


@dataclass(slots=True)
class _Followed:
    """An order that is carried out."""

    order: DesiredTrace
    report: ObservedTrace
    folder: Path | None = None
    """Directory of the container's records."""
    since: float = 0.0
    """First sight of the order, monotonic seconds."""
    told_at: float = 0.0
    """Time of the reading of the step in the report, monotonic seconds."""
    answers: dict[int, TraceAnswer] = field(default_factory=dict)
    """Final answers of ranks."""
    waiting: dict[int, RankAnswer] = field(default_factory=dict)
    """Traces that are to be analysed."""
    missing_since: float = 0.0
    """Time since which the pod has had no container, monotonic seconds; 0 = it has one."""

    @property
    def ranks(self) -> tuple[TraceAnswer, ...]:
        """Answers by number in the container."""
        return tuple(self.answers[rank] for rank in sorted(self.answers))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Withdrawn:
    """An order that was taken back, and whose files may still come.

    Attributes:
        folder: Directory of the container's records.
        id: Name of the order.
        done: All ranks had answered; their traces stay.
        until: Monotonic time until which its files are removed again.
    """

    folder: Path
    id: str
    done: bool
    until: float


class Tracer:
    """Orders of this node."""

    def __init__(
        self,
        *,
        containers: Callable[[str], ContainerKey | None],
        folder: Callable[[ContainerKey], Path],
        progress: Callable[[], Mapping[ContainerKey, StepProgress]],
        read_ranks: ReadRanks,
        analyse: Analyse,
    ) -> None:
        """Nothing is read or written before ``run``.

        Args:
            containers: The container with a device of a pod (uid) whose processes run.
            folder: Directory of its step records.
            progress: Newest progress of containers.
            read_ranks: Reads the records of the ranks of a container.
            analyse: Analyses one file.
        """
        self._containers = containers
        self._folder = folder
        self._progress = progress
        self._read_ranks = read_ranks
        self._analyse = analyse
        self._followed: dict[OrderKey, _Followed] = {}
        self._withdrawn: list[_Withdrawn] = []
        self._changed = asyncio.Event()
        self.on_change: Callable[[], None] = lambda: None

    @property
    def reports(self) -> tuple[ObservedTrace, ...]:
        """Reports of all orders, with at most so many summaries as one status may hold."""
        left, reports = MAX_SUMMARIES, []
        for key in sorted(self._followed):
            report = self._followed[key].report
            summaries = sum(bool(rank.summary) for rank in report.ranks)
            if summaries > left:
                report = replace(report, ranks=tuple(_beyond(report.ranks, left)))
            left -= min(left, summaries)
            reports.append(report)
        return tuple(reports)

    def want(self, orders: Iterable[DesiredTrace]) -> None:
        """Take in the orders of the spec."""
        wanted = {(order.id, order.pod_uid): order for order in orders}
        for key in list(self._followed):
            if key not in wanted:
                followed = self._followed.pop(key)
                if followed.folder is not None:
                    done = followed.report.state is TraceState.DONE
                    self._withdraw(followed.folder, key[0], done=done)
        for key, order in wanted.items():
            held = self._followed.get(key)
            if held is None:
                report = ObservedTrace(id=key[0], pod_uid=key[1], state=TraceState.WAITING)
                self._followed[key] = _Followed(order=order, report=report, since=time.monotonic())
                self._changed.set()
            elif held.order != order:
                held.order = order
                self._changed.set()

    def take_back_others(self, folders: Iterable[Path]) -> None:
        """Take back orders that an earlier agent placed, and that the spec has no longer.

        Args:
            folders: Directories of the records of all containers.
        """
        known = {order_id for order_id, _ in self._followed}
        for folder in folders:
            order_id = placed_order(folder)
            if order_id is not None and order_id not in known:
                self._withdraw(folder, order_id, done=False)

    def _withdraw(self, folder: Path, order_id: str, *, done: bool) -> None:
        until = time.monotonic() + TRACE_CLEAN_S
        self._withdrawn.append(_Withdrawn(folder=folder, id=order_id, done=done, until=until))
        self._changed.set()

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            try:
                async with asyncio.timeout(TRACE_LOOK_S if self._busy else TRACE_IDLE_S):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            await self.look()

    @property
    def _busy(self) -> bool:
        return bool(self._withdrawn) or any(
            not followed.report.state.is_final for followed in self._followed.values()
        )

    async def look(self) -> None:
        """Take one step of each order, and analyse at most one file."""
        before = self.reports
        self._clean()
        for followed in list(self._followed.values()):
            if not followed.report.state.is_final:
                self._step(followed)
        if self.reports != before:
            self.on_change()
            before = self.reports
        waiting = next((held for held in self._followed.values() if held.waiting), None)
        if waiting is not None:
            await self._analyse_next(waiting)
            self._step(waiting)
        if self.reports != before:
            self.on_change()

    # -- one order ---------------------------------------------------------------------------------

    def _step(self, followed: _Followed) -> None:
        try:
            followed.report = self._next(followed)
        except Exception as error:  # the other orders go on
            _log.warning("trace given up", order=followed.order.id, error=fault_text(error))
            followed.report = _failure(followed.report, Reason.CAPTURE_FAILED, fault_text(error))

    def _next(self, followed: _Followed) -> ObservedTrace:
        order, report = followed.order, followed.report
        container = self._containers(order.pod_uid)
        if container is None:
            return self._without_container(followed)
        followed.missing_since = 0.0
        folder = followed.folder = self._folder(container)
        records = self._records(folder)
        if not order.start_step:
            return self._ask(followed, container, records)
        self._gather(followed, folder)
        placed = _as_placed(order)
        if (
            report.state in (TraceState.WAITING, TraceState.READY)
            and not (followed.answers or followed.waiting)
            and not is_placed(folder, placed)
        ):
            place(folder, placed)
        expected = _expected(records, order) or 1
        state = TraceState.ARMED
        if any(record.steps >= order.start_step for record in records):
            state = TraceState.CAPTURING
        if len(followed.answers) + len(followed.waiting) >= expected:
            state = TraceState.ANALYSING if followed.waiting else TraceState.DONE
        if state is TraceState.DONE:
            withdraw(folder, order.id, keep_answers=True)
            drop_old_answers(folder)
        return replace(report, state=state, ranks=followed.ranks)

    def _without_container(self, followed: _Followed) -> ObservedTrace:
        """The container has ended, or is not known yet: the answers so far count."""
        report, now = followed.report, time.monotonic()
        followed.missing_since = followed.missing_since or now
        if followed.waiting:
            return replace(report, state=TraceState.ANALYSING, ranks=followed.ranks)
        if followed.answers:
            return replace(report, state=TraceState.DONE, ranks=followed.ranks)
        if now - followed.missing_since < TRACE_CONTAINER_S:
            return report
        text = "no container of the pod runs on a device of this node"
        return _failure(report, Reason.JOB_ENDED, text)

    def _ask(
        self, followed: _Followed, container: ContainerKey, records: Sequence[RankRecord]
    ) -> ObservedTrace:
        """The step that the pod has reached, renewed every few seconds.

        A pod without a timed step, as after the first one, has none to report: its first step to
        trace would be one that it never reaches.
        """
        report, now = followed.report, time.monotonic()
        made = self._progress().get(container)
        steps = max((record.steps for record in records), default=0)
        micros = [record.step_ns // record.timed // 1000 for record in records if record.timed]
        if steps and not micros:
            return report
        if not steps:
            if made is not None and made.steps and now - followed.since >= TRACE_UNHOOKED_S:
                text = "the program counts its steps itself, so it has no hook that traces them"
                return _failure(report, Reason.NOT_INSTRUMENTED, text)
            return report
        if report.state is TraceState.READY and now - followed.told_at < TRACE_STEP_AGE_S:
            return report
        followed.told_at = now
        step_micros = (made.step_micros if made is not None else 0) or max(micros)
        return replace(report, state=TraceState.READY, step=steps, step_micros=step_micros)

    def _gather(self, followed: _Followed, folder: Path) -> None:
        """Take in new answers of ranks."""
        for answer in collect(folder, followed.order.id):
            if answer.rank in followed.answers or answer.rank in followed.waiting:
                continue
            if answer.path is not None:
                followed.waiting[answer.rank] = answer
            else:
                reason = REASONS[answer.reason or CaptureRefusal.FAILED]
                followed.answers[answer.rank] = TraceAnswer(
                    local_rank=answer.rank, reason=reason.value, message=answer.text[:MAX_TEXT]
                )

    def _records(self, folder: Path) -> list[RankRecord]:
        """Usable records of the ranks of a container."""
        try:
            records = self._read_ranks(folder, time.monotonic_ns())
        except OSError:
            return []  # started by an agent without orders
        return [record for record in records.values() if isinstance(record, RankRecord)]

    async def _analyse_next(self, followed: _Followed) -> None:
        local_rank = min(followed.waiting)
        answer = followed.waiting[local_rank]
        assert answer.path is not None
        outcome = await self._analyse(answer.path)
        followed.waiting.pop(local_rank, None)
        followed.answers[local_rank] = TraceAnswer(
            local_rank=local_rank,
            bytes=answer.bytes,
            summary=outcome.summary,
            reason=outcome.reason.value if outcome.reason is not None else "",
            message=outcome.message[:MAX_TEXT],
        )

    # -- orders that are over ----------------------------------------------------------------------

    def _clean(self) -> None:
        """Remove what orders left that were taken back; traces of finished ones stay in the pod.

        A rank that is tracing goes on to its last step, so its answer may come later.
        """
        left, self._withdrawn = self._withdrawn, []
        active = {(held.folder, held.order.id) for held in self._followed.values()}
        for order in left:
            if (order.folder, order.id) in active:
                continue  # it is wanted again
            over = order.done
            try:
                withdraw(order.folder, order.id, keep_answers=order.done)
            except OSError as error:
                over = False
                _log.warning("order not taken back", order=order.id, error=str(error))
            if not over and time.monotonic() < order.until:
                self._withdrawn.append(order)


def _as_placed(order: DesiredTrace) -> TraceOrder:
    return TraceOrder(
        id=order.id,
        start_step=order.start_step,
        steps=order.steps,
        stacks=order.stacks,
        shapes=order.shapes,
        ranks=order.ranks or None,
    )


def _expected(records: Sequence[RankRecord], order: DesiredTrace) -> int:
    """Ranks that are to answer."""
    if not order.ranks:
        return len(records)
    return sum(record.rank in order.ranks for record in records)


def _failure(report: ObservedTrace, reason: Reason, text: str) -> ObservedTrace:
    return replace(report, state=TraceState.FAILED, reason=reason.value, message=text[:MAX_TEXT])


def _beyond(ranks: Iterable[TraceAnswer], left: int) -> Iterable[TraceAnswer]:
    """The same answers, with only the first summaries."""
    for rank in ranks:
        if not rank.summary:
            yield rank
        elif left > 0:
            left -= 1
            yield rank
        else:
            text = f"more than {MAX_SUMMARIES} ranks of one node are traced at a time"
            yield replace(rank, summary="", reason=Reason.TRACE_TOO_LARGE.value, message=text)
