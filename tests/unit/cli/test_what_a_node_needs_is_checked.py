# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``kubectl ullage doctor`` on Nodes: each prerequisite, met and not met, and what mends it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from builders_raw import raw_gpu_node
from ullage.api.checks import CheckState, NodeCheck
from ullage.api.times import rfc3339
from ullage.cli import doctor
from ullage.cli.prerequisites import (
    RESOURCE_SLICE,
    RUNTIME_CLASS,
    OtherProjects,
    offering_nodes,
    prerequisites,
    runtime_class,
)
from ullage.ports import GPU_NODE, NODE, ApiError, Forbidden, Kind, NotFound, Page, Selector

OK, FAILED, OPEN = CheckState.OK, CheckState.FAILED, CheckState.UNCONFIRMED
ALONE = OtherProjects(dra_nodes=frozenset(), runtime_classes=frozenset())
UNKNOWN = OtherProjects(dra_nodes=None, runtime_classes=None)
NOW = 1_800_000_000.0
LINE = ("kubectl ", "nvidia-ctk ", "systemctl ", "kubeadm ", "run one ")


def a_node(
    *,
    kubelet: str = "v1.36.3",
    runtime: str = "containerd://2.1.4",
    labels: Mapping[str, str] | None = None,
    **allocatable: str,
) -> dict[str, Any]:
    return {
        "metadata": {"name": "node-a", "labels": dict(labels or {})},
        "status": {
            "nodeInfo": {"kubeletVersion": kubelet, "containerRuntimeVersion": runtime},
            "allocatable": {"cpu": "8", "nvidia.com/hostdev": "4", **allocatable},
        },
    }


def told(node: dict[str, Any], around: OtherProjects = ALONE) -> dict[str, NodeCheck]:
    found = prerequisites(node, around)
    for check in found:
        mended = any(line in check.remedy for line in LINE)
        assert mended is (check.state is not OK), check
    return {check.name: check for check in found}


def test_a_node_that_has_all_of_them() -> None:
    found = told(a_node())
    assert {check.state for check in found.values()} == {OK}
    assert found.keys() == {"Kubernetes", "ContainerRuntime", "OtherPlugins", "DRADriver"}


@pytest.mark.parametrize(
    ("version", "state"),
    [
        ("v1.33.0", OK),
        ("v1.34.2-eks-1234567", OK),
        ("v1.32.9", FAILED),
        ("v1.9.1", FAILED),
        ("", OPEN),
        ("latest", OPEN),
    ],
)
def test_the_version_of_kubernetes(version: str, state: CheckState) -> None:
    assert told(a_node(kubelet=version))["Kubernetes"].state is state


@pytest.mark.parametrize(
    ("version", "state"),
    [
        ("containerd://2.0.0", OK),
        ("containerd://v2.4.2", OK),
        ("containerd://1.7.27", OPEN),
        ("containerd://1.6.36", FAILED),
        ("cri-o://1.34.0", OPEN),
        ("docker://27.0.0", OPEN),
        ("containerd", OPEN),
        ("", OPEN),
    ],
)
def test_the_container_runtime_honours_cdi(version: str, state: CheckState) -> None:
    assert told(a_node(runtime=version))["ContainerRuntime"].state is state


@pytest.mark.parametrize(
    "name", ["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb"]
)
def test_another_plugin_that_offers_gpus_is_told_with_its_label(name: str) -> None:
    by_hand = told(a_node(**{name: "8"}))["OtherPlugins"]
    assert (by_hand.state, f"8 {name}" in by_hand.message) == (FAILED, True)
    assert "kubectl label node node-a ullage.dev/node-" in by_hand.remedy
    of_operator = told(a_node(labels={"nvidia.com/gpu.present": "true"}, **{name: "8"}))
    assert of_operator["OtherPlugins"].remedy == (
        "kubectl label node node-a nvidia.com/gpu.deploy.device-plugin=false --overwrite"
    )
    assert told(a_node(**{name: "0"}))["OtherPlugins"].state is OK


def test_a_dra_driver_on_the_same_node_is_told() -> None:
    slices: list[dict[str, Any]] = [
        {"spec": {"driver": "gpu.nvidia.com", "nodeName": "node-a"}},
        {"spec": {"driver": "gpu.nvidia.com", "allNodes": True}},
        {"spec": {"driver": "other.example", "nodeName": "node-b"}},
        {"spec": {"driver": 1, "nodeName": "node-c"}},
        {"spec": [1]},
        {},
    ]
    assert offering_nodes(slices) == {"node-a"}
    here = OtherProjects(dra_nodes=frozenset({"node-a"}), runtime_classes=None)
    assert told(a_node(), here)["DRADriver"].state is FAILED
    elsewhere = OtherProjects(dra_nodes=frozenset({"node-b"}), runtime_classes=None)
    assert told(a_node(), elsewhere)["DRADriver"].state is OK
    assert told(a_node(), UNKNOWN)["DRADriver"].state is OPEN


