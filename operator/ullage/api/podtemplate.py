# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The part of a pod template that our rules read.

Everything else passes through untouched and is judged by the API server when the pod is created;
declaring the whole pod would tie us to one Kubernetes version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from ullage.api.base import Amount, OpenModel, list_map
from ullage.api.rules import (
    NO_FOREIGN_GPU,
    NO_SLOT,
    RESERVED_LABELS,
    RESTART_ALWAYS,
    RESTART_NEVER,
    validations,
)
from ullage.api.spec import Spec, is_word
from ullage.api.template_bounds import (
    MOST_AMOUNTS,
    MOST_GATES,
    MOST_MOUNTS,
    MOST_NODE_TERMS,
    MOST_PORTS,
    MOST_SECRETS,
    MOST_SELECTED,
    MOST_TOLERATIONS,
    MOST_VARIABLES,
    MOST_VOLUMES,
)
from ullage.api.words import Inject

_CONTAINERS = list_map("name")


def _atomic(most: int) -> Any:
    """A list of at most so many; server-side apply merges none of it, as of unknown fields."""
    return Field(max_length=most, json_schema_extra={"x-kubernetes-list-type": "atomic"})


class ListEntry(OpenModel):
    """As in Kubernetes."""


class ContainerResources(OpenModel):
    """What a container may use."""

    limits: Annotated[dict[str, Amount], Field(max_length=MOST_AMOUNTS)] | None = None
    """Most of each resource. Devices are requested in spec.gpu, never here."""
    requests: Annotated[dict[str, Amount], Field(max_length=MOST_AMOUNTS)] | None = None
    """Amount of each resource that the node must have free."""


class Container(OpenModel):
    """A container of the pod, as in Kubernetes."""

    model_config = ConfigDict(json_schema_extra=validations(NO_FOREIGN_GPU, NO_SLOT))

    name: Annotated[str, Field(max_length=63)]
    """Name of the container."""
    resources: ContainerResources | None = None
    """What the container may use, as in Kubernetes."""
    env: Annotated[tuple[ListEntry, ...], _atomic(MOST_VARIABLES)] | None = None
    """Variables of the container; more of them fit a ConfigMap and envFrom."""
    ports: Annotated[tuple[ListEntry, ...], _atomic(MOST_PORTS)] | None = None
    """Ports of the container."""
    volume_mounts: Annotated[tuple[ListEntry, ...], _atomic(MOST_MOUNTS)] | None = None
    """Where volumes are mounted in the container."""


class TemplateMetadata(OpenModel):
    """Metadata of the pods."""

    model_config = ConfigDict(json_schema_extra=validations(RESERVED_LABELS))

    labels: (
        Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=64)] | None
    ) = None
    """Labels of the pods; ours are added."""


class NodeSelectorTerm(OpenModel):
    """A term of a required node affinity, as in Kubernetes."""

    match_expressions: Annotated[tuple[ListEntry, ...], _atomic(MOST_NODE_TERMS)] | None = None
    """Requirements on labels of the node."""
    match_fields: Annotated[tuple[ListEntry, ...], _atomic(MOST_NODE_TERMS)] | None = None
    """Requirements on fields of the node."""


class NodeSelector(OpenModel):
    """A required node affinity, as in Kubernetes."""

    node_selector_terms: (
        Annotated[tuple[NodeSelectorTerm, ...], _atomic(MOST_NODE_TERMS)] | None
    ) = None
    """Terms, one of which must hold."""


class AffinityToNodes(OpenModel):
    """The affinity of a pod to nodes, as in Kubernetes."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    """What must hold of a node."""


class Affinity(OpenModel):
    """The affinity of a pod, as in Kubernetes."""

    node_affinity: AffinityToNodes | None = None
    """To nodes."""


class TemplatePodSpec(OpenModel):
    """Specification of the pods, as in Kubernetes."""

    containers: Annotated[
        tuple[Container, ...],
        Field(min_length=1, max_length=16, json_schema_extra=_CONTAINERS),
    ]
    """Containers of the pod; the first is the one that gets the device."""
    init_containers: (
        Annotated[tuple[Container, ...], Field(max_length=16, json_schema_extra=_CONTAINERS)] | None
    ) = None
    """Containers that run before the others; they get no device."""
    restart_policy: Annotated[str, Field(max_length=16)] | None = None
    """Restart policy of the containers; best left out."""
    node_selector: (
        Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=MOST_SELECTED)]
        | None
    ) = None
    """Labels that a node must have."""
    affinity: Affinity | None = None
    """Affinity of the pod, as in Kubernetes."""
    tolerations: Annotated[tuple[ListEntry, ...], _atomic(MOST_TOLERATIONS)] | None = None
    """Taints that the pod tolerates; one toleration with operator Exists and no key stands for
    all."""
    volumes: Annotated[tuple[ListEntry, ...], _atomic(MOST_VOLUMES)] | None = None
    """Volumes of the pod."""
    image_pull_secrets: Annotated[tuple[ListEntry, ...], _atomic(MOST_SECRETS)] | None = None
    """Secrets with which images are pulled."""
    scheduling_gates: Annotated[tuple[ListEntry, ...], _atomic(MOST_GATES)] | None = None
    """Gates of others that the pod waits for."""


class TrainingPodSpec(TemplatePodSpec):
    """Specification of the pods, as in Kubernetes."""

    model_config = ConfigDict(json_schema_extra=validations(RESTART_NEVER))


class ServingPodSpec(TemplatePodSpec):
    """Specification of the pods, as in Kubernetes."""

    model_config = ConfigDict(json_schema_extra=validations(RESTART_ALWAYS))


class TrainingTemplate(OpenModel):
    """Template of the pods, as in a Kubernetes Job."""

    metadata: TemplateMetadata | None = None
    """Labels and annotations of the pods."""
    spec: TrainingPodSpec
    """Specification of the pods."""


class ServingTemplate(OpenModel):
    """Template of the pods, as in a Kubernetes Deployment."""

    metadata: TemplateMetadata | None = None
    """Labels and annotations of the pods."""
    spec: ServingPodSpec
    """Specification of the pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime(Spec):
    """What Ullage adds inside the device container, beside the device itself."""

    inject: Annotated[bool, is_word(Inject.AUTO, Inject.NEVER)] = False
    """Whether steps of torch programs are counted without a change to the image. `Auto` puts the
    mounted step hook first on PYTHONPATH, before the value that the template gives it; it acts only
    in a Python process that imports torch. A PYTHONPATH that the image itself sets is replaced:
    repeat it in the template. `Never` leaves the environment alone; the share is proven all the
    same."""
