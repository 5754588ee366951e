# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A pod's rules about other pods, ports and volumes, as kube-scheduler reads them.

Preferences are not read: a pin never violates them. The amount read of one pod is bounded: a user
with permission to create pods chooses its size, and the rules of every pod are compared with all
others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from contextlib import suppress
from dataclasses import replace
from heapq import nsmallest
from typing import Final, TypeVar

from ullage.api.readers import objects, section, text
from ullage.api.template_bounds import MOST_NODE_TERMS, MOST_SELECTED, MOST_TOLERATIONS
from ullage.cluster.codecs.objects import (
    Sharer,
    optional_text,
    optional_whole,
    string_map,
    strings,
    within,
)
from ullage.cluster.projection.pod_shape import MOST_RESOURCES
from ullage.cluster.records.pod_rules import (
    HostPort,
    Labels,
    LabelSelector,
    PodRules,
    PodTerm,
    PodTraits,
    SpreadRule,
)
from ullage.cluster.records.pod_shape import Requirement
from ullage.ports import JsonObject

MOST_TERMS: Final = 16
"""Maximum of affinity terms, of anti-affinity terms, and of spread constraints (our choice)."""
MOST_REQUIREMENTS: Final = 32
"""Maximum requirements of one selector (our choice)."""
MOST_NAMES: Final = 256
"""Maximum values of a requirement, namespaces of a term, ports and claims of a pod (our choice)."""
MOST_LABELS: Final = 128
"""Maximum labels of a pod for rules, in order of their keys (our choice)."""
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_ANY_IP: Final = "0.0.0.0"

Value = TypeVar("Value")


class _TooMuch(Exception):
    """A part of the rules exceeds the bound per pod."""


def labels_of(labels: Mapping[str, str], share: Sharer) -> Labels:
    """The labels relevant to rules."""
    return share(tuple(share(pair) for pair in nsmallest(MOST_LABELS, labels.items())))


def pod_rules(
    spec: JsonObject, *, namespace: str, name: str, labels: Mapping[str, str]
) -> PodRules | None:
    """The rules of a pod; ``None`` without any.

    Args:
        spec: The pod's ``spec``.
        namespace: Its namespace, the default of its terms.
        name: Its name, from which the names of ephemeral volumes' claims follow.
        labels: Its labels, with the values for ``matchLabelKeys``.

    Raises:
        WireError: a field is malformed.
    """
    with within("spec"):
        try:
            _check_shape(spec)
            rules = PodRules(
                spread=_spread(spec, labels),
                affinity=_terms(spec, "podAffinity", namespace, labels),
                anti_affinity=_terms(spec, "podAntiAffinity", namespace, labels),
                ports=_ports(spec),
                claims=_claims(spec, name),
                ephemeral=tuple(sorted({claim for claim, own in _claim_names(spec, name) if own})),
            )
        except _TooMuch as error:
            rules = PodRules(unjudged=f"spec.{error}")
    return None if rules == _NO_RULES else rules


def foreign_traits(raw: JsonObject, share: Sharer) -> PodTraits:
    """Traits of a foreign pod relevant to the rules of others.

    With more anti-affinity, ports or claims than the bound, it has none: no tenant may exclude
    others by the size of an object.

    Raises:
        WireError: a field is malformed.
    """
    metadata, spec = section(raw, "metadata"), section(raw, "spec")
    namespace, labels = optional_text(metadata, "namespace"), string_map(metadata, "labels")
    traits = PodTraits(
        namespace=namespace,
        labels=labels_of(labels, share),
        leaving=metadata.get("deletionTimestamp") is not None,
    )
    with suppress(_TooMuch):
        traits = replace(
            traits,
            anti_affinity=_terms(spec, "podAntiAffinity", namespace, labels),
            ports=_ports(spec),
            claims=_claims(spec, optional_text(metadata, "name")),
        )
    return share(traits)


def label_selector(raw: JsonObject, field: str) -> LabelSelector | None:
    """A label selector; absent or null is ``None``.

    Raises:
        WireError: it is malformed.
    """
    if raw.get(field) is None:
        return None
    selector = section(raw, field)
    with within(field):
        requirements = [
            Requirement(key=key, operator="In", values=(value,))
            for key, value in sorted(string_map(selector, "matchLabels").items())
        ]
        for expression in objects(selector, "matchExpressions"):
            values = strings(expression, "values")
            _bounded(values, "matchExpressions.values", MOST_NAMES)
            requirements.append(
                Requirement(
                    key=text(expression, "key"),
                    operator=text(expression, "operator"),
                    values=values,
                )
            )
    _bounded(requirements, f"{field}: requirements", MOST_REQUIREMENTS)
    return LabelSelector(requirements=tuple(requirements))


def _bounded(entries: Sized, what: str, most: int) -> None:
    if len(entries) > most:
        raise _TooMuch(f"{what}: {len(entries)}, at most {most} are judged")


def _few(values: Iterable[Value], what: str) -> set[Value]:
    """The distinct values; iteration ends at the first one beyond the bound."""
    distinct: set[Value] = set()
    for value in values:
        distinct.add(value)
        if len(distinct) > MOST_NAMES:
            raise _TooMuch(f"{what}: more than the {MOST_NAMES} that are judged")
    return distinct


