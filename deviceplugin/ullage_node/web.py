# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Probes and metrics of the agent over HTTP.

Metrics are read from the agent's state when they are scraped, so they cannot drift from it and no
label outlives what it stood for. Nothing here changes anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ullage.api.contract import Health, ObservedDevice
from ullage_node.settings import HttpSettings

PRESTART_BUCKETS: Final = (0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Figures of the metrics."""

    slots: Counter[str]
    """Slots by state: free, used, unhealthy."""
    refusals: Counter[str]
    registrations: int
    devices: tuple[ObservedDevice, ...]
    status_writes: int
    status_failures: int
    events_dropped: int
    records_invalid: int
    records_uncapped: int
    task_failures: Mapping[str, int]
    unreadable: Mapping[str, int]
    """Objects that could not be taken in, by kind."""


class Instruments:
    """The two durations that cannot be read from a state."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.prestart = Histogram(
            "ullage_node_prestart_seconds",
            "Time of one PreStartContainer call.",
            buckets=PRESTART_BUCKETS,
            registry=registry,
        )
        self.reconcile = Histogram(
            "ullage_node_reconcile_seconds",
            "Time of one comparison with kubelet.",
            buckets=PRESTART_BUCKETS,
            registry=registry,
        )


class AgentCollector(Collector):
    """Turns :class:`Figures` into metrics at scrape time."""

    def __init__(self, figures: Callable[[], Figures]) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        """The metric families."""
        now = self._figures()
        slots = GaugeMetricFamily("ullage_node_slots", "Slots by state.", labels=["state"])
        for state in ("free", "used", "unhealthy"):
            slots.add_metric([state], now.slots[state])
        yield slots
        refusals = CounterMetricFamily(
            "ullage_node_refusals", "Container starts refused.", labels=["reason"]
        )
        for reason, count in sorted(now.refusals.items()):
            refusals.add_metric([reason], count)
        yield refusals
        health = GaugeMetricFamily(
            "ullage_device_health", "1 = the device may be used.", labels=["gpu"]
        )
        for device in now.devices:
            health.add_metric([device.uuid], float(device.health is Health.HEALTHY))
        yield health
        failures = CounterMetricFamily(
            "ullage_node_task_failures", "Failures of background tasks.", labels=["task"]
        )
        for task, count in sorted(now.task_failures.items()):
            failures.add_metric([task], count)
        yield failures
        unreadable = CounterMetricFamily(
            "ullage_node_objects_unreadable",
            "Objects of the API server that could not be taken in.",
            labels=["kind"],
        )
        for kind, count in sorted(now.unreadable.items()):
            unreadable.add_metric([kind], count)
        yield unreadable
        yield from _counts(now)


def _counts(now: Figures) -> Iterator[Metric]:
    for name, text, value in (
        ("ullage_node_registrations", "Registrations with kubelet.", now.registrations),
        ("ullage_node_status_writes", "Status writes that were accepted.", now.status_writes),
        ("ullage_node_status_failures", "Status writes that failed.", now.status_failures),
        ("ullage_node_events_dropped", "Events that were not taken.", now.events_dropped),
        ("ullage_step_records_invalid", "Readings that were no record.", now.records_invalid),
        (
            "ullage_step_records_uncapped",
            "Step records made outside of their slot's file system, which was full.",
            now.records_uncapped,
        ),
    ):
        yield CounterMetricFamily(name, text, value=value)


class WebServer:
    """Serves /healthz, /readyz and /metrics."""

    def __init__(
        self,
        settings: HttpSettings,
        registry: CollectorRegistry,
        healthy: Callable[[], str],
        ready: Callable[[], str],
    ) -> None:
        self._settings = settings
        self._registry = registry
        self._checks = {"/healthz": healthy, "/readyz": ready}
        self._runner: web.AppRunner | None = None
        self.port = settings.port
        """The port in use, also when any free one was asked for."""

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address is taken.
        """
        application = web.Application()
        for path in self._checks:
            application.router.add_get(path, self._probe)
        application.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._settings.host, self._settings.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _probe(self, request: web.Request) -> web.Response:
        """200, or 503 with what is wrong: a check answers the empty text when all is well."""
        problem = self._checks[request.path]()
        return web.Response(text=problem or "ok", status=503 if problem else 200)

    async def _metrics(self, request: web.Request) -> web.Response:
        body = generate_latest(self._registry)
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4"})
