# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps the load of routers in the snapshot, as one task of the leader.

Only routers of services that may scale to zero are queried, by long polling: the first request
triggers a cycle at once. Cycles never wait for an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from ullage.app.times import (
    BACKGROUND_LOOK_S,
    ROUTER_ASK_S,
    ROUTER_FRESH_S,
    ROUTER_QUIET_S,
    ROUTER_REST_MOST_S,
    ROUTER_SILENT_S,
)
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.records.router import RouterLoad, RouterPod, RouterReport
from ullage.kube.router_reader import RouterSilent
from ullage.ports import Clock
from ullage.process.doubling import doubled_s
from ullage.process.faults import fault_text

log = structlog.get_logger("ullage.routers")

OF_A_NAMESPACE: Final = 200
"""Concurrent queries per namespace: the others keep most of the slots."""
OF_A_SERVICE: Final = 40
"""Maximum routers queried per service; during a rollout there are twice as many as declared."""


class Reader(Protocol):
    """Reads the load of one router."""

    async def read(self, address: str, after: int | None) -> RouterReport:
        """The load, as soon as the number of arrived requests changes.

        Raises:
            RouterSilent: there is no valid answer.
        """
        ...


@dataclass(slots=True)
class _AskedRouter:
    """A router and its last report."""

    pod: RouterPod
    heard: float
    """Time of its last answer, or first query, on a monotonic clock."""
    task: asyncio.Task[None] | None = None
    report: RouterReport | None = None
    heard_at: float = 0.0
    """Time of its last answer, seconds since the epoch."""
    silences: int = 0
    """Consecutive queries without an answer."""


