# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Check, before a job in tiers starts, that a notice leaves time to hand over its state.

It depends on the shortest notice of the pools that the job may use and on the link speed that its
coordinator assumes. Without a declared notice there is no verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ullage.api.trainingjob import TierTerms
from ullage.api.words import OnNotice
from ullage.cluster.records.pool import PoolRecord
from ullage.cluster.records.spec_fields import Elasticity
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.tiers.explain import shortfall
from ullage.engines.tiers.flush import BYTES_PER_SECOND, STATE_STORES, Link, feasibility
from ullage.engines.tiers.stages import StageRule, TierStage, ratio, target
from ullage.scheduling.capacity.market import unsuited
from ullage.scheduling.inventory.reliable_machines import terms_of

_RULE: Final = StageRule()


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeVerdict:
    """Verdict on a flush within half of the notice, and the figures behind it."""

    feasible: bool
    text: str


def shortest_notice_s(pools: Mapping[str, PoolRecord], job: WorkloadRecord) -> float | None:
    """Shortest notice, seconds, of the pools that the job may use; ``None`` = none declares one."""
    notices_s = [
        pool.notice_s
        for pool in pools.values()
        if pool.notice_s is not None and not unsuited(pool, job)
    ]
    return min(notices_s, default=None)


def verdict(pools: Mapping[str, PoolRecord], job: WorkloadRecord) -> NoticeVerdict | None:
    """Verdict on the handover of owners under notice; ``None`` = no pool declares a notice.

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
        return NoticeVerdict(feasible=True, text="members that stay own the state")
    flush = feasibility(_link(terms), owners=owners, state_stores=STATE_STORES, notice_s=notice_s)
    if flush.feasible:
        text = f"a flush takes {flush.flush_s:.1f} s, half of the notice is {flush.allowed_s:.1f} s"
    else:
        text = shortfall(flush, owners=owners, divided=False)
    at = f"{BYTES_PER_SECOND * 8 / 1e9:g} Gbit/s"
    return NoticeVerdict(feasible=flush.feasible, text=f"{text} (at {at})")


def refused(pools: Mapping[str, PoolRecord], job: WorkloadRecord) -> str:
    """Reason not to start a job that relies on notices; empty = it may start.

    Args:
        pools: All pools, by name.
        job: A job in tiers.
    """
    if job.elasticity is None or job.elasticity.on_notice is not OnNotice.FLUSH:
        return ""
    handover = verdict(pools, job)
    if handover is None or handover.feasible:
        return ""
    return f"{handover.text}; or onNotice: Checkpoint, for which such a notice is a loss"


def _owners(terms: TierTerms, bounds: Elasticity) -> int:
    """Fewest transient members that may own the state; 0 = only reliable ones ever do.

    Each owner has less to flush the more there are, so the fewest are the worst case (derived).
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
