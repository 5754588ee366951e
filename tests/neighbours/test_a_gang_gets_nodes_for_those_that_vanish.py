# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A gang on nodes that real Karpenter buys gets others for those that vanish, and keeps them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from e2e.stack import Json, Stack, eventually
from fakes.provisioner import is_order
from neighbours.karpenter import POOL, a_job, agents, market_of, node_pool

MOST = 4
CONSOLIDATED_WITHIN_S = 30


@pytest.fixture
def market(stack: Stack) -> Iterator[Stack]:
    """A pool of machines that Karpenter buys, with agents on them until the test is cleaned up.

    On-demand: after a loss of spot nothing is started there for a quarter of an hour.
    """
    with market_of(stack, "OnDemand"), agents(stack.cluster):
        yield stack


def elastic_gang(name: str, namespace: str) -> Json:
    """Two to four members on devices of their own; they come and go while the others run."""
    body = a_job(name, namespace)
    del body["spec"]["replicas"]
    body["spec"]["work"] = {"steps": 10**9}
    body["spec"]["elasticity"] = {
        "minReplicas": 2,
        "maxReplicas": MOST,
        "membership": "InPlace",
    }
    return body


def members(stack: Stack, namespace: str) -> dict[str, str]:
    """Nodes of the members that run, by name of the member."""
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in stack.pods(namespace)
        if not is_order(pod)
        and pod["status"].get("phase") == "Running"
        and "deletionTimestamp" not in pod["metadata"]
    }


def _vanish(stack: Stack, node: str) -> None:
    """The machine is gone without a word; its pods are removed by the garbage collector."""
    stack.patch("node", node, "", {"metadata": {"finalizers": None}})
    stack.cluster.kubectl("delete", "node", node, "--wait=false")


@pytest.mark.timeout(900, func_only=True)
def test_a_gang_of_four_gets_nodes_for_two_that_it_lost_and_keeps_them(
    market: Stack, namespace: str
) -> None:
    # a gang starts with the room that is there: the nodes are bought by one that needs four
    market.apply(node_pool(POOL, "on-demand", "60s"), a_job("first", namespace, replicas=MOST))
    eventually(lambda: len(members(market, namespace)) == MOST, within_s=300, what="room")
    market.delete("trainingjob.ullage.dev", "first", namespace)
    market.apply(elastic_gang("gang", namespace))
    whole = eventually(
        lambda: (found := members(market, namespace)) and len({*found.values()}) == MOST and found,
        within_s=120,
        what="four members on four bought nodes",
    )
    lost = [whole["gang-2"], whole["gang-3"]]
    for node in lost:
        _vanish(market, node)
    again = eventually(
        lambda: (
            (found := members(market, namespace))
            and len({*found.values()}) == MOST
            and not {*found.values()} & {*lost}
            and found
        ),
        within_s=300,
        what="two more nodes for two that were lost",
    )
    assert {*whole.values()} - {*lost} <= {*again.values()}, "the others stayed where they were"
    # consolidation may take an empty node after 5 s, never one with a member
    market.apply(node_pool(POOL, "on-demand", "5s"))
    time.sleep(CONSOLIDATED_WITHIN_S)
    assert members(market, namespace) == again
    assert market.job("gang", namespace).get("restarts", 0) == 0
