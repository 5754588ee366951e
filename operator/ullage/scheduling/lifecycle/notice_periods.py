# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whether a notice leaves a job in tiers time to hand over, told before it starts.

By the shortest notice that the pools it may use state, and by the link that its coordinator
assumes. Where no one states one, nothing is said: it is never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ullage.api.trainingjob import TierTerms
from ullage.api.words import OnNotice
from ullage.cluster.records.pool import PoolRecord
from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.cluster.records.spec_fields import Elasticity
from ullage.engines.tiers.explain import shortfall
from ullage.engines.tiers.flush import BYTES_PER_SECOND, STATE_STORES, Link, feasibility
from ullage.engines.tiers.stages import StageRule, TierStage, ratio, target
from ullage.scheduling.capacity.market import unsuited
from ullage.scheduling.inventory.reliable_machines import terms_of

_RULE: Final = StageRule()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a flush fits into half of the notice, and why."""

    feasible: bool
    text: str


def shortest_notice_s(pools: Mapping[str, PoolRecord], job: WorkloadRecord) -> float | None:
    """The shortest notice that any pool states which the job may use; ``None`` = none does."""
    stated = [
        pool.notice_s
        for pool in pools.values()
        if pool.notice_s is not None and not unsuited(pool, job)
    ]
    return min(stated, default=None)


def verdict(pools: Mapping[str, PoolRecord], job: WorkloadRecord) -> Verdict | None:
    """Whether owners under notice can hand over; ``None`` = no pool says how long they have.

    Args:
        pools: All pools, by name.
        job: A job in tiers.
    """
    terms, bounds = terms_of(job), job.elasticity
    notice_s = shortest_notice_s(pools, job)
    if terms is None or bounds is None or notice_s is None:
        return None
    owners = _owners(terms, bounds)
    if not owners:
        return Verdict(feasible=True, text="members that stay own the state")
    flush = feasibility(_link(terms), owners=owners, state_stores=STATE_STORES, notice_s=notice_s)
    if flush.feasible:
        text = f"a flush takes {flush.flush_s:.1f} s, half of the notice is {flush.allowed_s:.1f} s"
    else:
        text = shortfall(flush, owners=owners, divided=False)
    at = f"{BYTES_PER_SECOND * 8 / 1e9:g} Gbit/s"
    return Verdict(feasible=flush.feasible, text=f"{text} (at {at})")


def refused(pools: Mapping[str, PoolRecord], job: WorkloadRecord) -> str:
    """Why a job is not started that counts on its notices; empty = it may be.

    Args:
        pools: All pools, by name.
        job: A job in tiers.
    """
    if job.elasticity is None or job.elasticity.on_notice is not OnNotice.FLUSH:
        return ""
    found = verdict(pools, job)
    if found is None or found.feasible:
        return ""
    return f"{found.text}; or onNotice: Checkpoint, for which such a notice is a loss"


def _owners(terms: TierTerms, bounds: Elasticity) -> int:
    """Fewest transient members that may own the state; 0 = only reliable ones ever do.

    The more there are, the sooner each is done: the fewest are the worst case (derived).
    """
    fewest = max(1, bounds.min_replicas - terms.reliable)
    most = bounds.max_replicas - terms.reliable
    if terms.stage:
        return 0 if terms.stage == TierStage.RELIABLE else fewest
    return 0 if target(ratio(most, terms.reliable), _RULE) is TierStage.RELIABLE else fewest


def _link(terms: TierTerms) -> Link:
    return Link(
        state_bytes=terms.state_bytes,
        dirty_bytes_per_step=min(terms.dirty_bytes or terms.state_bytes, terms.state_bytes),
        host_bytes_per_s=BYTES_PER_SECOND,
        state_store_bytes_per_s=BYTES_PER_SECOND,
        every_steps=terms.every_steps,
        max_lag_steps=max(terms.every_steps, terms.max_lag_steps),
    )