def _check_shape(spec: JsonObject) -> None:
    """Check that no input of a pod's shape was truncated."""
    _bounded(objects(spec, "tolerations"), "tolerations", MOST_TOLERATIONS)
    _bounded(section(spec, "nodeSelector"), "nodeSelector", MOST_SELECTED)
    for container in (*objects(spec, "containers"), *objects(spec, "initContainers")):
        resources = section(container, "resources")
        for field in ("limits", "requests"):
            _bounded(section(resources, field), f"containers: {field}", MOST_RESOURCES)
    affinity = section(section(spec, "affinity"), "nodeAffinity")
    terms = objects(section(affinity, _REQUIRED), "nodeSelectorTerms")
    _bounded(terms, "affinity.nodeAffinity", MOST_NODE_TERMS)
    for term in terms:
        for field in ("matchExpressions", "matchFields"):
            _bounded(objects(term, field), f"affinity.nodeAffinity: {field}", MOST_NODE_TERMS)


def _with_keys(
    selector: LabelSelector | None, raw: JsonObject, labels: Mapping[str, str]
) -> LabelSelector | None:
    """A selector narrowed by the pod's own values of ``matchLabelKeys``, or excluding them."""
    if selector is None:
        return None
    more: list[Requirement] = []
    for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        keys = strings(raw, field)
        _bounded(keys, field, MOST_REQUIREMENTS)
        more.extend(
            Requirement(key=key, operator=operator, values=(labels[key],))
            for key in keys
            if key in labels
        )
    # the API server writes those of affinity into the selector as well
    added = tuple(requirement for requirement in more if requirement not in selector.requirements)
    return LabelSelector(requirements=selector.requirements + added) if added else selector


def _spread(spec: JsonObject, labels: Mapping[str, str]) -> tuple[SpreadRule, ...]:
    constraints = [
        raw
        for raw in objects(spec, "topologySpreadConstraints")
        if raw.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"
    ]
    _bounded(constraints, "topologySpreadConstraints", MOST_TERMS)
    with within("topologySpreadConstraints"):
        return tuple(
            SpreadRule(
                topology_key=text(raw, "topologyKey"),
                max_skew=optional_whole(raw, "maxSkew", 1),
                min_domains=optional_whole(raw, "minDomains", 1),
                selector=_with_keys(label_selector(raw, "labelSelector"), raw, labels),
                honours_affinity=optional_text(raw, "nodeAffinityPolicy") != "Ignore",
                honours_taints=optional_text(raw, "nodeTaintsPolicy") == "Honor",
            )
            for raw in constraints
        )


def _terms(
    spec: JsonObject, kind: str, namespace: str, labels: Mapping[str, str]
) -> tuple[PodTerm, ...]:
    if spec.get("affinity") is None:
        return ()
    affinity = section(spec, "affinity")
    if affinity.get(kind) is None:
        return ()
    terms = objects(section(affinity, kind), _REQUIRED)
    _bounded(terms, f"affinity.{kind}", MOST_TERMS)
    with within(f"affinity.{kind}"):
        return tuple(_term(raw, namespace, labels) for raw in terms)


def _term(raw: JsonObject, namespace: str, labels: Mapping[str, str]) -> PodTerm:
    named = strings(raw, "namespaces")
    _bounded(named, "namespaces", MOST_NAMES)
    chosen = label_selector(raw, "namespaceSelector")
    return PodTerm(
        topology_key=text(raw, "topologyKey"),
        selector=_with_keys(label_selector(raw, "labelSelector"), raw, labels),
        namespaces=named if named or chosen is not None else (namespace,),
        namespace_selector=chosen,
    )


def _ports(spec: JsonObject) -> tuple[HostPort, ...]:
    """Host ports of the containers that run as long as the pod."""
    on_host = spec.get("hostNetwork") is True
    containers = [
        *objects(spec, "containers"),
        *(
            container
            for container in objects(spec, "initContainers")
            if container.get("restartPolicy") == "Always"
        ),
    ]
    taken = (
        HostPort(
            ip=optional_text(raw, "hostIP") or _ANY_IP,
            protocol=optional_text(raw, "protocol") or "TCP",
            port=port,
        )
        for container in containers
        for raw in objects(container, "ports")
        if (on_host or "hostPort" in raw)
        and (port := optional_whole(raw, "hostPort") or on_host * optional_whole(raw, _INSIDE)) > 0
    )
    ports = _few(taken, "containers: host ports")
    return tuple(sorted(ports, key=lambda taken: (taken.port, taken.protocol, taken.ip)))


def _claims(spec: JsonObject, name: str) -> tuple[str, ...]:
    claims = (claim for claim, _ in _claim_names(spec, name))
    return tuple(sorted(_few(claims, "volumes: claims")))


def _claim_names(spec: JsonObject, name: str) -> Iterator[tuple[str, bool]]:
    """Each claim's name, with True for one created for this pod alone."""
    for volume in objects(spec, "volumes"):
        if volume.get("persistentVolumeClaim") is not None:
            yield text(section(volume, "persistentVolumeClaim"), "claimName"), False
        elif volume.get("ephemeral") is not None:
            yield f"{name}-{text(volume, 'name')}", True


_INSIDE: Final = "containerPort"
_NO_RULES: Final = PodRules()
