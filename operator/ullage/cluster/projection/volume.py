# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Claims, volumes, storage classes and namespaces, as far as rules of pods need them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ullage.api.quantity import counted
from ullage.api.readers import JsonObject, objects, section, text
from ullage.cluster.codecs.objects import Sharer, optional_text, read_meta, strings, within
from ullage.cluster.projection.pod_rules import label_selector, labels_of
from ullage.cluster.projection.pod_shape import selector_terms
from ullage.cluster.records.pod_rules import Labels, LabelSelector
from ullage.cluster.records.pod_shape import SelectorTerm

ZONE_LABELS: Final = (
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
)
"""Labels of a volume that its nodes share."""
_BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_BOUND: Final = "pv.kubernetes.io/bind-completed"
_SELECTED: Final = "volume.kubernetes.io/selected-node"
_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
Topology = tuple[tuple[str, tuple[str, ...]], ...]
"""Required labels of a node, by key: any of the values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeClaim:
    """A PersistentVolumeClaim, unresolved."""

    namespace: str
    name: str
    uid: str
    volume: str
    storage_class: str
    size: int
    modes: tuple[str, ...]
    volume_mode: str
    selector: LabelSelector | None
    bound: bool
    """It is bound to its volume."""
    lost: bool
    deleting: bool
    selected_node: str
    pod_uid: str
    """Uid of the controlling pod of an ephemeral volume's claim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A PersistentVolume, unresolved."""

    name: str
    storage_class: str
    size: int
    modes: tuple[str, ...]
    volume_mode: str
    labels: Labels
    nodes: tuple[SelectorTerm, ...] | None
    zones: Topology
    available: bool
    deleting: bool
    claim: tuple[str, str, str] | None
    """Namespace, name and uid of its claim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageClass:
    """The fields of a StorageClass that decide where a claim may be bound."""

    name: str
    waits: bool
    """Its claims wait for their first consumer."""
    provisions: bool
    topologies: tuple[Topology, ...]


def project_claim(raw: JsonObject) -> VolumeClaim:
    """Read a PersistentVolumeClaim.

    Raises:
        WireError: a field that is needed is missing or malformed.
    """
    meta = read_meta(raw)
    spec, phase = section(raw, "spec"), optional_text(section(raw, "status"), "phase")
    with within("spec"):
        requests = section(section(spec, "resources"), "requests")
        return VolumeClaim(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            volume=optional_text(spec, "volumeName"),
            storage_class=meta.annotations.get(_BETA_CLASS)
            or optional_text(spec, "storageClassName"),
            size=counted("storage", requests["storage"], "storage") if "storage" in requests else 0,
            modes=strings(spec, "accessModes"),
            volume_mode=optional_text(spec, "volumeMode") or "Filesystem",
            selector=label_selector(spec, "selector"),
            bound=bool(optional_text(spec, "volumeName")) and _BOUND in meta.annotations,
            lost=phase == "Lost",
            deleting=meta.deleting,
            selected_node=meta.annotations.get(_SELECTED, ""),
            pod_uid=meta.controller.uid
            if meta.controller is not None and meta.controller.kind == "Pod"
            else "",
        )


def project_volume(raw: JsonObject, share: Sharer) -> Volume:
    """Read a PersistentVolume.

    Raises:
        WireError: a field that is needed is missing or malformed.
    """
    meta = read_meta(raw)
    spec, phase = section(raw, "spec"), optional_text(section(raw, "status"), "phase")
    with within("spec"):
        capacity, named = section(spec, "capacity"), section(spec, "claimRef")
        required = section(section(spec, "nodeAffinity"), "required")
        return Volume(
            name=meta.name,
            storage_class=meta.annotations.get(_BETA_CLASS)
            or optional_text(spec, "storageClassName"),
            size=counted("storage", capacity["storage"], "storage") if "storage" in capacity else 0,
            modes=share(strings(spec, "accessModes")),
            volume_mode=optional_text(spec, "volumeMode") or "Filesystem",
            labels=labels_of(meta.labels, share),
            nodes=share(selector_terms(required)) if required else None,
            zones=share(_zones(meta.labels)),
            available=phase == "Available",
            deleting=meta.deleting,
            claim=(
                optional_text(named, "namespace"),
                text(named, "name"),
                optional_text(named, "uid"),
            )
            if named
            else None,
        )


def project_storage_class(raw: JsonObject) -> StorageClass:
    """Read a StorageClass.

    Raises:
        WireError: a field that is needed is missing or malformed.
    """
    meta = read_meta(raw)
    return StorageClass(
        name=meta.name,
        waits=optional_text(raw, "volumeBindingMode") == "WaitForFirstConsumer",
        provisions=optional_text(raw, "provisioner") not in ("", _NO_PROVISIONER),
        topologies=tuple(
            tuple(
                (text(expression, "key"), strings(expression, "values"))
                for expression in objects(term, "matchLabelExpressions")
            )
            for term in objects(raw, "allowedTopologies")
        ),
    )


def project_namespace(raw: JsonObject, share: Sharer) -> tuple[str, Labels]:
    """Read name and labels of a namespace.

    Raises:
        WireError: a field that is needed is missing or malformed.
    """
    meta = read_meta(raw)
    return meta.name, labels_of(meta.labels, share)


def _zones(labels: Mapping[str, str]) -> Topology:
    """Labels that a volume requires of its nodes; one may have several values, as ``a__b``."""
    named = {
        key: sorted({zone.strip() for zone in labels[key].split("__")})
        for key in ZONE_LABELS
        if key in labels
    }
    return tuple((key, tuple(zones)) for key, zones in named.items() if all(zones))
