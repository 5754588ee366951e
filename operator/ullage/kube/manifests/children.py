# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Bodies of the children of workloads: pods, Deployments, Services.

Pure functions from a raw template and a few numbers to JSON. The user's fields in the template are
kept; only those required by placement are added. Bodies for server-side apply have exactly the
fields that we own, because an omitted field is released.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ullage.api.environment import ENV_LOADER, ENV_STRAGGLERS, HOOK_FOLDER, PYTHON_PATH, REBALANCE
from ullage.api.labels import (
    ANNOTATION_RESERVATION,
    ANNOTATION_TEMPLATE_HASH,
    ANNOTATION_WORLD_SIZE,
    GATE,
    LABEL_RANK,
    SLOT_RESOURCE,
)
from ullage.api.podtemplate import Runtime
from ullage.api.readers import WireError, objects, section, text
from ullage.cluster.codecs.objects import string_map
from ullage.cluster.projection.pod_template import Blueprint
from ullage.cluster.records.spec_fields import RENDEZVOUS
from ullage.cluster.records.workload import WorkloadKind
from ullage.cluster.values.names import pod_name, workers_service
from ullage.kube.manifests.node_requests import HOLD
from ullage.kube.manifests.router import routed_ports, router_labels
from ullage.kube.manifests.tiers import child_metadata, join, narrowed
from ullage.kube.manifests.ungate import pinned
from ullage.kube.times import DEFAULT_GRACE_S, TORCHRUN_LAST_CALL_S
from ullage.ports import JsonObject
from ullage.scheduling.model.plan import (
    ApplyDeployment,
    ApplyRoutedService,
    ApplyService,
    CreatePod,
    CreateReservedPod,
)
from ullage.scheduling.model.selectors import owner_labels

Body = dict[str, object]

MASTER_PORT: Final = 29500
"""Port of rank 0; the default of torchrun."""
TORCHRUN_RESTARTS: Final = 100
"""Maximum restarts of the worker processes, inside pods that stay: torchrun counts the loss of
another member as one, and its default of none would end all members (not measured)."""
TEMPLATE_PYTHON_PATH: Final = "ULLAGE_TEMPLATE_PYTHONPATH"
"""Name for the template's own PYTHONPATH where the step hook is injected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """A parsed template; it may be changed."""

    labels: dict[str, str]
    annotations: dict[str, str]
    spec: Body
    device: Body
    """The device container, first in the spec's containers."""


def _parts(blueprint: Blueprint) -> _Parts:
    template = blueprint.template()
    metadata, spec = section(template, "metadata"), dict(section(template, "spec"))
    containers = [dict(container) for container in objects(spec, "containers")]
    if not containers:
        raise WireError("spec.containers: at least one container is needed, the device container")
    spec["containers"] = containers
    return _Parts(
        labels=string_map(metadata, "labels"),
        annotations=string_map(metadata, "annotations"),
        spec=spec,
        device=containers[0],
    )


def _gate(spec: Body) -> None:
    """Add our gate."""
    gates = list(objects(spec, "schedulingGates"))
    if not any(gate.get("name") == GATE for gate in gates):
        gates.append({"name": GATE})
    spec["schedulingGates"] = gates


def _add_slots(container: Body, slots: int) -> None:
    """Add the slots to the device container as request and limit."""
    resources = dict(section(container, "resources"))
    for field in ("requests", "limits"):
        resources[field] = {**section(resources, field), SLOT_RESOURCE: str(slots)}
    container["resources"] = resources


def _keep_last_lines(spec: Body) -> None:
    """Make kubelet keep the end of the log of a failing container, to report the cause."""
    spec["containers"] = [
        {"terminationMessagePolicy": "FallbackToLogsOnError", **container}
        for container in objects(spec, "containers")
    ]


def _literal(container: Body, name: str, default: str) -> str:
    """Value of a variable in the template, else the default."""
    for entry in objects(container, "env"):
        value = entry.get("value")
        if entry.get("name") == name and isinstance(value, str):
            return value
    return default


