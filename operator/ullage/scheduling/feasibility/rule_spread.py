# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Topology spread constraints that must hold, judged twice: as they stand, and beside the pin.

A pod that is pinned has one node that its affinity matches, so kube-scheduler then finds one
domain: whatever it counts there is the fewest. What the constraint means must hence be judged
before. With ``minDomains`` above 1 kube-scheduler takes 0 for the fewest, because there are too few
domains; such a pin must be right in its eyes, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ullage.api.reasons import Reason
from ullage.cluster.records.pod_rules import PodTraits, SpreadRule
from ullage.cluster.records.pod_shape import PodShape
from ullage.scheduling.feasibility.pods_on_nodes import Bar, PodsOnNodes
from ullage.scheduling.inventory.inventory import Flags, Ints
from ullage.scheduling.inventory.node_fit import selects, tolerates


def spread_bars(
    pods: PodsOnNodes,
    shape: PodShape,
    rules: Sequence[SpreadRule],
    *,
    namespace: str,
    itself: Sequence[bool],
) -> Iterator[Bar]:
    """Nodes on which a constraint would not hold.

    Args:
        pods: Who is where.
        shape: What the pod asks of its node, the pin apart.
        rules: The constraints.
        namespace: Of the pod, and of those that are counted.
        itself: By constraint: whether the pod is one of those that it counts.
    """
    everywhere = np.ones(len(pods.nodes), dtype=np.bool_)
    for rule in rules:
        everywhere &= pods.domains(rule.topology_key) >= 0
    for rule, counts_itself in zip(rules, itself, strict=True):
        eligible = everywhere
        if rule.honours_affinity:
            eligible = eligible & _selected(pods, shape)
        if rule.honours_taints:
            eligible = eligible & _tolerated(pods, shape)
        yield _bar(pods, rule, eligible, _matching(pods, rule, namespace), int(counts_itself))


def _matching(pods: PodsOnNodes, rule: SpreadRule, namespace: str) -> Ints:
    """By node: pods that a constraint counts; those that are leaving are none of them."""
    selector = rule.selector
    if selector is None or not selector.requirements:
        return np.zeros(len(pods.nodes), dtype=np.int64)

    def look(traits: PodTraits) -> bool:
        return not traits.leaving and selector.matches(dict(traits.labels))

    return pods.count(("spread", namespace, selector), (namespace,), look)


def _bar(pods: PodsOnNodes, rule: SpreadRule, eligible: Flags, matching: Ints, itself: int) -> Bar:
    key = rule.topology_key
    domains = pods.domains(key)
    counted = np.where(eligible, matching, 0)
    around = pods.around(key, counted)
    found = np.unique(domains[eligible])
    fewest = int(around[found].min()) if len(found) >= max(1, rule.min_domains) else 0
    skew = around + itself - fewest
    barred = (domains < 0) | (skew > rule.max_skew)
    alone = np.zeros(len(barred), dtype=np.bool_)
    if rule.honours_affinity and rule.min_domains > 1:
        alone = counted + itself > rule.max_skew

    def why(at: int) -> str:
        node = pods.nodes[at]
        if domains[at] < 0:
            return f"spread over {key}: the node has no such label"
        if skew[at] > rule.max_skew:
            return (
                f"spread over {key}: {node.labels[key]} would have"
                f" {around[at] + itself} pods where the fewest have {fewest},"
                f" skew {skew[at]} > {rule.max_skew}"
            )
        return (
            f"spread over {key} with minDomains {rule.min_domains}: kube-scheduler sees one domain"
            f" of a pinned pod, and {counted[at] + itself} pods there > {rule.max_skew}"
        )

    return Bar(Reason.SPREAD_UNEVEN, barred | alone, why)


def _selected(pods: PodsOnNodes, shape: PodShape) -> Flags:
    found = pods.judged(
        ("selected", id(shape)),
        shape,
        lambda: np.array([selects(shape, node) for node in pods.nodes], dtype=np.int64),
    )
    return found > 0


def _tolerated(pods: PodsOnNodes, shape: PodShape) -> Flags:
    found = pods.judged(
        ("tolerated", id(shape)),
        shape,
        lambda: np.array([tolerates(shape, node) for node in pods.nodes], dtype=np.int64),
    )
    return found > 0
