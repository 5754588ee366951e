# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Real Karpenter buys the nodes of a pool that the operator asks for, the second one, too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.stack import Stack, eventually
from neighbours.karpenter import MEMBER_CPU, NODEPOOL, POOL, a_job, bound, market_of
from ullage.api.labels import LABEL_REGISTERED


@pytest.fixture
def market(stack: Stack) -> Iterator[Stack]:
    """A pool of machines that Karpenter buys."""
    with market_of(stack):
        yield stack


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
