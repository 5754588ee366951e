# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A small world with two nodes, a gang, a job and a service, ready to be placed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from builders_raw import raw_template
from fakes.apiserver import FakeApiServer, make_cluster
from fakes.apiserver.roles import operator_rules
from fakes.plain_decision import plain_decision
from fakes.small_world import Cluster, Decision, Wall, products_decision
from ullage import ports
from ullage.kube.client import K8sCluster

World = Callable[[], AbstractAsyncContextManager[tuple[Cluster, K8sCluster]]]


def _workload(name: str, replicas: int, gpu: dict[str, Any], **template: Any) -> dict[str, Any]:
    spec = {"replicas": replicas, "gpu": gpu, "template": raw_template(**template)}
    return {"metadata": {"name": name, "namespace": "team"}, "spec": spec}


def _share(least: int, most: int) -> dict[str, Any]:
    share = {"minPercent": least, "maxPercent": most}
    return {"mode": "Fractional", "count": 1, "share": share}


@asynccontextmanager
async def _world() -> AsyncIterator[tuple[Cluster, K8sCluster]]:
    wall = Wall()
    async with FakeApiServer(wall=wall.now) as server, make_cluster(server.url) as port:
        # what is not in the operator's roles is refused: they are as small as its work allows
        server.access.allow_only(operator_rules("ullage-system"))
        cluster = Cluster(server, wall)
        cluster.add_node("node-1")
        cluster.add_node("node-2")
        server.put(ports.TRAINING_JOB, _workload("gang", 2, _share(40, 60)))
        server.put(ports.TRAINING_JOB, _workload("whole", 1, {"mode": "Exclusive", "count": 1}))
        serve = _workload("serve", 1, _share(20, 30), container="server", ports=(8080,))
        server.put(ports.INFERENCE_DEPLOYMENT, serve)
        yield cluster, port


@pytest.fixture
def world() -> World:
    return _world


@pytest.fixture(params=[plain_decision, products_decision], ids=["plain", "product"])
def decision(request: pytest.FixtureRequest) -> Decision:
    """Who decides: the least that could, or the product."""
    chosen: Decision = request.param
    return chosen
