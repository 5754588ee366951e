# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Volume rules: nodes from which a claim's volume is reachable, or where one can be provisioned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ullage.api.reasons import Reason
from ullage.cluster.projection.volume import ZONE_LABELS
from ullage.cluster.records.node import NodeRecord
from ullage.cluster.records.pod_rules import ClaimRecord, PodTraits
from ullage.cluster.records.pod_shape import SelectorTerm
from ullage.scheduling.feasibility.pods_on_nodes import Bar, PodsOnNodes
from ullage.scheduling.inventory.inventory import Ints
from ullage.scheduling.inventory.node_fit import labels_match

_MISSING = ClaimRecord(problem="a PersistentVolumeClaim does not exist")
_OF_NOW = {ZONE_LABELS[0]: ZONE_LABELS[2], ZONE_LABELS[1]: ZONE_LABELS[3]}
"""The current form of the deprecated labels of volumes."""


def volume_bars(
    pods: PodsOnNodes,
    claims: Mapping[tuple[str, str], ClaimRecord],
    namespace: str,
    names: Sequence[str],
) -> Iterator[Bar]:
    """Nodes on which a claim of a pod cannot be used.

    Args:
        pods: Pods by node.
        claims: The claims by namespace and name.
        namespace: Of the pod and its claims.
        names: The claims of the pod.
    """
    records = {name: claims.get((namespace, name), _MISSING) for name in names}
    for name, claim in records.items():
        if claim.problem:
            yield _everywhere(pods, claim.problem)
        elif claim.once or (claim.one_node and not claim.volume):
            yield from _in_use(pods, namespace, name, claim)
    waiting = {
        name: claim for name, claim in records.items() if not claim.problem and not claim.volume
    }
    refusals = [
        next((text for name in records if (text := _unreached(records[name], name, node))), "")
        or _unbound(waiting, node)
        for node in pods.nodes
    ]
    barred = np.array([bool(text) for text in refusals], dtype=np.bool_)
    yield Bar(Reason.VOLUME_ELSEWHERE, barred, lambda at: refusals[at])


def _everywhere(pods: PodsOnNodes, text: str) -> Bar:
    nodes = np.ones(len(pods.nodes), dtype=np.bool_)
    return Bar(Reason.VOLUME_NOT_READY, nodes, lambda at: text)


def _in_use(pods: PodsOnNodes, namespace: str, name: str, claim: ClaimRecord) -> Iterator[Bar]:
    """Nodes barred by other users of a claim: ReadWriteOncePod, or a pending binding elsewhere."""

    def uses(traits: PodTraits) -> bool:
        return name in traits.claims and (claim.once or traits.assumed)

    users: Ints = pods.count(("claim", namespace, name, claim.once), (namespace,), uses)
    if not users.any():
        return
    if claim.once:
        yield _everywhere(pods, f"PersistentVolumeClaim {name} is for one pod, and one uses it")
        return

    def why(at: int) -> str:
        return f"PersistentVolumeClaim {name} is about to be bound on another node"

    yield Bar(Reason.VOLUME_ELSEWHERE, users == 0, why)


def _unreached(claim: ClaimRecord, name: str, node: NodeRecord) -> str:
    """Text of the obstacle between a node and the volume of a bound claim; empty = none."""
    if claim.nodes is not None and not _reaches(claim.nodes, node):
        return f"the volume {claim.volume} of PersistentVolumeClaim {name} is not reached from here"
    if claim.zones and any(key in node.labels for key in ZONE_LABELS):
        for key, values in claim.zones:
            value = node.labels.get(key, node.labels.get(_OF_NOW.get(key, key)))
            if value not in values:
                return f"the volume {claim.volume} is in {key}={','.join(values)[:100]}"
    return ""


def _unbound(waiting: Mapping[str, ClaimRecord], node: NodeRecord) -> str:
    """Text of the obstacle to binding or provisioning unbound claims on a node; empty = none."""
    chosen: set[str] = set()
    for name, claim in sorted(waiting.items(), key=lambda item: (item[1].size, item[0])):
        if claim.selected_node:
            if claim.selected_node != node.name:
                return f"a volume is being made for {name} on {claim.selected_node}"
        else:
            volume = _volume_for(claim, node, chosen)
            if volume:
                chosen.add(volume)
                continue
        if not claim.provisioned:
            return f"no volume is left here that PersistentVolumeClaim {name} may be bound to"
        if claim.topologies and not any(
            term and all(node.labels.get(key) in values for key, values in term)
            for term in claim.topologies
        ):
            return f"the class of PersistentVolumeClaim {name} makes no volumes here"
    return ""


def _volume_for(claim: ClaimRecord, node: NodeRecord, taken: set[str]) -> str:
    """The volume that a claim would be bound to on a node; empty = none."""
    for volume in claim.candidates:
        if volume.name in taken or (claim.own and volume.name != claim.own):
            continue
        if volume.nodes is None or _reaches(volume.nodes, node):
            return volume.name
    return ""


def _reaches(terms: Sequence[SelectorTerm], node: NodeRecord) -> bool:
    return any(not term.fields and labels_match(term, node.labels) for term in terms)
