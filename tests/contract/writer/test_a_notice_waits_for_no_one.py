# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A job that leaves its node goes on elsewhere without waiting for the next regular look.

The operator decides only when something wakes it: news of the watch, or a moment that it asked for
itself. What it wrote itself is no news, so every step that follows from its own must be asked for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from builders_raw import raw_template
from fakes.apiserver import FakeApiServer, make_cluster
from fakes.mortal import Mortal
from fakes.small_world import Brain, Cluster, Wall, converge, selected
from ullage import ports
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.values.streams import STREAMS
from ullage.scheduling.cycle.decide import decide
from ullage.scheduling.cycle.diff import diff
from ullage.scheduling.model.plan import Action, DecideSettings

Json = dict[str, Any]
PATIENCE_S = 5.0
"""An alarm that is further away is none: the regular look comes after 30 s."""


@dataclass
class Alarm:
    """The product's decision, which remembers when it wants to be asked again."""

    at: float = 0.0

    def __call__(self, snapshot: Snapshot, now: float, epoch: int) -> tuple[Action, ...]:
        plan = decide(snapshot, now, DecideSettings(epoch=epoch))
        self.at = plan.wake_at
        return diff(plan, snapshot)


@dataclass
class Sleeper:
    """An operator that is not asked without a cause."""

    brain: Brain
    cluster: Cluster
    alarm: Alarm

    def _news(self) -> bool:
        now = self.cluster.wall.now()
        found = False
        for stream in STREAMS:
            items = [
                item for item in self.cluster.server.objects(stream.kind) if selected(stream, item)
            ]
            found |= self.brain.state.replace(stream, items, now)
        return found

    async def follow(self, most: int = 40) -> None:
        """Decide as long as there is a cause."""
        wall = self.cluster.wall
        for _ in range(most):
            news = self._news()
            soon = bool(self.alarm.at) and self.alarm.at - wall.now() <= PATIENCE_S
            if not news and not soon:
                return
            if not news:
                wall.seconds = max(wall.seconds, self.alarm.at)
            self.alarm.at = 0.0
            await self.brain.carry_out(*self.brain.decide())
        raise AssertionError(f"still deciding after {most} cycles: {self.brain.actions[-5:]}")

    async def live(self, most: int = 20) -> None:
        """Everyone works until nothing moves any more."""
        for _ in range(most):
            version = self.cluster.server.version
            await self.follow()
            self.cluster.turn()
            self.cluster.wall.seconds += 1.0
            await self.follow()
            if self.cluster.server.version == version:
                return
        raise AssertionError("the cluster does not come to rest")


def _job(name: str, replicas: int) -> Json:
    spec = {
        "replicas": replicas,
        "gpu": {"mode": "Exclusive", "count": 1},
        "checkpoint": {"graceSeconds": 20},
        "template": raw_template(),
    }
    return {"metadata": {"name": name, "namespace": "team"}, "spec": spec}


@asynccontextmanager
async def _asleep(replicas: int) -> AsyncIterator[Sleeper]:
    """A job that runs in a cluster with room to spare, where nothing happens."""
    wall = Wall()
    async with FakeApiServer(wall=wall.now) as server, make_cluster(server.url) as port:
        cluster, alarm = Cluster(server, wall), Alarm()
        for name in ("node-1", "node-2", "node-3"):
            cluster.add_node(name)
        server.put(ports.TRAINING_JOB, _job("train", replicas))
        brain = Brain(Mortal(port), cluster, 1, alarm)
        try:
            await converge(brain, cluster)
            yield Sleeper(brain, cluster, alarm)
        finally:
            await brain.kill()


def _pods(cluster: Cluster) -> list[Json]:
    return [dict(one) for one in cluster.server.objects(ports.POD)]


def _notice(cluster: Cluster, where: str) -> None:
    node = cluster.server.get(ports.GPU_NODE, where)
    assert node is not None
    moment = datetime.fromtimestamp(cluster.wall.now() + 120, UTC)
    said = {
        "kind": "Terminate",
        "deadline": moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "source": "EC2",
    }
    cluster.server.put(ports.GPU_NODE, node | {"status": node["status"] | {"interruption": said}})


def _containers_end(cluster: Cluster) -> None:
    """As kubelet and agents tell it: the pod has failed and holds nothing, but is still there."""
    for pod in _pods(cluster):
        ended = {"exitCode": 143, "finishedAt": cluster.wall.stamp()}
        state = {"name": "main", "state": {"terminated": ended}}
        status = {"phase": "Failed", "containerStatuses": [state]}
        cluster.server.put(ports.POD, pod | {"status": status})
    for node in cluster.server.objects(ports.GPU_NODE):
        status = (node.get("status") or {}) | {"slices": []}
        cluster.server.put(ports.GPU_NODE, node | {"status": status})


@pytest.mark.parametrize("replicas", [1, 2])
async def test_a_job_with_a_notice_goes_on_elsewhere_at_once(replicas: int) -> None:
    async with _asleep(replicas) as sleeper:
        cluster = sleeper.cluster
        where = _pods(cluster)[0]["spec"]["nodeName"]
        before = {pod["metadata"]["uid"] for pod in _pods(cluster)}
        _notice(cluster, where)
        await sleeper.follow()
        assert all(pod["metadata"].get("deletionTimestamp") for pod in _pods(cluster))
        _containers_end(cluster)
        await sleeper.follow()
        for pod in _pods(cluster):
            cluster.server.remove(ports.POD, pod["metadata"]["name"], "team")
        began = cluster.wall.now()
        await sleeper.live()
        pods = _pods(cluster)
        assert len(pods) == replicas
        assert not before & {pod["metadata"]["uid"] for pod in pods}
        assert {pod["status"]["phase"] for pod in pods} == {"Running"}
        assert where not in {pod["spec"]["nodeName"] for pod in pods}
        assert cluster.wall.now() - began < 30
        job = cluster.server.get(ports.TRAINING_JOB, "train", "team")
        assert job is not None
        assert job["status"]["phase"] == "Running"
        assert job["status"].get("restarts", 0) == 0


async def test_a_gang_whose_member_fails_is_taken_down_at_once() -> None:
    async with _asleep(2) as sleeper:
        cluster = sleeper.cluster
        one, other = sorted(_pods(cluster), key=lambda pod: str(pod["metadata"]["name"]))
        ended = {"exitCode": 1, "finishedAt": cluster.wall.stamp()}
        state = {"name": "main", "state": {"terminated": ended}}
        cluster.server.put(
            ports.POD, one | {"status": {"phase": "Failed", "containerStatuses": [state]}}
        )
        await sleeper.follow()
        left = cluster.server.get(ports.POD, other["metadata"]["name"], "team")
        assert left is None or left["metadata"].get("deletionTimestamp")
