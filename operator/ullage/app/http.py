# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The operator's endpoints: liveness, readiness, metrics, and a replayable snapshot.

A dead watch or a stuck loop must fail ``/healthz``: kopf's own probe succeeds while streams are
dead, so it is not used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from ullage.app.loop import DecisionLoop
from ullage.app.replay import to_json

MAX_LOOP_LAG_S = 5.0
MAX_STREAM_SILENCE_S = 3 * 55.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthView:
    """What the health check looks at; every age in seconds."""

    loop_lag_s: float
    leading: bool
    cycle_age_s: float
    max_cycle_age_s: float
    stream_ages_s: Mapping[str, float]
    synced: Mapping[str, bool]
    failure: str = ""


def health_problems(view: HealthView) -> list[str]:
    """Why this process should be restarted; empty = healthy. Pure."""
    problems = [
        f"stream {name} is silent for {age:.0f} s"
        for name, age in sorted(view.stream_ages_s.items())
        if age > MAX_STREAM_SILENCE_S
    ]
    if view.loop_lag_s > MAX_LOOP_LAG_S:
        problems.append(f"event loop lags {view.loop_lag_s:.1f} s")
    if view.leading and view.cycle_age_s > view.max_cycle_age_s:
        problems.append(f"no decision completed for {view.cycle_age_s:.0f} s")
    if view.failure:
        problems.append(view.failure)
    return problems


def readiness_problems(view: HealthView) -> list[str]:
    """Which streams have not been listed yet; a standby is ready as well. Pure."""
    return [f"{name} is not synced" for name, done in sorted(view.synced.items()) if not done]


def application(
    view: Callable[[], HealthView], metrics: CollectorRegistry, loop: DecisionLoop
) -> web.Application:
    """The HTTP application over injected views."""

    async def healthz(_: web.Request) -> web.Response:
        return _answer(health_problems(view()))

    async def readyz(_: web.Request) -> web.Response:
        return _answer(readiness_problems(view()))

    async def metricsz(_: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(metrics), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    async def snapshot(_: web.Request) -> web.Response:
        if loop.last_inputs is None:
            return web.Response(status=404, text="no decision was made yet\n")
        # records only: templates, environments and secrets never enter a snapshot
        return web.Response(body=to_json(loop.last_inputs), content_type="application/json")

    app = web.Application()
    app.add_routes(
        [
            web.get("/healthz", healthz),
            web.get("/readyz", readyz),
            web.get("/metrics", metricsz),
            web.get("/debug/snapshot", snapshot),
        ]
    )
    return app


def _answer(problems: list[str]) -> web.Response:
    if problems:
        return web.Response(status=503, text="\n".join(problems) + "\n")
    return web.Response(text="ok\n")
