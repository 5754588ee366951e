# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A notice may be dated in any year that a time can name: its node goes, nothing raises."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from builders import a_gpu_node, a_job, a_slice, gpu, reported
from fakes.deciding import decided
from ullage.api.interruptions import Interruption
from ullage.api.slices import SlicePhase
from ullage.app.effects import effect_of
from ullage.cluster.records.pod import PodStage
from ullage.kube.manifests.applied import status_body
from ullage.scheduling.model.plan import EvictPod, SetStatus, TaintNode

DATES = (
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+23:59",
    "1969-12-31T23:59:59Z",
    "9999-12-31T23:59:59Z",
    "9999-12-31T23:59:59-23:59",
)


def _notice(date: str) -> Interruption:
    return Interruption.from_wire({"kind": "Terminate", "deadline": date, "source": "ec2"})


@pytest.mark.parametrize("date", DATES)
@pytest.mark.parametrize("in_place", [None, False, True])
def test_a_notice_of_any_year_empties_its_node(date: str, in_place: bool | None) -> None:
    job = a_job().checkpointed().status(phase="Running")
    if in_place is not None:
        job = job.elastic(1, 2, in_place=in_place)
    pod = job.pods(PodStage.RUNNING, node="node-1")[0]
    held = a_slice(pod, device=gpu("node-1"), percent=100)
    node = a_gpu_node("node-1", desired=[held], observed=[reported(held, SlicePhase.ATTACHED)])
    found = decided(job, pod, replace(node, interruption=_notice(date)), a_gpu_node("node-2"))
    assert found.plan.faults == ()
    assert found.all(TaintNode)
    assert [one.grace_s is None or one.grace_s >= 1 for one in found.all(EvictPod)] == [True]
    for action in found.actions:
        effect_of(action)
        if isinstance(action, SetStatus):
            orjson.dumps(status_body(action, "1"))


@pytest.mark.parametrize("date", ["0000-01-01T00:00:00Z", "10000-01-01T00:00:00Z", "x" * 10**6])
def test_a_date_of_no_year_is_refused(date: str) -> None:
    with pytest.raises(ValueError) as told:
        _notice(date)
    assert len(str(told.value)) < 400
