# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The part of a pod template that our rules read.

Everything else passes through untouched and is judged by the API server when the pod is created;
declaring the whole pod would tie us to one Kubernetes version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from pydantic import Field
from pydantic.fields import FieldInfo

from ullage.api.base import ATOMIC, Amount, list_map
from ullage.api.rules import NO_FOREIGN_GPU, NO_SLOT, RESERVED_LABELS, RESTART_ALWAYS, RESTART_NEVER
from ullage.api.spec import Elsewhere, Keeps, OpenSpec, Spec, SpecReader, is_word, listed, text_map
from ullage.api.template_bounds import (
    MOST_AMOUNTS,
    MOST_CONTAINERS,
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

_BY_NAME: Final = list_map("name")


def _atomic(most: int) -> FieldInfo:
    """A list of at most so many; server-side apply merges none of it, as of unknown fields."""
    return listed(most, least=None, **ATOMIC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListEntry(OpenSpec):
    """As in Kubernetes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerResources(OpenSpec):
    """Resources of a container."""

    limits: Annotated[dict[str, Amount], Field(max_length=MOST_AMOUNTS)] | None = None
    """Most of each resource. Devices are requested in spec.gpu, never here."""
    requests: Annotated[dict[str, Amount], Field(max_length=MOST_AMOUNTS)] | None = None
    """Amount of each resource that the node must have free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container(OpenSpec):
    """A container of the pod, as in Kubernetes."""

    rules: ClassVar = (NO_FOREIGN_GPU, NO_SLOT)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateMetadata(OpenSpec):
    """Metadata of the pods."""

    rules: ClassVar = (RESERVED_LABELS,)

    labels: Annotated[dict[str, str], text_map(64, 63)] | None = None
    """Labels of the pods; ours are added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSelectorTerm(OpenSpec):
    """A term of a required node affinity, as in Kubernetes."""

    match_expressions: Annotated[tuple[ListEntry, ...], _atomic(MOST_NODE_TERMS)] | None = None
    """Requirements on labels of the node."""
    match_fields: Annotated[tuple[ListEntry, ...], _atomic(MOST_NODE_TERMS)] | None = None
    """Requirements on fields of the node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSelector(OpenSpec):
    """A required node affinity, as in Kubernetes."""

    node_selector_terms: (
        Annotated[tuple[NodeSelectorTerm, ...], _atomic(MOST_NODE_TERMS)] | None
    ) = None
    """Terms, one of which must hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AffinityToNodes(OpenSpec):
    """The affinity of a pod to nodes, as in Kubernetes."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    """What must hold of a node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Affinity(OpenSpec):
    """The affinity of a pod, as in Kubernetes."""

    node_affinity: AffinityToNodes | None = None
    """To nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplatePodSpec(OpenSpec):
    """Specification of the pods, as in Kubernetes."""

    containers: Annotated[
        tuple[Container, ...],
        listed(MOST_CONTAINERS, least=1, **_BY_NAME),
    ]
    """Containers of the pod; the first is the one that gets the device."""
    init_containers: (
        Annotated[tuple[Container, ...], listed(MOST_CONTAINERS, **_BY_NAME)] | None
    ) = None
    """Containers that run before the others; they get no device."""
    restart_policy: Annotated[str, Field(max_length=16)] | None = None
    """Restart policy of the containers; best left out."""
    node_selector: Annotated[dict[str, str], text_map(MOST_SELECTED, 63)] | None = None
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingTemplate(OpenSpec):
    """Template of the pods, as in a Kubernetes Job."""

    metadata: TemplateMetadata | None = None
    """Labels and annotations of the pods."""
    spec: Annotated[TemplatePodSpec, Keeps(RESTART_NEVER)]
    """Specification of the pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingTemplate(OpenSpec):
    """Template of the pods, as in a Kubernetes Deployment."""

    metadata: TemplateMetadata | None = None
    """Labels and annotations of the pods."""
    spec: Annotated[TemplatePodSpec, Keeps(RESTART_ALWAYS)]
    """Specification of the pods."""


read_training_template: Final = SpecReader(TrainingTemplate, "template")
read_serving_template: Final = SpecReader(ServingTemplate, "template")


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime(Spec):
    """Additions of Ullage to the device container, beside the device itself."""

    inject: Annotated[bool, is_word(Inject.AUTO, Inject.NEVER)] = False
    """Whether steps of torch programs are counted without a change to the image. `Auto` puts the
    mounted step hook first on PYTHONPATH, before the value that the template gives it; it acts only
    in a Python process that imports torch. A PYTHONPATH that the image itself sets is replaced:
    repeat it in the template. `Never` leaves the environment alone; the share is proven all the
    same."""
    loader: Annotated[str, Elsewhere(held="")] = ""
    """Most workers of the data loader as the tuner reads it, from ``spec.data.io``."""
