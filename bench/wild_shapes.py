# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Schemas of the kinds of others, as far as the operator reads them, in the spelling of a CRD.

They are wider than the API server's own: a pod template may stand in a pod as it was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Schema = Mapping[str, Any]

_TEXT: Final = {"type": "string", "maxLength": 1024}
_NAME: Final = {"type": "string", "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}
_TIME: Final = {"type": "string", "format": "date-time"}
_COUNT: Final = {"type": "integer", "format": "int32"}
_LONG: Final = {"type": "integer", "format": "int64"}
_FLAG: Final = {"type": "boolean"}
_AMOUNT: Final = {
    "x-kubernetes-int-or-string": True,
    "pattern": "^[0-9]+(\\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$",
}


def _object(required: tuple[str, ...] = (), /, **fields: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": fields}


def _list(items: Any, most: int = 8) -> dict[str, Any]:
    return {"type": "array", "items": items, "maxItems": most}


def _map(values: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values}


_CONDITION: Final = _object(
    ("type", "status"),
    type={"enum": ["Ready", "PodScheduled", "DisruptionTarget", "Initialized"]},
    status={"enum": ["True", "False", "Unknown"]},
    reason=_TEXT,
    message=_TEXT,
    lastTransitionTime=_TIME,
)
_RESOURCES: Final = _object(limits=_map(_AMOUNT), requests=_map(_AMOUNT))
_TERM: Final = _object(
    matchExpressions=_list(
        _object(("key", "operator"), key=_TEXT, operator=_TEXT, values=_list(_TEXT))
    ),
    matchFields=_list(_object(("key", "operator"), key=_TEXT, operator=_TEXT, values=_list(_TEXT))),
)
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_STATE: Final = _object(
    name={"enum": ["main", "other"]},
    state=_object(
        waiting=_object(reason=_TEXT, message=_TEXT),
        terminated=_object(("exitCode",), exitCode=_COUNT, reason=_TEXT),
        running=_object(startedAt=_TIME),
    ),
)
_CONTAINER: Final = _object(
    ("name",),
    name={"enum": ["main", "other", "third"]},
    image=_TEXT,
    resources=_RESOURCES,
    restartPolicy={"enum": ["Always", "Never"]},
    env=_list(_object(("name",), name=_TEXT, value=_TEXT)),
)
_POD: Final = _object(
    ("spec",),
    spec=_object(
        ("containers",),
        containers={"type": "array", "items": _CONTAINER, "minItems": 1, "maxItems": 4},
        initContainers=_list(_CONTAINER, 2),
        nodeName={"enum": ["", "wild-1", "wild-2", "wild-node-1", "nowhere"]},
        nodeSelector=_map(_TEXT),
        overhead=_map(_AMOUNT),
        resources=_RESOURCES,
        priority=_COUNT,
        terminationGracePeriodSeconds=_LONG,
        schedulingGates=_list(_object(("name",), name={"enum": ["ullage.dev/placement", "other"]})),
        tolerations=_list(_object(key=_TEXT, operator=_TEXT, value=_TEXT, effect=_TEXT)),
        affinity=_object(
            nodeAffinity=_object(**{_REQUIRED: _object(nodeSelectorTerms=_list(_TERM, 3))}),
            podAffinity=_object(),
        ),
    ),
    status=_object(
        phase={"enum": ["Pending", "Running", "Succeeded", "Failed", "Unknown"]},
        reason={"enum": ["Evicted", "OutOfcpu", "NodeAffinity", "UnexpectedAdmissionError", ""]},
        message=_TEXT,
        podIP=_TEXT,
        startTime=_TIME,
        conditions=_list(_CONDITION, 4),
        containerStatuses=_list(_STATE, 3),
        initContainerStatuses=_list(_STATE, 2),
    ),
)
_NODE: Final = _object(
    spec=_object(
        unschedulable=_FLAG,
        providerID=_TEXT,
        taints=_list(
            _object(
                ("key", "effect"),
                key={
                    "enum": [
                        "karpenter.sh/disrupted",
                        "ToBeDeletedByClusterAutoscaler",
                        "aws-node-termination-handler/spot-itn",
                        "cloud.google.com/impending-node-termination",
                        "ullage.dev/interruption",
                        "other",
                    ]
                },
                value=_TEXT,
                effect={"enum": ["NoSchedule", "NoExecute", "PreferNoSchedule"]},
                timeAdded=_TIME,
            )
        ),
    ),
    status=_object(
        allocatable=_map(_AMOUNT),
        capacity=_map(_AMOUNT),
        conditions=_list(_CONDITION, 4),
        addresses=_list(_object(type=_TEXT, address=_TEXT)),
    ),
)
_INT_OR_PERCENT: Final = {"x-kubernetes-int-or-string": True, "pattern": "^[0-9]+$"}
_DEPLOYMENT: Final = _object(
    spec=_object(
        replicas=_COUNT,
        strategy=_object(
            type=_TEXT,
            rollingUpdate=_object(maxSurge=_INT_OR_PERCENT, maxUnavailable=_INT_OR_PERCENT),
        ),
    ),
    status=_object(
        replicas=_COUNT,
        readyReplicas=_COUNT,
        updatedReplicas=_COUNT,
        observedGeneration=_LONG,
        conditions=_list(_CONDITION, 3),
    ),
)
_SERVICE: Final = _object(
    spec=_object(
        clusterIP=_TEXT,
        ports=_list(_object(("port",), name=_NAME, port=_COUNT, protocol=_TEXT)),
        selector=_map(_TEXT),
    )
)
_POD_GROUP: Final = _object(
    spec=_object(schedulingPolicy=_object(basic=_object(), gang=_object(minCount=_COUNT)))
)
_NAMESPACE: Final = _object(status=_object(phase=_TEXT))
_CLAIM: Final = _object(
    spec=_object(
        volumeName=_NAME,
        storageClassName=_NAME,
        accessModes=_list(_TEXT, 4),
        resources=_object(requests=_map(_AMOUNT)),
    ),
    status=_object(phase=_TEXT),
)
_VOLUME: Final = _object(
    spec=_object(
        accessModes=_list(_TEXT, 4),
        capacity=_map(_AMOUNT),
        claimRef=_object(namespace=_NAME, name=_NAME),
        storageClassName=_NAME,
        nodeAffinity=_object(required=_object(nodeSelectorTerms=_list(_TERM))),
    ),
    status=_object(phase=_TEXT),
)
_STORAGE_CLASS: Final = _object(
    provisioner=_TEXT,
    volumeBindingMode=_TEXT,
    allowedTopologies=_list(
        _object(matchLabelExpressions=_list(_object(key=_TEXT, values=_list(_TEXT))))
    ),
)
SHAPES: Final[Mapping[str, Schema]] = {
    "Namespace": _NAMESPACE,
    "PersistentVolumeClaim": _CLAIM,
    "PersistentVolume": _VOLUME,
    "StorageClass": _STORAGE_CLASS,
    "Pod": _POD,
    "Node": _NODE,
    "Deployment": _DEPLOYMENT,
    "Service": _SERVICE,
    "PodGroup": _POD_GROUP,
}
"""By kind."""

_OURS: Final = {
    "requests": {"cpu": "1", "ullage.dev/slot": "1"},
    "limits": {"ullage.dev/slot": "1"},
}
REAL: Final[Mapping[str, tuple[Mapping[str, Any], ...]]] = {
    "Pod": (
        {
            "spec": {
                "containers": [{"name": "main", "image": "example/train:1", "resources": _OURS}],
                "schedulingGates": [{"name": "ullage.dev/placement"}],
            },
            "status": {"phase": "Pending"},
        },
        {
            "spec": {
                "containers": [{"name": "main", "image": "example/train:1", "resources": _OURS}],
                "nodeName": "wild-node-1",
                "terminationGracePeriodSeconds": 30,
            },
            "status": {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [{"name": "main", "state": {"running": {}}}],
            },
        },
        {
            "spec": {
                "containers": [{"name": "main", "image": "example/train:1", "resources": _OURS}],
                "nodeName": "wild-1",
            },
            "status": {
                "phase": "Failed",
                "containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": 1}}}],
            },
        },
    ),
    "Node": (
        {
            "spec": {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]},
            "status": {
                "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "9", "ullage.dev/slot": "16"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        },
        {
            "status": {
                "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "9", "ullage.dev/slot": "16"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        },
    ),
    "Deployment": (
        {
            "spec": {
                "replicas": 2,
                "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}},
            },
            "status": {"replicas": 2, "readyReplicas": 2, "updatedReplicas": 2},
        },
    ),
    "Service": ({"spec": {"ports": [{"port": 80}], "clusterIP": "None"}},),
    "Namespace": ({"status": {"phase": "Active"}},),
    "PersistentVolumeClaim": (
        {
            "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "pv"},
            "status": {"phase": "Bound"},
        },
    ),
    "PersistentVolume": ({"spec": {"capacity": {"storage": "1Gi"}}, "status": {"phase": "Bound"}},),
    "StorageClass": ({"provisioner": "example.com/local", "volumeBindingMode": "Immediate"},),
    "PodGroup": ({"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}},),
}
"""Objects as they really are, by kind, without what all objects have."""
