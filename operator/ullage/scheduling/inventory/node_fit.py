# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""kube-scheduler's rules for a pod on a node, as far as a pin depends on them.

A pin that kube-scheduler must reject holds devices for nothing, so node selector, required
affinity, taints, cordon and requests are checked first, by the same rules. Texts are built only for
the node that is shown to the user.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final

from ullage.cluster.projection.notice import NOTICE_TAINTS, TAINT_KEY
from ullage.cluster.records.node import NodeRecord
from ullage.cluster.records.pod_shape import (
    NodeAffinity,
    PodShape,
    Requirement,
    Resources,
    SelectorTerm,
    Taint,
    Toleration,
)

NAME_FIELD: Final = "metadata.name"
MOST: Final = 2**53
"""Upper bound of any amount; sums of a few fit columns of 64 bits."""
_BLOCKING: Final = frozenset({"NoSchedule", "NoExecute"})
_PASSING_TAINT: Final = "node.kubernetes.io/"
"""Taints that Kubernetes sets and removes by itself; they do not affect what may ever run."""
_NOTICES: Final = frozenset({*NOTICE_TAINTS, TAINT_KEY})
"""Taints of notices: a node under notice accepts nothing at all, and the notice is reported."""


class Fit(IntEnum):
    """Result of a node for a pod's rules, without its free amounts."""

    OK = 0
    NO_MATCH = 1
    PIN_CONFLICT = 2
    CORDONED = 3


def is_pinned(affinity: NodeAffinity) -> bool:
    """True when a required term names nodes, as the pin of an ungated pod does."""
    if affinity.required is None:
        return False
    return any(field.key == NAME_FIELD for term in affinity.required for field in term.fields)


def judge_node(shape: PodShape, node: NodeRecord, *, in_principle: bool = False) -> Fit:
    """Test whether a pod of this shape may be pinned to the node.

    Args:
        shape: Shape of the pod.
        node: The node.
        in_principle: Ignore temporary obstacles: a cordon, Kubernetes' own taints.
    """
    if shape.node_selector and not _selected(shape, node):
        return Fit.NO_MATCH
    required = shape.affinity.required
    if required is not None and not any(_term_matches(term, node) for term in required):
        return Fit.PIN_CONFLICT if _empty(required) else Fit.NO_MATCH
    if node.taints and untolerated(node.taints, shape.tolerations, in_principle) is not None:
        return Fit.NO_MATCH
    if required is not None and pin_conflict(shape.affinity, node.name):
        return Fit.PIN_CONFLICT
    if node.unschedulable and not in_principle:
        return Fit.CORDONED
    return Fit.OK


def why_not(shape: PodShape, node: NodeRecord) -> str:
    """Text of the first rule that keeps a pod of this shape from the node; empty if none."""
    for key, value in shape.node_selector:
        label = node.labels.get(key)
        if label != value:
            has = "no such label" if label is None else f"{key}={label}"
            return f"the node selector asks for {key}={value}, the node has {has}"
    required = shape.affinity.required
    if required is not None and _empty(required):
        return "a term of the required node affinity is empty and matches no node"
    if required is not None and not any(_term_matches(term, node) for term in required):
        return "the required node affinity does not match the node"
    taint = untolerated(node.taints, shape.tolerations, False)
    if taint is not None:
        return f"the taint {taint.key}={taint.value}:{taint.effect} is not tolerated"
    conflict = pin_conflict(shape.affinity, node.name)
    if conflict:
        return conflict
    return "the node is cordoned" if node.unschedulable else ""


def shortages(wanted: Resources, free: Mapping[str, int]) -> tuple[tuple[str, int, int], ...]:
    """Amounts that a node lacks for a pod: (name, wanted, free)."""
    return tuple(
        (name, amount, free.get(name, 0))
        for name, amount in amounts(wanted)
        if amount > free.get(name, 0)
    )


def amounts(wanted: Resources) -> tuple[tuple[str, int], ...]:
    """The amounts of a pod by name, up to a bound; every pod counts as at least one."""
    return (
        ("cpu", min(wanted.cpu_milli, MOST)),
        ("memory", min(wanted.memory_bytes, MOST)),
        ("pods", min(max(1, wanted.pods), MOST)),
        *((name, min(amount, MOST)) for name, amount in wanted.extended),
    )