def toolkit(state: CheckState) -> list[NodeCheck]:
    return [NodeCheck(name="ContainerToolkit", state=state)]


def test_containers_get_the_driver_from_a_specification_or_from_a_runtime_class() -> None:
    assert runtime_class("node-a", [], ALONE) == ()
    assert runtime_class("node-a", toolkit(OK), ALONE) == ()
    (missing,) = runtime_class("node-a", toolkit(OPEN), ALONE)
    assert (missing.name, missing.state) == ("RuntimeClass", FAILED)
    assert "on node-a: nvidia-ctk cdi generate" in missing.remedy
    there = OtherProjects(dra_nodes=None, runtime_classes=frozenset({"nvidia", "gvisor"}))
    (found,) = runtime_class("node-a", toolkit(OPEN), there)
    assert found.state is OK
    (unknown,) = runtime_class("node-a", toolkit(FAILED), UNKNOWN)
    assert (unknown.state, unknown.remedy) == (OPEN, "kubectl get runtimeclasses")


class Cluster:
    """Answers lists from a table; an exception in it is raised."""

    def __init__(self, answers: Mapping[Kind, list[dict[str, Any]] | ApiError]) -> None:
        self.answers = answers
        self.asked: dict[Kind, Selector] = {}

    async def list_paged(self, kind: Kind, selector: Selector) -> AsyncIterator[Page]:
        self.asked[kind] = selector
        answer = self.answers.get(kind, NotFound(404, "not served"))
        if isinstance(answer, ApiError):
            raise answer
        yield Page(items=answer, resource_version="1")


def with_agent(name: str = "node-a") -> dict[str, Any]:
    body = raw_gpu_node(name)
    body["status"] |= {"heartbeat": rfc3339(NOW), "checks": [], "conditions": []}
    return body


async def examined(
    answers: Mapping[Kind, list[dict[str, Any]] | ApiError], node: str = ""
) -> dict[str, dict[str, CheckState]]:
    found = await doctor.examined(Cluster(answers), node, NOW)  # type: ignore[arg-type]
    return {one.node: {check.name: check.state for check in one.checks} for one in found}


async def test_a_node_with_its_agent_and_its_prerequisites() -> None:
    states = await examined({GPU_NODE: [with_agent()], NODE: [a_node()]})
    assert states["node-a"] == dict.fromkeys(
        ("Kubernetes", "ContainerRuntime", "OtherPlugins", "DRADriver", "Agent"), OK
    )


async def test_a_labelled_node_of_which_the_operator_made_nothing_has_failed() -> None:
    states = await examined({GPU_NODE: [], NODE: [a_node()]})
    assert states["node-a"]["GPUNode"] is FAILED


async def test_an_agent_whose_node_is_not_labelled_has_failed() -> None:
    states = await examined({GPU_NODE: [with_agent()], NODE: []})
    assert states["node-a"] == {"Node": FAILED, "Agent": OK}


async def test_without_the_right_to_list_nodes_the_agents_are_told_all_the_same() -> None:
    refused = Forbidden(403, 'cannot list resource "nodes"')
    states = await examined(
        {GPU_NODE: [with_agent()], NODE: refused, RESOURCE_SLICE: refused, RUNTIME_CLASS: refused}
    )
    assert states["node-a"] == {"Node": OPEN, "Agent": OK}


async def test_a_node_that_cannot_be_read_harms_its_own_lines_alone() -> None:
    wild = a_node()
    wild["metadata"]["name"] = "node-w"
    wild["status"] = [1]
    states = await examined({GPU_NODE: [with_agent()], NODE: [wild, a_node()]})
    assert states["node-w"] == {"Node": FAILED, "GPUNode": FAILED}
    assert set(states["node-a"].values()) == {OK}


async def test_one_node_is_asked_for_by_name() -> None:
    cluster = Cluster({GPU_NODE: [], NODE: []})
    await doctor.examined(cluster, "node-a", NOW)  # type: ignore[arg-type]
    assert cluster.asked[GPU_NODE].fields == cluster.asked[NODE].fields == "metadata.name=node-a"
    assert cluster.asked[NODE].labels == "ullage.dev/node=true"
