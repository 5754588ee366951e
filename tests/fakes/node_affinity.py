# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whether kube-scheduler would bind a pod to a node: selector, required affinity, taints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Json = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def accepts(node: Json, pod: Json) -> bool:
    """Whether a node has the labels that a pod requires, and no taint that it does not tolerate."""
    labels = node["metadata"].get("labels") or {}
    if not selector(pod).items() <= labels.items():
        return False
    if not tolerates(pod, node.get("spec", {}).get("taints") or ()):
        return False
    terms = required_terms(pod)
    return not terms or any(_matches(term, node["metadata"]["name"], labels) for term in terms)


def selector(pod: Json) -> Mapping[str, str]:
    """A pod's node selector."""
    return pod["spec"].get("nodeSelector") or {}


def required_terms(pod: Json) -> Sequence[Json]:
    """Terms of which a node must match one."""
    return (_node_affinity(pod).get(REQUIRED) or {}).get("nodeSelectorTerms") or ()


def preferred_terms(pod: Json) -> Sequence[Json]:
    """Preferences with their weights."""
    return _node_affinity(pod).get(PREFERRED) or ()


def expressions(term: Json) -> Sequence[Json]:
    """What a term says of labels."""
    return term.get("matchExpressions") or ()


def tolerates(pod: Json, taints: Iterable[Json]) -> bool:
    """Whether a pod tolerates every taint that keeps pods away."""
    tolerations = pod["spec"].get("tolerations") or ()
    hard = (one for one in taints if one.get("effect") != "PreferNoSchedule")
    return all(any(_tolerated(taint, one) for one in tolerations) for taint in hard)


def satisfied(expression: Json, labels: Mapping[str, str]) -> bool:
    """Whether labels match an expression."""
    value, values = labels.get(expression["key"]), expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return _number(value) is not None and int(value or 0) > int(values[0])
        case "Lt":
            return _number(value) is not None and int(value or 0) < int(values[0])
    return False


def _matches(term: Json, name: str, labels: Mapping[str, str]) -> bool:
    fields = term.get("matchFields") or ()
    stated = expressions(term)
    if not fields and not stated:
        return False  # an empty term matches nothing
    return all(satisfied(one, {"metadata.name": name}) for one in fields) and all(
        satisfied(one, labels) for one in stated
    )


def _tolerated(taint: Json, toleration: Json) -> bool:
    key, effect = toleration.get("key", ""), toleration.get("effect", "")
    if (key and key != taint["key"]) or (effect and effect != taint.get("effect")):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(key) and toleration.get("value", "") == taint.get("value", "")


def _number(value: str | None) -> int | None:
    return int(value) if value is not None and value.lstrip("-").isdigit() else None


def _node_affinity(pod: Json) -> Json:
    return (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
