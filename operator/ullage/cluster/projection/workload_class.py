# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Derives the workload class and the model family from a pod template.

Knowledge is stored by class, so the key must be the same for the same work and change with batch,
precision or program: image as written, command and arguments. Users may set the labels instead.
Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from ullage.api.labels import LABEL_CLASS, LABEL_FAMILY
from ullage.api.readers import JsonObject, objects, section
from ullage.cluster.codecs.objects import optional_text, string_map, strings
from ullage.cluster.projection.pod_template import canonical_json

KEY_CHARACTERS = 12
MAX_NAME_CHARACTERS = 253
"""Longest class or family in a GPUNode."""


def class_key(template: JsonObject, owner_labels: Mapping[str, str]) -> str:
    """Key of the class: label ``ullage.dev/class`` of the template or its owner, else a hash.

    Raises:
        WireError: labels, image, command or arguments are malformed.
    """
    labelled = _label(template, owner_labels, LABEL_CLASS)
    if labelled:
        return labelled
    container = _device_container(template)
    parts = [
        optional_text(container, "image"),
        strings(container, "command"),
        strings(container, "args"),
    ]
    return _hash(parts)


def family_key(template: JsonObject, owner_labels: Mapping[str, str]) -> str:
    """Family of models: label ``ullage.dev/family``, else the image's repository.

    It enters the slices of a GPUNode beside those of other tenants, and one rejected by the API
    would block them all: a repository too long for that is replaced by its hash.

    Raises:
        WireError: labels or image are malformed.
    """
    labelled = _label(template, owner_labels, LABEL_FAMILY)
    family = labelled or repository(optional_text(_device_container(template), "image"))
    return family if len(family) <= MAX_NAME_CHARACTERS else _hash(family)


def repository(image: str) -> str:
    """An image's name without tag and digest: ``host:5000/a/app:1@sha256:…`` -> up to ``app``."""
    name = image.partition("@")[0]
    path, slash, last = name.rpartition("/")
    return f"{path}{slash}{last.partition(':')[0]}"


def profile_name(workload_class: str) -> str:
    """Name of the WorkloadProfile that the operator keeps for a class."""
    return f"class-{hashlib.sha256(workload_class.encode()).hexdigest()[:KEY_CHARACTERS]}"


def _hash(value: object) -> str:
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:KEY_CHARACTERS]


def _label(template: JsonObject, owner_labels: Mapping[str, str], label: str) -> str:
    labels = string_map(section(template, "metadata"), "labels")
    return labels.get(label) or owner_labels.get(label, "")


def _device_container(template: JsonObject) -> JsonObject:
    containers = objects(section(template, "spec"), "containers")
    return containers[0] if containers else {}
