# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Lanes that the operator assigns: safe whatever comes and goes, and the node says the same.

The safety sum is written out here once more, job by job, not by the functions that decide.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import builders
from fakes.examples import examples
from fakes.node_slices import a_held, a_slice
from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage.engines.admission.limits import LIMITS, ceiling, first_broken
from ullage.engines.admission.records import Tenant
from ullage.engines.admission.utilisation import UtilisationSum
from ullage.engines.lanes.assignment import LaneAssignment, assigned_lanes, counted_mib
from ullage.engines.lanes.records import Assigned, JobDemand
from ullage.engines.lanes.settings import EXACT, LaneSettings
from ullage.engines.lanes.table import LaneTable
from ullage.scheduling.assignment.observe import look
from ullage.scheduling.feasibility.device_facts import columns_for, figures_for
from ullage.scheduling.feasibility.lanes import (
    joined_lane,
    joined_lanes,
    lane_number,
    parties,
    top_share,
)
from ullage.scheduling.feasibility.occupancy import Domains, Occupancy, Occupant
from ullage.scheduling.feasibility.resource_requests import ResourceRequest, ResourceRequests
from ullage.scheduling.inventory.inventory import take_inventory
from ullage.scheduling.inventory.node_fit import amounts
from ullage.scheduling.model.plan import DecideSettings
from ullage.scheduling.model.slice_ledger import Ledger
from ullage.scheduling.placement.candidates import CandidateIndex, CandidateList
from ullage.scheduling.prediction.verdicts import SumRule
from ullage.scheduling.prediction.workload_classes import Classes
from ullage_node.model.slices import HeldSlice, NodeDevice
from ullage_node.slices.invariants import candidate_for, first_refusal, violations

DEVICES = 3
MEMORY_MIB = builders.DEVICE_MEMORY_MIB
CONTEXTS = 8


@dataclass(frozen=True, kw_only=True)
class Job:
    """Without steps it shares no lane; if it ``leaves``, it may be suspended between them."""

    keeps: int
    step: int
    least: int
    most: int
    leaves: bool = False


JOBS = st.builds(
    lambda keeps, step, shares, leaves: Job(
        keeps=keeps, step=step, least=min(shares), most=max(shares), leaves=leaves
    ),
    st.sampled_from([1, 200, 1000, 3000]),
    st.sampled_from([0, 1, 500, 4000, 9000, 14_000]),
    st.tuples(st.sampled_from([5, 10, 40, 100]), st.sampled_from([5, 10, 40, 100])),
    st.booleans(),
)


def _workload(number: int, job: Job) -> builders.WorkloadBuilder:
    share = builders.a_job(f"job-{number}").fractional(job.least, job.most, memory_mib=job.keeps)
    return share.in_lanes(job.keeps, job.step, leaves=job.leaves) if job.step else share


def _devices(jobs: list[Job]) -> tuple[Occupancy, list[ResourceRequest]]:
    workloads = [_workload(number, job) for number, job in enumerate(jobs)]
    profile = builders.a_device_profile(context_overhead_mib=300)
    node = builders.a_gpu_node("node-0", devices=DEVICES)
    node = replace(node, devices=tuple(replace(one, suspends=True) for one in node.devices))
    snapshot = builders.a_snapshot(node, profile, *workloads)
    view = look(snapshot, builders.NOW, DecideSettings(epoch=3), Ledger(snapshot))
    inventory = take_inventory(view)
    occupancy = Occupancy(inventory, Domains())
    occupancy.free = [dict(amounts(one.allocatable)) for one in inventory.nodes]
    requests = ResourceRequests(view, occupancy, Classes(snapshot, inventory))
    records = [one.build() for one in workloads]
    return occupancy, [requests.of(one, one.shape) for one in records]


def _occupant(number: int, request: ResourceRequest, percent: int, lane: int) -> Occupant:
    return Occupant(
        pod_uid=f"pod-{number}",
        owner_uid=f"job-{number}",
        tenant=Tenant(name=f"job-{number}", percent=percent),
        memory_mib=request.memory_mib,
        domain=request.domain,
        whole=False,
        lane=lane,
        ephemeral_mib=request.lane.shared_mib if request.lane is not None else 0,
    )


def _promised(occupancy: Occupancy, site: int) -> tuple[int, int]:
    """Memory and share of a device that are promised, job by job."""
    steps: defaultdict[int, list[int]] = defaultdict(list)
    shares: defaultdict[int, set[int]] = defaultdict(set)
    memory = percent = 0
    for one in occupancy.occupants[site]:
        memory += occupancy.inventory.sites[site].overhead_mib
        if not one.lane:
            memory, percent = memory + one.memory_mib, percent + one.tenant.percent
            continue
        memory += one.memory_mib - one.ephemeral_mib
        steps[one.lane].append(one.ephemeral_mib)
        shares[one.lane].add(one.tenant.percent)
    assert all(len(one) == 1 for one in shares.values()), "a lane has one share"
    memory += sum(max(one) for one in steps.values())
    return memory, percent + sum(one.pop() for one in shares.values())


