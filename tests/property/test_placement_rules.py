# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Properties of single decisions, on situations that stress runs produce."""

from __future__ import annotations

import pickle
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import builders
from fakes.examples import examples
from fakes.toy_stress import StressRun
from ullage.app.transfer import Packer, Unpacker
from ullage.cluster.records.snapshot import Snapshot
from ullage.engines.admission.limits import LIMITS, ceiling
from ullage.engines.admission.records import Tenant
from ullage.engines.admission.utilisation import UtilisationSum
from ullage.scheduling.assignment.observe import look
from ullage.scheduling.cycle.decide import decide
from ullage.scheduling.cycle.diff import diff
from ullage.scheduling.feasibility.device_facts import one_device
from ullage.scheduling.feasibility.occupancy import Domains, Occupancy, Occupant
from ullage.scheduling.feasibility.resource_requests import ResourceRequests
from ullage.scheduling.inventory.inventory import take_inventory
from ullage.scheduling.inventory.node_fit import amounts
from ullage.scheduling.model.plan import DecideSettings, SetStatus
from ullage.scheduling.model.slice_ledger import Ledger
from ullage.scheduling.placement.candidates import CandidateIndex, CandidateList
from ullage.scheduling.prediction.verdicts import SumRule
from ullage.scheduling.prediction.workload_classes import Classes

SETTINGS = DecideSettings(epoch=3)
SEEDS = st.integers(0, 10_000)


def _situation(seed: int, events: int = 60) -> Snapshot:
    stress = StressRun(seed)
    stress.toy.epoch = SETTINGS.epoch
    stress.run(events)
    return stress.toy.snapshot()


@examples(20, many=40)
@given(SEEDS)
def test_the_same_picture_gives_the_same_plan(seed: int) -> None:
    snapshot = _situation(seed)
    now = snapshot.taken_at
    first = decide(snapshot, now, SETTINGS)
    again = decide(pickle.loads(pickle.dumps(snapshot)), now, SETTINGS)
    assert first == again
    assert diff(first, snapshot) == diff(again, snapshot)


@examples(20, many=40)
@given(SEEDS)
def test_the_order_of_the_records_does_not_matter(seed: int) -> None:
    snapshot = _situation(seed)
    shuffled = {}
    for table in ("nodes", "gpu_nodes", "pods", "workloads", "deployments", "services"):
        items = list(getattr(snapshot, table).items())
        random.Random(seed).shuffle(items)
        shuffled[table] = dict(items)
    other = replace(snapshot, **shuffled)
    now = snapshot.taken_at
    expected = decide(snapshot, now, SETTINGS)
    found = decide(other, now, SETTINGS)
    assert found == expected
    assert diff(found, other) == diff(expected, snapshot)


@examples(15, many=25)
@given(SEEDS)
def test_a_plan_that_was_carried_out_leaves_nothing_to_do(seed: int) -> None:
    stress = StressRun(seed)
    stress.run(80)
    _, actions = stress.cycle()
    after = stress.toy.snapshot()
    plan = decide(after, stress.toy.now, DecideSettings(epoch=stress.toy.epoch))
    left = diff(plan, after)
    # what an action changed at once may ask for the next step (a pod that is there now), but the
    # same thing is never asked for twice
    said = {one.owner.uid: one.status for one in actions if isinstance(one, SetStatus)}
    for one in left:
        assert one not in actions
        if isinstance(one, SetStatus) and one.owner.uid in said:
            assert one.status != said[one.owner.uid]


@examples(20, many=40)
@given(SEEDS, SEEDS)
def test_changes_sent_in_pieces_make_the_same_picture(seed: int, other: int) -> None:
    packer, unpacker = Packer(), Unpacker()
    stress = StressRun(seed)
    for part in range(3):
        stress.run(20 + other % 30)
        snapshot = stress.toy.snapshot()
        received, now, _ = unpacker.unpack(packer.pack(snapshot, stress.toy.now, SETTINGS))
        assert received == snapshot
        assert now == stress.toy.now
        if part == 1:
            packer.reset()