def counted(amount: int) -> int:
    """An amount clamped to columns of 64 bits: pods may request more."""
    return max(-MOST, min(amount, MOST))


def allocatable(node: NodeRecord, name: str) -> int:
    """Amount that an empty node provides for pods."""
    match name:
        case "cpu":
            return node.allocatable.cpu_milli
        case "memory":
            return node.allocatable.memory_bytes
        case "pods":
            return node.allocatable.pods
        case _:
            return dict(node.allocatable.extended).get(name, 0)


def untolerated(
    taints: Sequence[Taint], tolerations: Sequence[Toleration], in_principle: bool
) -> Taint | None:
    """The first taint that keeps the pod away."""
    for taint in taints:
        if taint.effect not in _BLOCKING:
            continue
        if taint.key in _NOTICES or (in_principle and taint.key.startswith(_PASSING_TAINT)):
            continue
        if not any(_tolerates(toleration, taint) for toleration in tolerations):
            return taint
    return None


def tolerates(shape: PodShape, node: NodeRecord) -> bool:
    """True when a pod tolerates every taint of a node that prevents scheduling."""
    return all(
        any(_tolerates(toleration, taint) for toleration in shape.tolerations)
        for taint in node.taints
        if taint.effect in _BLOCKING
    )


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if not toleration.key:
        return toleration.operator == "Exists"
    if toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value


def _selected(shape: PodShape, node: NodeRecord) -> bool:
    labels = node.labels
    return all(labels.get(key) == value for key, value in shape.node_selector)


def _empty(terms: Sequence[SelectorTerm]) -> bool:
    return any(not term.expressions and not term.fields for term in terms)


def _term_matches(term: SelectorTerm, node: NodeRecord) -> bool:
    return labels_match(term, node.labels) and all(
        _field_holds(field, node) for field in term.fields
    )


def labels_match(term: SelectorTerm, labels: Mapping[str, str]) -> bool:
    """True when the labels of a node satisfy the expressions of a non-empty term."""
    if not term.expressions and not term.fields:
        return False
    return all(expression.holds(labels) for expression in term.expressions)


def selects(shape: PodShape, node: NodeRecord) -> bool:
    """True when node selector and required affinity of a pod match a node."""
    if shape.node_selector and not _selected(shape, node):
        return False
    required = shape.affinity.required
    return required is None or any(_term_matches(term, node) for term in required)


def _field_holds(requirement: Requirement, node: NodeRecord) -> bool:
    if requirement.key != NAME_FIELD:
        return False
    named = node.name in requirement.values
    return named if requirement.operator == "In" else not named


def pins(term: SelectorTerm, node: str) -> bool:
    """True when a term selects only this node."""
    return any(field.operator == "In" and field.values == (node,) for field in term.fields)


def _term_conflict(index: int, term: SelectorTerm, node: str) -> str:
    if not term.expressions and not term.fields:
        return (
            f"node selector term {index} is empty: it matches no node and cannot be narrowed; "
            "remove it from the template's required node affinity"
        )
    others = [field for field in term.fields if field.operator == "In" and field.values != (node,)]
    if others:
        return (
            f"node selector term {index} pins the pod to node {','.join(others[0].values)}, not "
            f"to {node}; remove its matchFields from the template's required node affinity"
        )
    return ""


def pin_conflict(affinity: NodeAffinity, node: str) -> str:
    """Reason why a pod with this affinity cannot be pinned to the node; empty when it can.

    Terms are ORed, so each must accept our field requirement: one that pins another node, or is
    empty (it matches nothing and may not be filled), cannot.
    """
    terms = affinity.required
    if terms is None:
        return ""
    for index, term in enumerate(terms):
        conflict = _term_conflict(index, term, node)
        if conflict:
            return conflict
    if all(
        any(field.operator == "NotIn" and node in field.values for field in term.fields)
        for term in terms
    ):
        return (
            f"every node selector term excludes node {node}; remove its matchFields from the "
            "template's required node affinity"
        )
    return ""
