# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""For which pods cluster-autoscaler 1.36 adds a node, and which nodes it leaves alone.

Each rule names its source below cluster-autoscaler/ in kubernetes/autoscaler 1.36.1. Left out:
expanders, limits of groups, resource claims, how long a scale-up may take.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fakes.node_affinity import accepts

Json = dict[str, Any]
HOSTNAME: Final = "kubernetes.io/hostname"
TEMPLATE: Final = "cluster-autoscaler.kubernetes.io/template-node"
"""simulator/node_info_utils.go, SanitizedTemplateNodeInfoFromNodeInfo; not before 1.33."""
DELAY: Final = "cluster-autoscaler.kubernetes.io/pod-scale-up-delay"
SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
TO_BE_DELETED: Final = "ToBeDeletedByClusterAutoscaler"
EXPENDABLE: Final = -10
"""config/flags/flags.go, expendable-pods-priority-cutoff."""
_DURATION: Final = re.compile(r"(\d+)(s|m|h)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True, slots=True)
class ClusterAutoscaler:
    """cluster-autoscaler's scale-up.

    Attributes:
        new_pod_scale_up_delay_s: Its flag.
        gpu_label: The cloud's label of nodes with GPUs; empty = the cloud has none.
        marks_templates: Whether it is new enough to label the nodes that it simulates.
    """

    new_pod_scale_up_delay_s: float = 0.0
    gpu_label: str = ""
    marks_templates: bool = True

    def refusal(self, pod: Json, age_s: float = 3600.0) -> str:
        """Why a pod adds no node, whatever groups there are; empty = it may.

        Args:
            pod: It waits.
            age_s: Since its creation.
        """
        # utils/kubernetes/listers.go, ArrangePodsBySchedulability: what a gate holds is no such pod
        status, spec = pod.get("status") or {}, pod["spec"]
        unschedulable = any(
            (one["type"], one["status"], one.get("reason"))
            == ("PodScheduled", "False", "Unschedulable")
            for one in status.get("conditions") or ()
        )
        if not unschedulable or spec.get("nodeName") or status.get("nominatedNodeName"):
            return "kube-scheduler has not found it unschedulable"
        # core/utils/expendable.go, IsExpendablePod
        if spec.get("priority") is not None and spec["priority"] < EXPENDABLE:
            return f"priority {spec['priority']} is below the cutoff of {EXPENDABLE}"
        # core/static_autoscaler.go, filterOutYoungPods: an annotation only makes it longer
        own = _DURATION.fullmatch((pod["metadata"].get("annotations") or {}).get(DELAY, ""))
        own_s = int(own[1]) * _SECONDS[own[2]] if own else 0
        if age_s <= max(self.new_pod_scale_up_delay_s, own_s):
            return "it is too young"
        return ""

    def fits(self, pod: Json, fresh: Json, nodes: Sequence[Json]) -> bool:
        """Whether the node that it simulates for a group takes a pod.

        Args:
            pod: It waits.
            fresh: A new node as the group's own description has it: what tags say of its labels.
            nodes: Those of the group that are there.
        """
        return accepts(self.template(fresh, nodes), pod)

    def template(self, fresh: Json, nodes: Sequence[Json]) -> Json:
        """The node that it simulates for one more of a group.

        A copy of one that is there, with every label that others gave it, where one is ready
        (processors/nodeinfosprovider/mixed_nodeinfos_processor.go, Process).
        """
        example = next((one for one in nodes if self._is_good_example(one)), fresh)
        name = f"template-node-for-{fresh['metadata']['name']}"
        labels = {**(example["metadata"].get("labels") or {}), HOSTNAME: name}
        if self.marks_templates:
            labels[TEMPLATE] = "true"
        return {
            "metadata": {"name": name, "labels": labels},
            "spec": {"taints": example.get("spec", {}).get("taints") or []},
        }

    def _is_good_example(self, node: Json) -> bool:
        taints = node.get("spec", {}).get("taints") or ()
        doomed = any(one["key"] == TO_BE_DELETED for one in taints)
        unschedulable = node.get("spec", {}).get("unschedulable", False)
        return self.is_ready(node) and not unschedulable and not doomed

    def is_ready(self, node: Json) -> bool:
        """Whether it counts a node as ready: one with the cloud's GPU label has to offer GPUs."""
        # processors/customresources/gpu_processor.go, FilterOutNodesWithUnreadyResources
        labels, status = node["metadata"].get("labels") or {}, node.get("status") or {}
        amount = (status.get("allocatable") or {}).get("nvidia.com/gpu", "0")
        if self.gpu_label and self.gpu_label in labels and amount == "0":
            return False
        return any(
            (one["type"], one["status"]) == ("Ready", "True")
            for one in status.get("conditions") or ()
        )

    def may_remove(self, pods: Iterable[Json]) -> bool:
        """Whether nothing on a node keeps it there: it looks idle and these are its pods."""
        # simulator/drainability/rules/notsafetoevict/rule.go, core/utils/expendable.go
        return not any(
            (pod["metadata"].get("annotations") or {}).get(SAFE_TO_EVICT) == "false"
            and (pod["spec"].get("priority") or 0) >= EXPENDABLE
            for pod in pods
        )