def _on_the_node(occupancy: Occupancy, site: int) -> tuple[NodeDevice, list[dict[str, object]]]:
    overhead = occupancy.inventory.sites[site].overhead_mib
    device = NodeDevice(
        uuid="gpu-0", memory_mib=MEMORY_MIB, contexts=CONTEXTS, overhead_mib=overhead
    )
    return device, [
        {
            "uid": one.pod_uid,
            "percent": one.tenant.percent,
            "memory_mib": one.memory_mib,
            "persistent_mib": one.memory_mib - _step_mib(one) if one.lane else 0,
            "ephemeral_mib": _step_mib(one),
            "suspendable": _leaves(one),
            "lane": one.lane,
            "context_overhead_mib": overhead,
        }
        for one in occupancy.occupants[site]
    ]


def _leaves(one: Occupant) -> bool:
    """Whether nothing of an occupant is on the device for good."""
    return one.lane > 0 and one.ephemeral_mib == one.memory_mib


def _step_mib(one: Occupant) -> int:
    """What a slice says of its step; of one that leaves any part will do, since all counts."""
    return one.memory_mib // 2 if _leaves(one) else one.ephemeral_mib


def _programs_arrive(occupancy: Occupancy, site: int, chance: random.Random) -> None:
    """Every program is resident at once, whichever comes first, and in the lane it was given."""
    table = LaneTable(settings=LaneSettings(capacity_mib=MEMORY_MIB, margins=EXACT))
    here = list(occupancy.occupants[site])
    chance.shuffle(here)
    for one in here:
        answer, _ = table.arrive(
            JobDemand(
                name=one.pod_uid,
                persistent_mib=one.memory_mib - one.ephemeral_mib if one.lane else 0,
                ephemeral_mib=one.ephemeral_mib if one.lane else one.memory_mib,
                own_lane=not one.lane,
                assigned=one.lane,
            ),
            0.0,
        )
        assert isinstance(answer, Assigned)
        assert table.memory.lanes[answer.lane].assigned == one.lane
    for lane in table.memory.lanes.values():
        numbers = {each.demand.assigned for each in lane.residents.values()}
        assert numbers == {lane.assigned}


@examples(60, many=400)
@given(
    jobs=st.lists(JOBS, min_size=1, max_size=14),
    orders=st.lists(st.integers(0, 2**16), max_size=40),
    seed=st.integers(0, 999),
)
def test_no_order_of_placements_promises_more_than_there_is(
    jobs: list[Job], orders: list[int], seed: int
) -> None:
    occupancy, requests = _devices(jobs)
    chance = random.Random(seed)
    seated: dict[int, tuple[int, Occupant]] = {}
    for order in orders:
        number = order % len(jobs)
        if number in seated:
            occupancy.lift(*seated.pop(number))
            continue
        request, site = requests[number], order // len(jobs) % DEVICES
        lane = joined_lane(occupancy, request, site)
        facts = figures_for(occupancy, request, site, lane)
        if first_broken(facts, request) is not None:
            continue
        percent = top_share(lane, ceiling(facts, request))
        got = lane_number(occupancy, request, site)
        assert jobs[number].least <= percent <= jobs[number].most
        assert (got > 0) == (jobs[number].step > 0 and jobs[number].least < 100)
        seated[number] = site, _occupant(number, request, percent, got)
        _the_node_agrees(occupancy, *seated[number])
        occupancy.put(*seated[number])
        memory, percent = _promised(occupancy, site)
        assert memory == occupancy.memory_used_mib.item(site) <= MEMORY_MIB
        assert percent == occupancy.percent_used.item(site) <= 100
    for site in range(DEVICES):
        _programs_arrive(occupancy, site, chance)


