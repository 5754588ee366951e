# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Watches the volumes of the node for containers that starve because of others.

No program needs a library for it: the kernel counts what every container moves and waits. What is
found is reported; with ``Enforce`` the guard limits the container that takes too much, and undoes
that when it is asked to, when the agent goes and when it starts again itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from ullage.api.dataio import MAX_STARVATIONS, IoFairness, ObservedStarvation
from ullage.api.reasons import Reason
from ullage.engines.dataio.fairness import VolumeUse
from ullage.engines.dataio.limits import next_limits
from ullage.engines.dataio.starvation import Starvation, StarvationWatch
from ullage.process.metric_families import counter, gauge
from ullage_node.dataio.volumes import volume_names
from ullage_node.dataio.windows import IoReader, IoReading, window
from ullage_node.devices.cgroup_io import IoCgroup
from ullage_node.events import AgentEvent, EventSubject
from ullage_node.guard.protocol import MAX_LIMITS, IoLimit
from ullage_node.model.slices import Pod
from ullage_node.times import IO_SAMPLE_S, IO_WINDOW_S

SYSTEM_PRIORITY: Final = 2_000_000_000
"""Priority from which a pod serves the node itself (``SystemCriticalPriority`` of Kubernetes)."""
EXEMPT_NAMESPACES: Final = frozenset(("kube-system",))
MOST_SERIES: Final = 64

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class IoFigures:
    """Current figures of volumes; no label names a pod."""

    starving: Mapping[str, int] = gauge(
        "ullage_io_starving_containers",
        "Containers that get too little of a volume because another takes more.",
        "volume",
    )
    jain: Mapping[str, float] = gauge(
        "ullage_volume_jain_index",
        "Jain's index of what containers got of a volume against their fair shares; 1 = fair.",
        "volume",
    )
    limits: Mapping[str, int] = gauge(
        "ullage_io_limited_containers", "Containers whose use of a volume is limited.", "volume"
    )
    limit_failures: int = counter(
        "ullage_io_limit_failures", "Requests to the guard for limits of I/O that failed."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class IoSources:
    """Inputs and outputs of the watch.

    Attributes:
        node: Name of the node.
        reader: Counters of containers.
        sys_root: A ``/sys``.
        proc_root: The host's ``/proc``.
        pods: Pods of this node by uid; containers of others are not looked at.
        data_waits: Part of a step that the programs of a pod (uid) wait for data, where known.
        limit: Makes these the node's limits; returns the problem, empty = none.
        say: Sends an Event.
    """

    node: str
    reader: IoReader
    sys_root: Path
    proc_root: Path
    pods: Callable[[], Mapping[str, Pod]]
    data_waits: Callable[[], Mapping[str, float]]
    limit: Callable[[Sequence[IoLimit]], Awaitable[str]]
    say: Callable[[AgentEvent], object]


class IoWatch:
    """Windows, starvation and limits of one node."""

    def __init__(self, sources: IoSources) -> None:
        self._sources = sources
        self._watch = StarvationWatch()
        self._before: IoReading | None = None
        self._limits: dict[str, dict[Hashable, float]] = {}
        self._asked = False
        self._problem = ""
        self._names: dict[str, str] = {}
        self._reported: set[tuple[str, str, str]] = set()
        self._limit_failures = 0
        self.fairness = IoFairness.OBSERVE
        """What the SchedulingPolicy says."""
        self.reports: tuple[ObservedStarvation, ...] = ()
        """Containers that starve now."""
        self.on_change: Callable[[], None] = lambda: None

    @property
    def figures(self) -> IoFigures:
        """Current figures."""
        starving: dict[str, int] = {}
        for report in self.reports:
            starving[report.volume] = starving.get(report.volume, 0) + 1
        judgements = list(self._watch.judgements.items())[:MOST_SERIES]
        return IoFigures(
            starving=starving,
            jain={self._name(volume): judged.jain for volume, judged in judgements},
            limits={self._name(volume): len(held) for volume, held in self._limits.items() if held},
            limit_failures=self._limit_failures,
        )

    async def run(self) -> None:
        """Watch until cancelled; limits end with the agent's connection to the guard."""
        while True:
            await self.look(time.monotonic())
            until = time.monotonic() + IO_WINDOW_S
            while time.monotonic() < until:
                await asyncio.sleep(IO_SAMPLE_S)
                if self._sources.reader.sampler.follows:
                    await asyncio.to_thread(self._sources.reader.sampler.sample)

    async def look(self, now: float) -> None:
        """Take one reading, judge the window since the last one, and act.

        Args:
            now: Monotonic seconds.
        """
        reading = await asyncio.to_thread(self._sources.reader.read, now)
        pods = self._sources.pods()
        ours = {at: counters for at, counters in reading.containers.items() if at.pod_uid in pods}
        reading = IoReading(at_s=reading.at_s, containers=ours)
        before, self._before = self._before, reading
        if before is None:
            return
        sampled = self._sources.reader.sampler.take()
        uses = window(before, reading, sampled, self._sources.data_waits())
        starving = self._watch.take(uses)
        if starving:
            sources = self._sources
            self._names = await asyncio.to_thread(volume_names, sources.sys_root, sources.proc_root)
        await self._enforce(uses, starving, pods)
        self._report(_one_volume_each(starving), pods)

    # -- limits ------------------------------------------------------------------------------------

    async def _enforce(
        self,
        uses: Mapping[str, Sequence[VolumeUse]],
        starving: Collection[Starvation],
        pods: Mapping[str, Pod],
    ) -> None:
        """Set the limits of the next window, and undo the others."""
        after: dict[str, dict[Hashable, float]] = {}
        if self.fairness is IoFairness.ENFORCE:
            for volume, used in uses.items():
                starved = {case.newest.victim for case in starving if case.volume == volume}
                after[volume] = next_limits(
                    self._limits.get(volume, {}),
                    used,
                    self._watch.judgements[volume],
                    starved,
                    exempt=[use.key for use in used if _is_exempt(use.key, pods)],
                )
        self._limits = {volume: limits for volume, limits in after.items() if limits}
        limits = [
            IoLimit(container=container, device=volume, bytes_per_s=round(rate))
            for volume, held in sorted(self._limits.items())
            for container, rate in held.items()
            if isinstance(container, IoCgroup)
        ][:MAX_LIMITS]
        if not (limits or self._asked or self._sources.reader.asks_to_count):
            return
        problem = await self._sources.limit(limits)
        self._asked = bool(limits) or bool(problem)
        if problem:
            self._limit_failures += 1
            if problem != self._problem:
                _log.warning("I/O not limited", error=problem)
        self._problem = problem

    # -- reports -----------------------------------------------------------------------------------

    def _report(self, starving: Sequence[Starvation], pods: Mapping[str, Pod]) -> None:
        reports: list[ObservedStarvation] = []
        for case in starving[:MAX_STARVATIONS]:
            short = case.newest
            if not (isinstance(short.victim, IoCgroup) and isinstance(short.hog, IoCgroup)):
                continue
            victim, hog = pods.get(short.victim.pod_uid), pods.get(short.hog.pod_uid)
            if victim is None or hog is None:
                continue
            reports.append(
                ObservedStarvation(
                    volume=self._name(case.volume),
                    pod_uid=victim.uid,
                    namespace=victim.namespace,
                    pod=victim.name,
                    hog_uid=hog.uid,
                    hog_namespace=hog.namespace,
                    hog=hog.name,
                    hog_percent=min(100, round(100 * short.hog_part)),
                    cause=short.cause,
                    bytes_per_s=round(short.got),
                    wanted_bytes_per_s=round(short.wanted),
                    limit_bytes_per_s=round(self._limits.get(case.volume, {}).get(short.hog, 0)),
                    windows=case.windows,
                )
            )
        keys = {(report.volume, report.pod_uid, report.hog_uid) for report in reports}
        for report in reports:
            if (report.volume, report.pod_uid, report.hog_uid) not in self._reported:
                self._announce(report)
        changed = keys != self._reported
        self._reported, self.reports = keys, tuple(reports)
        if changed:
            self.on_change()

    def _announce(self, report: ObservedStarvation) -> None:
        text = report.text(self._sources.node)
        _log.info("a container starves", pod=f"{report.namespace}/{report.pod}", text=text)
        subject = EventSubject(namespace=report.namespace, name=report.pod, uid=report.pod_uid)
        self._sources.say(AgentEvent(subject=subject, reason=Reason.IO_STARVED.value, message=text))
        if report.limit_bytes_per_s:
            hog = EventSubject(namespace=report.hog_namespace, name=report.hog, uid=report.hog_uid)
            message = (
                f"{self._sources.node}:{report.volume} limited to "
                f"{report.limit_bytes_per_s / 1e6:.0f} MB/s, its fair share: another container "
                "starves there; spec.io.fairness of the SchedulingPolicy says so"
            )
            self._sources.say(
                AgentEvent(subject=hog, reason=Reason.IO_LIMITED.value, message=message)
            )

    def _name(self, device: str) -> str:
        return self._names.get(device, device)


def _is_exempt(container: Hashable, pods: Mapping[str, Pod]) -> bool:
    """True for what serves the node itself, and for containers that are not known."""
    pod = pods.get(container.pod_uid) if isinstance(container, IoCgroup) else None
    return pod is None or pod.namespace in EXEMPT_NAMESPACES or pod.priority >= SYSTEM_PRIORITY


def _one_volume_each(starving: Sequence[Starvation]) -> list[Starvation]:
    """One finding for each pair of containers: a loop device and the disk below count the same."""
    worst: dict[tuple[Hashable, Hashable], Starvation] = {}
    for case in starving:
        pair = (case.newest.victim, case.newest.hog)
        held = worst.get(pair)
        if held is None or _part_of_fair(case) < _part_of_fair(held) - 0.02:
            worst[pair] = case
    return list(worst.values())


def _part_of_fair(case: Starvation) -> float:
    return case.newest.got / case.newest.fair if case.newest.fair else 1.0