@pytest.mark.parametrize("seed", range(12))
def test_a_shortlist_kept_current_equals_one_made_afresh(seed: int) -> None:
    chance = random.Random(seed)
    view = _view(chance)
    inventory = take_inventory(view)
    occupancy = Occupancy(inventory, Domains())
    occupancy.free = [dict(amounts(node.allocatable)) | {"pods": 99} for node in inventory.nodes]
    requests = ResourceRequests(view, occupancy, Classes(view.snapshot, inventory))
    candidate_index = CandidateIndex(occupancy, SumRule(UtilisationSum()))
    classes = [requests.of(one, one.shape) for one in view.snapshot.workloads.values()]
    kept = [CandidateList(candidate_index, request) for request in classes]
    seated: list[tuple[int, Occupant]] = []
    for _ in range(120):
        if seated and chance.random() < 0.4:
            site, occupant = seated.pop(chance.randrange(len(seated)))
            occupancy.lift(site, occupant)
            occupancy.refund(inventory.sites[site].node, classes[0].shape.requests)
        else:
            site, occupant = chance.randrange(len(inventory.sites)), _occupant(chance)
            occupancy.put(site, occupant)
            occupancy.charge(inventory.sites[site].node, classes[0].shape.requests)
            seated.append((site, occupant))
        at = chance.randrange(len(classes))
        assert kept[at].best(set()) == CandidateList(candidate_index, classes[at]).best(set())


@pytest.mark.parametrize("seed", range(6))
def test_a_check_says_the_same_of_one_device_and_of_all(seed: int) -> None:
    chance = random.Random(seed)
    view = _view(chance)
    inventory = take_inventory(view)
    occupancy = Occupancy(inventory, Domains())
    for site in range(len(inventory.sites)):
        for _ in range(chance.randrange(4)):
            occupancy.put(site, _occupant(chance))
    requests = ResourceRequests(view, occupancy, Classes(view.snapshot, inventory))
    for workload in view.snapshot.workloads.values():
        request = requests.of(workload, workload.shape)
        everything = occupancy.facts
        for limit in LIMITS:
            together = np.broadcast_to(limit.short(everything, request), (len(inventory.sites),))
            alone = [
                limit.short(one_device(occupancy.facts, site), request)
                for site in range(len(inventory.sites))
            ]
            assert together.tolist() == alone
        if not request.exclusive:
            together = ceiling(everything, request)
            assert together.tolist() == [
                ceiling(one_device(occupancy.facts, site), request)
                for site in range(len(inventory.sites))
            ]


def _view(chance: random.Random):  # type: ignore[no-untyped-def]
    jobs = [
        builders.a_job("whole"),
        builders.a_job("pair").exclusive(2),
        builders.a_job("share").fractional(20, 60),
        builders.a_job("fast").fractional(25, 80).slowdown(2.5),
        builders.a_job("big").fractional(10, 50, memory_mib=6000),
        builders.a_job("red").fractional(30).trusting("domain-1"),
    ]
    nodes = [builders.a_gpu_node(f"node-{at}", devices=3) for at in range(4)]
    shapes = [builders.a_node(f"node-{at}", cpu=chance.choice((2, 6, 64))) for at in range(4)]
    snapshot = builders.a_snapshot(*shapes, *nodes, *jobs)
    return look(snapshot, builders.NOW, SETTINGS, Ledger(snapshot))


def _occupant(chance: random.Random) -> Occupant:
    whole = chance.random() < 0.2
    percent = 100 if whole else chance.choice((10, 25, 40))
    slowdown = chance.choice((None, None, 2.0, 5.0))
    return Occupant(
        pod_uid=f"pod-{chance.random()}",
        owner_uid="someone",
        tenant=Tenant(name="someone", percent=percent, max_slowdown=slowdown),
        memory_mib=percent * 100,
        domain=chance.choice((0, 0, 1)),
        whole=whole,
    )
