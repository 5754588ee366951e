# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A pod spec's demands on a node: requests as kube-scheduler counts them, selectors, tolerations.

The same reader serves live pods and pod templates, so that a job is evaluated before its pods exist
exactly as afterwards. It must never count less than kube-scheduler does, but of a pod that exceeds
``template_bounds`` or ``MOST_RESOURCES`` only the first entries are read: a larger template is
rejected, and a larger pod gets no place (``pod_rules``).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Final

from ullage.api.labels import SLOT_RESOURCE
from ullage.api.quantity import counted
from ullage.api.readers import WireError, objects, section, text
from ullage.api.template_bounds import MOST_NODE_TERMS, MOST_SELECTED, MOST_TOLERATIONS
from ullage.cluster.codecs.objects import optional_text, string_map, strings, within
from ullage.cluster.records.pod_shape import (
    NodeAffinity,
    PodShape,
    Requirement,
    Resources,
    SelectorTerm,
    Toleration,
)
from ullage.ports import JsonObject

Amounts = dict[str, int]

_NAME_MAX: Final = 63
MOST_RESOURCES: Final = 256
"""Maximum resource names counted of one pod (our choice): no node has as many."""
_KEPT: Final = ("cpu", "memory", "ephemeral-storage", SLOT_RESOURCE)
"""Resources that are always counted."""
_POD_LEVEL: Final = ("cpu", "memory")
"""Resources that pod-level requests may set; ``hugepages-*`` besides."""


def read_amounts(raw: JsonObject, field: str) -> Amounts:
    """A map of resource name to amount; cpu in thousandths of a core, the rest whole.

    Beyond ``MOST_RESOURCES`` only the first are read, beside those that always count.

    Raises:
        WireError: an amount is not a quantity.
    """
    amounts = section(raw, field)
    if len(amounts) > MOST_RESOURCES:
        chosen = (*_KEPT, *islice(amounts, MOST_RESOURCES))
        amounts = {name: amounts[name] for name in chosen if name in amounts}
    return {name: counted(name, value, f"{field}[{name}]") for name, value in amounts.items()}


def resources_of(amounts: Mapping[str, int], pods: int = 0) -> Resources:
    """The record of some amounts; ``pods`` is a node's capacity or a pod's use."""
    extended = (
        (name, amount)
        for name, amount in amounts.items()
        if amount and name not in ("cpu", "memory", "pods")
    )
    return Resources(
        cpu_milli=amounts.get("cpu", 0),
        memory_bytes=amounts.get("memory", 0),
        pods=pods,
        extended=tuple(sorted(extended)),
    )


def _container_requests(container: JsonObject) -> Amounts:
    """Requests of one container; a limit without a request is one (API defaulting)."""
    resources = section(container, "resources")
    if not resources:
        return {}
    try:
        return read_amounts(resources, "limits") | read_amounts(resources, "requests")
    except WireError as error:
        raise WireError(f"container {container.get('name')}: resources.{error}") from error


def _counts(total: Amounts, name: str) -> bool:
    return name in total or len(total) < MOST_RESOURCES or name in _KEPT


