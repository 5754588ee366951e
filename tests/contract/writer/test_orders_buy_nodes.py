# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""From a pool without nodes to a gang that runs: order, machine, placement, and the order goes.

Picture, decision and writer are the product's own; the server is the fake with the real one's
rules, and an autoscaler in small buys the machines.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from builders_raw import raw_pool, raw_template
from fakes.apiserver import FakeApiServer, make_cluster
from fakes.cluster_autoscaler_rules import ClusterAutoscaler
from fakes.karpenter_rules import Karpenter
from fakes.node_affinity import accepts
from fakes.provisioner import Autoscaler, Provisioner, is_order, unschedulable
from fakes.small_world import Brain, Cluster, Mortal, Wall, converge
from ullage import ports
from ullage.api.labels import LABEL_ORDER
from ullage.cluster.records.snapshot import Snapshot
from ullage.scheduling.cycle.decide import decide
from ullage.scheduling.cycle.diff import diff
from ullage.scheduling.model.plan import Action, DecideSettings
from ullage.scheduling.times import NODE_COMES_S, NODE_READY_S

Json = dict[str, Any]
RULES = (Karpenter(), ClusterAutoscaler())
Running = Callable[..., AbstractAsyncContextManager[tuple[Brain, "Market"]]]


class Market(Cluster):
    """A cluster whose machines are bought on demand."""

    def __init__(self, server: FakeApiServer, wall: Wall, provisioner: Provisioner) -> None:
        super().__init__(server, wall)
        self.provisioner = provisioner

    def turn(self) -> None:
        """Pods end; kube-scheduler looks first, then the provisioner, then everyone else."""
        self._end_pods()
        self._bind_orders()
        pods, nodes = self.server.objects(ports.POD), self.server.objects(ports.NODE)
        for node in self.provisioner.turn(pods, nodes).create:
            self.server.put(ports.NODE, node)
        super().turn()

    def _end_pods(self) -> None:
        """kubelet confirms that a pod that has to go is gone."""
        for pod in self.server.objects(ports.POD):
            meta = pod["metadata"]
            if meta.get("deletionTimestamp"):
                self.server.remove(ports.POD, meta["name"], meta["namespace"])

    def _bind_orders(self) -> None:
        bound = set()
        for pod in self.orders():
            where = pod["spec"].get("nodeName")
            for node in self.server.objects(ports.NODE) if not where else ():
                if node["metadata"]["name"] not in bound and accepts(node, pod):
                    pod["spec"]["nodeName"] = where = node["metadata"]["name"]
                    pod["status"] = {"phase": "Running"}
                    self.server.put(ports.POD, pod)
                    break
            if not where and pod.get("status") != unschedulable(pod)["status"]:
                self.server.put(ports.POD, unschedulable(pod))
            bound.add(where)

    def _scheduler_and_kubelet(self) -> None:
        orders = {pod["metadata"]["name"] for pod in self.orders()}
        held = self.server.objects
        self.server.objects = lambda kind: [  # type: ignore[method-assign]
            one
            for one in held(kind)
            if kind is not ports.POD or one["metadata"]["name"] not in orders
        ]
        try:
            super()._scheduler_and_kubelet()
        finally:
            self.server.objects = held  # type: ignore[method-assign]

    def lose(self, name: str) -> None:
        """A machine is gone, with its pods."""
        self.server.remove(ports.NODE, name)
        if self.server.get(ports.GPU_NODE, name) is not None:
            self.server.remove(ports.GPU_NODE, name)
        for pod in self.server.objects(ports.POD):
            if pod["spec"].get("nodeName") == name:
                meta = pod["metadata"]
                self.server.remove(ports.POD, meta["name"], meta["namespace"])

    def orders(self) -> list[Json]:
        """Placeholder pods."""
        return [pod for pod in self.server.objects(ports.POD) if is_order(pod)]

    def job(self) -> Json:
        found = self.server.get(ports.TRAINING_JOB, "train", "team")
        assert found is not None
        return found

    def where(self) -> set[str]:
        """Nodes that members run on."""
        pods = [pod for pod in self.server.objects(ports.POD) if not is_order(pod)]
        return {pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")}


def ordering(snapshot: Snapshot, now: float, epoch: int) -> tuple[Action, ...]:
    settings = DecideSettings(epoch=epoch, orders=True)
    return diff(decide(snapshot, now, settings), snapshot)


def a_job(name: str, replicas: int) -> Json:
    spec = {
        "replicas": replicas,
        "gpu": {"mode": "Exclusive", "count": 2},
        "checkpoint": {"graceSeconds": 30},
        "work": {"steps": 1000},
        "cost": {"objective": "CostPerWork"},
        "template": raw_template(),
    }
    return {"metadata": {"name": name, "namespace": "team"}, "spec": spec}


@asynccontextmanager
async def _running(
    replicas: int = 2, broken: bool = False, rules: Autoscaler = RULES[0]
) -> AsyncIterator[tuple[Brain, Market]]:
    wall = Wall()
    provisioner = Provisioner(
        labels={"spot-a": {"pool": "spot-a"}, "other": {"pool": "other"}},
        rules=rules,
        broken=frozenset({"spot-a"}) if broken else frozenset(),
    )
    async with FakeApiServer(wall=wall.now) as server, make_cluster(server.url) as port:
        market = Market(server, wall, provisioner)
        stamp = datetime.fromtimestamp(wall.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        status = {"price": "0.95", "pricedAt": stamp, "available": True}
        pool = raw_pool(accelerator="emulated", gpusPerInstance=2, status=status)
        del pool["metadata"]["uid"]
        server.put(ports.CAPACITY_POOL, pool)
        server.put(ports.TRAINING_JOB, a_job("train", replicas))
        brain = Brain(Mortal(port), market, 1, ordering)
        yield brain, market
        await brain.stop()


@pytest.fixture
def running() -> Running:
    return _running


@pytest.fixture(params=RULES, ids=lambda rules: type(rules).__name__)
def rules(request: pytest.FixtureRequest) -> Autoscaler:
    found: Autoscaler = request.param
    return found


async def test_machines_are_bought_the_gang_runs_and_the_orders_go(
    running: Running, rules: Autoscaler
) -> None:
    async with running(rules=rules) as (brain, market):
        await converge(brain, market)
        assert market.where() == {"spot-a-0", "spot-a-1"}
        assert market.provisioner.bought == ["spot-a-0", "spot-a-1"]
        assert market.orders() == []
        assert market.provisioner.refused == []
        assert market.job()["status"]["phase"] == "Running"
        assert brain.failures == []
        events = {one["reason"] for one in market.server.objects(ports.EVENT)}
        assert {"PoolAcquired", "PoolOrdered"} <= events


async def test_the_second_node_of_a_pool_is_bought_as_well(
    running: Running, rules: Autoscaler
) -> None:
    async with running(replicas=1, rules=rules) as (brain, market):
        await converge(brain, market)
        assert market.provisioner.bought == ["spot-a-0"]
        market.server.put(ports.TRAINING_JOB, a_job("second", 1))
        await converge(brain, market)
        assert market.provisioner.refused == []
        assert market.where() == {"spot-a-0", "spot-a-1"}


def elastic(job: Json, least: int, most: int, membership: str) -> Json:
    del job["spec"]["replicas"]
    job["spec"]["work"] = {"steps": 10**9}
    job["spec"]["elasticity"] = {
        "minReplicas": least,
        "maxReplicas": most,
        "membership": membership,
    }
    return job


async def runs_on(brain: Brain, market: Market, members: int) -> set[str]:
    """Wait until so many members run and no request is left; where they are a minute later."""
    quiet = 0
    for _ in range(100):
        await brain.cycle()
        market.turn()
        market.wall.seconds += 10.0
        market.heartbeat()
        done = (len(market.where()), market.orders()) == (members, [])
        quiet = quiet + 1 if done else 0
        if quiet == 6:
            break
    return market.where()


@pytest.mark.slow
@pytest.mark.parametrize("membership", [None, "InPlace", "Restart"], ids=str)
async def test_a_running_gang_gets_a_node_for_one_that_vanished_and_no_other(
    running: Running, membership: str | None
) -> None:
    async with running() as (brain, market):
        job = a_job("train", 3)
        if membership:
            job = elastic(job, 2, 3, membership)
        market.server.put(ports.TRAINING_JOB, job)
        before = await runs_on(brain, market, 3)
        lost = min(before)
        market.lose(lost)
        after = await runs_on(brain, market, 3)
        assert (len(before), len(after)) == (3, 3)
        assert before - after == {lost}
        assert (len(market.provisioner.bought), market.orders()) == (4, [])
        assert market.job()["status"]["phase"] == "Running"


@pytest.mark.slow
@pytest.mark.parametrize("membership", ["InPlace", "Restart"])
async def test_an_elastic_gang_without_any_node_gets_nodes_for_its_greatest_size(
    running: Running, rules: Autoscaler, membership: str
) -> None:
    async with running(rules=rules) as (brain, market):
        job = elastic(a_job("train", 2), 2, 4, membership)
        market.server.put(ports.TRAINING_JOB, job)
        assert len(await runs_on(brain, market, 4)) == 4
        assert (len(market.provisioner.bought), market.orders()) == (4, [])
        assert market.job()["status"]["phase"] == "Running"


async def test_an_order_is_owned_by_its_job_and_names_its_pool(running: Running) -> None:
    async with running(replicas=1) as (brain, market):
        for _ in range(3):
            await brain.cycle()
        (order,) = market.orders()
        assert order["metadata"]["labels"][LABEL_ORDER] == "spot-a"
        assert order["metadata"]["ownerReferences"][0]["name"] == "train"
        assert not order["spec"].get("schedulingGates")
        member = market.server.get(ports.POD, "train-0", "team")
        assert member is not None
        assert member["spec"]["schedulingGates"], "no member is let go before it has a slice"


async def test_an_order_that_no_one_serves_is_taken_back(running: Running) -> None:
    async with running(replicas=1, broken=True) as (brain, market):
        await converge(brain, market)
        (order,) = market.orders()
        market.wall.seconds += NODE_COMES_S + 61
        await brain.cycle()
        left = [one["metadata"]["uid"] for one in market.orders()]
        assert order["metadata"]["uid"] not in left
        events = {one["reason"] for one in market.server.objects(ports.EVENT)}
        assert "LaunchFailed" in events


async def test_a_second_machine_for_one_order_serves_the_next_job(
    running: Running, rules: Autoscaler
) -> None:
    async with running(replicas=1, rules=rules) as (brain, market):
        market.provisioner.copies = 2
        assert len(await runs_on(brain, market, 1)) == 1
        market.server.put(ports.TRAINING_JOB, a_job("second", 1))
        assert await runs_on(brain, market, 2) == {"spot-a-0", "spot-a-1"}
        assert market.provisioner.bought == ["spot-a-0", "spot-a-1"]


@pytest.mark.parametrize(
    ("faults", "after_s"),
    [
        ({"delivers": {"spot-a": {"pool": "other"}}}, NODE_COMES_S),
        ({"never_ready": frozenset({"spot-a"})}, NODE_READY_S),
    ],
    ids=["another pool's", "never ready"],
)
async def test_a_machine_that_serves_no_order_is_bought_once_and_told(
    running: Running, rules: Autoscaler, faults: dict[str, Any], after_s: float
) -> None:
    def told() -> set[str]:
        return {one["reason"] for one in market.server.objects(ports.EVENT)}

    async with running(replicas=1, rules=rules) as (brain, market):
        for name, value in faults.items():
            setattr(market.provisioner, name, value)
        await converge(brain, market)
        market.wall.seconds += after_s - 60
        await converge(brain, market)
        assert len(market.provisioner.bought) == 1
        assert "LaunchFailed" not in told()
        market.wall.seconds += 180
        await brain.cycle()
        assert "LaunchFailed" in told()


async def test_a_new_leader_orders_nothing_twice(running: Running) -> None:
    async with running(replicas=1, broken=True) as (brain, market):
        await converge(brain, market)
        await brain.stop()
        port = brain.port
        second = Brain(port, market, 2, ordering)
        await converge(second, market)
        assert len(market.orders()) == 1
        await second.stop()


@pytest.mark.parametrize("most", [1, 0])
async def test_requests_beyond_a_bound_that_was_lowered_are_taken_back(
    running: Running, most: int
) -> None:
    async with running(replicas=1, broken=True) as (brain, market):
        market.server.put(ports.TRAINING_JOB, a_job("second", 1))
        await converge(brain, market)
        assert len(market.orders()) == 2
        market.server.edit(ports.CAPACITY_POOL, "spot-a", {"spec": {"max": most}})
        await converge(brain, market)
        assert len(market.orders()) == most
        assert brain.failures == []
