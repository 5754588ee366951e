# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Probes and metrics of the agent over HTTP.

Metrics are read from the agent's state when they are scraped, so they cannot diverge from it and no
label outlives its object. Read-only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from ullage.process.connections import sent
from ullage.process.listener import HttpListener
from ullage.process.metric_families import counter, gauge
from ullage.process.secure_metrics import SecureMetrics
from ullage.process.token_access import Review, TokenAccess
from ullage_node.model.device_labels import DEVICE
from ullage_node.settings import AgentHttpSettings

PRESTART_BUCKETS: Final = (0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Figures of the agent itself."""

    slots: Mapping[str, int] = gauge("ullage_node_slots", "Slots by state.", "state")
    refusals: Mapping[str, int] = counter(
        "ullage_node_refusals", "Container starts refused.", "reason"
    )
    healthy: Mapping[str, bool] = gauge(
        "ullage_device_health", "1 = the device may be used.", DEVICE
    )
    task_failures: Mapping[str, int] = counter(
        "ullage_node_task_failures", "Failures of background tasks.", "task"
    )
    unreadable: Mapping[str, int] = counter(
        "ullage_node_objects_unreadable",
        "Objects of the API server that could not be taken in.",
        "kind",
    )
    registrations: int = counter("ullage_node_registrations", "Registrations with kubelet.")
    status_writes: int = counter("ullage_node_status_writes", "Status writes that were accepted.")
    status_failures: int = counter("ullage_node_status_failures", "Status writes that failed.")
    events_dropped: int = counter("ullage_node_events_dropped", "Events that were not taken.")
    records_invalid: int = counter("ullage_step_records_invalid", "Readings that were no record.")
    records_uncapped: int = counter(
        "ullage_step_records_uncapped",
        "Step records made outside of their slot's file system, which was full.",
    )


class Instruments:
    """The two durations that are not part of the state."""

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


class WebServer:
    """Serves /healthz, /readyz and /metrics."""

    def __init__(
        self,
        settings: AgentHttpSettings,
        registry: CollectorRegistry,
        healthy: Callable[[], str],
        ready: Callable[[], str],
        review: Review,
    ) -> None:
        """``review`` authorises callers at the API server, where metrics are served over TLS."""
        self._settings = settings
        self._registry = registry
        self._checks = {"/healthz": healthy, "/readyz": ready}
        self._listener: HttpListener | None = None
        self._secure = (
            SecureMetrics(
                lambda: generate_latest(registry), TokenAccess(review), settings.certificate_dir
            )
            if settings.metrics_port
            else None
        )
        self.port = settings.port
        """The port in use, also when any free one was requested."""

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address is taken.
        """
        application = web.Application()
        for path in self._checks:
            application.router.add_get(path, self._probe)
        if self._secure is None:
            application.router.add_get("/metrics", self._metrics)
        self._listener = HttpListener(application, name="probes and metrics")
        await self._listener.start(self._settings.port, self._settings.host)
        self.port = self._listener.port
        if self._secure is not None:
            await self._secure.start(self._settings.metrics_port, self._settings.host)

    async def stop(self) -> None:
        """Stop listening."""
        if self._secure is not None:
            await self._secure.stop()
        if self._listener is not None:
            await self._listener.stop()

    async def _probe(self, request: web.Request) -> web.StreamResponse:
        """200, or 503 with the problem; an empty text of the check means healthy."""
        problem = self._checks[request.path]()
        answer = web.Response(text=problem or "ok", status=503 if problem else 200)
        return await sent(request, answer)

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        headers = {"Content-Type": "text/plain; version=0.0.4"}
        answer = web.Response(body=generate_latest(self._registry), headers=headers)
        return await sent(request, answer)
