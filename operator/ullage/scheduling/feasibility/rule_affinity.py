# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Required affinity and anti-affinity between pods; anti-affinity counts in both directions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ullage.api.reasons import Reason
from ullage.cluster.records.pod_rules import LabelSelector, PodTerm, PodTraits
from ullage.scheduling.feasibility.pods_on_nodes import Bar, PodsOnNodes, fits


def affinity_bars(pods: PodsOnNodes, terms: Sequence[PodTerm], *, itself: bool) -> Iterator[Bar]:
    """Nodes whose domains lack pods that fulfil all terms at once.

    The first of pods that want one another has no one to join: it may go anywhere.

    Args:
        pods: Who is where.
        terms: What the pod wants to be near.
        itself: Whether it fulfils all terms itself.
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
    """Nodes in whose domains a pod is that the pod does not want to be near."""
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
    """Nodes in whose domains a pod is that does not want the pod near."""
    for term in terms:
        near = pods.around(term.topology_key, pods.bearing(term))

        def why(at: int, term: PodTerm = term, near: np.ndarray = near) -> str:
            return (
                f"anti-affinity of other pods over {term.topology_key}: {near[at]} there keep"
                f" pods with {_words(term.selector)} away"
            )

        yield Bar(Reason.POD_ANTI_AFFINITY, near > 0, why)


def _words(selector: LabelSelector | None) -> str:
    """A selector in words, of a bounded length."""
    if selector is None or not selector.requirements:
        return "any labels"
    first, *more = selector.requirements
    values = ",".join(first.values)
    said = f"{first.key}={values}" if first.operator == "In" else f"{first.key} {first.operator}"
    said = f"{said[:100]}…" if len(said) > 100 else said
    return f"{said} and {len(more)} more" if more else said
