# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Adopted pods are shown like jobs: where they run, how fast, why they wait, how they ended."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO

from rich.console import Console, RenderableType

from builders import (
    NOW,
    WorkloadBuilder,
    a_gpu_node,
    a_pod,
    a_slice,
    a_snapshot,
    an_adopted,
    reported,
)
from ullage.api.reasons import ConditionType, Reason
from ullage.api.slices import SlicePhase
from ullage.cli import tables
from ullage.cli.forms import OutputFormat
from ullage.cli.look import workloads
from ullage.cli.output import workloads_as
from ullage.cli.seen import ends, with_pods
from ullage.cluster.codecs.pod_status import kept_in_pods
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import Condition, DecisionRecord, Sharing, WorkloadStatus

PLACED = DecisionRecord(
    time=NOW, epoch=1, inputs_hash="x", chosen="", runner_up="", reason=Reason.PLACED, message=""
)
STATUS = kept_in_pods(
    WorkloadStatus(
        observed_generation=1,
        phase="Running",
        decision=PLACED,
        sharing=Sharing(percent=40, memory_mib=4096, predicted="1.20", predicted_upper="1.31"),
    )
)


def text(shown: RenderableType) -> str:
    out = StringIO()
    Console(file=out, width=240, color_system=None).print(shown)
    return out.getvalue()


def ran(unit: WorkloadBuilder, **fields: object) -> PodRecord:
    return a_pod("web-0", owner=unit.record, rank=-1, node="node-1", **fields)  # type: ignore[arg-type]


def a_running_pod() -> Snapshot:
    unit = an_adopted("web").fractional(40).with_(status=STATUS)
    pod = ran(unit, stage=PodStage.RUNNING)
    held = a_slice(pod, percent=40)
    seen = replace(reported(held, SlicePhase.ATTACHED), step_micros=15_000, solo_step_micros=12_000)
    return a_snapshot(unit, pod, a_gpu_node(devices=1, desired=[held], observed=[seen]))


def test_status_shows_node_share_and_slowdowns() -> None:
    shown = text(tables.overview(workloads(with_pods(a_running_pod())), NOW))
    line = shown.splitlines()[1].split()
    assert line[2:9] == ["Pod", "Running", "Placed", "node-1", "40%", "1.20x", "1.25x"]


def test_a_user_who_may_not_list_nodes_sees_what_the_pod_holds() -> None:
    seen = with_pods(replace(a_running_pod(), gpu_nodes={}))
    line = text(tables.overview(workloads(seen), NOW)).splitlines()[1].split()
    assert line[5:9] == ["node-1", "40%", "1.20x", "-"]


def test_scripts_read_the_same() -> None:
    found = workloads(with_pods(a_running_pod()))
    (item,) = json.loads(workloads_as(found, OutputFormat.JSON))["items"]
    status = item["status"]
    assert (item["kind"], status["nodes"], status["gpus"]) == ("Pod", "node-1", 1)
    sharing = status["sharing"]
    assert (sharing["percent"], sharing["predicted"], sharing["observed"]) == (40, "1.20", "1.25")


def test_top_shows_the_slowdowns_of_its_tenants() -> None:
    shown = text(tables.top(with_pods(a_running_pod()), NOW))
    tenant = next(line for line in shown.splitlines() if "default/web" in line)
    assert "1.20x" in tenant
    assert "1.25x" in tenant


def test_pods_that_failed_stay_and_say_how() -> None:
    unit = an_adopted("web")
    pod = ran(unit, stage=PodStage.FAILED)
    pod = replace(pod, exit_code=137, end_reason="OOMKilled", last_line="step 12")
    seen = with_pods(replace(a_snapshot(unit, pod), workloads={}))
    (found,) = workloads(seen)
    line = text(tables.overview([found], NOW)).splitlines()[1].split()
    assert line[1:6] == ["web", "Pod", "Failed", "ExitCode", "node-1"]
    told = text(tables.why(found, None, tuple(ends(seen, found))))
    assert "web-0 failed with exit code 137 (OOMKilled): step 12" in told
    assert "raise the container's memory limit" in told
    assert "Placed" not in told


def test_pods_that_ended_well_stay() -> None:
    unit = an_adopted("web")
    seen = with_pods(replace(a_snapshot(unit, ran(unit, stage=PodStage.SUCCEEDED)), workloads={}))
    line = text(tables.overview(workloads(seen), NOW)).splitlines()[1].split()
    assert line[3:5] == ["Succeeded", "Completed"]


def test_a_pod_too_many_is_told_of_its_gang_and_not_of_the_operator() -> None:
    waits = Condition(
        type=ConditionType.ADMITTED,
        status="False",
        reason=Reason.GANG_COMPLETE,
        message="the gang g has its 2 pods without this one",
        observed_generation=1,
        since=NOW,
    )
    status = WorkloadStatus(observed_generation=1, phase="Pending", conditions=(waits,))
    told = text(tables.why(an_adopted("g").with_(status=status).record))
    assert "the gang g has its 2 pods" in told
    assert "is the operator running" not in told


def test_a_container_that_is_started_again_and_again_says_why() -> None:
    unit = an_adopted("web").with_(status=STATUS)
    pod = ran(unit, stage=PodStage.RUNNING)
    pod = replace(
        pod,
        container_restarts=4,
        waiting_reason="CrashLoopBackOff",
        last_end="exit code 1: no such file",
    )
    seen = with_pods(a_snapshot(unit, pod))
    (found,) = workloads(seen)
    told = text(tables.why(found, None, tuple(ends(seen, found))))
    assert "CrashLoopBackOff; before: exit code 1: no such file" in told
