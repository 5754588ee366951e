# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The body of a node request: a pod that makes the cluster's autoscaler add a node of a pool.

It runs nothing, asks for no device and no amount, and fits no node that is there already. It must
never keep a member from the node that it brought.
"""

from __future__ import annotations

from typing import Final

from ullage.api.contract import (
    ANNOTATION_KARPENTER_KEEP,
    ANNOTATION_SAFE_TO_EVICT,
    LABEL_KIND,
    LABEL_MANAGED,
    LABEL_ORDER,
    LABEL_OWNER,
    objects,
    section,
)
from ullage.cluster.codecs.objects import string_map
from ullage.cluster.records.snapshot import ObjectRef
from ullage.cluster.values.names import HOSTNAME
from ullage.ports import JsonObject
from ullage.scheduling.model.plan import CreatePod, Order

Body = dict[str, object]

HOLD: Final = {ANNOTATION_KARPENTER_KEEP: "true", ANNOTATION_SAFE_TO_EVICT: "false"}
"""What keeps autoscalers from taking the node of a pod away to save money."""
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def order_body(action: CreatePod, order: Order, template: JsonObject, image: str) -> Body:
    """The placeholder pod of an order.

    Args:
        action: Names it and its owner.
        order: The pool's labels, and the nodes that are there already.
        template: Of the job: what its members may run on, the order must be able to as well.
        image: Has a Python interpreter; nothing else of it is used.
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
        "metadata": {
            "name": action.name,
            "namespace": action.owner.namespace,
            "labels": _labels(action.owner, order),
            "annotations": dict(HOLD),
            "ownerReferences": [
                {
                    "apiVersion": "ullage.dev/v1alpha1",
                    "kind": action.owner.kind,
                    "name": action.owner.name,
                    "uid": action.owner.uid,
                    "controller": True,
                }
            ],
        },
        "spec": pod,
    }


def _labels(owner: ObjectRef, order: Order) -> dict[str, str]:
    return {
        LABEL_MANAGED: "true",
        LABEL_KIND: owner.kind,
        LABEL_OWNER: owner.name,
        LABEL_ORDER: order.pool,
    }


def _affinity(spec: JsonObject, order: Order) -> Body:
    """On a node that is not there yet, and no two orders on one."""
    new: list[JsonObject] = (
        [{"key": HOSTNAME, "operator": "NotIn", "values": list(order.there)}] if order.there else []
    )
    stated = section(section(section(spec, "affinity"), "nodeAffinity"), _REQUIRED)
    terms: list[Body] = [
        {**term, "matchExpressions": [*objects(term, "matchExpressions"), *new]}
        for term in objects(stated, "nodeSelectorTerms")
    ]
    if not terms and new:
        terms = [{"matchExpressions": new}]
    apart = {
        "labelSelector": {"matchExpressions": [{"key": LABEL_ORDER, "operator": "Exists"}]},
        "namespaceSelector": {},
        "topologyKey": HOSTNAME,
    }
    affinity: Body = {"podAntiAffinity": {_REQUIRED: [apart]}}
    if terms:
        affinity["nodeAffinity"] = {_REQUIRED: {"nodeSelectorTerms": terms}}
    return affinity