def _environment(container: Body, member: CreatePod, slots: int, members: int) -> dict[str, str]:
    """Environment for torchrun and JAX; an address or port set in the template has precedence."""
    leader = f"{pod_name(member.owner.name, 0)}.{workers_service(member.owner.name)}"
    named = _has_peers(member, members)
    address = _literal(container, "MASTER_ADDR", leader if named else "127.0.0.1")
    port = _literal(container, "MASTER_PORT", str(MASTER_PORT))
    if member.bounds is not None:
        stated = {entry.get("name") for entry in objects(container, "env")}
        hosted = stated.isdisjoint(RENDEZVOUS)
        return _environment_in_place(member, member.bounds, slots, (address, port), hosted=hosted)
    rank, world = str(member.rank), str(members)
    return {
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "RANK": rank,
        "WORLD_SIZE": world,
        "LOCAL_RANK": "0",
        "PET_NNODES": world,
        "PET_NODE_RANK": rank,
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": port,
        "PET_NPROC_PER_NODE": str(slots),
        "JAX_COORDINATOR_ADDRESS": f"{address}:{port}",
        "JAX_NUM_PROCESSES": world,
        "JAX_PROCESS_ID": rank,
    }


def _has_peers(member: CreatePod, members: int) -> bool:
    """True if others find it by name, now or later."""
    return members > 1 or member.bounds is not None


def _environment_in_place(
    member: CreatePod,
    bounds: tuple[int, int],
    slots: int,
    leader: tuple[str, str],
    *,
    hosted: bool,
) -> dict[str, str]:
    """Environment for elastic torchrun, without values that a change of members invalidates.

    Ranks and their number are assigned by the framework. A ``hosted`` rank 0 gets a variable that
    makes it the place of rendezvous: otherwise torchrun resolves its name, which a DNS server may
    not know yet. Sharing that store with the worker processes is switched off, because it still has
    the addresses from before a change, to which the new workers cannot connect (seen with torch
    2.15).
    """
    (least, most), (address, port) = bounds, leader
    conf = f"is_host={int(member.rank == 0)},last_call_timeout={TORCHRUN_LAST_CALL_S}"
    return {
        "ULLAGE_MEMBER": member.name,
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "PET_NNODES": f"{least}:{most}",
        "PET_NPROC_PER_NODE": str(slots),
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": f"{address}:{port}",
        "PET_RDZV_ID": member.owner.uid,
        **({"PET_RDZV_CONF": conf} if hosted else {}),
        "PET_MAX_RESTARTS": str(TORCHRUN_RESTARTS),
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "JAX_COORDINATOR_ADDRESS": f"{address}:{port}",
    }


def _add_environment(container: Body, values: Mapping[str, str]) -> None:
    entries = list(objects(container, "env"))
    stated = {entry.get("name") for entry in entries}
    entries += [
        {"name": name, "value": value} for name, value in values.items() if name not in stated
    ]
    container["env"] = entries


def _inject(container: Body) -> None:
    """Put the mounted step hook first on PYTHONPATH; the template's own value follows it.

    That value keeps its source (a literal or a reference) under another name, which Kubernetes
    expands: `$(NAME)` needs an earlier variable.
    """
    entries = [dict(entry) for entry in objects(container, "env")]
    folders = [HOOK_FOLDER]
    own = [entry for entry in entries if entry.get("name") == PYTHON_PATH]
    for entry in own:
        entry["name"] = TEMPLATE_PYTHON_PATH
    if own:
        folders.append(f"$({TEMPLATE_PYTHON_PATH})")
    container["env"] = [*entries, {"name": PYTHON_PATH, "value": ":".join(folders)}]


def _add_runtime(container: Body, runtime: Runtime) -> None:
    """Add to the device container what ``spec.runtime`` asks for."""
    if runtime.inject:
        _inject(container)
    if runtime.loader:
        _add_environment(container, {ENV_LOADER: runtime.loader})


def _grace(spec: Body) -> int:
    stated = spec.get("terminationGracePeriodSeconds")
    return stated if isinstance(stated, int) else DEFAULT_GRACE_S


def pod_body(member: CreatePod, blueprint: Blueprint) -> Body:
    """The pod of one rank, gated unless its slices are reserved.

    Raises:
        WireError: the template has no readable containers or metadata.
    """
    parts = _parts(blueprint)
    spec, members = parts.spec, member.world_size or blueprint.replicas
    _add_slots(parts.device, blueprint.slots)
    _add_environment(parts.device, _environment(parts.device, member, blueprint.slots, members))
    _add_runtime(parts.device, blueprint.runtime)
    if blueprint.rebalances:
        _add_environment(parts.device, {ENV_STRAGGLERS: REBALANCE})
    spec["restartPolicy"] = "Never"
    spec["hostname"] = member.name
    if _has_peers(member, members):
        spec["subdomain"] = workers_service(member.owner.name)
    if blueprint.grace_s > _grace(spec):
        spec["terminationGracePeriodSeconds"] = blueprint.grace_s
    own = {LABEL_RANK: str(member.rank)}
    if blueprint.tiers is not None:
        own |= join(member.owner, member.name, member.rank, blueprint.tiers, spec)
    if member.on:
        spec["affinity"] = narrowed(section(spec, "affinity"), member.on)
    if isinstance(member, CreateReservedPod):
        spec["affinity"] = pinned(node=member.node)
    else:
        _gate(spec)
    _keep_last_lines(spec)
    annotations = {ANNOTATION_TEMPLATE_HASH: blueprint.template_hash}
    if member.world_size:
        annotations[ANNOTATION_WORLD_SIZE] = str(members)
    if isinstance(member, CreateReservedPod):
        annotations[ANNOTATION_RESERVATION] = member.reservation
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": child_metadata(
            member.owner, member.name, parts.labels | owner_labels(member.owner) | own
        )
        | {"annotations": (HOLD if member.hold else {}) | parts.annotations | annotations},
        "spec": spec,
    }


