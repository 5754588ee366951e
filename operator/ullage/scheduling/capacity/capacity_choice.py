# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pools that each job with a cost objective may be placed in now.

A decision stands until there is a cause to revise it: held capacity is lost, a price moved, a limit
is broken, the deadline's verdict changes, or its time is up. Waiting work is revised in turns.
Without pools, or for jobs without an objective, nothing is done. An unchanged decision must never
be written again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ullage.api.reasons import Reason, Standing
from ullage.api.words import SpendMode
from ullage.cluster.records.status import SpendDecision, SpendRecord
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.capacity.records import CapacityDecision
from ullage.scheduling.capacity import choice
from ullage.scheduling.capacity.choice import CapacityFacts
from ullage.scheduling.capacity.market import Market, most_affordable
from ullage.scheduling.capacity.record import infeasible, kept, lapsed, recorded, unknown_work
from ullage.scheduling.capacity.remaining_work import due_of, spare_s, turns_at, work_of
from ullage.scheduling.capacity.separate_pools import bound
from ullage.scheduling.model.lifecycle_step import earliest
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.view import Member, PendingEviction, View
from ullage.scheduling.prediction.effort import in_turns
from ullage.scheduling.times import DEADLINE_LOOK_S, RECHECK_S

MOST_URGENT: Final = 200
"""Jobs revised per cycle for a cause; the rest is next."""
MOST_IN_TURN: Final = 50
"""Waiting jobs revised per cycle."""
_LIVE: Final = (Phase.PENDING, Phase.RESERVING, Phase.STARTING, Phase.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolChoice:
    """The choice of pools of one job.

    Attributes:
        spend: Record for its status.
        pools: Pools that its members may be placed in; none = it waits.
        grows: The pools can get more nodes.
        safe: Its deadline is met; `None` = it has none, or this is unknown.
        facts: Inputs of the decision; `None` = it is no longer decided.
    """

    spend: SpendRecord
    pools: frozenset[str]
    grows: bool = False
    safe: bool | None = None
    facts: CapacityFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityChoices:
    """Choices of pools of a cycle; empty where there are no pools.

    Attributes:
        choices: By uid of the job; missing jobs are placed anywhere.
        evictions: Pods to evict for other capacity, by uid.
        market: The pools; `None` = no job needs them.
        wake_at: Time of the next decision; 0 = never.
        lapsed: Records of jobs whose pools were deleted, by uid; they are left alone.
    """

    choices: Mapping[str, PoolChoice] = field(default_factory=dict)
    evictions: Mapping[str, PendingEviction] = field(default_factory=dict)
    market: Market | None = None
    wake_at: float = 0.0
    lapsed: Mapping[str, PoolChoice] = field(default_factory=dict)

    def recorded_for(self, uid: str) -> PoolChoice | None:
        """The choice for a job's status; `None` = unchanged."""
        return self.choices.get(uid) or self.lapsed.get(uid)

    def idle(self) -> Mapping[str, tuple[Reason, str]]:
        """Jobs without a usable pool now, by uid, with the reason."""
        return {
            uid: (decision.reason, decision.message)
            if (decision := pool_choice.spend.decision) is not None
            else (Reason.WAITING_FOR_DECISION, "its pools are chosen in one of the next cycles")
            for uid, pool_choice in self.choices.items()
            if not pool_choice.pools
        }

    def never(self, uid: str) -> tuple[Reason, str] | None:
        """Reason not to start a job as it is; `None` = it may start."""
        pool_choice = self.choices.get(uid)
        decision = pool_choice.spend.decision if pool_choice is not None else None
        if decision is None or decision.chosen.pools or not never_starts(decision):
            return None
        return decision.reason, decision.message


NOTHING: Final = CapacityChoices()


def decide_pools(view: View) -> CapacityChoices:
    """The pools of every job with a cost objective.

    Args:
        view: The cycle's snapshot.
    """
    if not view.snapshot.pools:
        return _without_pools(view)
    jobs = [workload for workload in view.snapshot.workloads.values() if chooses(workload)]
    if not jobs:
        return NOTHING
    market = Market(view, growing=view.settings.orders)
    decider = _Decider(view, market)
    postponed = decider.decide(jobs)
    evictions = {
        uid: eviction
        for job in jobs
        if (pool_choice := decider.choices.get(job.ref.uid)) is not None
        for uid, eviction in _marks(
            job, pool_choice, bound(job, view.members_of(job), pool_choice.pools, market), market
        )
    }
    return CapacityChoices(
        choices=decider.choices,
        evictions=evictions,
        market=market,
        wake_at=earliest(
            *(moment for moment in decider.moments if moment > view.now),
            view.now + RECHECK_S if postponed else 0.0,
        ),
        lapsed=decider.lapsed,
    )


def _without_pools(view: View) -> CapacityChoices:
    """Records of jobs whose pools were all deleted."""
    choices = {}
    for uid, job in view.index.those(view.index.spending):
        spend = job.status.spend
        if spend is not None and spend.decision is not None and chooses(job):
            record = lapsed(job, (), now=view.now, epoch=view.settings.epoch)
            if record is not None:
                choices[uid] = PoolChoice(spend=record, pools=frozenset())
    return CapacityChoices(lapsed=choices) if choices else NOTHING


def chooses(job: WorkloadRecord) -> bool:
    """True when pools are chosen for a job."""
    return (
        job.cost is not None
        and bool(job.cost.objective)
        and not job.deleting
        and not job.suspend
        and bool(job.shape.device_container)
        and job.status.phase not in (Phase.SUCCEEDED, Phase.FAILED)
    )


@dataclass(slots=True)
class _Decider:
    """Decides for the jobs of one cycle."""

    view: View
    market: Market
    choices: dict[str, PoolChoice] = field(default_factory=dict)
    moments: list[float] = field(default_factory=list)
    lapsed: dict[str, PoolChoice] = field(default_factory=dict)

    def decide(self, jobs: Sequence[WorkloadRecord]) -> bool:
        """Decide where it is due; True when jobs are postponed to the next cycle."""
        view = self.view
        urgent: list[CapacityFacts] = []
        waiting: list[CapacityFacts] = []
        for job in sorted(jobs, key=lambda workload: (workload.created, workload.ref.uid)):
            facts = self._facts(job)
            if facts is None:  # it runs on nodes outside of pools
                record = lapsed(job, view.snapshot.pools, now=view.now, epoch=view.settings.epoch)
                if record is not None:
                    self.lapsed[job.ref.uid] = PoolChoice(spend=record, pools=frozenset())
                continue
            if is_due(facts):
                urgent.append(facts)
            else:
                if is_watched(facts):
                    waiting.append(facts)
                self._record(facts, kept(facts))
        for facts in urgent[:MOST_URGENT]:
            self._record(facts, decided(facts, view.settings.epoch))
        for facts in urgent[MOST_URGENT:]:
            self._record(facts, kept(facts))
        turns = in_turns(waiting, view.now) if len(waiting) > MOST_IN_TURN else waiting
        for facts in turns[:MOST_IN_TURN]:
            self._record(facts, decided(facts, view.settings.epoch))
        return len(urgent) > MOST_URGENT

    def _facts(self, job: WorkloadRecord) -> CapacityFacts | None:
        members = self.view.members_of(job)
        held = self._held(job, members)
        if held is None:
            return None
        wanted = self._wanted(job, members, held)
        suited = self.market.suited_to(job, wanted)
        work = work_of(job, suited, members)
        before = job.status.spend.decision if job.status.spend is not None else None
        due = None
        if work is not None:
            due = due_of(
                self.view,
                job,
                work,
                suited,
                committed=before is not None and before.committed,
            )
        return CapacityFacts(
            job=job,
            members=wanted,
            suited=suited,
            work=work,
            due=due,
            held=held,
            terms=self.view.snapshot.policy.spot,
            now=self.view.now,
        )

    def _wanted(
        self, job: WorkloadRecord, members: Sequence[Member], held: Mapping[str, int]
    ) -> int:
        """Members that pools are chosen for.

        An elastic gang without pods gets as many as its budget allows in some pool.
        """
        if members or job.elasticity is None:
            return max(job.replicas, sum(held.values()))
        limit = most_affordable(self.view.snapshot.pools.values(), job)
        return job.replicas if limit is None else job.elasticity.within(min(job.replicas, limit))

    def _held(self, job: WorkloadRecord, members: Sequence[Member]) -> Mapping[str, int] | None:
        """Members by pool; `None` = some are on nodes outside of pools."""
        if job.status.phase not in _LIVE:
            return {}  # the rest of its last start is being removed
        decision = job.status.spend.decision if job.status.spend is not None else None
        chosen = [share.pool for share in decision.chosen.pools] if decision is not None else []
        counts: dict[str, int] = {}
        for member in bound(job, members, chosen, self.market):
            if not member.held or not member.live or member.pod.deleting:
                continue
            pool = self.market.pool_of.get(member.held[0].node)
            if pool is None:
                return None
            counts[pool] = counts.get(pool, 0) + 1
        return counts

    def _record(self, facts: CapacityFacts, spend: SpendRecord) -> None:
        decision, due = spend.decision, facts.due
        pools = frozenset(pool.pool for pool in decision.chosen.pools) if decision else frozenset()
        suited = facts.suited.by_name
        safe = None
        if due is not None and decision is not None and not never_starts(decision):
            spare = spare_s(due) - (0 if facts.held else due.line.changeover_s)
            safe = spare >= 0 and decision.reason is not Reason.ON_DEMAND_MISSING
            if not facts.held and not pools:
                self.moments.append(turns_at(facts.job.created, due))
        self.moments.append(spend.next_decision)
        self.choices[facts.job.ref.uid] = PoolChoice(
            spend=spend,
            pools=pools,
            grows=any(name in suited and suited[name].grows for name in pools),
            safe=safe,
            facts=facts,
        )


def never_starts(decision: SpendDecision) -> bool:
    """True when a job with a deadline is not started at all."""
    return Standing.NEVER_STARTS in decision.reason.standing


def is_due(facts: CapacityFacts) -> bool:
    """True when the decision in force has to be revised."""
    job, before = facts.job, facts.before
    spend = job.status.spend
    if before is None or spend is None or job.status.observed_generation != job.generation:
        return True
    if facts.now >= spend.next_decision > 0:
        return True
    if never_starts(before):
        return False  # revised in turns
    due = facts.due
    if not facts.held:
        waits = not before.chosen.pools and due is not None
        return waits and facts.now >= turns_at(job.created, due) if due is not None else False
    if not spend.next_decision:
        return True  # it was just placed
    chosen = {pool.pool for pool in before.chosen.pools}
    members = sum(pool.replicas for pool in before.chosen.pools)
    if not facts.held.keys() <= chosen or sum(facts.held.values()) > members:
        return True
    if due is not None and spare_s(due) < due.line.changeover_s + 2 * DEADLINE_LOOK_S:
        return not before.committed
    return choice.over_budget(facts) or _moved(facts, before)


def _moved(facts: CapacityFacts, before: SpendDecision) -> bool:
    """True when a price of the decision has moved by more than the minimum gain."""
    part = facts.terms.min_gain_percent / 100
    now = choice.held_option(facts).expected.per_hour
    stated = float(before.chosen.per_hour or 0)
    if before.chosen.per_hour and abs(now - stated) > part * max(stated, now):
        return True
    other = before.runner_up
    if other is None or not other.pools or not other.per_hour:
        return False
    prices = [facts.suited.by_name.get(pool.pool) for pool in other.pools]
    if any(price is None or price.pool.price_per_hour is None for price in prices):
        return False
    per_hour = sum(
        (candidate.pool.price_per_hour or 0.0) * share.replicas
        for candidate, share in zip(prices, other.pools, strict=True)
        if candidate is not None
    )
    return per_hour < float(other.per_hour) * (1 - part)


def decided(facts: CapacityFacts, epoch: int) -> SpendRecord:
    """A new decision; the last record if it is equal."""
    deadline = facts.job.cost is not None and facts.job.cost.deadline_s is not None
    if deadline and facts.due is None:
        return unknown_work(facts, epoch)
    if not facts.held and not facts.job.status.start_time:
        refused = choice.refused(facts)
        if refused:
            return infeasible(facts, epoch, refused)
    decision = choice.choose(facts)
    if choice.stays(facts, decision):
        decision = choice.staying(facts, decision)
    if _compares(facts, decision):
        decision = choice.compare_prices(facts, decision)
    elif not facts.held:
        decision = choice.settled(facts, decision)
    return recorded(facts, decision, epoch)


def _compares(facts: CapacityFacts, decision: CapacityDecision) -> bool:
    """True when a job that stays in place should compare other pools' prices now."""
    before, spend = facts.before, facts.job.status.spend
    if before is None or spend is None or not facts.held:
        return False
    if facts.held.keys() != {share.pool for share in decision.chosen.shares} or decision.committed:
        return False
    if facts.due is not None and choice.mode_of(facts, decision.chosen) != SpendMode.SPOT:
        return False
    return facts.now >= spend.next_decision > 0 or _moved(facts, before)


def _marks(
    job: WorkloadRecord, pool_choice: PoolChoice, members: Sequence[Member], market: Market
) -> Iterable[tuple[str, PendingEviction]]:
    """Members to evict, because their pool is no longer chosen."""
    decision = pool_choice.spend.decision
    if decision is None or job.status.phase not in _LIVE:
        return
    leaving = [
        member
        for member in members
        if member.held
        and member.live
        and market.pool_of.get(member.held[0].node) not in pool_choice.pools
    ]
    if not leaving:
        return
    reason = Reason.OFFER_SWITCHED if pool_choice.pools else decision.reason
    aim = " and ".join(sorted(pool_choice.pools)) or "nothing for now"
    for member in leaving:
        yield (
            member.pod.uid,
            PendingEviction(
                reason=reason, message=f"goes to {aim}: {decision.message}", device=None
            ),
        )


def is_watched(facts: CapacityFacts) -> bool:
    """True when changes of other jobs may change a standing decision.

    The job waits, its size follows prices and room, or it could return to spot.
    """
    before = facts.before
    if not facts.held or before is None or facts.sized:
        return True
    return facts.due is not None and before.mode != SpendMode.SPOT and not before.committed
