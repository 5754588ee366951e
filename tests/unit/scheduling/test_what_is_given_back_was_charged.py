# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A pod is given back to its node with what it was charged there, whoever asks."""

from __future__ import annotations

import pytest

from builders import NOW, Part, a_gpu_node, a_job, a_node, a_pod, a_slice, a_snapshot, reported
from fakes.deciding import SETTINGS
from ullage.api.slices import SlicePhase
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.engines.admission.utilisation import UtilisationSum
from ullage.scheduling.assignment.observe import look
from ullage.scheduling.feasibility.occupancy import Occupancy, occupancy_of
from ullage.scheduling.feasibility.resource_requests import ResourceRequests
from ullage.scheduling.inventory.inventory import take_inventory
from ullage.scheduling.inventory.resource_usage import charged
from ullage.scheduling.model.slice_ledger import Ledger
from ullage.scheduling.model.view import View
from ullage.scheduling.placement.placement import Placer
from ullage.scheduling.placement.room import elsewhere
from ullage.scheduling.prediction.verdicts import SumRule
from ullage.scheduling.prediction.workload_classes import Classes

JOB = a_job().fractional(20, 40).checkpointed()
STAGES = {
    "bound": (PodStage.RUNNING, False),
    "pinned by its slice": (PodStage.GATED, False),
    "on its way out": (PodStage.RUNNING, True),
    "finished": (PodStage.SUCCEEDED, False),
}


def _pod(stage: PodStage, deleting: bool) -> PodRecord:
    node = "" if stage is PodStage.GATED else "node-1"
    return a_pod("train-0", owner=JOB.build(), stage=stage, node=node, deleting=deleting)


def _set(*parts: Part) -> tuple[View, Occupancy, ResourceRequests]:
    snapshot = a_snapshot(*parts)
    ledger = Ledger(snapshot)
    view = look(snapshot, NOW, SETTINGS, ledger)
    inventory = take_inventory(view)
    classes = Classes(snapshot, inventory)
    occupancy = occupancy_of(view, inventory, ledger, classes)
    return view, occupancy, ResourceRequests(view, occupancy, classes)


def _with(pod: PodRecord) -> tuple[View, Occupancy, ResourceRequests]:
    held = a_slice(pod, percent=40, memory_mib=1000)
    phase = SlicePhase.RESERVED if pod.stage is PodStage.GATED else SlicePhase.ATTACHED
    node = a_gpu_node(devices=1, desired=[held], observed=[reported(held, phase)])
    return _set(a_node("node-1"), node, JOB, pod)


@pytest.mark.parametrize("stage", STAGES)
def test_what_is_charged_is_what_is_given_back(stage: str) -> None:
    view, occupancy, _ = _with(_pod(*STAGES[stage]))
    _, empty, _ = _set(a_node("node-1"), a_gpu_node(devices=1))
    for node, wanted in charged(occupancy.inventory, view.members_of(JOB.build())):
        occupancy.refund(node, wanted)
    assert occupancy.free == empty.free


def test_a_board_of_later_gives_back_only_who_stays_until_then() -> None:
    for stage, staying in (("bound", 1), ("pinned by its slice", 1), ("on its way out", 0)):
        view, occupancy, _ = _with(_pod(*STAGES[stage]))
        found = charged(occupancy.inventory, view.members_of(JOB.build()), staying=True)
        assert len(found) == staying, stage


@pytest.mark.parametrize("stage", ["bound", "pinned by its slice"])
def test_asking_for_room_leaves_the_board_as_it_was(stage: str) -> None:
    view, occupancy, requests = _with(_pod(*STAGES[stage]))
    before = ([dict(one) for one in occupancy.free], [list(one) for one in occupancy.occupants])
    placer = Placer(occupancy, SumRule(UtilisationSum()))
    job = JOB.build()
    assert elsewhere(placer, requests, job, view.members_of(job), here_too=True)
    assert (
        [dict(one) for one in occupancy.free],
        [list(one) for one in occupancy.occupants],
    ) == before
