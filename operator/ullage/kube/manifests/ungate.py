# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The ungate patch: it removes our gate and pins the pod to its node, in one JSON patch.

Every editing operation is preceded by a test of the observed value, so that a pod changed meanwhile
rejects the patch instead of being changed blindly. A pin narrows; it must never widen where a pod
may run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ullage.api.labels import GATE
from ullage.cluster.records.pod_shape import NodeAffinity, Requirement, SelectorTerm
from ullage.scheduling.inventory.node_fit import pin_conflict, pins

Operation = dict[str, object]

_NODE_AFFINITY: Final = "/spec/affinity/nodeAffinity"
_REQUIRED: Final = f"{_NODE_AFFINITY}/requiredDuringSchedulingIgnoredDuringExecution"
_TERMS: Final = f"{_REQUIRED}/nodeSelectorTerms"


class NodeAffinityConflict(ValueError):
    """The pod's own node affinity cannot be narrowed to the node; the text has the reason."""


def _wire(requirement: Requirement) -> dict[str, object]:
    values = {"values": list(requirement.values)} if requirement.values else {}
    return {"key": requirement.key, "operator": requirement.operator, **values}


def _wire_term(term: SelectorTerm) -> dict[str, object]:
    """A term as the API stores it: empty fields are absent."""
    body: dict[str, object] = {}
    if term.expressions:
        body["matchExpressions"] = [_wire(item) for item in term.expressions]
    if term.fields:
        body["matchFields"] = [_wire(item) for item in term.fields]
    return body


def _add_pin(affinity: NodeAffinity, pin: dict[str, object]) -> Operation:
    """The addition at the depth where the pod's affinity ends."""
    required: dict[str, object] = {"nodeSelectorTerms": [{"matchFields": [pin]}]}
    if affinity.has_node_affinity:
        return {"op": "add", "path": _REQUIRED, "value": required}
    node: dict[str, object] = {_REQUIRED.rpartition("/")[2]: required}
    if affinity.has_affinity:
        return {"op": "add", "path": _NODE_AFFINITY, "value": node}
    return {"op": "add", "path": "/spec/affinity", "value": {"nodeAffinity": node}}


def _narrow(terms: Sequence[SelectorTerm], node: str, pin: dict[str, object]) -> list[Operation]:
    edits: list[Operation] = []
    for index, term in enumerate(terms):
        if pins(term, node):
            continue
        fields = f"{_TERMS}/{index}/matchFields"
        if term.fields:
            edits.append({"op": "add", "path": f"{fields}/-", "value": pin})
        else:
            edits.append({"op": "add", "path": fields, "value": [pin]})
    return edits


def _pin(node: str) -> dict[str, object]:
    """The requirement that pins a pod to a node."""
    return {"key": "metadata.name", "operator": "In", "values": [node]}


def pinned(node: str) -> dict[str, object]:
    """The affinity of a pod that is created on its node; its template has none."""
    terms = {"nodeSelectorTerms": [{"matchFields": [_pin(node)]}]}
    return {"nodeAffinity": {_REQUIRED.rpartition("/")[2]: terms}}


def ungate_patch(
    uid: str,
    gate_index: int,
    affinity: NodeAffinity,
    node: str,
    labels: Sequence[tuple[str, str]] = (),
) -> list[Operation]:
    """The patch that removes our gate and pins the pod, all or nothing.

    Args:
        uid: uid of the pod, so that another one with the name is not affected.
        gate_index: Index of our gate among the pod's gates.
        affinity: The observed node affinity.
        node: Name of the node to pin to.
        labels: Labels about the pod's machine.

    Raises:
        NodeAffinityConflict: the pod's own affinity cannot be narrowed to the node.
    """
    conflict = pin_conflict(affinity, node)
    if conflict:
        raise NodeAffinityConflict(conflict)
    gate = f"/spec/schedulingGates/{gate_index}"
    pin = _pin(node)
    patch: list[Operation] = [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "test", "path": f"{gate}/name", "value": GATE},
    ]
    if affinity.required is not None:
        seen = [_wire_term(term) for term in affinity.required]
        patch.append({"op": "test", "path": _TERMS, "value": seen})
    patch.append({"op": "remove", "path": gate})
    for key, value in labels:
        path = f"/metadata/labels/{key.replace('~', '~0').replace('/', '~1')}"
        patch.append({"op": "add", "path": path, "value": value})
    if affinity.required is None:
        return [*patch, _add_pin(affinity, pin)]
    return [*patch, *_narrow(affinity.required, node, pin)]
