# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rules over topology domains: affinity between pods in both directions, and topology spread.

Only hard constraints. Spread is evaluated without the pin and with it: a pinned pod has one node
that its affinity matches, so kube-scheduler finds one domain, and the pods there are the minimum.
The constraint without the pin must therefore be checked first. With ``minDomains`` above 1
kube-scheduler uses 0 as the minimum, because there are too few domains; the pin must pass that
test, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ullage.api.reasons import Reason
from ullage.cluster.records.node import NodeRecord
from ullage.cluster.records.pod_rules import LabelSelector, PodTerm, PodTraits, SpreadRule
from ullage.cluster.records.pod_shape import PodShape
from ullage.scheduling.feasibility.pods_on_nodes import Bar, PodsOnNodes, fits
from ullage.scheduling.inventory.inventory import Flags, Ints
from ullage.scheduling.inventory.node_fit import selects, tolerates


def affinity_bars(pods: PodsOnNodes, terms: Sequence[PodTerm], *, itself: bool) -> Iterator[Bar]:
    """Nodes whose domains lack pods that match all terms at once.

    The first of several pods that match each other's terms has none to join, so it may go anywhere.

    Args:
        pods: Pods by node.
        terms: The affinity terms of the pod.
        itself: The pod matches all of its terms itself.
    """
    if not terms:
        return
    spaces = [pods.selected(term) for term in terms]
    named = [space for space in spaces if space is not None]

    def look(traits: PodTraits) -> bool:
        return all(
            (space is None or traits.namespace in space) and fits(term, traits.labels)
            for term, space in zip(terms, spaces, strict=True)
        )

    matching = pods.count(
        ("near", tuple(terms)), frozenset.intersection(*named) if named else None, look
    )
    first = itself and not any(
        matching[pods.domains(term.topology_key) >= 0].any() for term in terms
    )
    for term in terms:
        key = term.topology_key
        lacks = pods.domains(key) < 0
        near = pods.around(key, matching)

        def why(at: int, key: str = key, term: PodTerm = term) -> str:
            if key not in pods.nodes[at].labels:
                return f"pod affinity over {key}: the node has no such label"
            return f"pod affinity over {key}: no pod with {_words(term.selector)} is there"

        yield Bar(Reason.POD_AFFINITY, lacks if first else lacks | (near == 0), why)


def anti_affinity_bars(pods: PodsOnNodes, terms: Sequence[PodTerm]) -> Iterator[Bar]:
    """Nodes with a pod in their domain that the pod's own anti-affinity matches."""
    for term in terms:

        def look(traits: PodTraits, term: PodTerm = term) -> bool:
            return fits(term, traits.labels)

        matching = pods.count(("apart", term), pods.selected(term), look)
        near = pods.around(term.topology_key, matching)

        def why(at: int, term: PodTerm = term, near: np.ndarray = near) -> str:
            key = term.topology_key
            return f"pod anti-affinity over {key}: {near[at]} with {_words(term.selector)} there"

        yield Bar(Reason.POD_ANTI_AFFINITY, near > 0, why)


def repelled_bars(pods: PodsOnNodes, terms: Sequence[PodTerm]) -> Iterator[Bar]:
    """Nodes with a pod in their domain whose anti-affinity matches the pod."""
    for term in terms:
        near = pods.around(term.topology_key, pods.bearing(term))

        def why(at: int, term: PodTerm = term, near: np.ndarray = near) -> str:
            return (
                f"anti-affinity of other pods over {term.topology_key}: {near[at]} there keep"
                f" pods with {_words(term.selector)} away"
            )

        yield Bar(Reason.POD_ANTI_AFFINITY, near > 0, why)


def spread_bars(
    pods: PodsOnNodes,
    shape: PodShape,
    rules: Sequence[SpreadRule],
    *,
    namespace: str,
    itself: Sequence[bool],
) -> Iterator[Bar]:
    """Nodes on which a constraint would be violated.

    Args:
        pods: Pods by node.
        shape: The pod's requirements of its node, without the pin.
        rules: The constraints.
        namespace: Namespace of the pod, and of the counted pods.
        itself: By constraint: true when it counts the pod itself.
    """
    everywhere = np.ones(len(pods.nodes), dtype=np.bool_)
    for rule in rules:
        everywhere &= pods.domains(rule.topology_key) >= 0
    for rule, counts_itself in zip(rules, itself, strict=True):
        eligible = everywhere
        if rule.honours_affinity:
            eligible = eligible & _judged(pods, shape, selects)
        if rule.honours_taints:
            eligible = eligible & _judged(pods, shape, tolerates)
        matching = _matching(pods, rule, namespace)
        yield _spread_bar(pods, rule, eligible, matching, int(counts_itself))


def _matching(pods: PodsOnNodes, rule: SpreadRule, namespace: str) -> Ints:
    """By node: pods that a constraint counts; leaving pods do not count."""
    selector = rule.selector
    if selector is None or not selector.requirements:
        return np.zeros(len(pods.nodes), dtype=np.int64)

    def look(traits: PodTraits) -> bool:
        return not traits.leaving and selector.matches(dict(traits.labels))

    return pods.count(("spread", namespace, selector), (namespace,), look)


def _spread_bar(
    pods: PodsOnNodes, rule: SpreadRule, eligible: Flags, matching: Ints, itself: int
) -> Bar:
    key = rule.topology_key
    domains = pods.domains(key)
    counted = np.where(eligible, matching, 0)
    around = pods.around(key, counted)
    present = np.unique(domains[eligible])
    fewest = int(around[present].min()) if len(present) >= max(1, rule.min_domains) else 0
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


def _judged(
    pods: PodsOnNodes, shape: PodShape, test: Callable[[PodShape, NodeRecord], bool]
) -> Flags:
    """Nodes that pass a test of the pod's shape."""
    passed = pods.judged(
        (test.__name__, id(shape)),
        shape,
        lambda: np.array([test(shape, node) for node in pods.nodes], dtype=np.int64),
    )
    return passed > 0


def _words(selector: LabelSelector | None) -> str:
    """The text of a selector, of a bounded length."""
    if selector is None or not selector.requirements:
        return "any labels"
    first, *more = selector.requirements
    values = ",".join(first.values)
    text = f"{first.key}={values}" if first.operator == "In" else f"{first.key} {first.operator}"
    text = f"{text[:100]}…" if len(text) > 100 else text
    return f"{text} and {len(more)} more" if more else text
