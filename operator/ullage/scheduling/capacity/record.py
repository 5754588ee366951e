# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A decision as a status record; the last record itself if it is equal.

It has the data that a new leader needs: the pools, since when, and the commitment of the job.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from ullage.api.reasons import Reason, Standing
from ullage.api.words import SpendMode
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.status import Offer, PoolShare, SpendDecision, SpendRecord
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.capacity.records import CapacityDecision, CapacityOption, CapacityWhy
from ullage.scheduling.capacity.choice import CapacityFacts, mode_of
from ullage.scheduling.times import DEADLINE_LOOK_S

_LARGEST: Final = 999_999_999.0


def kept(facts: CapacityFacts) -> SpendRecord:
    """The record in force: the last one, or an empty one."""
    return facts.job.status.spend or SpendRecord()


def recorded(facts: CapacityFacts, decision: CapacityDecision, epoch: int) -> SpendRecord:
    """The record of a decision; prices are compared again a period later while the job runs."""
    before, spend = facts.before, kept(facts)
    chosen, runner_up = offer_of(decision.chosen), None
    if decision.runner_up is not None:
        runner_up = offer_of(decision.runner_up)
    reason, mode = Reason(decision.reason.value), mode_of(facts, decision.chosen)
    text = decision.text
    if not facts.suited.by_name:
        reason, text = Reason.NO_POOL, f"no pool suits it: {facts.suited.unsuitable}"
    elif not facts.suited.speeds_known and chosen.pools:
        text += "; speeds are not known, so all types count as equal"
    now = whole_second(facts.now)
    same_pools = before is not None and before.chosen.pools == chosen.pools
    due_at = 0.0
    if facts.held:
        wait_s = max(facts.terms.decision_period_s, DEADLINE_LOOK_S)
        if decision.reason is CapacityWhy.HOLDING:
            wait_s = min(wait_s, max(DEADLINE_LOOK_S, facts.terms.min_hold_s - facts.held_s))
        due_at = now + wait_s
    if (
        before is not None
        and same_pools
        and (before.mode, before.committed) == (mode, decision.committed)
        and (before.reason is reason or Standing.STAYS in reason.standing)
        and _close(before.chosen, chosen, facts)
        and _pools(before.runner_up) == _pools(runner_up)
    ):
        choices = spend.next_decision > facts.now if facts.held else not spend.next_decision
        return spend if choices else replace(spend, next_decision=whole_second(due_at))
    return replace(
        spend,
        decision=SpendDecision(
            time=now,
            epoch=epoch,
            inputs_hash=decision.inputs_hash,
            mode=mode,
            reason=reason,
            message=text,
            chosen=chosen,
            runner_up=runner_up,
            committed=decision.committed,
            since=before.since if before is not None and same_pools else now,
        ),
        next_decision=whole_second(due_at),
    )


def infeasible(facts: CapacityFacts, epoch: int, text: str) -> SpendRecord:
    """The record of a job that is not started: its deadline cannot be met."""
    return _idle(facts, epoch, Reason.DEADLINE_INFEASIBLE, text)


def lapsed(
    job: WorkloadRecord, pools: Collection[str], *, now: float, epoch: int
) -> SpendRecord | None:
    """The record of a job whose pools were deleted; ``None`` = nothing to write.

    It is left alone: it runs in place, or is placed anywhere while there is no pool at all.

    Args:
        job: A job with a cost objective and without a decision.
        pools: Names of the existing pools.
        now: Seconds since the epoch.
        epoch: Epoch of this leader.
    """
    spend = job.status.spend
    before = spend.decision if spend is not None else None
    if spend is None or before is None:
        return None
    deleted = sorted(pool.pool for pool in before.chosen.pools if pool.pool not in pools)
    if not pools:
        text = "there is no CapacityPool any more: it is placed wherever there is room"
    elif deleted:
        text = (
            f"{' and '.join(deleted)} was deleted: it goes on where it is, and its pools are chosen"
            " again when it starts again"
        )
    else:
        return None
    if job.cost is not None and job.cost.deadline_s is not None:
        text += "; no one watches over its deadline meanwhile"
    if (before.reason, before.message) == (Reason.NO_POOL, text) and not before.chosen.pools:
        return spend
    decision = replace(
        before,
        time=whole_second(now),
        epoch=epoch,
        inputs_hash=hashlib.sha256(text.encode()).hexdigest()[:16],
        reason=Reason.NO_POOL,
        message=text,
        chosen=Offer(),
        runner_up=None,
        since=whole_second(now),
    )
    return replace(spend, decision=decision, next_decision=0.0)


def unknown_work(facts: CapacityFacts, epoch: int) -> SpendRecord:
    """The record without a plan, because the length of the work is unknown.

    Running work continues in place, with this record.
    """
    text = (
        "how long the work takes is not known: set spec.cost.estimatedWork, or declare"
        " stepsPerSecond for one of the accelerators in a WorkloadProfile"
    )
    return _idle(facts, epoch, Reason.WORK_UNKNOWN, text)


def _idle(facts: CapacityFacts, epoch: int, reason: Reason, text: str) -> SpendRecord:
    before, spend = facts.before, kept(facts)
    chosen = Offer(
        pools=tuple(
            PoolShare(pool=pool, replicas=count) for pool, count in sorted(facts.held.items())
        )
    )
    if before is not None and before.reason is reason and before.chosen == chosen:
        return spend
    now = whole_second(facts.now)
    decision = SpendDecision(
        time=now,
        epoch=epoch,
        inputs_hash=hashlib.sha256(text.encode()).hexdigest()[:16],
        mode=before.mode if before is not None and facts.held else SpendMode.IDLE.value,
        reason=reason,
        message=text,
        chosen=chosen,
        committed=before is not None and before.committed,
        since=now,
    )
    return replace(spend, decision=decision, next_decision=0.0)


def offer_of(option: CapacityOption) -> Offer:
    """An allocation of the engine as a status record."""
    expected = option.expected
    return Offer(
        pools=tuple(
            PoolShare(pool=share.pool, replicas=share.instances) for share in sorted(option.shares)
        ),
        cost_per_work=money(expected.per_work) if option.shares else "",
        per_hour=money(expected.per_hour) if option.shares else "",
    )


def money(value: float) -> str:
    """Dollars as a plain decimal string; "" = unknown."""
    if not math.isfinite(value) or not 0 <= value <= _LARGEST:
        return ""
    return f"{value:.4f}".rstrip("0").rstrip(".")


def _close(before: Offer, after: Offer, facts: CapacityFacts) -> bool:
    """True when prices differ by at most the minimum gain."""
    if not before.per_hour or not after.per_hour:
        return before.per_hour == after.per_hour
    old, new = float(before.per_hour), float(after.per_hour)
    return abs(old - new) <= facts.terms.min_gain_percent / 100 * max(old, new)


def _pools(offer: Offer | None) -> tuple[str, ...]:
    return tuple(pool.pool for pool in offer.pools) if offer is not None else ()