def _add_pre_stop(spec: Body, container: Body, sleep_s: int) -> None:
    """Give the device container a preStop sleep where the template has no preStop of its own."""
    lifecycle = dict(section(container, "lifecycle"))
    sleep_s = min(sleep_s, _grace(spec))
    if sleep_s > 0 and lifecycle.get("preStop") is None:
        container["lifecycle"] = lifecycle | {"preStop": {"sleep": {"seconds": sleep_s}}}


def deployment_body(
    fleet: ApplyDeployment, blueprint: Blueprint, pre_stop_sleep_s: int, uid: str = ""
) -> Body:
    """The Deployment of an InferenceDeployment, for server-side apply.

    Args:
        fleet: Its name, its owner, its number of replicas, and its update strategy.
        blueprint: Template of the service.
        pre_stop_sleep_s: Sleep before SIGTERM, so that endpoints are withdrawn first; 0 = none.
        uid: uid of the existing Deployment, so that another with the name is refused; empty to
            create.

    Raises:
        WireError: the template has no readable containers or metadata.
    """
    parts = _parts(blueprint)
    _gate(parts.spec)
    _add_slots(parts.device, blueprint.slots)
    _add_runtime(parts.device, blueprint.runtime)
    _add_pre_stop(parts.spec, parts.device, pre_stop_sleep_s)
    ours = owner_labels(fleet.owner)
    version = {ANNOTATION_TEMPLATE_HASH: blueprint.template_hash}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": child_metadata(fleet.owner, fleet.name, ours, uid) | {"annotations": version},
        "spec": {
            "replicas": fleet.replicas,
            "selector": {"matchLabels": ours},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {
                    "maxSurge": fleet.max_surge,
                    "maxUnavailable": fleet.max_unavailable,
                },
            },
            "template": {
                "metadata": {
                    "labels": parts.labels | ours,
                    "annotations": parts.annotations | version,
                },
                "spec": parts.spec,
            },
        },
    }


def serving_ports(template: JsonObject) -> list[Body]:
    """Ports of a Service from those of the template's device container."""
    containers = objects(section(template, "spec"), "containers")
    ports: list[Body] = []
    for port in objects(containers[0], "ports") if containers else []:
        number = port.get("containerPort")
        ports.append(
            {
                "name": text(port, "name", f"port-{number}"),
                "port": number,
                "targetPort": number,
                "protocol": text(port, "protocol", "TCP"),
            }
        )
    return ports


def service_body(action: ApplyService, template: JsonObject, uid: str = "") -> Body:
    """A workload's Service, for server-side apply.

    A headless one gives every pod its name, ready or not: members of a gang find each other by it,
    and a router finds replicas by it and probes their readiness itself. Otherwise it exposes the
    ports of the device container, or selects the router.

    Args:
        action: The Service and its owner.
        template: Template of the workload's pods.
        uid: uid of the existing Service, so that another with the name is refused; empty to create.

    Raises:
        WireError: the template has no readable ports.
    """
    owner = action.owner
    spec: Body = {"selector": owner_labels(owner)}
    if action.headless:
        gang: Body = {"name": "rendezvous", "port": MASTER_PORT, "protocol": "TCP"}
        serves = owner.kind == WorkloadKind.INFERENCE_DEPLOYMENT
        ports = serving_ports(template) if serves else [gang]
        spec |= {"clusterIP": "None", "publishNotReadyAddresses": True, "ports": ports}
    elif isinstance(action, ApplyRoutedService):
        spec = {"selector": router_labels(owner), "ports": routed_ports(template, action.grpc_port)}
    else:
        spec |= {"ports": serving_ports(template)}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": child_metadata(owner, action.name, owner_labels(owner), uid),
        "spec": spec,
    }
