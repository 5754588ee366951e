# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The telemetry of one node: joins readings, pages and device counters, and feeds the learning.

The agent calls :meth:`Telemetry.look` after every reading of the containers. It decides nothing,
and no tenant's output can stop it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ullage.api.loads import ObservedLoad
from ullage.api.observations import LatencyObjective
from ullage.api.reasons import Reason
from ullage_node.containers import Containers
from ullage_node.device_watch import DeviceWatch
from ullage_node.events import AgentEvent, Events, EventSubject
from ullage_node.model.devices import ContainerKey
from ullage_node.model.guard import Windows
from ullage_node.model.samples import DeviceSampler, Samples
from ullage_node.model.slices import LaneReading
from ullage_node.slices.binder import BinderDependencies
from ullage_node.telemetry.histograms import DEFAULT_METRIC
from ullage_node.telemetry.learning import NodeSnapshot, ObservationLearner
from ullage_node.telemetry.loads import Loads
from ullage_node.telemetry.metrics import HeldFigures, TelemetryFigures, held_figures
from ullage_node.telemetry.observations import ObservationBook
from ullage_node.telemetry.scrape import Scraper, ScrapeTarget
from ullage_node.telemetry.tenants import RunningTenant, tenants_of
from ullage_node.telemetry.usage import UsageMeter, UsageReading
from ullage_node.telemetry.windows import HistogramPage, TenantWindows
from ullage_node.times import (
    EVENT_QUIET_S,
    LATENCY_WINDOW_LEAST_S,
    PAGE_PERIOD_MOST_S,
    SAMPLE_S,
    USAGE_WINDOW_S,
)

MOST_TEXTS: Final = 3
"""Most distinct texts per container within the Events' repetition interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Sources of the telemetry; ``sampler`` ``None`` = devices without counters."""

    around: BinderDependencies
    containers: Containers
    watch: DeviceWatch
    events: Events
    sampler: DeviceSampler | None = None


