# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whole operators, kopf included, on a fake API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fakes.apiserver import FakeApiServer, make_cluster
from fakes.replicas import InlineLearner, InlineSolver
from ullage.app.operator import Operator, Surroundings
from ullage.app.settings import DecideTimes, HttpSettings, Settings
from ullage.kube.clock import SystemClock
from ullage.ports import Clock

IMAGE = "example.org/ullage:1"


async def until(condition: Callable[[], object], most_s: float = 90.0) -> None:
    """Wait until it holds; fails after a long time."""
    async with asyncio.timeout(most_s):
        while not condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def standing_by(
    api: FakeApiServer, identity: str = "a", clock: Clock | None = None
) -> AsyncIterator[Operator]:
    """A replica, which comes to lead where no other does."""
    async with make_cluster(api.url) as cluster:
        operator = Operator(
            Settings(
                identity=identity,
                decide=DecideTimes(router_image=IMAGE, order_image=IMAGE),
                http=HttpSettings(port=0, debug_port=0),
            ),
            cluster,
            Surroundings(clock=clock or SystemClock(), solver=InlineSolver, learner=InlineLearner),
        )
        task = asyncio.create_task(operator.work())
        try:
            yield operator
        finally:
            operator.stop()
            await task


@asynccontextmanager
async def leading(
    api: FakeApiServer, identity: str = "a", clock: Clock | None = None
) -> AsyncIterator[Operator]:
    """A replica that leads."""
    async with standing_by(api, identity, clock) as operator:
        await until(lambda: operator.lease.held)
        yield operator
