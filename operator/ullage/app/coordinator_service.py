# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps the reports of coordinators in the snapshot, as one task of the leader.

Decisions never wait for it: a coordinator that does not answer keeps its last report. Only news for
people or decisions wakes a decision; a completed step does not. On a standby it does nothing: it
must never make a snapshot of the cluster of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from ullage.app.times import COORDINATOR_ANSWER_S, COORDINATOR_LOOK_S, COORDINATOR_REST_MOST_S
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.records.snapshot import PodRecord, PodStage
from ullage.cluster.records.tier import CoordinatorReport
from ullage.kube.coordinator_reader import CoordinatorReader, CoordinatorSilent
from ullage.process.doubling import doubled_s
from ullage.process.faults import fault_text

log = structlog.get_logger("ullage.leads")

AT_ONCE_OF_A_NAMESPACE: Final = 4
"""Coordinators of one namespace asked at a time: the others keep most of the turns."""
CHANCES: Final = 3
"""Questions that a coordinator may leave open before it is asked less often."""


@dataclass(slots=True)
class _Asked:
    """One lead: what it was asked, and since when it is silent."""

    pod: PodRecord
    task: asyncio.Task[CoordinatorReport | None] | None = None
    silences: int = 0
    """Questions in a row without an answer."""
    due: float = 0.0
    """Not to be asked before, seconds of the event loop."""


class CoordinatorService:
    """Asks every coordinator every few seconds; who is silent is asked ever less often."""

    def __init__(
        self,
        reader: CoordinatorReader,
        state: ClusterState,
        *,
        is_leader: Callable[[], bool],
        poke: Callable[[str], None],
    ) -> None:
        """``is_leader`` says whether this replica leads on a whole snapshot."""
        self._reader = reader
        self._state = state
        self._is_leader = is_leader
        self._poke = poke
        self._told: dict[str, CoordinatorReport] = {}
        self._asked: dict[str, _Asked] = {}
        """By uid of the job."""
        self._turns: dict[str, asyncio.Semaphore] = {}
        """By namespace."""

    async def run(self) -> None:
        """Ask until cancelled."""
        try:
            while True:
                await self.look()
                await asyncio.sleep(COORDINATOR_LOOK_S)
        finally:
            self._forget(set(self._asked))

    async def look(self) -> None:
        """Ask every coordinator that runs and is due once; one that is slow is not waited for."""
        if not self._is_leader():
            return
        there = {
            uid: pod
            for uid, pod in self._state.coordinator_pods().items()
            if pod.stage is PodStage.RUNNING and pod.address
        }
        if not there and not self._told:
            self._forget(set(self._asked))
            return
        self._ask_all(there)
        under_way = [asked.task for asked in self._asked.values() if asked.task is not None]
        if under_way:
            await asyncio.wait(under_way, timeout=COORDINATOR_ANSWER_S)
        heard = self._heard()
        told = {uid: one for uid, one in self._told.items() if uid in there} | heard
        if told == self._told:
            return
        is_news = {uid: _news(one) for uid, one in told.items()} != {
            uid: _news(one) for uid, one in self._told.items()
        }
        self._told = told
        self._state.set_coordinators(told)
        if is_news:
            self._poke("lead")

    def _ask_all(self, there: Mapping[str, PodRecord]) -> None:
        """Begin to ask those that are due; a new pod of a job is another coordinator."""
        self._forget(
            {
                uid
                for uid, one in self._asked.items()
                if uid not in there or there[uid].uid != one.pod.uid
            }
        )
        spaces = {pod.namespace for pod in there.values()}
        self._turns = {
            space: self._turns.get(space) or asyncio.Semaphore(AT_ONCE_OF_A_NAMESPACE)
            for space in spaces
        }
        now = asyncio.get_running_loop().time()
        for uid, pod in there.items():
            asked = self._asked.setdefault(uid, _Asked(pod=pod))
            if asked.task is None and asked.due <= now:
                asked.task = asyncio.create_task(self._ask(pod))

    async def _ask(self, pod: PodRecord) -> CoordinatorReport | None:
        async with self._turns[pod.namespace]:
            return await self._reader.read(pod.address)

    def _heard(self) -> dict[str, CoordinatorReport]:
        """Answers received so far, by uid of the job."""
        heard: dict[str, CoordinatorReport] = {}
        now = asyncio.get_running_loop().time()
        for uid, one in self._asked.items():
            if one.task is None or not one.task.done():
                continue
            task, one.task = one.task, None
            try:
                found = task.result()
            except Exception as error:  # the seam of one answer
                self._silent(one, error, now)
                continue
            one.silences = 0
            if found is not None:
                heard[uid] = found
        return heard

    def _silent(self, one: _Asked, error: Exception, now: float) -> None:
        """Say it once, and ask less often."""
        if not one.silences:
            where = f"{one.pod.namespace}/{one.pod.name}"
            odd = None if isinstance(error, CoordinatorSilent) else error
            log.warning("coordinator silent", pod=where, error=fault_text(error), exc_info=odd)
        one.silences += 1
        more = one.silences - CHANCES
        one.due = now + (
            doubled_s(COORDINATOR_LOOK_S, more, COORDINATOR_REST_MOST_S) if more >= 0 else 0.0
        )

    def _forget(self, uids: set[str]) -> None:
        """Coordinators that are gone are asked no more."""
        for uid in uids:
            task = self._asked.pop(uid).task
            if task is not None:
                task.cancel()


def _news(report: CoordinatorReport) -> tuple[object, ...]:
    """The changes that wake a decision at once."""
    return (
        report.stage,
        report.epoch,
        report.reliable,
        report.transient,
        report.lost_steps,
        report.committed is None,
    )
