# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The operator's endpoints: liveness, readiness, metrics, and a replayable snapshot.

kopf's own probe succeeds while streams are dead, so it is not used.
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from ullage.app.health import HealthView, health_problems, readiness_problems
from ullage.app.loop import DecisionLoop
from ullage.app.replay import to_json


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
