# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whether the node affinity of a pod can be narrowed to one node, which is how it is pinned."""

from __future__ import annotations

from ullage.cluster.records.pod_shape import NodeAffinity, SelectorTerm


def pins(term: SelectorTerm, node: str) -> bool:
    """Whether a term selects this node alone."""
    return any(field.operator == "In" and field.values == (node,) for field in term.fields)


def _term_conflict(index: int, term: SelectorTerm, node: str) -> str:
    if not term.expressions and not term.fields:
        return (
            f"node selector term {index} is empty: it matches no node and cannot be narrowed; "
            "remove it from the template's required node affinity"
        )
    others = [f for f in term.fields if f.operator == "In" and f.values != (node,)]
    if others:
        return (
            f"node selector term {index} pins the pod to node {','.join(others[0].values)}, not "
            f"to {node}; remove its matchFields from the template's required node affinity"
        )
    return ""


def _excludes(term: SelectorTerm, node: str) -> bool:
    return any(field.operator == "NotIn" and node in field.values for field in term.fields)


def pin_conflict(affinity: NodeAffinity, node: str) -> str:
    """Why a pod with this affinity cannot be pinned to the node; empty when it can.

    Terms are ORed, so each must take our field requirement: one that pins another node, or is
    empty (it matches nothing and may not be filled), cannot.
    """
    terms = affinity.required
    if terms is None:
        return ""
    for index, term in enumerate(terms):
        conflict = _term_conflict(index, term, node)
        if conflict:
            return conflict
    if all(_excludes(term, node) for term in terms):
        return (
            f"every node selector term excludes node {node}; remove its matchFields from the "
            "template's required node affinity"
        )
    return ""
