# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``kubectl ullage doctor`` on objects as an API server gives them."""

from __future__ import annotations

import time

from builders_raw import raw_gpu_node, raw_node
from fakes.apiserver import FakeApiServer
from ullage import ports
from ullage.api.checks import CheckState, NodeCheck
from ullage.api.times import rfc3339
from ullage.cli import doctor
from ullage.cli.prerequisites import RESOURCE_SLICE
from ullage.kube.client import K8sCluster

HOLDS = NodeCheck(name="Driver", state=CheckState.OK, message="580.65.06")


async def test_all_nodes_by_name_or_the_one_that_is_named(
    api: FakeApiServer, cluster: K8sCluster
) -> None:
    now = time.time()
    for name in ("node-b", "node-a"):
        body = raw_gpu_node(name)
        body["status"] |= {"heartbeat": rfc3339(now), "checks": [HOLDS.to_wire()]}
        api.put(ports.GPU_NODE, body)
    found = await doctor.examined(cluster, "", now)
    assert [one.node for one in found] == ["node-a", "node-b"]
    assert all(HOLDS in one.checks for one in found)
    (one,) = await doctor.examined(cluster, "node-b", now)
    assert one.node == "node-b"
    assert await doctor.examined(cluster, "node-c", now) == ()


async def test_what_other_projects_offer_on_a_node_is_told(
    api: FakeApiServer, cluster: K8sCluster
) -> None:
    api.put(ports.GPU_NODE, raw_gpu_node("node-a"))
    node = raw_node("node-a")
    node["status"]["allocatable"] |= {"nvidia.com/gpu": "4"}
    api.put(ports.NODE, node)
    spec = {"driver": "gpu.nvidia.com", "nodeName": "node-a"}
    api.put(RESOURCE_SLICE, {"metadata": {"name": "one"}, "spec": spec})
    (found,) = await doctor.examined(cluster, "node-a", time.time())
    states = {check.name: check.state for check in found.checks}
    assert states["OtherPlugins"] is states["DRADriver"] is CheckState.FAILED