def _the_node_agrees(occupancy: Occupancy, site: int, newcomer: Occupant) -> None:
    """It takes what the operator places, and not the same with memory that is not there."""
    device, there = _on_the_node(occupancy, site)
    held = [a_held(str(one.pop("uid")), **one) for one in there]
    occupancy.put(site, newcomer)
    wanted = _on_the_node(occupancy, site)[1][-1]
    memory, _ = _promised(occupancy, site)
    occupancy.lift(site, newcomer)
    part = a_slice(str(wanted.pop("uid")), **wanted)
    assert first_refusal(candidate_for(part, held, {"gpu-0": device})) is None
    together = [*held, HeldSlice(desired=part, phase=SlicePhase.ATTACHED)]
    assert not violations(together, (), {"gpu-0": device})
    if part.suspendable:
        return  # more of it may fit its lane, which others made as large
    whole = not held and part.percent == 100
    left = MEMORY_MIB - memory + (device.overhead_mib if whole else 0)
    greedy = replace(
        part,
        memory_mib=part.memory_mib + left + 1,
        persistent_mib=part.persistent_mib + left + 1 if part.lane else 0,
    )
    refusal = first_refusal(candidate_for(greedy, held, {"gpu-0": device}))
    assert refusal is not None
    assert refusal.reason is Reason.CAPACITY_EXCEEDED


@examples(60, many=300)
@given(jobs=st.lists(JOBS, min_size=2, max_size=10), seed=st.integers(0, 999))
def test_a_column_and_a_device_say_the_same_of_a_lane(jobs: list[Job], seed: int) -> None:
    occupancy, requests = _devices(jobs)
    chance = random.Random(seed)
    for number, request in enumerate(requests[1:]):
        site = chance.randrange(DEVICES)
        lane = chance.choice((1, 2)) if request.lane is not None else 0
        percent = 10 * lane or chance.choice((5, 40))
        occupancy.put(site, _occupant(number, request, percent, lane))
    request = requests[0]
    joins = joined_lanes(occupancy, request)
    everything = columns_for(occupancy, request, joins)
    tops = np.broadcast_to(ceiling(everything, request), (DEVICES,)).tolist()
    for site in range(DEVICES):
        lane = joined_lane(occupancy, request, site)
        assert joins.get(site) == lane
        facts = figures_for(occupancy, request, site, lane)
        for limit in LIMITS:
            column = np.broadcast_to(limit.short(everything, request), (DEVICES,))
            assert column.item(site) == limit.short(facts, request)
        assert tops[site] == ceiling(facts, request)


@pytest.mark.parametrize("seed", range(4))
def test_a_shortlist_with_lanes_kept_current_equals_one_made_afresh(seed: int) -> None:
    chance = random.Random(seed)
    jobs = [
        Job(keeps=500, step=4000, least=10, most=40),
        Job(keeps=200, step=9000, least=40, most=40),
        Job(keeps=1000, step=500, least=10, most=100),
        Job(keeps=3000, step=0, least=10, most=40),
    ]
    occupancy, requests = _devices(jobs)
    index = CandidateIndex(occupancy, SumRule(UtilisationSum()))
    kept = [CandidateList(index, request) for request in requests]
    seated: list[tuple[int, Occupant]] = []
    for number in range(80):
        at = chance.randrange(len(requests))
        found = kept[at].best(set())
        assert found == CandidateList(index, requests[at]).best(set())
        if found is None or (seated and chance.random() < 0.3):
            occupancy.lift(*seated.pop(chance.randrange(len(seated))))
        else:
            occupant = _occupant(number, requests[at], found.percent, found.lane)
            seated.append((found.sites[0], occupant))
            occupancy.put(*seated[-1])


@examples(60, many=100)
@given(
    tenants=st.lists(
        st.builds(
            LaneAssignment,
            lane=st.integers(0, 3),
            persistent_mib=st.integers(0, 50),
            ephemeral_mib=st.integers(0, 50),
            percent=st.integers(1, 100),
        ),
        max_size=8,
    )
)
def test_a_lane_counts_once(tenants: list[LaneAssignment]) -> None:
    lanes = {one.lane: one for one in assigned_lanes(tenants)}
    assert set(lanes) == {one.lane for one in tenants if one.lane}
    for number, lane in lanes.items():
        mine = [one for one in tenants if one.lane == number]
        assert (lane.size_mib, lane.percent, lane.residents) == (
            max(one.ephemeral_mib for one in mine),
            max(one.percent for one in mine),
            len(mine),
        )
    alone = sum(one.persistent_mib + one.ephemeral_mib for one in tenants if not one.lane)
    stays = sum(one.persistent_mib for one in tenants if one.lane)
    assert sum(counted_mib(tenants)) == alone + stays + sum(one.size_mib for one in lanes.values())
    occupants = [
        Occupant(
            pod_uid=str(at),
            owner_uid="",
            tenant=Tenant(name=str(at), percent=one.percent),
            memory_mib=one.persistent_mib + one.ephemeral_mib,
            domain=0,
            whole=False,
            lane=one.lane,
            ephemeral_mib=one.ephemeral_mib if one.lane else 0,
        )
        for at, one in enumerate(tenants)
    ]
    assert len(parties(occupants)) == len(lanes) + sum(not one.lane for one in tenants)
