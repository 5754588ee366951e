# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A pod template as its user wrote it, checked before anything is made of it.

The schema keeps whatever a template holds, because the API server judges it when the pod is
created. What the operator itself reads or changes on the way there is checked here, so that a wild
value becomes condition ``Invalid`` with its path and no failure of a later step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from ullage.api.labels import FOREIGN_GPU_RESOURCE, GROUP, SLOT_RESOURCE, TEMPLATE_KEYS
from ullage.api.readers import JsonObject, WireError, objects, quoted, section, text
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
from ullage.cluster.codecs.objects import (
    bounded,
    optional_text,
    string_map,
    strings,
    within,
    word,
)
from ullage.cluster.projection.pod_shape import read_amounts
from ullage.cluster.records.snapshot import WorkloadKind
from ullage.cluster.values.readable import outsized

MOST_BYTES: Final = 256 * 1024
"""Of a template as compact JSON."""
MOST_CONTAINERS: Final = 16
CONTAINER_MAX: Final = 63
"""Characters of a container's name."""
INT32_MAX: Final = 2**31 - 1
_RESTART: Final = {WorkloadKind.TRAINING_JOB: "Never", WorkloadKind.INFERENCE_DEPLOYMENT: "Always"}
_POD_LENGTHS: Final = {
    "containers": MOST_CONTAINERS,
    "initContainers": MOST_CONTAINERS,
    "imagePullSecrets": MOST_SECRETS,
    "nodeSelector": MOST_SELECTED,
    "schedulingGates": MOST_GATES,
    "tolerations": MOST_TOLERATIONS,
    "volumes": MOST_VOLUMES,
}
_CONTAINER_LENGTHS: Final = {
    "env": MOST_VARIABLES,
    "ports": MOST_PORTS,
    "volumeMounts": MOST_MOUNTS,
}
_AMOUNT_LENGTHS: Final = dict.fromkeys(("limits", "requests"), MOST_AMOUNTS)
_AFFINITY_LENGTHS: Final = {"nodeSelectorTerms": MOST_NODE_TERMS}
_TERM_LENGTHS: Final = dict.fromkeys(("matchExpressions", "matchFields"), MOST_NODE_TERMS)
_PROTOCOLS: Final = ("TCP", "UDP", "SCTP")
_WORDS: Final = (
    "hostname",
    "priorityClassName",
    "schedulerName",
    "serviceAccountName",
    "subdomain",
)


def check_lengths(template: JsonObject, field: str) -> None:
    """Check how much stands in the lists that are read, before any of it is.

    An object that is refused is looked at again with each of its events. What is no list at all is
    found by :func:`check_template`.

    Raises:
        WireError: one has more entries than the CRD takes.
    """
    with within(f"{field}.spec"):
        spec = _inside(template, "spec")
        _shorter(spec, _POD_LENGTHS)
        for place in ("containers", "initContainers"):
            for index, container in enumerate(_entries(spec, place)):
                with within(f"{place}[{index}]"):
                    _shorter(container, _CONTAINER_LENGTHS)
                    with within("resources"):
                        _shorter(_inside(container, "resources"), _AMOUNT_LENGTHS)
        with within("affinity.nodeAffinity"):
            affinity = _inside(_inside(spec, "affinity"), "nodeAffinity")
            required = _inside(affinity, "requiredDuringSchedulingIgnoredDuringExecution")
            _shorter(required, _AFFINITY_LENGTHS)
            for index, term in enumerate(_entries(required, "nodeSelectorTerms")):
                with within(f"nodeSelectorTerms[{index}]"):
                    _shorter(term, _TERM_LENGTHS)


def _inside(raw: object, field: str) -> object:
    return raw.get(field) if isinstance(raw, dict) else None


def _entries(raw: object, field: str) -> Sequence[object]:
    entries = _inside(raw, field)
    return entries if isinstance(entries, list) else ()


def _shorter(raw: object, lengths: Mapping[str, int]) -> None:
    for field, most in lengths.items():
        entries = _inside(raw, field)
        if isinstance(entries, (list, dict)) and len(entries) > most:
            raise WireError(f"{field}: {len(entries)} entries, at most {most}")


def check_depth(template: JsonObject, field: str) -> None:
    """Check that a template may be walked at all; before anything else is done with it.

    Raises:
        WireError: it is nested too deep, or of too many parts.
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


def check_template(kind: WorkloadKind, template: JsonObject) -> None:
    """Check every field that the operator reads or changes.

    Raises:
        WireError: one is wrong; the text begins with its path within the template.
    """
    with within("metadata"):
        metadata = section(template, "metadata")
        for field in ("labels", "annotations"):
            for key in string_map(metadata, field):
                if key.startswith(f"{GROUP}/") and key not in TEMPLATE_KEYS:
                    raise WireError(f"{field}[{quoted(key)}]: the operator sets it; leave it out")
    with within("spec"):
        spec = section(template, "spec")
        names = [
            *_each(spec, "containers", _container),
            *_each(spec, "initContainers", _container),
        ]
        _distinct("containers", names)
        _pod(kind, spec)


def _pod(kind: WorkloadKind, spec: JsonObject) -> None:
    for field in _WORDS:
        word(spec, field)
    for field, check in _NAMED.items():
        _each(spec, field, check)
    bounded(spec, "terminationGracePeriodSeconds", 0, INT32_MAX, 30)
    bounded(spec, "priority", -INT32_MAX, INT32_MAX, 0)
    string_map(spec, "nodeSelector")
    restart = word(spec, "restartPolicy")
    if restart not in ("", _RESTART[kind]):
        raise WireError(f"restartPolicy: {quoted(restart)} must be {_RESTART[kind]} or left out")


def _container(raw: JsonObject) -> str:
    """Check a container; returns its name."""
    name = text(raw, "name")
    if not name or len(name) > CONTAINER_MAX:
        raise WireError(f"name: {quoted(name)} must have 1 to {CONTAINER_MAX} characters")
    optional_text(raw, "image")
    strings(raw, "command")
    strings(raw, "args")
    lifecycle = section(raw, "lifecycle")
    with within("lifecycle"):
        section(lifecycle, "preStop")
    _each(raw, "env", _variable)
    _each(raw, "ports", _port)
    _each(raw, "volumeMounts", _nothing)
    with within("resources"):
        resources = section(raw, "resources")
        for field in ("limits", "requests"):
            for resource in read_amounts(resources, field):
                if resource in (SLOT_RESOURCE, FOREIGN_GPU_RESOURCE):
                    raise WireError(f"{field}[{resource}]: say in spec.gpu what devices you need")
    return name


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


def _nothing(raw: JsonObject) -> str:
    return ""


_NAMED: Final[Mapping[str, Callable[[JsonObject], str]]] = {
    "imagePullSecrets": _nothing,
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
