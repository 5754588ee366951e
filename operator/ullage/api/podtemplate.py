# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The part of a pod template that our rules read.

Everything else passes through untouched and is judged by the API server when the pod is created;
declaring the whole pod would tie us to one Kubernetes version.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from ullage.api.base import Amount, Model, OpenModel, list_map
from ullage.api.rules import (
    NO_FOREIGN_GPU,
    NO_SLOT,
    RESERVED_LABELS,
    RESTART_ALWAYS,
    RESTART_NEVER,
    validations,
)
from ullage.api.words import Inject

_CONTAINERS = list_map("name")


class ContainerResources(OpenModel):
    """What a container may use."""

    limits: Annotated[dict[str, Amount], Field(max_length=64)] | None = None
    """Most of each resource. Devices are requested in spec.gpu, never here."""
    requests: Annotated[dict[str, Amount], Field(max_length=64)] | None = None
    """Amount of each resource that the node must have free."""


class Container(OpenModel):
    """A container of the pod, as in Kubernetes."""

    model_config = ConfigDict(json_schema_extra=validations(NO_FOREIGN_GPU, NO_SLOT))

    name: Annotated[str, Field(max_length=63)]
    """Name of the container."""
    resources: ContainerResources | None = None
    """What the container may use, as in Kubernetes."""


class TemplateMetadata(OpenModel):
    """Metadata of the pods."""

    model_config = ConfigDict(json_schema_extra=validations(RESERVED_LABELS))

    labels: (
        Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=64)] | None
    ) = None
    """Labels of the pods; ours are added."""


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


class Runtime(Model):
    """What Ullage adds inside the device container, beside the device itself."""

    inject: Inject = Inject.NEVER
    """Whether steps of torch programs are counted without a change to the image. `Auto` puts the
    mounted step hook first on PYTHONPATH, before the value that the template gives it; it acts only
    in a Python process that imports torch. A PYTHONPATH that the image itself sets is replaced:
    repeat it in the template. `Never` leaves the environment alone; the share is proven all the
    same."""
