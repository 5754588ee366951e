# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps the reports of coordinators in the snapshot, as one task of the leader.

Decisions never wait for it: the last report of a silent coordinator stays. Only relevant changes
trigger a decision; a completed step does not. A standby sends no queries: it must never create a
snapshot of the cluster of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from ullage.app.times import COORDINATOR_ANSWER_S, COORDINATOR_LOOK_S, COORDINATOR_REST_MOST_S
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.tier import CoordinatorReport
from ullage.kube.coordinator_reader import CoordinatorReader, CoordinatorSilent
from ullage.process.doubling import doubled_s
from ullage.process.faults import fault_text

log = structlog.get_logger("ullage.leads")

AT_ONCE_OF_A_NAMESPACE: Final = 4
"""Concurrent queries per namespace: the others keep most of the slots."""
CHANCES: Final = 3
"""Unanswered queries before a coordinator is queried less often."""


@dataclass(slots=True)
class _AskedCoordinator:
    """A coordinator, its pending query, and its silence."""

    pod: PodRecord
    task: asyncio.Task[CoordinatorReport | None] | None = None
    silences: int = 0
    """Consecutive queries without an answer."""
    due: float = 0.0
    """Earliest time of the next query, seconds of the event loop."""


class CoordinatorService:
    """Queries every coordinator every few seconds; silent ones ever less often."""

    def __init__(
        self,
        reader: CoordinatorReader,
        state: ClusterState,
        *,
        is_leader: Callable[[], bool],
        poke: Callable[[str], None],
    ) -> None:
        """``is_leader`` returns true if this replica leads with a complete snapshot."""
        self._reader = reader
        self._state = state
        self._is_leader = is_leader
        self._poke = poke
        self._reports: dict[str, CoordinatorReport] = {}
        self._asked: dict[str, _AskedCoordinator] = {}
        """By uid of the job."""
        self._turns: dict[str, asyncio.Semaphore] = {}
        """By namespace."""

    async def run(self) -> None:
        """Query until cancelled."""
        try:
            while True:
                await self.look()
                await asyncio.sleep(COORDINATOR_LOOK_S)
        finally:
            self._forget(set(self._asked))

    async def look(self) -> None:
        """Query every running coordinator that is due, without waiting for slow ones."""
        if not self._is_leader():
            return
        running = {
            uid: pod
            for uid, pod in self._state.coordinator_pods().items()
            if pod.stage is PodStage.RUNNING and pod.address
        }
        if not running and not self._reports:
            self._forget(set(self._asked))
            return
        self._ask_all(running)
        under_way = [asked.task for asked in self._asked.values() if asked.task is not None]
        if under_way:
            await asyncio.wait(under_way, timeout=COORDINATOR_ANSWER_S)
        before = self._reports
        kept = {uid: report for uid, report in before.items() if uid in running}
        reports = kept | self._answers()
        if reports == before:
            return
        self._reports = reports
        self._state.set_coordinators(reports)
        if _news(reports) != _news(before):
            self._poke("lead")

    def _ask_all(self, running: Mapping[str, PodRecord]) -> None:
        """Start due queries; a new pod of a job is another coordinator."""
        self._forget(
            {
                uid
                for uid, asked in self._asked.items()
                if uid not in running or running[uid].uid != asked.pod.uid
            }
        )
        spaces = {pod.namespace for pod in running.values()}
        self._turns = {
            space: self._turns.get(space) or asyncio.Semaphore(AT_ONCE_OF_A_NAMESPACE)
            for space in spaces
        }
        now = asyncio.get_running_loop().time()
        for uid, pod in running.items():
            asked = self._asked.setdefault(uid, _AskedCoordinator(pod=pod))
            if asked.task is None and asked.due <= now:
                asked.task = asyncio.create_task(self._ask(pod))

    async def _ask(self, pod: PodRecord) -> CoordinatorReport | None:
        async with self._turns[pod.namespace]:
            return await self._reader.read(pod.address)

    def _answers(self) -> dict[str, CoordinatorReport]:
        """Answers received so far, by uid of the job."""
        answers: dict[str, CoordinatorReport] = {}
        now = asyncio.get_running_loop().time()
        for uid, asked in self._asked.items():
            if asked.task is None or not asked.task.done():
                continue
            task, asked.task = asked.task, None
            try:
                report = task.result()
            except Exception as error:  # the other answers still count
                self._silent(asked, error, now)
                continue
            asked.silences = 0
            if report is not None:
                answers[uid] = report
        return answers

    def _silent(self, asked: _AskedCoordinator, error: Exception, now: float) -> None:
        """Log the first silence, and query less often."""
        if not asked.silences:
            where = f"{asked.pod.namespace}/{asked.pod.name}"
            odd = None if isinstance(error, CoordinatorSilent) else error
            log.warning("coordinator silent", pod=where, error=fault_text(error), exc_info=odd)
        asked.silences += 1
        more = asked.silences - CHANCES
        asked.due = now + (
            doubled_s(COORDINATOR_LOOK_S, more, COORDINATOR_REST_MOST_S) if more >= 0 else 0.0
        )

    def _forget(self, uids: set[str]) -> None:
        """Stop querying deleted coordinators."""
        for uid in uids:
            task = self._asked.pop(uid).task
            if task is not None:
                task.cancel()


def _news(reports: Mapping[str, CoordinatorReport]) -> Mapping[str, tuple[object, ...]]:
    """Figures whose changes trigger a decision at once, by uid of the job."""
    return {
        uid: (
            report.stage,
            report.epoch,
            report.reliable,
            report.transient,
            report.lost_steps,
            report.committed is None,
        )
        for uid, report in reports.items()
    }