class RouterService:
    """Queries every router of services that may sleep; silent ones ever less often."""

    def __init__(
        self,
        reader: Reader,
        state: ClusterState,
        *,
        clock: Clock,
        is_leader: Callable[[], bool],
        poke: Callable[[str], None],
    ) -> None:
        """``is_leader`` returns true if this replica leads with a complete snapshot."""
        self._reader = reader
        self._state = state
        self._clock = clock
        self._is_leader = is_leader
        self._poke = poke
        self._asked: dict[str, _AskedRouter] = {}
        """By uid of the pod."""
        self._services: dict[str, tuple[str, ...]] = {}
        """Uids of the queried pods, by uid of the service."""
        self._turns: dict[str, asyncio.Semaphore] = {}
        """By namespace."""
        self._loads: dict[str, RouterLoad] = {}

    async def run(self) -> None:
        """Query until cancelled."""
        try:
            while True:
                self.look()
                await asyncio.sleep(BACKGROUND_LOOK_S)
        finally:
            self._forget(set(self._asked))

    def look(self) -> None:
        """Start to query new routers, and put the reports into the snapshot."""
        if not self._is_leader():
            return
        routers = self._state.routers_of_sleepers()
        self._services = {uid: tuple(pod.uid for pod in pods) for uid, pods in routers.items()}
        pods = {
            pod.uid: pod
            for of_service in routers.values()
            for pod in of_service[:OF_A_SERVICE]
            if pod.address
        }
        self._forget(self._asked.keys() - pods.keys())
        spaces = {pod.namespace for pod in pods.values()}
        self._turns = {
            space: self._turns.get(space) or asyncio.Semaphore(OF_A_NAMESPACE) for space in spaces
        }
        for uid, pod in pods.items():
            asked = self._asked.get(uid)
            if asked is not None and asked.pod.address != pod.address:
                self._forget({uid})
                asked = None
            if asked is None:
                asked = self._asked[uid] = _AskedRouter(pod=pod, heard=self._clock.monotonic())
                asked.task = asyncio.create_task(self._follow(asked))
            asked.pod = pod
        self._tell()

    async def _follow(self, asked: _AskedRouter) -> None:
        """Query one router repeatedly."""
        loop = asyncio.get_running_loop()
        while True:
            began, arrived = loop.time(), asked.report.arrived if asked.report is not None else None
            try:
                async with self._turns[asked.pod.namespace]:
                    report = await self._reader.read(asked.pod.address, arrived)
            except Exception as error:  # the other routers are still queried
                self._unheard(asked, error)
                await asyncio.sleep(doubled_s(ROUTER_ASK_S, asked.silences - 1, ROUTER_REST_MOST_S))
                continue
            news = _is_news(asked, report, self._clock.now())
            asked.report, asked.silences = report, 0
            asked.heard, asked.heard_at = self._clock.monotonic(), self._clock.now()
            if news:  # else the next look updates the snapshot
                self._tell(news=True)
            if report.arrived != arrived or loop.time() - began < ROUTER_ASK_S:
                await asyncio.sleep(ROUTER_ASK_S)

    def _unheard(self, asked: _AskedRouter, error: Exception) -> None:
        """Count a silence, and log the first one."""
        if not asked.silences:
            where = f"{asked.pod.namespace}/{asked.pod.service}"
            odd = None if isinstance(error, RouterSilent) else error
            log.warning("router silent", service=where, error=fault_text(error), exc_info=odd)
        asked.silences += 1

    def _tell(self, *, news: bool = False) -> None:
        """Put the reports into the snapshot; only relevant changes and silence trigger a cycle."""
        loads = {
            uid: load
            for uid, pods in self._services.items()
            if (load := self._load([self._asked.get(pod) for pod in pods])) is not None
        }
        if loads != self._loads:
            news |= _silent(loads) != _silent(self._loads)
            self._loads = loads
            self._state.set_routers(loads)
        if news:
            self._poke("router")

    def _load(self, routers: Sequence[_AskedRouter | None]) -> RouterLoad | None:
        """Load of a service by its routers' reports; ``None`` before any had time to report."""
        now, missing, silent = self._clock.monotonic(), 0, False
        heard: list[tuple[float, RouterReport]] = []
        for asked in routers:
            if (
                asked is not None
                and asked.report is not None
                and now - asked.heard <= ROUTER_FRESH_S
            ):
                heard.append((asked.heard_at, asked.report))
            elif asked is None or not asked.pod.leaving:
                missing += 1
                silent |= asked is not None and now - asked.heard > ROUTER_SILENT_S
        if not heard:
            return RouterLoad(heard=0, heard_at=0, missing=missing, silent=True) if silent else None
        heard_at = min(at for at, _ in heard)
        asked_at = [at - report.idle_seconds for at, report in heard if report.arrived]
        last_at = max(at - report.idle_seconds for at, report in heard)
        return RouterLoad(
            heard=len(heard),
            heard_at=heard_at,
            requests_per_s=sum(report.requests_milli for _, report in heard) / 1e3,
            waiting=sum(report.waiting for _, report in heard),
            idle_s=max(0.0, heard_at - last_at),
            asked_s=max(0.0, heard_at - max(asked_at)) if asked_at else None,
            wake_s=max(report.wake_millis for _, report in heard) / 1e3,
            missing=missing,
            silent=silent,
        )

    def _forget(self, uids: Iterable[str]) -> None:
        """Stop querying deleted routers."""
        for uid in set(uids):
            task = self._asked.pop(uid).task
            if task is not None:
                task.cancel()


def _silent(loads: Mapping[str, RouterLoad]) -> set[str]:
    return {uid for uid, load in loads.items() if load.silent}


def _is_news(asked: _AskedRouter, report: RouterReport, now: float) -> bool:
    """True when a new request waits, or one arrived after a while without any."""
    before = asked.report
    if before is None or report.arrived < before.arrived:
        return report.arrived > 0
    if report.waiting and not before.waiting:
        return True
    quiet_s = (now - report.idle_seconds) - (asked.heard_at - before.idle_seconds)
    return report.arrived > before.arrived and quiet_s >= ROUTER_QUIET_S
