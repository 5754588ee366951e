# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Members, inventory, charges and requests that follow a random cluster equal fresh ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import NOW, a_gpu_node, a_job, a_pod, a_slice, a_snapshot, gpu
from fakes.toy_stress import StressRun
from ullage.api.devices import Health
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.snapshot import Snapshot
from ullage.engines.admission.limits import DEVICE_UNHEALTHY, FIGURES
from ullage.engines.admission.utilisation import UtilisationSum
from ullage.scheduling.assignment.observe import look
from ullage.scheduling.feasibility.occupancy import OccupantCache, occupancy_of
from ullage.scheduling.feasibility.resource_requests import RequestCache, ResourceRequests
from ullage.scheduling.inventory.inventory import Inventory, InventoryCache, take_inventory
from ullage.scheduling.lifecycle.members import MemberCache
from ullage.scheduling.model.plan import DecideSettings
from ullage.scheduling.model.slice_ledger import Ledger
from ullage.scheduling.model.view import View
from ullage.scheduling.placement.candidates import CandidateIndex
from ullage.scheduling.prediction.usual_requests import UsualCache
from ullage.scheduling.prediction.verdicts import SumRule
from ullage.scheduling.prediction.workload_classes import ClassCache, Classes

SETTINGS = DecideSettings(epoch=1)
STEPS = 200


class Kept:
    """What one reader of a changing cluster keeps."""

    def __init__(self) -> None:
        self.members, self.inventory = MemberCache(), InventoryCache()
        self.usual, self.classes = UsualCache(), ClassCache()
        self.occupants, self.requests = OccupantCache(), RequestCache()

    def read(self, snapshot: Snapshot, now: float) -> tuple[View, Inventory, Ledger, object]:
        ledger = Ledger(snapshot)
        view = look(snapshot, now, SETTINGS, ledger, self.members)
        inventory = take_inventory(view, self.inventory)
        classes = Classes(snapshot, inventory, cache=self.classes)
        occupancy = occupancy_of(view, inventory, ledger, classes, self.occupants)
        requests = ResourceRequests(view, occupancy, classes, cache=self.requests)
        return view, inventory, ledger, (self.usual.update(view, classes), self._asked(requests))

    def _asked(self, requests: ResourceRequests) -> object:
        """What is free on every node, who leaves, what workloads ask for, and where they fit."""
        workloads = requests.view.snapshot.workloads
        occupancy = requests.occupancy
        fits = CandidateIndex(occupancy, SumRule(UtilisationSum())).fit
        return (
            [{name: left for name, left in free.items() if left} for free in occupancy.free],
            occupancy.leaving(),
            {uid: replace(requests.of(one, one.shape), number=0) for uid, one in workloads.items()},
            {uid: fits(one.shape).tolist() for uid, one in workloads.items()},
        )


def figures(inventory: Inventory) -> list[object]:
    names = [name for name in Inventory.__slots__ if name not in ("facts", "fits")]
    columns = [getattr(inventory, name) for name in names]
    columns += [getattr(inventory.facts, name) for name in FIGURES]
    return [one.tolist() if hasattr(one, "tolist") else one for one in columns]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_they_equal_what_a_fresh_reader_finds(seed: int) -> None:
    run, kept = StressRun(seed), Kept()
    for _ in range(STEPS):
        run.run(2)
        snapshot = run.toy.snapshot()
        ours, fresh = kept.read(snapshot, run.toy.now), Kept().read(snapshot, run.toy.now)
        assert {uid: list(one) for uid, one in ours[0].members.items()} == {
            uid: list(one) for uid, one in fresh[0].members.items()
        }
        assert replace(ours[0], members={}) == replace(fresh[0], members={})
        assert figures(ours[1]) == figures(fresh[1])
        assert ours[2].slices() == fresh[2].slices()
        assert ours[3] == fresh[3]


def test_a_workload_that_is_being_deleted_gives_back_what_its_gated_pods_hold() -> None:
    job = a_job("low")
    pod = a_pod("low-0", owner=job.build(), stage=PodStage.GATED)
    wanted = a_slice(pod, device=gpu("node-1", 0), percent=50)
    before = a_snapshot(job, pod, a_gpu_node("node-1", devices=1, desired=[wanted]))
    uid, kept = pod.owner.uid, Kept()
    view, _, ledger, _ = kept.read(before, NOW)
    assert view.members[uid][0].held
    assert ledger.slices()["node-1"] == (wanted,)
    deleted = replace(before.workloads[uid], deleting=True)
    after = replace(before, workloads={**before.workloads, uid: deleted})
    for _ in range(2):  # as long as the spec says otherwise
        view, _, ledger, _ = kept.read(after, NOW)
        assert not view.members[uid][0].held
        assert ledger.slices()["node-1"] == ()


def test_a_device_that_fails_is_seen_while_all_stand_where_they_stood() -> None:
    before = a_snapshot(a_gpu_node("node-1", devices=2), a_gpu_node("node-2", devices=1))
    record, kept = before.gpu_nodes["node-1"], Kept()
    kept.read(before, NOW)
    failed = (replace(record.devices[0], health=Health.UNHEALTHY, contexts=3), *record.devices[1:])
    nodes = {**before.gpu_nodes, "node-1": replace(record, devices=failed)}
    after = replace(before, gpu_nodes=nodes)
    ours, fresh = kept.read(after, NOW)[1], Kept().read(after, NOW)[1]
    assert figures(ours) == figures(fresh)
    at = ours.site_index["node-1", record.devices[0].uuid]
    assert ours.health[at] == DEVICE_UNHEALTHY
    assert ours.facts.contexts[at] == 3
