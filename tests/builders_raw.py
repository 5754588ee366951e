# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Raw JSON objects as the API server serves them, for tests of whatever reads them.

Times are RFC 3339; uids follow from names as in :mod:`builders`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ullage.api.devices import ObservedDevice
from ullage.api.labels import (
    API_VERSION,
    GATE,
    LABEL_KIND,
    LABEL_MANAGED,
    LABEL_NODE,
    LABEL_OWNER,
    LABEL_RANK,
    SLOT_RESOURCE,
)
from ullage.api.slices import DesiredSlice, ObservedSlice

CREATED: Final = "2026-01-02T03:04:05Z"
CREATED_S: Final = 1767323045.0
HEARTBEAT: Final = "2026-01-02T04:00:00Z"

Raw = dict[str, Any]


def raw_meta(name: str, namespace: str = "default", **more: object) -> Raw:
    meta: Raw = {
        "name": name,
        "uid": f"uid-{name}",
        "resourceVersion": "10",
        "generation": 1,
        "creationTimestamp": CREATED,
    }
    return meta | ({"namespace": namespace} if namespace else {}) | more


def raw_template(
    *,
    container: str = "main",
    cpu: str = "500m",
    memory: str = "1Gi",
    labels: Mapping[str, str] | None = None,
    ports: Sequence[int] = (),
    **spec: object,
) -> Raw:
    main: Raw = {
        "name": container,
        "image": "example/train:1",
        "resources": {"requests": {"cpu": cpu, "memory": memory}},
    }
    if ports:
        main["ports"] = [{"containerPort": port} for port in ports]
    return {"metadata": {"labels": dict(labels or {})}, "spec": {"containers": [main], **spec}}


def raw_job(
    name: str = "train",
    *,
    namespace: str = "default",
    status: Raw | None = None,
    meta: Raw | None = None,
    **spec: object,
) -> Raw:
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainingJob",
        "metadata": raw_meta(name, namespace, **(meta or {})),
        "spec": {
            "template": raw_template(),
            "replicas": 1,
            "gpu": {"mode": "Exclusive", "count": 1},
            **spec,
        },
        "status": status or {},
    }


def raw_service(
    name: str = "serve",
    *,
    namespace: str = "default",
    status: Raw | None = None,
    meta: Raw | None = None,
    **spec: object,
) -> Raw:
    return {
        "apiVersion": API_VERSION,
        "kind": "InferenceDeployment",
        "metadata": raw_meta(name, namespace, **(meta or {})),
        "spec": {
            "template": raw_template(container="server", ports=(8080,)),
            "replicas": 1,
            "gpu": {"mode": "Fractional", "count": 1, "share": {"minPercent": 20}},
            **spec,
        },
        "status": status or {},
    }


def owner_reference(kind: str, name: str, uid: str = "") -> Raw:
    version = "apps/v1" if kind == "ReplicaSet" else API_VERSION
    return {
        "apiVersion": version,
        "kind": kind,
        "name": name,
        "uid": uid or f"uid-{name}",
        "controller": True,
    }


def raw_pod(
    name: str = "train-0",
    *,
    namespace: str = "default",
    kind: str = "TrainingJob",
    owner: str = "train",
    rank: int | str | None = 0,
    gated: bool = True,
    node: str = "",
    phase: str = "Pending",
    status: Raw | None = None,
    spec: Raw | None = None,
    meta: Raw | None = None,
    controller: Raw | None = None,
) -> Raw:
    """A pod of ours; a serving pod's controller is the ReplicaSet ``<owner>-abc12``."""
    labels = {LABEL_MANAGED: "true", LABEL_KIND: kind, LABEL_OWNER: owner}
    if rank is not None:
        labels[LABEL_RANK] = str(rank)
    if controller is None:
        serving = kind == "InferenceDeployment"
        controller = (
            owner_reference("ReplicaSet", f"{owner}-abc12")
            if serving
            else owner_reference(kind, owner)
        )
    main: Raw = {
        "name": "main",
        "resources": {
            "requests": {"cpu": "500m", "memory": "1Gi", SLOT_RESOURCE: "1"},
            "limits": {SLOT_RESOURCE: "1"},
        },
    }
    body: Raw = {"containers": [main], "priority": 0}
    if gated:
        body["schedulingGates"] = [{"name": GATE}]
    if node:
        body["nodeName"] = node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": raw_meta(
            name, namespace, labels=labels, ownerReferences=[controller], **(meta or {})
        ),
        "spec": body | (spec or {}),
        "status": {"phase": phase} | (status or {}),
    }


