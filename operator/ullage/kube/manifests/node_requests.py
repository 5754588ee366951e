# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The body of a node request: a pod that makes the cluster's autoscaler add a node of a pool.

It runs nothing, requests no device, and fits no counted node. It must be deleted before the members
arrive that the node was bought for.
"""

from __future__ import annotations

from typing import Final

from ullage.api.labels import (
    ANNOTATION_KARPENTER_KEEP,
    ANNOTATION_SAFE_TO_EVICT,
    LABEL_KIND,
    LABEL_MANAGED,
    LABEL_ORDER,
    LABEL_OWNER,
    LABEL_REGISTERED,
    LABEL_TEMPLATE_NODE,
)
from ullage.api.readers import objects, section
from ullage.cluster.codecs.objects import string_map
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.values.names import HOSTNAME
from ullage.kube.manifests.tiers import child_metadata
from ullage.ports import JsonObject, JsonPatch
from ullage.scheduling.model.plan import CreatePod, Order

Body = dict[str, object]

HOLD: Final = {ANNOTATION_KARPENTER_KEEP: "true", ANNOTATION_SAFE_TO_EVICT: "false"}
"""Annotation that keeps autoscalers from removing the node of a pod to save cost."""
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def order_body(action: CreatePod, order: Order, template: JsonObject, image: str) -> Body:
    """The placeholder pod of a node request.

    Args:
        action: Its name and its owner.
        order: The pool's labels, and the members' needs of the node.
        template: Template of the job: the request must tolerate what its members tolerate.
        image: Image with a Python interpreter; nothing else of it is used.
    """
    spec = section(template, "spec")
    pod: Body = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "nodeSelector": string_map(spec, "nodeSelector") | dict(order.node_selector),
        "affinity": _affinity(spec, order),
        "tolerations": list(objects(spec, "tolerations")),
        "containers": [
            {
                "name": "order",
                "image": image,
                "command": ["python", "-c", "import signal; signal.pause()"],
                "resources": _requests(order),
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                    "readOnlyRootFilesystem": True,
                },
            }
        ],
    }
    for name in ("priorityClassName", "imagePullSecrets"):
        if spec.get(name):
            pod[name] = spec[name]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": child_metadata(action.owner, action.name, _labels(action.owner, order))
        | {"annotations": dict(HOLD)},
        "spec": pod,
    }


def registration_patch(uid: str) -> JsonPatch:
    """The patch that labels the Node of this uid as counted."""
    key = LABEL_REGISTERED.replace("/", "~1")
    return [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "add", "path": f"/metadata/labels/{key}", "value": "true"},
    ]


def _labels(owner: ObjectRef, order: Order) -> dict[str, str]:
    return {
        LABEL_MANAGED: "true",
        LABEL_KIND: owner.kind,
        LABEL_OWNER: owner.name,
        LABEL_ORDER: order.pool,
    }


def _affinity(spec: JsonObject, order: Order) -> Body:
    """Affinity to an uncounted node, with at most one request per node.

    Karpenter rejects requirements on the host name. cluster-autoscaler simulates a new node as a
    copy of an existing one, including our label, and marks the copy.
    """
    alternatives: list[JsonObject] = [{"key": LABEL_REGISTERED, "operator": "DoesNotExist"}]
    if not any(_is_karpenters(key) for key, _ in order.node_selector):
        alternatives.append({"key": LABEL_TEMPLATE_NODE, "operator": "Exists"})
    stated = section(section(section(spec, "affinity"), "nodeAffinity"), _REQUIRED)
    terms: list[Body] = [
        {**term, "matchExpressions": [*objects(term, "matchExpressions"), new]}
        for new in alternatives
        for term in objects(stated, "nodeSelectorTerms") or ({},)
    ]
    apart = {
        "labelSelector": {"matchExpressions": [{"key": LABEL_ORDER, "operator": "Exists"}]},
        "namespaceSelector": {},
        "topologyKey": HOSTNAME,
    }
    return {
        "podAntiAffinity": {_REQUIRED: [apart]},
        "nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": terms}},
    }


def _is_karpenters(key: str) -> bool:
    domain = key.rpartition("/")[0]
    return domain == "karpenter.sh" or domain.endswith(".karpenter.sh")


def _requests(order: Order) -> Body:
    """CPU and memory of the members that are to run there; they determine the machine's size."""
    amounts = {"cpu": f"{order.cpu_milli}m", "memory": str(order.memory_bytes)}
    asked = {"cpu": order.cpu_milli, "memory": order.memory_bytes}
    return {"requests": {name: amounts[name] for name in amounts if asked[name]}}
