# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Slices in the spec follow the pods; what runs is adopted, what is over is released."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import EPOCH, NOW, a_gpu_node, a_job, a_node, a_pod, a_slice, gpu, reported
from fakes.deciding import decided
from ullage.api.slices import SlicePhase
from ullage.cluster.records.pod import PodStage
from ullage.scheduling.model.plan import ApplyGPUNode

JOB = a_job()
POD = a_pod("train-0", owner=JOB.build(), stage=PodStage.RUNNING, node="node-1")
HELD = a_slice(POD, percent=100)


@pytest.mark.parametrize("phase", [one for one in SlicePhase if one.started])
def test_a_slice_that_runs_and_was_lost_from_the_spec_is_adopted(phase: SlicePhase) -> None:
    old = reported(HELD, phase, epoch=EPOCH - 2)
    found = decided(JOB.status(phase="Running"), POD, a_gpu_node(observed=[old]))
    adopted = found.one(ApplyGPUNode).slices
    assert [(one.key, one.gpu, one.percent, one.epoch) for one in adopted] == [
        (HELD.key, HELD.gpu, 100, EPOCH)
    ]


def test_a_reservation_is_not_adopted() -> None:
    gated = replace(JOB.pods()[0], uid=POD.uid)
    seen = reported(HELD, SlicePhase.RESERVED)
    found = decided(JOB, gated, a_gpu_node(devices=1, observed=[seen]))
    assert not found.slices(), "it must be gone from the status before it is made again"


@pytest.mark.parametrize(
    "pod",
    [
        None,
        replace(POD, stage=PodStage.SUCCEEDED),
        replace(POD, stage=PodStage.FAILED, disrupted=True),
        replace(POD, node="node-2"),
    ],
)
def test_slices_of_pods_that_are_gone_finished_or_elsewhere_are_released(pod: object) -> None:
    node = a_gpu_node(desired=[HELD], observed=[reported(HELD, SlicePhase.ATTACHED)])
    parts = [JOB.status(phase="Running"), node, *([pod] if pod else [])]
    found = decided(*parts)  # type: ignore[arg-type]
    assert not [one for name, one in found.slices() if name == "node-1"]


def test_a_pod_that_is_terminating_keeps_its_slice() -> None:
    leaving = replace(POD, deleting=True)
    node = a_gpu_node(desired=[HELD], observed=[reported(HELD, SlicePhase.ATTACHED)])
    assert decided(JOB, leaving, node).slices()


def test_a_slice_written_for_two_nodes_stays_where_it_was_answered() -> None:
    gated = replace(JOB.pods()[0], uid=POD.uid)
    first = a_gpu_node("node-1", desired=[HELD])
    moved = replace(HELD, gpu=gpu("node-2"))
    second = a_gpu_node("node-2", desired=[moved], observed=[reported(moved)])
    found = decided(JOB, gated, first, second)
    assert found.slices() == [("node-2", moved)]


def test_slices_on_a_node_that_is_not_ready_are_kept() -> None:
    node = a_gpu_node(desired=[HELD], observed=[reported(HELD, SlicePhase.ATTACHED)])
    found = decided(JOB.status(phase="Running"), POD, a_node(ready=False), node)
    assert found.slices() == [("node-1", HELD)]


def test_every_node_of_ours_gets_a_gpu_node() -> None:
    found = decided(a_node("node-1"), a_node("node-2", managed=False))
    made = found.one(ApplyGPUNode)
    assert (made.name, made.uid, made.node_uid, made.slices) == (
        "node-1",
        "",
        "uid-node-1",
        (),
    )
    assert made.epoch == EPOCH


def test_a_node_that_lost_our_label_gets_nothing_new_and_keeps_what_runs() -> None:
    node = a_gpu_node(desired=[HELD], observed=[reported(HELD, SlicePhase.ATTACHED)])
    other = a_job("other")
    found = decided(
        a_node(managed=False), node, JOB.status(phase="Running"), POD, other, *other.pods()
    )
    assert found.slices() == [("node-1", HELD)]


def test_who_retires_a_node_is_not_contradicted() -> None:
    gone = a_slice("uid-gone", percent=10)
    node = a_gpu_node(desired=[gone], retire=True)
    applied = decided(node).one(ApplyGPUNode)
    assert (applied.retire, applied.slices) == (True, ())


def test_an_untouched_node_is_not_written_to() -> None:
    node = a_gpu_node(desired=[HELD], observed=[reported(HELD, SlicePhase.ATTACHED)])
    spare = a_gpu_node("node-2", epoch=EPOCH - 5, heartbeat=NOW - 3)
    found = decided(JOB.status(phase="Running"), POD, node, spare)
    assert not found.all(ApplyGPUNode)