def raw_adopted_pod(
    name: str = "web-1",
    *,
    namespace: str = "default",
    keys: Mapping[str, str] | None = None,
    notes: Mapping[str, str] | None = None,
    controller: Raw | None = None,
    gated: bool = True,
    slots: str = "1",
    **more: Any,
) -> Raw:
    """A pod of others as admission prepares it.

    ``keys`` are labels and ``notes`` annotations of ours without their prefix; ``more`` as of
    ``raw_pod``.
    """
    asked = {"share": "30-60"} if keys is None else keys
    body = raw_pod(name, namespace=namespace, gated=gated, controller={}, rank=None, **more)
    main = body["spec"]["containers"][0]
    main["image"] = "example/web:1"
    main["resources"]["limits"][SLOT_RESOURCE] = slots
    main["resources"]["requests"][SLOT_RESOURCE] = slots
    body["metadata"] |= {
        "labels": {LABEL_MANAGED: "true", LABEL_KIND: "Pod"}
        | {f"ullage.dev/{key}": value for key, value in asked.items()},
        "annotations": {"ullage.dev/adopted": "1"}
        | {f"ullage.dev/{key}": value for key, value in (notes or {}).items()},
        "ownerReferences": [controller] if controller else [],
    }
    return body


def raw_profile_request(name: str = "traced", **spec: Any) -> Raw:
    """A ProfileRequest for the TrainingJob of ``raw_job``; ``spec`` adds fields."""
    return {
        "apiVersion": API_VERSION,
        "kind": "ProfileRequest",
        "metadata": raw_meta(name),
        "spec": {"jobRef": {"kind": "TrainingJob", "name": "train"}, **spec},
    }


def raw_pod_group(name: str = "theirs", fewest: int = 2) -> Raw:
    """A PodGroup of Kubernetes; 0 = its pods start each alone."""
    policy: Raw = {"gang": {"minCount": fewest}} if fewest else {"basic": {}}
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": raw_meta(name),
        "spec": {"schedulingPolicy": policy},
    }


def raw_foreign_pod(
    name: str = "web", *, node: str = "node-1", cpu: str = "1", phase: str = "Running"
) -> Raw:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": raw_meta(name),
        "spec": {
            "nodeName": node,
            "containers": [{"name": "web", "resources": {"requests": {"cpu": cpu}}}],
        },
        "status": {"phase": phase},
    }


def raw_node(
    name: str = "node-1",
    *,
    managed: bool = True,
    ready: bool = True,
    allocatable: Raw | None = None,
    spec: Raw | None = None,
) -> Raw:
    labels = {"kubernetes.io/hostname": name} | ({LABEL_NODE: "true"} if managed else {})
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110", SLOT_RESOURCE: "16"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": raw_meta(name, "", labels=labels),
        "spec": spec or {},
        "status": {
            "allocatable": allocatable or amounts,
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True" if ready else "False",
                    "lastHeartbeatTime": HEARTBEAT,
                }
            ],
        },
    }


def raw_gpu_node(
    name: str = "node-1",
    *,
    epoch: int = 7,
    desired: Sequence[DesiredSlice] = (),
    observed: Sequence[ObservedSlice] = (),
    devices: Sequence[ObservedDevice] = (),
    heartbeat: str = HEARTBEAT,
    uid: str = "",
    generation: int = 1,
) -> Raw:
    return {
        "apiVersion": API_VERSION,
        "kind": "GPUNode",
        "metadata": raw_meta(name, "", uid=uid or f"uid-gn-{name}", generation=generation),
        "spec": {"epoch": epoch, "slices": [item.to_wire() for item in desired]},
        "status": {
            "heartbeat": heartbeat,
            "devices": [item.to_wire() for item in devices],
            "slices": [item.to_wire() for item in observed],
            "totals": {"devices": len(devices), "slots": 8 * len(devices), "usedSlots": 0},
        },
    }