def _add(total: Amounts, more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        if _counts(total, name):
            total[name] = total.get(name, 0) + amount


def _raise_to(total: Amounts, floor: Mapping[str, int]) -> None:
    for name, amount in floor.items():
        if amount > total.get(name, 0) and _counts(total, name):
            total[name] = amount


def _containers_requests(spec: JsonObject) -> Amounts:
    """Maximum need over the pod's life.

    Source: resource helpers of Kubernetes, ``AggregateContainerRequests``: containers and
    restartable init containers (sidecars) run together; an ordinary init container runs beside
    the sidecars started before it.
    """
    total: Amounts = {}
    for container in objects(spec, "containers"):
        _add(total, _container_requests(container))
    sidecars: Amounts = {}
    starting: Amounts = {}
    for container in objects(spec, "initContainers"):
        needs = _container_requests(container)
        if container.get("restartPolicy") == "Always":
            _add(total, needs)
            _add(sidecars, needs)
            beside = {name: sidecars[name] for name in needs if name in sidecars}
        else:
            beside = {name: amount + sidecars.get(name, 0) for name, amount in needs.items()}
        # the others are unchanged since a container last named them
        _raise_to(starting, beside)
    _raise_to(total, starting)
    return total


def pod_requests(spec: JsonObject) -> Amounts:
    """Requests as kube-scheduler counts them, overhead and pod-level requests included.

    Raises:
        WireError: a container or an amount is malformed.
    """
    total = _containers_requests(spec)
    whole_pod = section(spec, "resources")
    if whole_pod:
        with within("resources"):
            limits = read_amounts(whole_pod, "limits")
            requests = read_amounts(whole_pod, "requests")
        for name in limits.keys() | requests.keys():
            if name not in _POD_LEVEL and not name.startswith("hugepages-"):
                continue
            if name in requests:
                total[name] = requests[name]
            else:
                total.setdefault(name, limits[name])
    _add(total, read_amounts(spec, "overhead"))
    return total


def _requirements(raw: JsonObject, field: str) -> tuple[Requirement, ...]:
    return tuple(
        Requirement(
            key=text(item, "key"), operator=text(item, "operator"), values=strings(item, "values")
        )
        for item in objects(raw, field)[:MOST_NODE_TERMS]
    )


def selector_terms(selector: JsonObject) -> tuple[SelectorTerm, ...]:
    """The terms of a node selector.

    Raises:
        WireError: it is malformed.
    """
    return tuple(
        SelectorTerm(
            expressions=_requirements(term, "matchExpressions"),
            fields=_requirements(term, "matchFields"),
        )
        for term in objects(selector, "nodeSelectorTerms")[:MOST_NODE_TERMS]
    )


def node_affinity(spec: JsonObject) -> NodeAffinity:
    """The node part of a pod's affinity, and those of its parents that exist.

    Raises:
        WireError: the affinity is malformed.
    """
    affinity = spec.get("affinity")
    if affinity is None:
        return NodeAffinity()
    with within("affinity"):
        parent = section(spec, "affinity")
        if parent.get("nodeAffinity") is None:
            return NodeAffinity(has_affinity=True)
        node = section(parent, "nodeAffinity")
        required = node.get("requiredDuringSchedulingIgnoredDuringExecution")
        if required is None:
            return NodeAffinity(has_affinity=True, has_node_affinity=True)
        selector = section(node, "requiredDuringSchedulingIgnoredDuringExecution")
        return NodeAffinity(
            has_affinity=True, has_node_affinity=True, required=selector_terms(selector)
        )


def _toleration(raw: JsonObject) -> Toleration:
    return Toleration(
        key=optional_text(raw, "key"),
        operator=optional_text(raw, "operator") or "Equal",
        value=optional_text(raw, "value"),
        effect=optional_text(raw, "effect"),
    )


def _node_selector(spec: JsonObject) -> tuple[tuple[str, str], ...]:
    first = dict(islice(section(spec, "nodeSelector").items(), MOST_SELECTED))
    return tuple(sorted(string_map({"nodeSelector": first}, "nodeSelector").items()))


def _cpu_limit(container: JsonObject) -> int:
    limits = section(section(container, "resources"), "limits")
    cpu = limits.get("cpu")
    return 0 if cpu is None else counted("cpu", cpu, "resources.limits[cpu]")


def _container_name(container: JsonObject) -> str:
    """Name of a container; one rejected by the API would block all slices of a node."""
    name = text(container, "name")
    if len(name) > _NAME_MAX:
        raise WireError(f"containers[0].name: {len(name)} characters, at most {_NAME_MAX}")
    return name


def pod_shape(spec: JsonObject, *, slots: int = 0, device: int = 0) -> PodShape:
    """Demands of a pod with this spec on a node, including the pod itself.

    Args:
        spec: ``spec`` of a pod or a template.
        slots: Slots that the operator will add to the first container; 0 for a live pod, which
            already has them.
        device: Index of the container with the device.

    Raises:
        WireError: there is no container, or a field is malformed.
    """
    with within("spec"):
        containers = objects(spec, "containers")
        if not containers:
            raise WireError("containers: at least one container is needed, the device container")
        amounts = pod_requests(spec)
        if slots:
            amounts[SLOT_RESOURCE] = amounts.get(SLOT_RESOURCE, 0) + slots
        return PodShape(
            device_container=_container_name(containers[device]),
            requests=resources_of(amounts, pods=1),
            node_selector=_node_selector(spec),
            affinity=node_affinity(spec),
            tolerations=tuple(
                _toleration(item) for item in objects(spec, "tolerations")[:MOST_TOLERATIONS]
            ),
            cpu_limit_milli=_cpu_limit(containers[device]),
        )
