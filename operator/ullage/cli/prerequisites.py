# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Needs of a node beside Ullage, from its Node and the other owners of its GPUs.

The node's agent cannot see these: its rights are limited to its own GPUNode. Pure: objects in,
checks out. Each failed check has a line with the fix.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ullage.api.checks import CheckState, NodeCheck
from ullage.api.labels import FOREIGN_GPU_RESOURCE
from ullage.api.readers import JsonObject, WireError, section, text
from ullage.ports import Kind

RESOURCE_SLICE: Final = Kind(
    group="resource.k8s.io",
    version="v1",
    plural="resourceslices",
    kind="ResourceSlice",
    namespaced=False,
)
RUNTIME_CLASS: Final = Kind(
    group="node.k8s.io",
    version="v1",
    plural="runtimeclasses",
    kind="RuntimeClass",
    namespaced=False,
)
OLDEST_KUBERNETES: Final = (1, 33)
CDI_BY_DEFAULT: Final = (2, 0)
"""The first containerd that honours CDI without a setting."""
CDI_BY_SETTING: Final = (1, 7)
"""The first containerd that honours CDI at all."""
DRA_DRIVER: Final = "gpu.nvidia.com"
OPERATOR_LABEL: Final = "nvidia.com/gpu.present"
"""A label that the GPU Operator sets on nodes with GPUs."""
NVIDIA_CLASS: Final = "nvidia"

