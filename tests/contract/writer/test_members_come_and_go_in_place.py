# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A gang in place on the rules of a real API server: one pod is lost and made again, no other.

Picture, decision and writer are the product's own; the server is the fake with the real one's
rules.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from builders_raw import raw_template
from fakes.apiserver import FakeApiServer, make_cluster
from fakes.small_world import Brain, Cluster, Dead, Mortal, Wall, converge, products_decision
from ullage import ports
from ullage.scheduling.times import GANG_HOLD_IN_PLACE_S, GANG_ROOM_LASTS_IN_PLACE_S

Json = dict[str, Any]
JOINS_S = GANG_HOLD_IN_PLACE_S + GANG_ROOM_LASTS_IN_PLACE_S + 20


class GangCluster(Cluster):
    """A cluster whose kubelet ends what is asked to end."""

    def turn(self) -> None:
        for pod in self.server.objects(ports.POD):
            meta = pod["metadata"]
            if "deletionTimestamp" in meta:
                self.server.remove(ports.POD, meta["name"], meta["namespace"])
        super().turn()

    def _scheduler_and_kubelet(self) -> None:
        """What has ended stays so."""
        ended = [one for one in self.pods().values() if one["status"].get("phase") == "Failed"]
        super()._scheduler_and_kubelet()
        for pod in ended:
            self.server.put(ports.POD, self.pods()[pod["metadata"]["name"]] | pod)

    def job(self) -> Json:
        found = self.server.get(ports.TRAINING_JOB, "train", "team")
        assert found is not None
        return found

    def pods(self) -> dict[str, Json]:
        return {pod["metadata"]["name"]: pod for pod in self.server.objects(ports.POD)}

    def uids(self) -> dict[str, str]:
        return {name: pod["metadata"]["uid"] for name, pod in self.pods().items()}

    def lose(self, name: str) -> None:
        """A pod is deleted by force: no one is told."""
        self.server.remove(ports.POD, name, "team")

    def fail(self, name: str, code: int) -> None:
        """The container of a pod ends by itself."""
        pod = self.pods()[name]
        container = pod["spec"]["containers"][0]["name"]
        ended = {"name": container, "state": {"terminated": {"exitCode": code}}}
        pod["status"] = {"phase": "Failed", "containerStatuses": [ended]}
        self.server.put(ports.POD, pod)


async def _pass(brain: Brain, cluster: GangCluster, seconds: float, step_s: float = 1.0) -> None:
    for _ in range(round(seconds / step_s)):
        await brain.cycle()
        cluster.turn()
        cluster.wall.seconds += step_s


@asynccontextmanager
async def _running() -> AsyncIterator[tuple[Brain, GangCluster]]:
    wall = Wall()
    async with FakeApiServer(wall=wall.now) as server, make_cluster(server.url) as port:
        cluster = GangCluster(server, wall)
        cluster.add_node("node-1")  # two devices
        spec = {
            "elasticity": {"minReplicas": 1, "maxReplicas": 2, "membership": "InPlace"},
            "gpu": {"mode": "Exclusive", "count": 1},
            "checkpoint": {"graceSeconds": 30},
            "template": raw_template(),
        }
        job = {"metadata": {"name": "train", "namespace": "team"}, "spec": spec}
        server.put(ports.TRAINING_JOB, job)
        brain = Brain(Mortal(port), cluster, 1, products_decision)
        await converge(brain, cluster)
        assert sorted(cluster.pods()) == ["train-0", "train-1"]
        assert cluster.job()["status"]["phase"] == "Running"
        yield brain, cluster
        assert brain.failures == []
        await brain.stop()


async def test_a_lost_pod_is_made_again_and_the_other_stays() -> None:
    async with _running() as (brain, cluster):
        before = cluster.uids()
        cluster.lose("train-0")
        await _pass(brain, cluster, 3)
        status = cluster.job()["status"]
        assert (status["phase"], status["replicas"]) == ("Running", 1)
        assert status["size"]["message"] == (
            "train-0 is gone; goes on in place with 1 of 2 members"
        )
        assert cluster.uids() == {"train-1": before["train-1"]}
        await _pass(brain, cluster, JOINS_S)
        after = cluster.uids()
        assert sorted(after) == ["train-0", "train-1"]
        assert after["train-1"] == before["train-1"]
        assert cluster.job()["status"]["replicas"] == 2
        reasons = {one["reason"] for one in cluster.server.objects(ports.EVENT)}
        assert {"Shrunk", "Grown"} <= reasons
        written = len(brain.actions)
        await _pass(brain, cluster, 3)
        assert len(brain.actions) == written, "a steady state writes nothing"


async def test_a_failure_is_counted_before_its_pod_goes() -> None:
    async with _running() as (brain, cluster):
        before = cluster.uids()
        cluster.fail("train-1", 7)
        await brain.cycle()
        assert cluster.job()["status"]["restarts"] == 1
        assert "train-1" in cluster.pods()
        await brain.stop()
        # another leader finds it counted
        second = Brain(brain.port, cluster, 2, products_decision)
        await _pass(second, cluster, JOINS_S)
        status = cluster.job()["status"]
        assert (status["restarts"], status["replicas"]) == (1, 2)
        assert cluster.uids()["train-0"] == before["train-0"]
        assert cluster.uids()["train-1"] != before["train-1"]
        await second.stop()


@pytest.mark.parametrize("writes", range(12))
async def test_whenever_the_operator_dies_the_other_member_stays(writes: int) -> None:
    async with _running() as (brain, cluster):
        before = cluster.uids()
        await brain.stop()
        cluster.fail("train-0", 7)
        first = Brain(Mortal(brain.port, writes_left=writes), cluster, 2, products_decision)
        try:
            await _pass(first, cluster, JOINS_S, 4.0)
            await first.stop()
        except Dead:
            assert cluster.uids()["train-1"] == before["train-1"]
        second = Brain(brain.port, cluster, 3, products_decision)
        await _pass(second, cluster, JOINS_S, 4.0)
        await second.stop()
        after, status = cluster.uids(), cluster.job()["status"]
        assert sorted(after) == ["train-0", "train-1"]
        assert after["train-1"] == before["train-1"]
        assert after["train-0"] != before["train-0"]
        assert (status["phase"], status["replicas"]) == ("Running", 2)
        assert status["restarts"] <= 1  # a status that never left counts nothing


async def test_its_pods_are_told_their_bounds() -> None:
    async with _running() as (_, cluster):
        for name, pod in cluster.pods().items():
            env = {one["name"]: one.get("value") for one in pod["spec"]["containers"][0]["env"]}
            assert env["PET_NNODES"] == "1:2"
            assert env["PET_RDZV_ENDPOINT"] == "train-0.train-workers:29500"
            assert env["ULLAGE_MEMBER"] == name
            assert not env.keys() & {"RANK", "WORLD_SIZE", "PET_NODE_RANK", "JAX_PROCESS_ID"}
        names = {one["metadata"]["name"] for one in cluster.server.objects(ports.SERVICE)}
        assert "train-workers" in names
