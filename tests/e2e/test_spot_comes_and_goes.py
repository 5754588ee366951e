# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pools on a real cluster: spot first, on-demand when a deadline needs it, machines for orders.

Machines of pools are the cluster's own nodes, which belong to a pool by a label. What orders
buy is made by an autoscaler in small.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from demo.images import image_name
from demo.install import NAMESPACE, install
from demo.progress import Progress
from e2e.stack import Stack, busy_template, eventually, training_job, whole_device
from fakes.provisioner import Provisioner, is_order

Json = dict[str, Any]
LABEL = "example.com/capacity"
POOLS = "capacitypools.ullage.dev"
SPOT_NODE, BACKUP_NODE = "node-2", "node-1"


def pool(name: str, price: str, *, spot: bool, most: int = 1) -> Json:
    return {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "CapacityPool",
        "metadata": {"name": name},
        "spec": {
            "type": "emulated",
            "zone": "local",
            "capacityType": "Spot" if spot else "OnDemand",
            "accelerator": "emulated",
            "gpusPerInstance": 1,
            "max": most,
            "nodeSelector": {LABEL: name},
            "priceSource": {"type": "Static", "static": {"pricePerHour": price}},
        },
    }


def belongs(stack: Stack, node: str, name: str | None) -> None:
    """A node comes to a pool, or leaves it."""
    stack.patch("node", node, "", {"metadata": {"labels": {LABEL: name}}})


def chosen(stack: Stack, name: str, namespace: str) -> list[str]:
    """Pools that were chosen for a job."""
    decision = (stack.job(name, namespace).get("spend") or {}).get("decision") or {}
    return [one["pool"] for one in (decision.get("chosen") or {}).get("pools", ())]


def runs_on(stack: Stack, name: str, namespace: str) -> set[str]:
    """Nodes on which members run."""
    return {
        pod["spec"].get("nodeName", "")
        for pod in stack.pods(namespace, name)
        if pod["status"].get("phase") == "Running" and not is_order(pod)
    }


@pytest.fixture
def market(stack: Stack) -> Iterator[Stack]:
    """Two pools with a node each, and short restarts."""
    policy = {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "SchedulingPolicy",
        "metadata": {"name": "default"},
        "spec": {"spot": {"restartCostSeconds": 10, "minHold": "5s"}},
    }
    stack.apply(pool("spot", "1.00", spot=True), pool("backup", "3.00", spot=False), policy)
    belongs(stack, SPOT_NODE, "spot")
    belongs(stack, BACKUP_NODE, "backup")
    for name in ("spot", "backup"):
        eventually(
            lambda name=name: (stack.get(POOLS, name) or {}).get("status", {}).get("price"),
            within_s=60,
            what=f"a price of {name}",
        )
    yield stack
    for node in (SPOT_NODE, BACKUP_NODE):
        belongs(stack, node, None)
    stack.cluster.kubectl("delete", POOLS, "--all", "--wait=false")
    stack.cluster.kubectl("delete", "schedulingpolicies.ullage.dev", "default")


def deadline_job(namespace: str, deadline: str, work: str) -> Json:
    return training_job(
        "in-time",
        namespace,
        busy_template(3600),
        gpu=whole_device(),
        work={"steps": 100_000},
        checkpoint={"graceSeconds": 5},
        cost={"objective": "Deadline", "deadline": deadline, "estimatedWork": work},
    )


def test_spot_is_taken_first_and_on_demand_when_it_is_gone(market: Stack, namespace: str) -> None:
    market.apply(deadline_job(namespace, "60m", "30m"))
    market.job_reaches("in-time", namespace, "Running")
    assert runs_on(market, "in-time", namespace) == {SPOT_NODE}
    belongs(market, SPOT_NODE, None)
    market.cluster.kubectl(
        "delete", "pod", "in-time-0", "--namespace", namespace, "--grace-period=0", "--force"
    )
    eventually(
        lambda: runs_on(market, "in-time", namespace) == {BACKUP_NODE},
        within_s=120,
        what="the job on on-demand",
    )
    market.tells(namespace, "in-time", "PoolAcquired", "FallbackToOnDemand")
    assert market.job("in-time", namespace).get("restarts", 0) == 0


def test_a_deadline_that_is_too_near_is_refused_with_numbers(market: Stack, namespace: str) -> None:
    market.apply(deadline_job(namespace, "30m5s", "30m"))
    decision = market.job_waits_for("in-time", namespace, "DeadlineInfeasible")
    assert "too early" in decision["message"]
    assert market.pods(namespace) == []


