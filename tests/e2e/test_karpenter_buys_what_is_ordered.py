# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Real Karpenter buys the nodes of a pool that the operator asks for, the second one, too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from demo.images import image_name
from demo.install import install
from demo.progress import Progress
from e2e.karpenter import NODE_CLASS, NODEPOOL, karpenter, node_pool
from e2e.stack import Stack, busy_template, eventually, training_job, whole_device
from fakes.provisioner import is_order
from ullage.api.contract import LABEL_REGISTERED

Json = dict[str, Any]
POOL = "karpenter-spot"
MEMBER_CPU = 3


def capacity_pool() -> Json:
    return {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "CapacityPool",
        "metadata": {"name": POOL},
        "spec": {
            "type": "emulated",
            "zone": "test-zone-a",
            "capacityType": "Spot",
            "accelerator": "emulated",
            "gpusPerInstance": 1,
            "max": 4,
            "nodeSelector": {NODEPOOL: POOL},
            "priceSource": {"type": "Static", "static": {"pricePerHour": "1.00"}},
        },
    }


def a_job(name: str, namespace: str, replicas: int = 1) -> Json:
    container = {"resources": {"requests": {"cpu": str(MEMBER_CPU), "memory": "64Mi"}}}
    return training_job(
        name,
        namespace,
        busy_template(3600, container=container),
        gpu=whole_device(),
        replicas=replicas,
        work={"steps": 1000},
        checkpoint={"graceSeconds": 5},
        cost={"objective": "CostPerWork", "onDemandFallback": False},
    )


@pytest.fixture
def market(stack: Stack) -> Iterator[Stack]:
    """A pool of machines that Karpenter buys."""
    install(
        stack.cluster, Progress(), settings={"ULLAGE_DECIDE_ORDER_IMAGE": image_name("operator")}
    )
    with karpenter(stack.cluster):
        stack.apply(NODE_CLASS, node_pool(POOL, "spot"), capacity_pool())
        eventually(
            lambda: (stack.get("nodepools", POOL) or {}).get("status", {}).get("conditions"),
            within_s=60,
            what="Karpenter knows the NodePool",
        )
        try:
            yield stack
        finally:
            stack.cluster.kubectl("delete", "capacitypools.ullage.dev", POOL)
            stack.cluster.kubectl("delete", "nodepools", POOL, "--timeout=60s", check=False)
            stack.cluster.kubectl("delete", "nodeclaims", "--all", "--timeout=60s", check=False)
            stack.cluster.kubectl("delete", "nodes", "--selector", NODEPOOL, "--timeout=60s")


def bound(stack: Stack, namespace: str) -> dict[str, str]:
    """Nodes that orders are bound to, by name of the order."""
    return {
        pod["metadata"]["name"]: pod["spec"].get("nodeName", "")
        for pod in stack.pods(namespace)
        if is_order(pod) and pod["spec"].get("nodeName")
    }


def test_orders_are_bought_and_the_second_node_of_a_pool_as_well(
    market: Stack, namespace: str
) -> None:
    market.apply(a_job("first", namespace))
    (first,) = eventually(
        lambda: list(bound(market, namespace).values()), within_s=120, what="the first node"
    )
    node = market.get("node", first)
    assert node is not None
    assert node["metadata"]["labels"][NODEPOOL] == POOL
    assert int(node["status"]["allocatable"]["cpu"].removesuffix("m")) >= MEMBER_CPU
    eventually(
        lambda: LABEL_REGISTERED in (market.get("node", first) or {})["metadata"].get("labels", {}),
        within_s=30,
        what="the operator counts the node",
    )
    market.apply(a_job("second", namespace))
    both = eventually(
        lambda: {*bound(market, namespace).values()} - {first},
        within_s=120,
        what="a second node of the same pool",
    )
    assert len(both) == 1
    assert len(market.list("nodeclaims")) == 2, "nothing else was bought, nothing consolidated"


def test_a_gang_buys_a_node_for_each_member_at_once(market: Stack, namespace: str) -> None:
    market.apply(a_job("gang", namespace, replicas=3))
    eventually(
        lambda: len({*bound(market, namespace).values()}) == 3,
        within_s=180,
        what="three nodes for three members",
    )
    market.delete("trainingjob.ullage.dev", "gang", namespace)
    eventually(
        lambda: not market.list("nodeclaims"),
        within_s=180,
        what="Karpenter takes back what no order holds",
    )


def test_the_documented_pools_are_valid(market: Stack) -> None:
    text = (Path(__file__).parents[2] / "docs" / "karpenter.md").read_text("utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        market.cluster.kubectl("apply", "--dry-run=server", "--filename", "-", stdin=block)
