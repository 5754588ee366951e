# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""How server-side apply cuts an object into fields: which lists are maps, which maps are atomic.

Built by hand for the built-in kinds we touch, read from the OpenAPI schema for our own. What is
not described is treated as the API server treats unknown content: maps by key, lists as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One node: ``atomic`` wins; ``keys`` makes a list a map, ``is_set`` a set of scalars."""

    atomic: bool = False
    keys: tuple[str, ...] = ()
    key_defaults: Mapping[str, Any] = field(default_factory=dict)
    is_set: bool = False
    fields: Mapping[str, Shape] = field(default_factory=dict)
    item: Shape | None = None

    def child(self, name: str) -> Shape:
        """Shape of a map's entry."""
        return self.fields.get(name) or self.item or DEDUCED


DEDUCED = Shape()
ATOMIC = Shape(atomic=True)
SET = Shape(is_set=True)


def _struct(**fields: Shape) -> Shape:
    return Shape(fields=fields)


def _by(*keys: str, item: Shape = DEDUCED, **defaults: Any) -> Shape:
    return Shape(keys=keys, item=item, key_defaults=defaults)


METADATA = _struct(ownerReferences=_by("uid"), finalizers=SET)
CONDITIONS = _by("type")
_SELECTOR = ATOMIC
_NODE_AFFINITY = _struct(
    requiredDuringSchedulingIgnoredDuringExecution=ATOMIC,
    preferredDuringSchedulingIgnoredDuringExecution=ATOMIC,
)
_CONTAINER = _struct(
    env=_by("name"),
    ports=_by("containerPort", "protocol", protocol="TCP"),
    volumeMounts=_by("mountPath"),
    volumeDevices=_by("devicePath"),
    resources=_struct(claims=_by("name")),
)
POD_SPEC = _struct(
    containers=_by("name", item=_CONTAINER),
    initContainers=_by("name", item=_CONTAINER),
    ephemeralContainers=_by("name", item=_CONTAINER),
    volumes=_by("name"),
    schedulingGates=_by("name"),
    imagePullSecrets=_by("name"),
    hostAliases=_by("ip"),
    nodeSelector=ATOMIC,
    affinity=_struct(nodeAffinity=_NODE_AFFINITY),
    topologySpreadConstraints=_by("topologyKey", "whenUnsatisfiable"),
)
_TEMPLATE = _struct(metadata=METADATA, spec=POD_SPEC)

BUILT_IN: dict[str, Shape] = {
    "pods": _struct(
        metadata=METADATA,
        spec=POD_SPEC,
        status=_struct(conditions=CONDITIONS, podIPs=_by("ip"), hostIPs=ATOMIC),
    ),
    "nodes": _struct(
        metadata=METADATA,
        spec=_struct(taints=ATOMIC, podCIDRs=SET),
        status=_struct(conditions=CONDITIONS, addresses=_by("type"), images=ATOMIC),
    ),
    "services": _struct(
        metadata=METADATA,
        spec=_struct(
            ports=_by("port", "protocol", protocol="TCP"), selector=ATOMIC, clusterIPs=ATOMIC
        ),
        status=_struct(conditions=CONDITIONS),
    ),
    "deployments": _struct(
        metadata=METADATA,
        spec=_struct(selector=_SELECTOR, template=_TEMPLATE),
        status=_struct(conditions=CONDITIONS),
    ),
    "replicasets": _struct(
        metadata=METADATA,
        spec=_struct(selector=_SELECTOR, template=_TEMPLATE),
        status=_struct(conditions=CONDITIONS),
    ),
}
OURS = _struct(metadata=METADATA, status=_struct(conditions=CONDITIONS))
"""Used for kinds of our own while no generated schema describes them."""


def shape_of_schema(node: Mapping[str, Any]) -> Shape:
    """Shape of one node of a structural OpenAPI v3 schema."""
    list_type = node.get("x-kubernetes-list-type", "atomic")
    items = node.get("items")
    if isinstance(items, Mapping):
        if list_type == "set":
            return SET
        if list_type != "map":
            return ATOMIC
        described = items.get("properties", {})
        keys = tuple(node["x-kubernetes-list-map-keys"])
        return Shape(
            keys=keys,
            key_defaults={
                key: described[key]["default"]
                for key in keys
                if "default" in described.get(key, {})
            },
            item=shape_of_schema(items),
        )
    if node.get("x-kubernetes-map-type") == "atomic":
        return ATOMIC
    values = node.get("additionalProperties")
    return Shape(
        fields={name: shape_of_schema(child) for name, child in node.get("properties", {}).items()},
        item=shape_of_schema(values) if isinstance(values, Mapping) else None,
    )


def shape_of_crd(schema: Mapping[str, Any]) -> Shape:
    """Shape of a whole custom resource; metadata is the API server's own."""
    shape = shape_of_schema(schema)
    return Shape(fields={**shape.fields, "metadata": METADATA})