def test_a_deleted_pool_leaves_running_work_alone(market: Stack, namespace: str) -> None:
    body = training_job(
        "stays",
        namespace,
        busy_template(3600),
        gpu=whole_device(),
        work={"steps": 100_000},
        cost={"objective": "CostPerWork"},
    )
    market.apply(body)
    market.job_reaches("stays", namespace, "Running")
    assert runs_on(market, "stays", namespace) == {SPOT_NODE}
    (before,) = market.pods(namespace, "stays")
    market.cluster.kubectl("delete", POOLS, "spot")

    def said() -> str:
        decision = (market.job("stays", namespace).get("spend") or {}).get("decision") or {}
        return decision.get("message", "") if decision.get("reason") == "NoPool" else ""

    message = eventually(said, within_s=30, what="the job says that its pool is gone")
    assert "spot was deleted" in message
    (after,) = market.pods(namespace, "stays")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert "deletionTimestamp" not in after["metadata"]
    assert market.job("stays", namespace)["phase"] == "Running"


def _finalizers(stack: Stack, name: str) -> list[str]:
    held = stack.get(POOLS, name)
    return held["metadata"].get("finalizers", []) if held else []


def test_an_order_is_unschedulable_until_its_machine_comes(market: Stack, namespace: str) -> None:
    install(
        market.cluster, Progress(), settings={"ULLAGE_DECIDE_ORDER_IMAGE": image_name("operator")}
    )
    # a pool that has just lost its node sells nothing for a while: this one never had any
    market.cluster.kubectl("delete", POOLS, "spot")
    market.apply(pool("bought", "1.00", spot=True, most=3))
    market.apply(
        training_job(
            "buys",
            namespace,
            busy_template(3600),
            gpu=whole_device(),
            work={"steps": 1000},
            cost={"objective": "CostPerWork", "onDemandFallback": False},
        )
    )
    provisioner = Provisioner(labels={"bought": {LABEL: "bought"}})

    def orders() -> list[Json]:
        return [pod for pod in market.pods(namespace) if is_order(pod)]

    def refused_by_the_scheduler() -> bool:
        return any(
            one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable"
            for pod in orders()
            for one in pod["status"].get("conditions", ())
        )

    eventually(refused_by_the_scheduler, within_s=60, what="an order that no node fits")
    (machine,) = provisioner.turn(market.pods(namespace), market.list("nodes")).create
    name = machine["metadata"]["name"]
    status = machine.pop("status")
    machine["metadata"]["labels"].pop("ullage.dev/node")  # no one's agent will ever run there
    market.apply(machine)
    market.cluster.kubectl(
        "patch", "node", name, "--subresource", "status", "--type", "merge",
        "--patch", json.dumps({"status": status}),
    )  # fmt: skip
    try:
        eventually(
            lambda: [pod["spec"].get("nodeName") for pod in orders()] == [name],
            within_s=60,
            what="the order on its machine",
        )
        market.delete("trainingjob.ullage.dev", "buys", namespace)
        eventually(lambda: not orders(), within_s=60, what="the order gone with its job")
    finally:
        market.cluster.kubectl("delete", "node", name)


@pytest.mark.parametrize("killed", ["never", "requested", "held", "deleted"])
def test_a_deleted_pool_ends_after_what_is_on_its_way(
    market: Stack, namespace: str, killed: str
) -> None:
    install(
        market.cluster, Progress(), settings={"ULLAGE_DECIDE_ORDER_IMAGE": image_name("operator")}
    )

    def reached(step: str) -> None:
        if step == killed:
            market.cluster.kubectl(
                "delete", "pod", market.leader(), "--namespace", NAMESPACE,
                "--grace-period=0", "--force",
            )  # fmt: skip

    def orders() -> list[Json]:
        return [pod for pod in market.pods(namespace) if is_order(pod)]

    name = f"ends-{killed}"
    market.cluster.kubectl("delete", POOLS, "spot")
    market.apply(pool(name, "1.00", spot=True, most=3))
    market.apply(
        training_job(
            "asks",
            namespace,
            busy_template(3600),
            gpu=whole_device(),
            work={"steps": 1000},
            cost={"objective": "CostPerWork", "onDemandFallback": False},
        )
    )
    eventually(orders, within_s=60, what="an order")
    reached("requested")
    eventually(
        lambda: _finalizers(market, name) == ["ullage.dev/life"],
        within_s=120,
        what="the pool is held while an order is out",
    )
    assert _finalizers(market, "backup") == [], "nothing is on its way to it"
    reached("held")
    if killed == "never":  # a machine that boots: orders alone may be gone before anyone looks
        metadata = {"name": name, "labels": {LABEL: name}}
        market.apply({"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    market.cluster.kubectl("delete", POOLS, name, "--wait=false")
    reached("deleted")
    if killed == "never":
        eventually(
            lambda: "PoolEnds" in {event["reason"] for event in market.events("default", name)},
            within_s=60,
            what="an Event says what is waited for",
        )
        assert market.get(POOLS, name), "a machine is on its way"
        market.cluster.kubectl("delete", "node", name)
    eventually(
        lambda: market.get(POOLS, name) is None and not orders(),
        within_s=120,
        what="the pool and its order are gone",
    )
