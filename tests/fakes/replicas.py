# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whole replicas of the operator on virtual time, around one API server and one small cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from structlog.testing import capture_logs

from builders_raw import raw_template
from fakes.lesson_rig import Inline
from fakes.small_world import Cluster, Wall
from fakes.virtual_api import Client, VirtualApi
from fakes.virtual_time import LoopClock, run_virtual
from ullage import ports
from ullage.app.health import health_problems, readiness_problems
from ullage.app.operator import Operator, Surroundings
from ullage.app.settings import Settings
from ullage.app.solver import Solver
from ullage.cluster.records.snapshot import Snapshot
from ullage.handlers.frame import KopfFrame, Register
from ullage.handlers.session import Send
from ullage.kube.client import K8sCluster
from ullage.scheduling.cycle.decide import decide
from ullage.scheduling.cycle.diff import diff
from ullage.scheduling.model.plan import Action, DecideSettings, Plan

LOOK_S = 0.25


class LoopWall(Wall):
    """The cluster's clock on the loop's time."""

    def now(self) -> float:
        return LoopClock().now()

    def stamp(self) -> str:
        return datetime.fromtimestamp(self.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class InlineSolver(Solver):
    """Decides in this process, in no time."""

    def start(self) -> None:
        """There is no child."""

    async def run(
        self, snapshot: Snapshot, now: float, settings: DecideSettings
    ) -> tuple[Plan, tuple[Action, ...]]:
        plan = decide(snapshot, now, settings)
        return plan, diff(plan, snapshot)


class InlineLearner(Inline):
    """Learns in this process."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        return super().submit(fn, *args) if not kwargs else super().submit(int)


@dataclass
class Running:
    """One replica that runs."""

    name: str
    client: Client
    operator: Operator
    task: asyncio.Task[None]

    @property
    def is_leader(self) -> bool:
        return self.operator.lease.held_for_write()

    @property
    def epoch(self) -> int:
        return self.operator.lease.epoch

    @property
    def assumed(self) -> int:
        return self.operator.replica.state.assumed

    def unhealthy(self) -> list[str]:
        return health_problems(self.operator.health())

    def unready(self) -> list[str]:
        return readiness_problems(self.operator.health())

    def decided_since(self, moment: float) -> bool:
        """Whether this leader completed a decision after this moment of the loop's time."""
        stats = self.operator.replica.counters.loop
        return self.is_leader and stats.cycles > 0 and stats.last_completed > moment and (
            stats.obstacle == ""
        )  # fmt: skip

    def writes_between(self, first: float, last: float) -> list[str]:
        """Writes but those of the Lease."""
        return [
            f"{one.verb} {one.kind} {one.name}"
            for one in self.client.writes
            if one.kind != "Lease" and first < one.at < last
        ]


class NoFrame(KopfFrame):
    """No thread: it would not follow the time of the loop."""

    async def run(self, send: Send, register: Register) -> None:
        await asyncio.Event().wait()


class World:
    """The API server, two nodes with their agents, and replicas; watches that one leads at most."""

    def __init__(self) -> None:
        self.api = VirtualApi()
        self.cluster = Cluster(self.api.server, LoopWall())
        self.replicas: list[Running] = []
        self.epochs: list[int] = []
        """Of the leaderships, as they began."""
        self._tasks: set[asyncio.Task[None]] = set()
        for name in ("node-1", "node-2"):
            self.cluster.add_node(name)
        self.cluster.turn()

    def start(self, name: str) -> Running:
        """One more process."""
        client = Client(self.api)
        operator = Operator(
            Settings(identity=name),
            cast("K8sCluster", client),
            Surroundings(
                clock=LoopClock(),
                solver=InlineSolver,
                learner=InlineLearner,
                frame=NoFrame,
            ),
        )
        running = Running(name, client, operator, asyncio.create_task(operator.work()))
        client.on_write = lambda _: self._may_write(running)
        self.replicas.append(running)
        return running

    def add_job(self, name: str) -> None:
        gpu = {"mode": "Exclusive", "count": 1}
        spec = {"replicas": 1, "gpu": gpu, "template": raw_template()}
        self.api.server.put(
            ports.TRAINING_JOB, {"metadata": {"name": name, "namespace": "team"}, "spec": spec}
        )

    def phase(self, name: str) -> str:
        found = self.api.server.get(ports.TRAINING_JOB, name, "team") or {}
        return str((found.get("status") or {}).get("phase") or "")

    @property
    def leader(self) -> Running | None:
        return next((one for one in self.replicas if one.is_leader), None)

    async def until(self, condition: Callable[[], object], most_s: float) -> float:
        """Seconds until it holds; fails beyond ``most_s``."""
        began = now()
        while not condition():
            assert now() - began < most_s, self.told()
            await asyncio.sleep(LOOK_S)
        return now() - began

    async def decides(self, most_s: float) -> float:
        """Seconds until a leader has completed a new decision."""
        began = now()
        return await self.until(
            lambda: any(one.decided_since(began) for one in self.replicas), most_s
        )

    def told(self) -> str:
        return "; ".join(
            f"{one.name}: is_leader={one.is_leader} unready={one.unready()}"
            for one in self.replicas
        )

    async def play(self) -> None:
        """Agents, kubelets and the watch over the leaders, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            self._one_leads_at_most()
            if not self.api.away:
                self.cluster.turn()

    def _one_leads_at_most(self) -> None:
        leaders = [one for one in self.replicas if one.is_leader]
        assert len(leaders) <= 1, self.told()
        for one in leaders:
            if one.epoch not in self.epochs:
                assert one.epoch > max(self.epochs, default=0)
                self.epochs.append(one.epoch)

    def _may_write(self, running: Running) -> None:
        assert running.is_leader, f"{running.name} writes and does not lead"
        self._one_leads_at_most()

    async def close(self) -> None:
        tasks = [one.task for one in self.replicas]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def now() -> float:
    """The loop's time, seconds."""
    return asyncio.get_running_loop().time()


def play(story: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    """Play a story to its end; no replica may end before it is told to."""

    async def main() -> None:
        world = World()
        playing = asyncio.create_task(world.play())
        told = asyncio.create_task(story(world))
        try:
            done, _ = await asyncio.wait([playing, told], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (playing, told):
                task.cancel()
            await asyncio.gather(playing, told, return_exceptions=True)
            await world.close()

    with capture_logs():
        run_virtual(main())
