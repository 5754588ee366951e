# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A user's pod template, validated before it is used.

The schema keeps any content of a template, because the API server validates it when the pod is
created. Fields that the operator itself reads or changes are checked here, so that an invalid value
becomes condition ``Invalid`` with its path and no failure of a later step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ullage.api.labels import GROUP, TEMPLATE_KEYS
from ullage.api.podtemplate import read_serving_template, read_training_template
from ullage.api.readers import JsonObject, WireError, objects, quoted, section, text
from ullage.cluster.codecs.objects import bounded, optional_text, string_map, strings, within, word
from ullage.cluster.projection.pod_shape import read_amounts
from ullage.cluster.records.workload import WorkloadKind
from ullage.cluster.values.readable import outsized

MOST_BYTES: Final = 256 * 1024
"""Maximum bytes of a template as compact JSON."""
INT32_MAX: Final = 2**31 - 1
READERS: Final[Mapping[WorkloadKind, Callable[[JsonObject], object]]] = {
    WorkloadKind.TRAINING_JOB: read_training_template,
    WorkloadKind.INFERENCE_DEPLOYMENT: read_serving_template,
}
"""The CRDs' declaration of a template."""
_PROTOCOLS: Final = ("TCP", "UDP", "SCTP")
_WORDS: Final = (
    "hostname",
    "priorityClassName",
    "schedulerName",
    "serviceAccountName",
    "subdomain",
)


def check_declared(kind: WorkloadKind, template: JsonObject) -> None:
    """Check the CRD's declaration, including the lengths of lists, before any of it is read.

    A rejected object is checked again with each of its events.

    Raises:
        WireError: a field is invalid; the text begins with ``template``.
    """
    READERS[kind](template)


def check_depth(template: JsonObject, field: str) -> None:
    """Check that a template may be traversed, before any other use.

    Raises:
        WireError: it is nested too deep, or has too many parts.
    """
    if fault := outsized(template):
        raise WireError(f"{field}: {fault}")


def check_size(template_json: str, field: str) -> None:
    """Check the length of a template as compact JSON.

    Raises:
        WireError: it is too long.
    """
    size = len(template_json.encode())
    if size > MOST_BYTES:
        raise WireError(
            f"{field}: {size} bytes as compact JSON, at most {MOST_BYTES}: put large texts into a "
            "ConfigMap"
        )


def check_template(template: JsonObject) -> None:
    """Check fields that the operator reads or changes beyond the CRD's declaration.

    Raises:
        WireError: one is invalid; the text begins with its path within the template.
    """
    with within("metadata"):
        metadata = section(template, "metadata")
        string_map(metadata, "labels")
        for key in string_map(metadata, "annotations"):
            if key.startswith(f"{GROUP}/") and key not in TEMPLATE_KEYS:
                raise WireError(f"annotations[{quoted(key)}]: the operator sets it; leave it out")
    with within("spec"):
        spec = section(template, "spec")
        names = [
            *_each(spec, "containers", _container),
            *_each(spec, "initContainers", _container),
        ]
        _distinct("containers", names)
        _pod(spec)


def _pod(spec: JsonObject) -> None:
    for field in _WORDS:
        word(spec, field)
    for field, check in _NAMED.items():
        _each(spec, field, check)
    bounded(spec, "terminationGracePeriodSeconds", 0, INT32_MAX, 30)
    bounded(spec, "priority", -INT32_MAX, INT32_MAX, 0)
    string_map(spec, "nodeSelector")


def _container(raw: JsonObject) -> str:
    """Check a container; returns its name."""
    optional_text(raw, "image")
    strings(raw, "command")
    strings(raw, "args")
    lifecycle = section(raw, "lifecycle")
    with within("lifecycle"):
        section(lifecycle, "preStop")
    _each(raw, "env", _variable)
    _each(raw, "ports", _port)
    with within("resources"):
        resources = section(raw, "resources")
        for field in ("limits", "requests"):
            read_amounts(resources, field)
    return _needed(raw)


def _variable(raw: JsonObject) -> str:
    optional_text(raw, "value")
    section(raw, "valueFrom")
    return _needed(raw)


def _port(raw: JsonObject) -> str:
    bounded(raw, "containerPort", 1, 65_535)
    protocol = word(raw, "protocol")
    if protocol and protocol not in _PROTOCOLS:
        raise WireError(f"protocol: {quoted(protocol)} is none of {', '.join(_PROTOCOLS)}")
    return word(raw, "name")


def _toleration(raw: JsonObject) -> str:
    for field in ("key", "operator", "value", "effect"):
        optional_text(raw, field)
    return ""


def _needed(raw: JsonObject) -> str:
    name = text(raw, "name")
    if not name:
        raise WireError("name: must not be empty")
    return name


_NAMED: Final[Mapping[str, Callable[[JsonObject], str]]] = {
    "schedulingGates": _needed,
    "tolerations": _toleration,
    "volumes": _needed,
}


def _each(raw: JsonObject, field: str, check: Callable[[JsonObject], str]) -> list[str]:
    """Check each entry of a list of objects; returns their names."""
    entries = objects(raw, field)
    names = []
    for index, entry in enumerate(entries):
        with within(f"{field}[{index}]"):
            names.append(check(entry))
    return names


def _distinct(field: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise WireError(f"{field}: two are called {quoted(name)}")
        seen.add(name)