def raw_deployment(name: str = "serve", *, replicas: int = 1, status: Raw | None = None) -> Raw:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": raw_meta(
            name,
            labels={LABEL_MANAGED: "true"},
            annotations={"ullage.dev/template-hash": "0123456789ab"},
            ownerReferences=[owner_reference("InferenceDeployment", name)],
        ),
        "spec": {
            "replicas": replicas,
            "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        },
        "status": status or {},
    }


def raw_kube_service(name: str = "serve", *, ports: Sequence[int] = (80,)) -> Raw:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": raw_meta(name, ownerReferences=[owner_reference("InferenceDeployment", name)]),
        "spec": {"ports": [{"port": port} for port in ports]},
    }


def raw_profile(name: str = "resnet", solo: Sequence[Raw] = ()) -> Raw:
    return {
        "apiVersion": API_VERSION,
        "kind": "WorkloadProfile",
        "metadata": raw_meta(name),
        "spec": {"class": name, "solo": list(solo)},
    }


def raw_device_profile(name: str = "emulated", **spec: object) -> Raw:
    return {
        "apiVersion": API_VERSION,
        "kind": "DeviceProfile",
        "metadata": raw_meta(name, ""),
        "spec": {"memory": "16Gi", **spec},
    }


def raw_pool(name: str = "spot-a", *, status: Raw | None = None, **spec: object) -> Raw:
    return {
        "apiVersion": API_VERSION,
        "kind": "CapacityPool",
        "metadata": raw_meta(name, ""),
        "spec": {
            "type": "p3.2xlarge",
            "zone": "us-east-1a",
            "capacityType": "Spot",
            "accelerator": "tesla-v100-sxm2-16gb",
            "nodeSelector": {"pool": name},
            "priceSource": {"type": "Static", "static": {"pricePerHour": "0.95"}},
            **spec,
        },
        "status": status or {},
    }


def raw_policy(name: str = "default", **spec: object) -> Raw:
    return {
        "apiVersion": API_VERSION,
        "kind": "SchedulingPolicy",
        "metadata": raw_meta(name, ""),
        "spec": spec,
    }


def raw_tuning_job(name: str = "digits", *, status: Raw | None = None, **spec: object) -> Raw:
    return {
        "apiVersion": API_VERSION,
        "kind": "TuningJob",
        "metadata": raw_meta(name),
        "spec": {
            "algorithm": {"ref": "SyncHalving", "minEpochs": 1, "maxEpochs": 9},
            "objective": {"metric": "accuracy", "goal": "Maximize"},
            "searchSpace": [
                {"name": "lr", "type": "Float", "min": "1e-4", "max": "0.1", "log": True},
                {"name": "width", "type": "Int", "min": 16, "max": 128},
            ],
            "trials": 9,
            "trialTemplate": {"template": raw_template()},
            **spec,
        },
        "status": status or {},
    }


def raw_namespace(name: str = "default", **labels: str) -> Raw:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": raw_meta(name, "", labels=labels)}


def raw_claim(
    name: str = "data",
    *,
    volume: str = "",
    bound: bool = True,
    phase: str = "Bound",
    meta: Raw | None = None,
    **spec: object,
) -> Raw:
    """A PersistentVolumeClaim; bound to a volume where one is named."""
    notes = {"pv.kubernetes.io/bind-completed": "yes"} if volume and bound else {}
    body: Raw = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "local",
        **({"volumeName": volume} if volume else {}),
        **spec,
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {**raw_meta(name), "annotations": notes, **(meta or {})},
        "spec": body,
        "status": {"phase": phase},
    }


def raw_volume(
    name: str = "pv-1", *, node: str = "", phase: str = "Available", **spec: object
) -> Raw:
    """A PersistentVolume, reached from one node where that is named."""
    said = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [said]}]}}
    body: Raw = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local",
        **({"nodeAffinity": affinity} if node else {}),
        **spec,
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": raw_meta(name, ""),
        "spec": body,
        "status": {"phase": phase},
    }


def raw_storage_class(
    name: str = "local", *, provisioner: str = "kubernetes.io/no-provisioner", **fields: object
) -> Raw:
    """A StorageClass whose claims wait for their first consumer."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": raw_meta(name, ""),
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
        **fields,
    }
