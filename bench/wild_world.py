# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A third namespace that behaves, on nodes of its own, and nodes where wild objects may run.

What is decided for it must not depend on any wild object: its jobs run or wait on devices of a type
that no wild workload may have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bench.wild import GOOD_SPACE as SPACE
from ullage.cluster.values import streams
from ullage.cluster.values.streams import Stream

NOW: Final = 1_767_330_000.0
_STAMP: Final = "2026-01-02T05:00:00Z"
Raw = dict[str, Any]


def _meta(name: str, space: str = "", **more: Any) -> Raw:
    found = {
        "name": name,
        "uid": f"uid-{space}-{name}" if space else f"uid-{name}",
        "resourceVersion": "5",
        "generation": 1,
        "creationTimestamp": "2026-01-02T03:04:05Z",
        **more,
    }
    return {**found, "namespace": space} if space else found


def _node(name: str) -> Raw:
    return {
        "metadata": _meta(name, labels={"ullage.dev/node": "true"}),
        "status": {
            "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110", "ullage.dev/slot": "32"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _slice(pod: str, gpu: str) -> Raw:
    return {
        "podUID": f"uid-{SPACE}-{pod}",
        "container": "main",
        "index": 0,
        "gpu": gpu,
        "percent": 100,
        "memoryMiB": 8192,
        "epoch": 1,
    }


def _gpu_node(name: str, model: str, pods: Mapping[str, str]) -> Raw:
    device = {
        "model": model,
        "productName": model,
        "memoryMiB": 16384,
        "contexts": 8,
        "modes": ["Exclusive", "Fractional"],
        "health": "Healthy",
        "backend": "Emulated",
    }
    held = {pod: _slice(pod, gpu) for pod, gpu in pods.items()}
    return {
        "metadata": _meta(name) | {"uid": f"uid-gn-{name}"},
        "spec": {
            "epoch": 1,
            "slices": [{**one, "podNamespace": SPACE, "podName": pod} for pod, one in held.items()],
        },
        "status": {
            "heartbeat": _STAMP,
            "devices": [{**device, "uuid": f"{name}-gpu-{index}"} for index in range(2)],
            "slices": [{**one, "phase": "Attached"} for one in held.values()],
            "totals": {"slots": 16},
        },
    }


def _template() -> Raw:
    main = {"name": "main", "image": "example/good:1", "resources": {"requests": {"cpu": "1"}}}
    return {"spec": {"containers": [main]}}


def _job(name: str, replicas: int) -> Raw:
    return {
        "kind": "TrainingJob",
        "metadata": _meta(name, SPACE),
        "spec": {
            "template": _template(),
            "replicas": replicas,
            "gpu": {"mode": "Exclusive", "count": 1},
            "accelerators": ["good-gpu"],
        },
    }


def _pod(job: str, rank: int, node: str) -> Raw:
    labels = {
        "ullage.dev/managed": "true",
        "ullage.dev/kind": "TrainingJob",
        "ullage.dev/owner": job,
        "ullage.dev/rank": str(rank),
    }
    owner = {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "TrainingJob",
        "name": job,
        "uid": f"uid-{SPACE}-{job}",
        "controller": True,
    }
    main = {"name": "main", "resources": {"requests": {"cpu": "1", "ullage.dev/slot": "1"}}}
    return {
        "metadata": _meta(f"{job}-{rank}", SPACE, labels=labels, ownerReferences=[owner]),
        "spec": {"containers": [main], "nodeName": node},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


def good() -> Mapping[Stream, list[Raw]]:
    """Objects of the third namespace and of the cluster, by stream."""
    pods = {"runs-0": "good-node-gpu-0", "runs-1": "good-node-gpu-1"}
    return {
        streams.NODES: [_node("good-node"), _node("wild-node-1")],
        streams.GPU_NODES: [
            _gpu_node("good-node", "good-gpu", pods),
            _gpu_node("wild-node-1", "wild-gpu", {}),
        ],
        streams.TRAINING_JOBS: [_job("runs", 2), _job("waits", 1)],
        streams.PODS: [_pod("runs", rank, "good-node") for rank in (0, 1)],
    }
