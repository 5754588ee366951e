# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The pool choice that the operator runs, on the zones of a trace, with the evidence that it has.

No probes: of a zone it knows what instances of its jobs saw and which of its launches failed. One
job of the same size has run since the traces began, as on a cluster in use; what that one saw is
all that is known when the measured one starts. The functions are those of ``scheduling.capacity``;
this module only plays provider and clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ullage.api.spot import SpotTerms
from ullage.cluster.codecs.objects import Sharer
from ullage.cluster.projection.workload import project_workload
from ullage.cluster.records.pool import CapacityType, PoolRecord, PoolStatus
from ullage.cluster.records.status import WorkloadStatus
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.engines.capacity.records import Pool
from ullage.scheduling.capacity.capacity_choice import decided, is_due, is_watched
from ullage.scheduling.capacity.choice import CapacityFacts
from ullage.scheduling.capacity.hazard import Learning, observed
from ullage.scheduling.capacity.market import SuitedPool, SuitedPools
from ullage.scheduling.capacity.record import kept
from ullage.scheduling.capacity.remaining_work import Work
from ullage.scheduling.inventory.instances import Sighting
from ullage_simulate.spot.market import SpotMarket
from ullage_simulate.spot.play import Counts, Rule, SpotJob, SpotRun, play

EPOCH_S = 1_700_000_000.0
"""Of tick 0: a status needs a time that is not 0."""
RUNNING = "Running"


def live(
    members: int, work: float, whole_s: float, terms: SpotTerms, delay: float | None = None
) -> Rule:
    """The operator's rule for a gang by cost per work.

    Args:
        members: Of the gang, at most.
        work: In the unit of the play's job.
        whole_s: Seconds that the undisturbed gang needs for it.
        terms: Of the SchedulingPolicy.
        delay: What an hour of delay costs, dollars: the size is chosen by it, and members come and
            go in place; ``None`` = the size is fixed.
    """
    job = _job(members, delay)
    return _Operator(members=members, work=work, whole_s=whole_s, terms=terms, job=job).rule


@dataclass(slots=True)
class _Seen:
    """What one pool showed since the last look."""

    before: int = 0
    gained: int = 0
    failed: int = 0
    held_since_s: float | None = None


