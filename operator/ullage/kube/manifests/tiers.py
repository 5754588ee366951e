# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Connects the members of a job in tiers to their coordinator: names, ports, pod environment.

The words are those of ``ullage_run.orders``; a test keeps both consistent. A pod must have nothing
secret: the token is a file from a Secret.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ullage.api.labels import API_VERSION, LABEL_POOL, LABEL_TIER
from ullage.api.readers import JsonObject, objects, section
from ullage.api.trainingjob import TierTerms
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.values.names import coordinator_name
from ullage.scheduling.model.plan import Labels

Body = dict[str, object]

COORDINATOR_PORT: Final = 7070
STATE_STORE_PORT: Final = 7071
STATUS_PORT: Final = 7072
STATUS_PATH: Final = "/status"
TOKEN_FOLDER: Final = "/var/run/secrets/ullage.dev/group"
TOKEN_KEY: Final = "token"
RELIABLE: Final = "reliable"
TRANSIENT: Final = "transient"
NOTHING_ASKED: Final[JsonObject] = {}
_VOLUME: Final = "ullage-group"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def child_metadata(owner: ObjectRef, name: str, labels: Mapping[str, str], uid: str = "") -> Body:
    """Metadata of a child of a workload; ``uid`` is that of an existing one."""
    reference = {
        "apiVersion": API_VERSION,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
    }
    body: Body = {
        "name": name,
        "namespace": owner.namespace,
        "labels": dict(labels),
        "ownerReferences": [reference],
    }
    return body | ({"uid": uid} if uid else {})


def guard_name(owner: ObjectRef) -> str:
    """Name of a job's Secret and NetworkPolicy: of exactly this job, never of an earlier one."""
    return f"{owner.name}-lead-{owner.uid[:8]}"


def tier_of(rank: int, terms: TierTerms) -> str:
    """Tier of a member: those of the lowest ranks need reliable machines."""
    return RELIABLE if 0 <= rank < terms.reliable else TRANSIENT


def join(owner: ObjectRef, name: str, rank: int, terms: TierTerms, spec: Body) -> dict[str, str]:
    """Configure a member's pod to join; returns its additional labels.

    Args:
        owner: The job.
        name: Name of the pod.
        rank: Rank of the member.
        terms: Tier settings of the job.
        spec: Spec of the pod, changed in place; its first container is the program.
    """
    containers = [dict(container) for container in objects(spec, "containers")]
    device = containers[0]
    stated = {variable.get("name") for variable in objects(device, "env")}
    added = [
        variable for variable in _environment(owner, name, terms) if variable["name"] not in stated
    ]
    device["env"] = [*objects(device, "env"), *added]
    mount_token(spec, device, owner)
    spec["containers"] = containers
    return {LABEL_TIER: tier_of(rank, terms)}


def mount_token(spec: Body, container: Body, owner: ObjectRef) -> None:
    """Mount the job's token into a container."""
    mount = {"name": _VOLUME, "mountPath": TOKEN_FOLDER, "readOnly": True}
    volume = {"name": _VOLUME, "secret": {"secretName": guard_name(owner)}}
    container["volumeMounts"] = [*objects(container, "volumeMounts"), mount]
    spec["volumes"] = [*objects(spec, "volumes"), volume]


def narrowed(affinity: JsonObject, on: Sequence[Labels]) -> Body:
    """An affinity that also requires a node with all labels of one of these sets."""
    node = section(affinity, "nodeAffinity")
    stated = list(objects(section(node, _REQUIRED), "nodeSelectorTerms")) or [NOTHING_ASKED]
    terms = [
        {
            **term,
            "matchExpressions": [
                *objects(term, "matchExpressions"),
                *({"key": key, "operator": "In", "values": [value]} for key, value in labels),
            ],
        }
        for term in stated
        for labels in on
    ]
    required = {_REQUIRED: {"nodeSelectorTerms": terms}}
    return {**affinity, "nodeAffinity": {**node, **required}}


def _environment(owner: ObjectRef, name: str, terms: TierTerms) -> list[Body]:
    host = coordinator_name(owner.name)
    values = {
        "ULLAGE_LEAD": f"{host}:{COORDINATOR_PORT}",
        "ULLAGE_KEEPER": f"{host}:{STATE_STORE_PORT}",
        "ULLAGE_MEMBER": name,
        "ULLAGE_GROUP_TOKEN_FILE": f"{TOKEN_FOLDER}/{TOKEN_KEY}",
        "ULLAGE_BACKUP_EVERY_STEPS": str(terms.every_steps),
        "ULLAGE_BACKUP_MAX_LAG_STEPS": str(terms.max_lag_steps),
        "ULLAGE_SHARDS": str(terms.shards),
    }
    fields = {
        "ULLAGE_NODE": "spec.nodeName",
        "ULLAGE_POOL": f"metadata.labels['{LABEL_POOL}']",
        "ULLAGE_TIER": f"metadata.labels['{LABEL_TIER}']",
    }
    variables: list[Body] = [{"name": key, "value": value} for key, value in values.items()]
    variables += [
        {"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for key, path in fields.items()
    ]
    return variables
