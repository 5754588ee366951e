# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""From a TrainingJob in tiers to members that run beside their coordinator, and to a coordinator
that is lost.

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
from fakes.small_world import Brain, Cluster, Mortal, Wall, converge, products_decision
from ullage import ports
from ullage.api.labels import LABEL_LEAD

Json = dict[str, Any]
ELASTICITY = {
    "minReplicas": 1,
    "maxReplicas": 2,
    "reliableReplicas": 1,
    "tiers": "Auto",
    "backup": {"stateBytes": "64Mi"},
}


class TieredCluster(Cluster):
    """A cluster that runs coordinators as well; none of them has an affinity here."""

    def turn(self) -> None:
        """Whoever was asked to end has ended."""
        for pod in self.server.objects(ports.POD):
            meta = pod["metadata"]
            if "deletionTimestamp" in meta:
                self.server.remove(ports.POD, meta["name"], meta["namespace"])
        super().turn()

    def coordinators(self) -> list[Json]:
        found = self.server.objects(ports.POD)
        return [pod for pod in found if pod["metadata"]["labels"].get(LABEL_LEAD) == "true"]

    def end_coordinator(self, exit_code: int) -> None:
        """The coordinator ends by itself."""
        (pod,) = self.coordinators()
        ended = {"name": "lead", "state": {"terminated": {"exitCode": exit_code}}}
        phase = "Failed" if exit_code else "Succeeded"
        pod["status"] = {"phase": phase, "containerStatuses": [ended]}
        self.server.put(ports.POD, pod)

    def _scheduler_and_kubelet(self) -> None:
        coordinators = self.coordinators()
        for pod in coordinators:
            if (pod.get("status") or {}).get("phase", "Pending") == "Pending":
                pod["spec"]["nodeName"] = "node-1"
                pod["status"] = {"phase": "Running", "podIP": "10.1.0.7"}
                self.server.put(ports.POD, pod)
        names = {pod["metadata"]["name"] for pod in coordinators}
        held = self.server.objects
        self.server.objects = lambda kind: [  # type: ignore[method-assign]
            one
            for one in held(kind)
            if kind is not ports.POD or one["metadata"]["name"] not in names
        ]
        try:
            super()._scheduler_and_kubelet()
        finally:
            self.server.objects = held  # type: ignore[method-assign]

    def job(self) -> Json:
        found = self.server.get(ports.TRAINING_JOB, "train", "team")
        assert found is not None
        return found

    def members(self) -> list[Json]:
        found = self.server.objects(ports.POD)
        return [pod for pod in found if LABEL_LEAD not in pod["metadata"]["labels"]]


@asynccontextmanager
async def _running() -> AsyncIterator[tuple[Brain, TieredCluster]]:
    wall = Wall()
    async with FakeApiServer(wall=wall.now) as server, make_cluster(server.url) as port:
        cluster = TieredCluster(server, wall)
        cluster.add_node("node-1")
        spec = {
            "elasticity": ELASTICITY,
            "gpu": {"mode": "Exclusive", "count": 1},
            "checkpoint": {"graceSeconds": 30},
            "template": raw_template(),
        }
        job = {"metadata": {"name": "train", "namespace": "team"}, "spec": spec}
        server.put(ports.TRAINING_JOB, job)
        brain = Brain(Mortal(port), cluster, 1, products_decision)
        yield brain, cluster
        await brain.stop()


async def test_members_run_beside_one_lead() -> None:
    async with _running() as (brain, cluster):
        await converge(brain, cluster)
        assert cluster.job()["status"]["phase"] == "Running"
        assert brain.failures == []
        assert len(cluster.coordinators()) == 1
        assert {pod["status"]["phase"] for pod in cluster.members()} == {"Running"}
        services = {one["metadata"]["name"] for one in cluster.server.objects(ports.SERVICE)}
        assert "train-lead" in services
        (secret,) = cluster.server.objects(ports.SECRET)
        (policy,) = cluster.server.objects(ports.NETWORK_POLICY)
        for one in (secret, policy, *cluster.coordinators()):
            assert one["metadata"]["ownerReferences"][0]["name"] == "train"
        assert brain.actions[-1:], "something was done"
        before = len(brain.actions)
        await brain.cycle()
        assert len(brain.actions) == before, "a steady state writes nothing"


async def test_a_new_leader_makes_no_second_lead_nor_token() -> None:
    async with _running() as (brain, cluster):
        await converge(brain, cluster)
        (secret,) = cluster.server.objects(ports.SECRET)
        await brain.stop()
        second = Brain(brain.port, cluster, 2, products_decision)
        await converge(second, cluster)
        assert len(cluster.coordinators()) == 1
        assert cluster.server.objects(ports.SECRET) == [secret]
        await second.stop()


@pytest.mark.parametrize(("code", "restarts"), [(75, 0), (1, 1)])
async def test_a_lost_lead_is_replaced_and_everyone_starts_again(code: int, restarts: int) -> None:
    async with _running() as (brain, cluster):
        await converge(brain, cluster)
        first = cluster.coordinators()[0]["metadata"]["uid"]
        members = {pod["metadata"]["uid"] for pod in cluster.members()}
        (secret,) = cluster.server.objects(ports.SECRET)
        cluster.end_coordinator(code)
        for _ in range(30):
            await brain.cycle()
            cluster.turn()
            cluster.wall.seconds += 1.0
        (coordinator,) = cluster.coordinators()
        assert coordinator["metadata"]["uid"] != first
        assert {pod["metadata"]["uid"] for pod in cluster.members()}.isdisjoint(members)
        assert cluster.job()["status"]["phase"] == "Running"
        assert cluster.job()["status"].get("restarts", 0) == restarts
        assert cluster.server.objects(ports.SECRET) == [secret]
        events = {one["reason"] for one in cluster.server.objects(ports.EVENT)}
        assert "LeadLost" in events