class Telemetry:
    """Windows, samples and rows of one node."""

    def __init__(
        self, sources: Sources, steps: Windows, usage_window_s: float = USAGE_WINDOW_S
    ) -> None:
        self._sources = sources
        self._tenants: tuple[RunningTenant, ...] = ()
        self._pages: dict[ContainerKey, HistogramPage] = {}
        self._loads = Loads()
        self._said: dict[ContainerKey, dict[str, float]] = {}
        """Recent Event texts of a container, with their times."""
        self.samples = Samples()
        self.book = ObservationBook()
        self.learning = ObservationLearner(sources.around.node, self.book, self.samples)
        self.scraper = Scraper(self._targets, self._take_page, self._tell)
        self.usage = UsageMeter(usage_window_s)
        self.turns: Callable[[], Mapping[str, LaneReading]] = dict
        """Readings of lanes, by directory of the container."""
        self.windows = TenantWindows(steps, self._objectives, self.scraper.hurry)
        self.frozen: Callable[[], Collection[ContainerKey]] = tuple
        """Containers frozen by the guard."""

    @property
    def memory(self) -> HeldFigures:
        """Figures of the memory metrics."""
        return held_figures(
            self._sources.watch.observed,
            self._sources.around.table.bindings,
            self._sources.containers.attachments,
        )

    @property
    def figures(self) -> TelemetryFigures:
        """Figures of the other metrics."""
        unmeasured = {*self.scraper.problems, *self.windows.latency.problems}
        return TelemetryFigures(
            pages=self.scraper.reads,
            page_failures=self.scraper.failures,
            unmeasured=len(unmeasured),
            stretches=self.learning.stretches,
            observations=self.book.taken,
            left_out=self.book.left_out,
        )

    def loads(self, now: float) -> Mapping[ContainerKey, ObservedLoad]:
        """Loads that are requested and known; ``now`` is CLOCK_MONOTONIC, seconds."""
        loads: dict[ContainerKey, ObservedLoad] = {}
        for tenant in self._tenants:
            slo = tenant.desired.slo
            if slo is not None and tenant.desired.reports_load:
                load = self._loads.of(tenant.key, slo, now)
                if load is not None:
                    loads[tenant.key] = load
        return loads

    async def run(self) -> None:
        """Read pages and counters until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.scraper.run(), name="scrape")
            if self._sources.sampler is not None:
                group.create_task(_sample(self._sources.sampler, self.samples), name="sample")

    def look(self, now: float, wall: float) -> None:
        """Process the newest readings of the containers."""
        sources, seen = self._sources, self._sources.containers
        self._tenants = tenants_of(
            sources.around.table.held, seen.attachments, seen.progress, self.frozen()
        )
        keys = {tenant.key for tenant in self._tenants}
        self._pages = {key: page for key, page in self._pages.items() if key in keys}
        self._said = {key: texts for key, texts in self._said.items() if key in keys}
        self._loads.keep(keys)
        self.learning.take(
            NodeSnapshot(
                now=now,
                wall=wall,
                tenants=self._tenants,
                models={device.uuid: device.model for device in sources.watch.observed},
                pages=self._pages,
                images=self._images(),
            )
        )
        self.usage.take(
            UsageReading(
                now=now,
                tenants=self._tenants,
                samples={sample.uuid: sample for sample in self.samples.newest},
                turns=self.turns(),
            )
        )
        for key, why in self.windows.latency.problems.items():
            self._tell(key, why)

    def _images(self) -> Mapping[ContainerKey, str]:
        pods = self._sources.around.pods.by_uid
        return {
            ContainerKey(pod_uid=uid, container=name): digest
            for uid in {tenant.key.pod_uid for tenant in self._tenants} & pods.keys()
            for name, digest in pods[uid].images
        }

    def _objectives(self) -> Mapping[ContainerKey, LatencyObjective]:
        return {tenant.key: tenant.desired.slo for tenant in self._tenants if tenant.desired.slo}

    def _targets(self) -> Iterable[ScrapeTarget]:
        """The page of every running tenant with a latency objective."""
        for tenant in self._tenants:
            slo, pod = tenant.desired.slo, self._sources.around.pods.by_uid.get(tenant.key.pod_uid)
            if slo is not None and pod is not None and tenant.running and not tenant.frozen:
                seconds = max(float(slo.window_seconds), LATENCY_WINDOW_LEAST_S)
                yield ScrapeTarget(
                    key=tenant.key,
                    url=pod.endpoint.url,
                    metric=slo.metric or DEFAULT_METRIC,
                    period_s=seconds / math.ceil(seconds / PAGE_PERIOD_MOST_S),
                )

    def _take_page(self, key: ContainerKey, page: HistogramPage) -> None:
        self._pages[key] = page
        self._loads.take(key, page)
        self.windows.latency.take(key, page)

    def _tell(self, key: ContainerKey, why: str) -> None:
        """Report on the pod why its objective cannot be judged; rate-limited.

        The container's own page controls the text.
        """
        binding = self._sources.around.table.binding(key)
        if why and binding is not None and self._is_said(key, why):
            subject = EventSubject(
                namespace=binding.pod_namespace, name=binding.pod_name, uid=key.pod_uid
            )
            message = f"latency objective not judged: {why}"
            self._sources.events.say(
                AgentEvent(subject=subject, reason=Reason.LATENCY_UNMEASURED.value, message=message)
            )

    def _is_said(self, key: ContainerKey, why: str) -> bool:
        """True if a text on a container may be sent within the rate limit."""
        now = time.monotonic()
        recent = {
            text: at for text, at in self._said.get(key, {}).items() if now - at < EVENT_QUIET_S
        }
        if why not in recent and len(recent) >= MOST_TEXTS:
            return False
        self._said[key] = {why: now, **recent}
        return True


async def _sample(sampler: DeviceSampler, into: Samples) -> None:
    """Read the devices' counters once a second until cancelled."""
    try:
        while True:
            into.take(await sampler.sample(time.monotonic()))
            await asyncio.sleep(SAMPLE_S)
    finally:
        await sampler.close()
