# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever comes and goes: no tenant above its limits, no cohort above its sum, no to and fro."""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import replace

import pytest

import builders
from fakes import toy_rules
from fakes.toy_cluster import ToyCluster
from fakes.toy_world import Shape
from ullage.api.schedulingpolicy import Quota, RiskSettings, Tenant
from ullage.api.words import ReclaimWithinCohort
from ullage.cluster.records.policy import PolicyRecord
from ullage.scheduling.cycle.decide import decide
from ullage.scheduling.cycle.diff import diff
from ullage.scheduling.model.plan import DecideSettings, EvictPod

SEEDS = min(12, max(3, int(os.environ.get("ULLAGE_STRESS_EVENTS", "15000")) // 5000))
CYCLES, QUIET = 60, 60
NAMES = ("a", "b", "c")


def tenants(chance: random.Random) -> tuple[Tenant, ...]:
    return tuple(
        Tenant(
            name=name,
            namespaces=frozenset({name}),
            quota=(
                Quota(
                    accelerator=builders.MODEL,
                    nominal_quota=chance.choice((0, 100, 150, 200)),
                    borrowing_limit=chance.choice((None, 0, 50, 100)),
                ),
            ),
            cohort="all",
            reclaim_within_cohort=chance.choice(list(ReclaimWithinCohort)),
        )
        for name in NAMES
    )


class QuotaCluster:
    """A small cluster of three tenants whose jobs save their work."""

    def __init__(self, seed: int, objective: str = "FIFO") -> None:
        self.chance = random.Random(seed)
        self.tenants = tenants(self.chance)
        rules = PolicyRecord(
            uid="uid-policy",
            objective=objective,
            round_seconds=10,
            risk=RiskSettings(predictor="UtilisationSum"),
            tenants=self.tenants,
        )
        self.toy = ToyCluster(seed, Shape(nodes=2, devices=2, policy=rules))
        self.evictions = 0
        self._numbers = 0

    def arrive(self) -> None:
        self._numbers += 1
        job = builders.a_job(f"w{self._numbers}", self.chance.choice(NAMES)).checkpointed()
        kind = self.chance.random()
        if kind < 0.4:
            job = job.fractional(self.chance.choice((20, 50)), 100)
        elif kind < 0.6:
            job = job.gang(2)
        priority = self.chance.choice((0, 0, 5))
        self.toy.add(replace(job.build(), created=self.toy.now, priority=priority))

    def leave(self) -> None:
        if self.toy.workloads:
            self.toy.delete_workload(self.chance.choice(sorted(self.toy.workloads)))

    def cycle(self) -> None:
        """Everything moves a step, and one decision is carried out."""
        toy = self.toy
        for name in list(toy.nodes):
            toy.sync_agent(name)
        for move in (toy.terminate, toy.schedule, toy.start):
            for pod in list(toy.pods.values()):
                move(pod)
        for name in list(toy.nodes):
            toy.sync_agent(name)
        snapshot = toy.snapshot()
        actions = diff(decide(snapshot, toy.now, DecideSettings(epoch=toy.epoch)), snapshot)
        toy_rules.check_actions(snapshot, actions)
        self.evictions += sum(isinstance(one, EvictPod) for one in actions)
        toy.apply(actions, lambda _: True)
        toy.now += 1
        toy_rules.check_devices(toy)
        self.check()

    def held(self) -> Counter[str]:
        """Percent of devices that each tenant holds."""
        found: Counter[str] = Counter()
        for node in self.toy.snapshot().gpu_nodes.values():
            for held in node.desired:
                found[held.pod_namespace] += held.percent
        return found

    def check(self) -> None:
        held = self.held()
        for tenant in self.tenants:
            (quota,) = tenant.quota
            if quota.borrowing_limit is not None:
                assert held[tenant.name] <= quota.nominal_quota + quota.borrowing_limit
        assert sum(held.values()) <= sum(tenant.quota[0].nominal_quota for tenant in self.tenants)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_limits_hold_and_what_is_settled_stays(seed: int) -> None:
    cluster = QuotaCluster(seed)
    for _ in range(CYCLES):
        if cluster.chance.random() < 0.4:
            cluster.arrive()
        if cluster.chance.random() < 0.15:
            cluster.leave()
        cluster.cycle()
    for _ in range(QUIET):
        cluster.toy.now += 20
        cluster.cycle()
    before, held = cluster.evictions, cluster.held()
    for _ in range(QUIET // 2):
        cluster.toy.now += 20
        cluster.cycle()
    assert cluster.evictions == before, "no one leaves once nothing comes or goes"
    assert cluster.held() == held


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_limits_hold_where_jobs_take_turns(seed: int) -> None:
    cluster = QuotaCluster(seed, "MaxMinFairness")
    ran: set[str] = set()
    for number in range(CYCLES + QUIET // 2):
        if number < CYCLES and cluster.chance.random() < 0.3:
            cluster.arrive()
        if number < CYCLES and cluster.chance.random() < 0.1:
            cluster.leave()
        cluster.toy.now += 2
        cluster.cycle()
        ran.update(name for name, percent in cluster.held().items() if percent)
    entitled = {tenant.name for tenant in cluster.tenants if tenant.quota[0].nominal_quota >= 100}
    fits = (job for job in cluster.toy.workloads.values() if job.replicas == 1)
    asked = {job.ref.namespace for job in fits}
    assert ran >= entitled & asked, "who has quota of a device gets its turn"