@dataclass(slots=True)
class _Operator:
    """One job's operator; a new run begins with what the job before it has seen."""

    members: int
    work: float
    whole_s: float
    terms: SpotTerms
    job: WorkloadRecord
    run: SpotRun | None = None
    pools: dict[str, PoolStatus] = field(default_factory=dict)
    seen: dict[str, _Seen] = field(default_factory=dict)
    history: dict[int, Mapping[str, PoolStatus]] = field(default_factory=dict)
    """What is known of the pools at each tick."""

    def rule(self, market: SpotMarket, run: SpotRun, tick: int) -> Counts:
        """What the operator wants to hold and the provider gives."""
        now = EPOCH_S + tick * market.tick_s
        if run is not self.run:
            if not self.history:
                self._live_through(market)
            self._begin(market, run)
        held = dict(zip(market.names, run.held, strict=True))
        self._look(market, tick, held, now)
        wanted = self._choose(market, tick, held, now)
        return self._launch(market, tick, held, wanted, now)

    def _begin(self, market: SpotMarket, run: SpotRun) -> None:
        unknown = {name: PoolStatus() for name in market.names}
        self.run = run
        self.job = replace(self.job, status=WorkloadStatus())
        # of the job before no instance is left
        self.pools = {
            name: replace(status, nodes=0)
            for name, status in self.history.get(run.first, unknown).items()
        }
        self.seen = {name: _Seen() for name in market.names}

    def _live_through(self, market: SpotMarket) -> None:
        """Run a job without an end from the first tick to the last."""

        def rule(here: SpotMarket, run: SpotRun, tick: int) -> Counts:
            counts = before.rule(here, run, tick)
            self.history[tick] = dict(before.pools)
            return counts

        before = _Operator(self.members, self.work, self.whole_s, self.terms, self.job)
        before.history[-1] = {}  # it knows nothing
        endless = SpotJob(work=math.inf, speed=lambda _: 0.0, toll=lambda run, lost, changed: 0.0)
        with suppress(ValueError):  # the traces end before the job does
            play(market, endless, rule)

    def _look(self, market: SpotMarket, tick: int, held: Mapping[str, int], now: float) -> None:
        prices = dict(zip(market.names, market.prices(tick), strict=True))
        for name, status in self.pools.items():
            seen, count = self.seen[name], held[name]
            sighting = Sighting(
                nodes=count,
                before=seen.before,
                lost=max(0, seen.before - count),
                gained=seen.gained,
                launched=seen.gained,
                failed=seen.failed,
                held_since_s=seen.held_since_s if count else None,
            )
            record = _record(name, market, status)
            status = observed(record, status, sighting, now, Learning.of(self.terms))
            self.pools[name] = replace(status, price=prices[name], priced_at_s=now)
            self.seen[name] = _Seen(before=count, held_since_s=seen.held_since_s)

    def _choose(
        self, market: SpotMarket, tick: int, held: Mapping[str, int], now: float
    ) -> dict[str, int]:
        """Members by pool, as the decision in force says it."""
        assert self.run is not None
        facts = CapacityFacts(
            job=self.job,
            members=self.members,
            suited=self._suited(market, held),
            work=Work(total_s=self.whole_s, done=min(1.0, self.run.done / self.work)),
            due=None,
            held={name: count for name, count in held.items() if count},
            terms=self.terms,
            now=now,
        )
        # what waits is looked at again in every cycle
        spend = decided(facts, 1) if is_due(facts) or is_watched(facts) else kept(facts)
        status = replace(
            self.job.status,
            spend=spend,
            observed_generation=self.job.generation,
            start_time=now,
            phase=RUNNING if facts.held else "Pending",
        )
        self.job = replace(self.job, status=status)
        chosen = spend.decision.chosen.pools if spend.decision is not None else ()
        return {pool.pool: pool.replicas for pool in chosen}

    def _suited(self, market: SpotMarket, held: Mapping[str, int]) -> SuitedPools:
        suited = {}
        for name, status in self.pools.items():
            record = _record(name, market, status)
            pool = Pool(
                name=name,
                capacity_type=record.capacity_type,
                price_per_hour=status.price,
                hazard_per_hour=status.hazard_per_hour or 0.0,
                speed=1.0,
                most=None if status.available else 0,
            )
            suited[name] = SuitedPool(pool=pool, record=record, per_node=1, grows=status.available)
        return SuitedPools(by_name=suited, speeds_known=True, steps_per_second=1.0, unsuitable="")

    def _launch(
        self,
        market: SpotMarket,
        tick: int,
        held: Mapping[str, int],
        wanted: Mapping[str, int],
        now: float,
    ) -> Counts:
        """What the provider gives; a launch that gives nothing has failed at the next look."""
        counts = []
        for name, gives in zip(market.names, market.gives(tick), strict=True):
            want, have = wanted.get(name, 0), held[name]
            if want > have and not gives:
                self.seen[name].failed += 1
                want = have
            elif want > have:
                self.seen[name].gained += want - have
                self.seen[name].held_since_s = self.seen[name].held_since_s if have else now
            self.seen[name].before = want
            counts.append(want)
        return tuple(counts)


def _record(name: str, market: SpotMarket, status: PoolStatus) -> PoolRecord:
    kind = CapacityType(market.kinds[market.names.index(name)].value)
    return PoolRecord(
        name=name,
        instance_type="traced",
        zone=name,
        capacity_type=kind,
        accelerator="traced",
        status=status,
    )


def _job(members: int, delay: float | None) -> WorkloadRecord:
    """A gang of whole devices by cost per work, as the operator reads it."""
    container = {"name": "main", "image": "example/train:1"}
    size: dict[str, object] = {"replicas": members}
    cost = {"objective": "CostPerWork"}
    if delay is not None:
        bounds = {"minReplicas": 1, "maxReplicas": members, "membership": "InPlace"}
        size, cost = {"elasticity": bounds}, cost | {"delayCostPerHour": f"{delay:g}"}
    raw = {
        "metadata": {"name": "train", "namespace": "bench", "uid": "uid-train", "generation": 1},
        "spec": {
            "template": {"spec": {"containers": [container]}},
            "checkpoint": {},
            "work": {"steps": 1_000_000},
            "cost": cost,
            **size,
        },
    }
    record, _ = project_workload(WorkloadKind.TRAINING_JOB, raw, None, Sharer())
    assert not record.invalid, record.invalid
    return record