_VERSION: Final = re.compile(r"^v?([0-9]{1,4})\.([0-9]{1,4})")
_FOREIGN: Final = (FOREIGN_GPU_RESOURCE, "nvidia.com/mig-")
_CONFIGURE_CDI: Final = (
    "set enable_cdi = true in /etc/containerd/config.toml of the node, "
    "then: systemctl restart containerd"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherProjects:
    """Parts of other projects in the cluster.

    Attributes:
        dra_nodes: Nodes whose GPUs NVIDIA's DRA driver offers; ``None`` = unknown.
        runtime_classes: Names of the RuntimeClasses; ``None`` = unknown.
    """

    dra_nodes: frozenset[str] | None
    runtime_classes: frozenset[str] | None


def prerequisites(node: JsonObject, around: OtherProjects) -> tuple[NodeCheck, ...]:
    """The checks of one Node.

    Raises:
        WireError: a field of the Node has an invalid shape.
    """
    name = text(section(node, "metadata"), "name")
    status = section(node, "status")
    info = section(status, "nodeInfo")
    return (
        _kubernetes(text(info, "kubeletVersion", "")),
        _runtime(text(info, "containerRuntimeVersion", "")),
        _plugins(
            name, section(section(node, "metadata"), "labels"), section(status, "allocatable")
        ),
        _dra_driver(name, around.dra_nodes),
    )


def runtime_class(
    name: str, checks: Sequence[NodeCheck], around: OtherProjects
) -> tuple[NodeCheck, ...]:
    """Check that containers get the driver on a node with GPUs.

    Args:
        name: Name of the node.
        checks: Results of its agent; without ``ContainerToolkit`` it has no NVIDIA GPUs.
        around: Other parts in the cluster.
    """
    toolkit = next((check for check in checks if check.name == "ContainerToolkit"), None)
    if toolkit is None or toolkit.state is CheckState.OK:
        return ()
    title = "RuntimeClass"
    if around.runtime_classes is None:
        return (_open(title, "RuntimeClasses cannot be listed", "kubectl get runtimeclasses"),)
    if NVIDIA_CLASS in around.runtime_classes:
        message = f"{NVIDIA_CLASS} is there; workloads and node.runtimeClassName must name it"
        return (_ok(title, message),)
    return (
        _failed(
            title,
            f"neither a CDI specification nor a RuntimeClass {NVIDIA_CLASS} brings the driver",
            f"on {name}: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
        ),
    )


def _kubernetes(version: str) -> NodeCheck:
    name, numbers = "Kubernetes", _numbers(version)
    if numbers is None:
        return _open(name, f"the Node says {version!r}", "kubectl get nodes --output wide")
    if numbers < OLDEST_KUBERNETES:
        least = ".".join(str(part) for part in OLDEST_KUBERNETES)
        remedy = f"update the node's kubelet to {least} or newer: kubeadm upgrade node"
        return _failed(name, f"kubelet {version}", remedy)
    return _ok(name, f"kubelet {version}")


def _runtime(runtime: str) -> NodeCheck:
    name = "ContainerRuntime"
    program, _, version = runtime.partition("://")
    numbers = _numbers(version)
    if program == "containerd" and numbers is not None:
        if numbers >= CDI_BY_DEFAULT:
            return _ok(name, f"containerd {version} honours CDI")
        if numbers >= CDI_BY_SETTING:
            return _open(name, f"containerd {version} honours CDI if told to", _CONFIGURE_CDI)
        return _failed(
            name,
            f"containerd {version} has no CDI",
            "update containerd to 2.0 or newer, then: systemctl restart containerd kubelet",
        )
    if program == "cri-o":
        return _open(name, f"CRI-O {version} was not tested", "run one workload with a share")
    return _open(name, f"the Node says {runtime!r}", "kubectl get nodes --output wide")


def _plugins(node: str, labels: JsonObject, allocatable: Mapping[str, object]) -> NodeCheck:
    name = "OtherPlugins"
    offered = sorted(
        f"{amount} {resource}"
        for resource, amount in allocatable.items()
        if resource.startswith(_FOREIGN) and amount not in ("0", 0)
    )
    if not offered:
        return _ok(name, "no other plugin offers GPUs")
    message = f"another plugin offers {', '.join(offered)}"
    if OPERATOR_LABEL in labels:
        remedy = f"kubectl label node {node} nvidia.com/gpu.deploy.device-plugin=false --overwrite"
        return _failed(name, message, remedy)
    remedy = (
        "keep its DaemonSet off this node, then there: systemctl restart kubelet. "
        f"Or give the node back: kubectl label node {node} ullage.dev/node-"
    )
    return _failed(name, message, remedy)


def _dra_driver(node: str, nodes: frozenset[str] | None) -> NodeCheck:
    name = "DRADriver"
    if nodes is None:
        return _open(name, "ResourceSlices cannot be listed", "kubectl get resourceslices")
    if node not in nodes:
        return _ok(name, "NVIDIA's DRA driver offers no GPU of this node")
    return _failed(
        name,
        "NVIDIA's DRA driver offers the GPUs of this node too",
        f"kubectl label node {node} nvidia.com/gpu.deploy.dra-driver=false --overwrite "
        "(GPU Operator), or a node affinity of its kubelet plugin",
    )


def offering_nodes(slices: Sequence[JsonObject]) -> frozenset[str]:
    """Nodes whose GPUs NVIDIA's DRA driver offers; slices of other shapes are ignored."""
    nodes = set()
    for resource_slice in slices:
        try:
            spec = section(resource_slice, "spec")
            if text(spec, "driver", "") == DRA_DRIVER:
                nodes.add(text(spec, "nodeName", ""))
        except WireError:
            continue
    return frozenset(nodes - {""})


def _numbers(version: str) -> tuple[int, int] | None:
    """Major and minor of a version."""
    match = _VERSION.match(version)
    return (int(match[1]), int(match[2])) if match else None


def _ok(name: str, message: str) -> NodeCheck:
    return NodeCheck(name=name, state=CheckState.OK, message=message)


def _open(name: str, message: str, remedy: str) -> NodeCheck:
    return NodeCheck(name=name, state=CheckState.UNCONFIRMED, message=message, remedy=remedy)


def _failed(name: str, message: str, remedy: str) -> NodeCheck:
    return NodeCheck(name=name, state=CheckState.FAILED, message=message, remedy=remedy)
