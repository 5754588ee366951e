# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The bodies of a service's router: its Deployment, and the Services around it.

A router has no rights in the cluster: it finds the replicas by DNS. Its arguments are those of
``ullage_router``; a test keeps both consistent.
"""

from __future__ import annotations

from typing import Final

from ullage.api.batching import Batching
from ullage.api.labels import ANNOTATION_TEMPLATE_HASH, LABEL_ROUTER
from ullage.api.readers import JsonObject, WireError, objects, section
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.values.names import replicas_service
from ullage.kube.manifests.tiers import child_metadata
from ullage.kube.times import (
    ROUTER_DEADLINE_MOST_MS,
    ROUTER_DRAIN_S,
    ROUTER_GENERATION_S,
    ROUTER_LINGER_S,
    ROUTER_SPARE_S,
    ROUTER_START_S,
)
from ullage.scheduling.model.plan import ApplyRouter
from ullage.scheduling.model.selectors import owner_labels

Body = dict[str, object]

HTTP_PORT: Final = 8080
METRICS_PORT: Final = 9464
GRPC_PORT: Final = 8081
MORE_CONNECTIONS: Final = 1_000
"""Connections beside those with a waiting request."""
PROBE_PATH: Final = "/v2/health/ready"
_ALIVE: Final = {"path": "/v2/health/live", "port": "http"}
_USER: Final = 65532


def router_labels(owner: ObjectRef) -> dict[str, str]:
    """Labels of a router's pods; none of them is a label of replicas."""
    return {LABEL_ROUTER: owner.name}


def router_deployment(action: ApplyRouter, template: JsonObject, uid: str = "") -> Body:
    """The Deployment of a router, for server-side apply.

    Args:
        action: Parameters of the router.
        template: Template of the replicas.
        uid: uid of the existing Deployment, so that another with the name is refused; empty to
            create.

    Raises:
        WireError: the template has no readable port.
    """
    owner, batching = action.owner, action.batching
    labels, replicas = router_labels(owner), section(template, "spec")
    container: Body = {
        "name": "router",
        "image": action.image,
        "command": ["python", "-m", "ullage_router", *_arguments(action, replicas)],
        "env": [{"name": "OPENBLAS_NUM_THREADS", "value": "1"}],
        "ports": [
            {"name": name, "containerPort": port, "protocol": "TCP"}
            for name, port in _listens(batching).items()
        ],
        # its last error before it ends is shown by condition RouterReady
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "readinessProbe": {
            "httpGet": {"path": "/ready", "port": "metrics"},
            "periodSeconds": 1,
            "timeoutSeconds": 2,
        },
        # a busy node starts it slowly; it would be killed repeatedly before it answers
        "startupProbe": {
            "httpGet": _ALIVE,
            "periodSeconds": 1,
            "timeoutSeconds": 3,
            "failureThreshold": ROUTER_START_S,
        },
        "livenessProbe": {
            "httpGet": _ALIVE,
            "periodSeconds": 10,
            "timeoutSeconds": 5,
        },
        "resources": {
            "requests": {
                "cpu": f"{batching.router.cpu_milli}m",
                "memory": str(batching.router.memory_bytes),
            },
            "limits": {"memory": str(batching.router.memory_bytes)},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    spec: Body = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": ROUTER_LINGER_S + _drain_s(batching) + ROUTER_SPARE_S,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": labels},
            }
        ],
        "containers": [container],
    }
    for name in ("priorityClassName", "imagePullSecrets"):
        if replicas.get(name):
            spec[name] = replicas[name]
    scraped = {"prometheus.io/scrape": "true", "prometheus.io/port": str(METRICS_PORT)}
    version = {ANNOTATION_TEMPLATE_HASH: action.version}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": child_metadata(owner, action.name, owner_labels(owner), uid)
        | {"annotations": version},
        "spec": {
            "replicas": batching.router.replicas,
            "selector": {"matchLabels": labels},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
            },
            "template": {
                "metadata": {"labels": labels, "annotations": scraped},
                "spec": spec,
            },
        },
    }


