# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The bodies of a coordinator: its pod, its Service, its Secret, its NetworkPolicy.

The coordinator holds a copy of the job's state: only the job's own pods reach it, with a token; the
operator may query its status. The pod has no rights in the cluster.
"""

from __future__ import annotations

import math
from typing import Final

from ullage.api.labels import LABEL_LEAD
from ullage.api.readers import JsonObject, objects, section
from ullage.api.trainingjob import TierTerms
from ullage.cluster.projection.pod_template import Blueprint
from ullage.cluster.records.object_ref import ObjectRef
from ullage.engines.tiers.flush import BYTES_PER_SECOND
from ullage.kube.manifests.node_requests import HOLD
from ullage.kube.manifests.tiers import (
    COORDINATOR_PORT,
    STATE_STORE_PORT,
    STATUS_PORT,
    TOKEN_FOLDER,
    TOKEN_KEY,
    child_metadata,
    guard_name,
    mount_token,
    narrowed,
)
from ullage.kube.times import COORDINATOR_AWAY_S
from ullage.scheduling.model.plan import CoordinatorStart, CreatePod

Body = dict[str, object]

COPIES: Final = 2
"""Copies of the state: a complete one and one in transfer."""
BESIDE_MIB: Final = 256
"""The interpreter, and the values of one gathering (64 MiB at most) in transfer."""
_MIB: Final = 1 << 20
_USER: Final = 65532


def coordinator_labels(owner: ObjectRef, ours: dict[str, str]) -> dict[str, str]:
    """Labels by which Service and policy select a coordinator; ``ours``: those of any child."""
    return ours | {LABEL_LEAD: "true"}


def coordinator_body(
    action: CreatePod, blueprint: Blueprint, image: str, ours: dict[str, str]
) -> Body:
    """The coordinator pod of a job in tiers.

    Args:
        action: Its name and its owner.
        blueprint: Template of the job, which is in tiers.
        image: Image with the runtime and the engine of tiers.
        ours: Labels of any child of the job.
    """
    terms, coordinator = blueprint.tiers, action.lead
    assert terms is not None  # only a job in tiers has a coordinator
    assert coordinator is not None
    template = section(blueprint.template(), "spec")
    container: Body = {
        "name": "lead",
        "image": image,
        "command": [
            "python",
            "-m",
            "ullage_coordinator.server",
            *_arguments(terms, coordinator, blueprint),
        ],
        "ports": [{"name": name, "containerPort": port} for name, port in _PORTS],
        "resources": _resources(terms),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    spec: Body = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 5,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "tolerations": [*objects(template, "tolerations"), *_AWAY],
    }
    mount_token(spec, container, action.owner)
    spec["containers"] = [container]
    if action.on:
        spec["affinity"] = narrowed({}, action.on)
    for name in ("priorityClassName", "imagePullSecrets"):
        if template.get(name):
            spec[name] = template[name]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": child_metadata(
            action.owner, action.name, coordinator_labels(action.owner, ours)
        )
        | {"annotations": dict(HOLD)},
        "spec": spec,
    }


def coordinator_service(owner: ObjectRef, name: str, ours: dict[str, str], uid: str = "") -> Body:
    """The coordinator's Service, for server-side apply; ready or not, since members retry."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": child_metadata(owner, name, ours, uid),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": coordinator_labels(owner, ours),
            "ports": [{"name": name, "port": port, "protocol": "TCP"} for name, port in _PORTS],
        },
    }


def coordinator_secret(owner: ObjectRef, ours: dict[str, str], token: str) -> Body:
    """The Secret with the members' token for their coordinator; never changed once it exists."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": child_metadata(owner, guard_name(owner), ours),
        "type": "Opaque",
        "immutable": True,
        "stringData": {TOKEN_KEY: token},
    }


def coordinator_policy(owner: ObjectRef, ours: dict[str, str], namespace: str) -> Body:
    """The NetworkPolicy: admits the job's own pods, and the operator to the status port.

    Args:
        owner: The job.
        ours: Labels of any child of the job.
        namespace: The operator's own.
    """
    members: Body = {"podSelector": {"matchLabels": dict(ours)}}
    operator: Body = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "podSelector": {"matchLabels": {"app.kubernetes.io/component": "operator"}},
    }
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": child_metadata(owner, guard_name(owner), ours),
        "spec": {
            "podSelector": {"matchLabels": coordinator_labels(owner, ours)},
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": [members], "ports": _open(COORDINATOR_PORT, STATE_STORE_PORT)},
                {"from": [operator], "ports": _open(STATUS_PORT)},
            ],
        },
    }


_PORTS: Final = (("lead", COORDINATOR_PORT), ("keeper", STATE_STORE_PORT), ("status", STATUS_PORT))
_AWAY: Final[tuple[JsonObject, ...]] = tuple(
    {
        "key": f"node.kubernetes.io/{word}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": COORDINATOR_AWAY_S,
    }
    for word in ("not-ready", "unreachable")
)


def _arguments(terms: TierTerms, coordinator: CoordinatorStart, blueprint: Blueprint) -> list[str]:
    options = {
        "--members": coordinator.members,
        "--least": min(blueprint.least, coordinator.members),
        "--state-bytes": terms.state_bytes,
        "--shards": terms.shards,
        "--every-steps": terms.every_steps,
        "--max-lag-steps": terms.max_lag_steps,
        "--bytes-per-second": BYTES_PER_SECOND,
        "--silent-seconds": terms.silence_s,
        "--listen": f"0.0.0.0:{COORDINATOR_PORT}",
        "--keeper": f"0.0.0.0:{STATE_STORE_PORT}",
        "--status": f"0.0.0.0:{STATUS_PORT}",
        "--token-file": f"{TOKEN_FOLDER}/{TOKEN_KEY}",
    }
    if terms.dirty_bytes:
        options["--dirty-bytes"] = min(terms.dirty_bytes, terms.state_bytes)
    if terms.stage:
        options["--stage"] = terms.stage
    if coordinator.notice_s is not None:
        options["--notice-seconds"] = f"{coordinator.notice_s:g}"
    return [word for key, value in options.items() for word in (key, str(value))]


def _resources(terms: TierTerms) -> Body:
    memory = f"{COPIES * math.ceil(terms.state_bytes / _MIB) + BESIDE_MIB}Mi"
    return {
        "requests": {"cpu": "50m", "memory": memory},
        "limits": {"memory": memory},
    }


def _open(*ports: int) -> list[Body]:
    return [{"port": port, "protocol": "TCP"} for port in ports]
