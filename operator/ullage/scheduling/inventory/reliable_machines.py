# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Machines for reliable members of a job in tiers: those of on-demand and reserved pools.

Without such pools any machine is accepted. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ullage.api.trainingjob import TierTerms
from ullage.cluster.records.pod_shape import PodShape, Requirement, SelectorTerm
from ullage.cluster.records.pool import CapacityType, PoolRecord
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.model.plan import Labels


def terms_of(job: WorkloadRecord) -> TierTerms | None:
    """Tiers of a job; ``None`` = it has none."""
    return job.elasticity.tiers if job.elasticity is not None else None


def is_reliable(job: WorkloadRecord, rank: int) -> bool:
    """True when a member relies on its machine to stay."""
    terms = terms_of(job)
    return terms is not None and 0 <= rank < terms.reliable


def stays(pool: PoolRecord) -> bool:
    """True when the machines of a pool are reliable."""
    return pool.capacity_type is not CapacityType.SPOT and bool(pool.node_selector)


def staying(pools: Mapping[str, PoolRecord]) -> tuple[Labels, ...]:
    """Labels of the nodes of each reliable pool; sorted."""
    return tuple(
        sorted(
            {tuple(sorted(pool.node_selector.items())) for pool in pools.values() if stays(pool)}
        )
    )


def held_to(shape: PodShape, on: Sequence[Labels]) -> PodShape:
    """The shape of a pod that also requires a node with all labels of one of these sets.

    As ``group.narrowed`` writes it into the pod; a test keeps both consistent.
    """
    if not on:
        return shape
    wanted = _expressions(on)
    terms = tuple(
        replace(term, expressions=(*term.expressions, *more))
        for term in shape.affinity.required or (SelectorTerm(),)
        for more in wanted
    )
    narrower = replace(shape.affinity, has_affinity=True, has_node_affinity=True, required=terms)
    return replace(shape, affinity=narrower)


def is_held_to(shape: PodShape, on: Sequence[Labels]) -> bool:
    """True when every term of a pod's required affinity requires one of these sets of labels."""
    required, wanted = shape.affinity.required, _expressions(on)
    return bool(required) and all(
        any(set(labels) <= set(term.expressions) for labels in wanted) for term in required or ()
    )


def _expressions(on: Sequence[Labels]) -> list[tuple[Requirement, ...]]:
    return [
        tuple(Requirement(key=key, operator="In", values=(value,)) for key, value in labels)
        for labels in on
    ]