def routed_ports(template: JsonObject, grpc_port: int = 0) -> list[Body]:
    """The ports of a Service that selects a router: that of the replicas, so no client changes.

    Args:
        template: Template of the replicas.
        grpc_port: Additional port for gRPC; 0 = none.

    Raises:
        WireError: the template has no readable port.
    """
    port = _first_port(section(template, "spec"))
    number = port["containerPort"]
    stated = port.get("name")
    name = stated if isinstance(stated, str) and stated else f"port-{number}"
    ports: list[Body] = [{"name": name, "port": number, "targetPort": HTTP_PORT, "protocol": "TCP"}]
    if grpc_port:
        ports.append(
            {
                "name": "grpc" if name != "grpc" else "grpc-inference",
                "port": grpc_port,
                "targetPort": GRPC_PORT,
                "protocol": "TCP",
                "appProtocol": "kubernetes.io/h2c",
            }
        )
    return ports


def _drain_s(batching: Batching) -> int:
    """Seconds to answer accepted requests, including one that is held as long as allowed."""
    return batching.hold_s + ROUTER_DRAIN_S


def _listens(batching: Batching) -> dict[str, int]:
    ports = {"http": HTTP_PORT, "metrics": METRICS_PORT}
    return ports | {"grpc": GRPC_PORT} if batching.grpc_port else ports


def _first_port(spec: JsonObject) -> JsonObject:
    containers = objects(spec, "containers")
    ports = objects(containers[0], "ports") if containers else []
    if not ports or type(ports[0].get("containerPort")) is not int:
        raise WireError("spec.containers[0].ports: a router needs the number of the first port")
    return ports[0]


def _probe_path(spec: JsonObject, port: JsonObject) -> str:
    """The path of the first container's readiness probe, if it is HTTP on the same port."""
    asked = section(section(objects(spec, "containers")[0], "readinessProbe"), "httpGet")
    path = asked.get("path")
    same = asked.get("port") in (port.get("containerPort"), port.get("name"))
    return path if same and isinstance(path, str) and path.startswith("/") else PROBE_PATH


def _arguments(action: ApplyRouter, spec: JsonObject) -> list[str]:
    batching, limits = action.batching, action.batching.limits
    port = _first_port(spec)
    stated = {
        "--follow": f"http://{replicas_service(action.owner.name)}:{port['containerPort']}",
        "--objective-ms": action.objective_ms,
        "--policy": batching.policy.value,
        "--sizes": ",".join(map(str, batching.sizes)),
        "--in-flight": batching.in_flight,
        "--hold-seconds": batching.hold_s,
        "--probe-path": batching.probe_path or _probe_path(spec, port),
        "--body-bytes": limits.body_bytes,
        "--queue": limits.queue,
        "--queue-bytes": limits.queue_bytes,
        "--stream-seconds": limits.stream_s,
        "--connections": limits.queue + MORE_CONNECTIONS,
        "--longest-ms": max(ROUTER_DEADLINE_MOST_MS, action.objective_ms),
        "--linger-seconds": ROUTER_LINGER_S,
        "--drain-seconds": _drain_s(batching),
        "--listen": f"0.0.0.0:{HTTP_PORT}",
        "--metrics": f"0.0.0.0:{METRICS_PORT}",
    }
    if batching.grpc_port:
        stated["--grpc-listen"] = f"0.0.0.0:{GRPC_PORT}"
    return [f"{name}={value}" for name, value in stated.items()] + _generative(action)


def _generative(action: ApplyRouter) -> list[str]:
    """Arguments for generative servers, whose response time grows with their length."""
    generative = action.batching.generative
    if generative is None:
        return []
    return [
        "--generative",
        f"--cache-limit-percent={generative.cache_limit_percent}",
        f"--inter-token-ms={action.inter_token_ms}",
        f"--answer-seconds={ROUTER_GENERATION_S}",
    ]
