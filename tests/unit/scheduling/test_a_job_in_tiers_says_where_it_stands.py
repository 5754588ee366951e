# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What a coordinator tells is the job's status: news at once, steps once a minute."""

from __future__ import annotations

from dataclasses import replace

from builders import (
    NOW,
    WorkloadBuilder,
    a_gpu_node,
    a_job,
    a_kube_service,
    a_pod,
    a_slice,
    a_snapshot,
    gpu,
    reported,
)
from fakes.deciding import Decided, decided_on
from ullage.api.slices import SlicePhase
from ullage.api.trainingjob import TierTerms
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.tier import CoordinatorReport
from ullage.scheduling.model.plan import Emit, SetStatus

TERMS = TierTerms(reliable=1, state_bytes=1 << 30)
REPORT = CoordinatorReport(stage=2, epoch=4, step=102, committed=101, reliable=1, transient=2)
JOB = a_job().elastic(2, 3, in_place=True, tiers=TERMS).gang(2)


def running(
    report: CoordinatorReport | None,
    built: WorkloadBuilder | None = None,
    *,
    at: float = NOW,
    coordinator: bool = True,
) -> Decided:
    """Every member runs beside its coordinator, which tells this."""
    built = built or JOB.status(phase="Running", replicas=2, start_time=NOW - 100)
    pods = tuple(
        replace(pod, node=f"node-{rank}")
        for rank, pod in enumerate(built.pods(PodStage.RUNNING, since=NOW - 50))
    )
    nodes = []
    for rank, pod in enumerate(pods):
        held = a_slice(pod, device=gpu(f"node-{rank}"), percent=100, memory_mib=16_384)
        seen = [reported(held, SlicePhase.ATTACHED)]
        nodes.append(a_gpu_node(f"node-{rank}", devices=1, desired=[held], observed=seen))
    parts: list[object] = [built, *pods, *nodes, a_kube_service(JOB.build(), "train-lead")]
    if coordinator:
        parts.append(a_coordinator())
    parts.append(a_kube_service(JOB.build(), "train-workers"))
    snapshot = a_snapshot(*parts, now=at)  # type: ignore[arg-type]
    uid = built.build().ref.uid
    told = {uid: report} if report is not None else {}
    return decided_on(replace(snapshot, leads=told), at=at)


def a_coordinator() -> PodRecord:
    pod = a_pod("train-lead", owner=JOB.build(), rank=-1, stage=PodStage.RUNNING)
    return replace(pod, lead=True, node="node-9", address="10.0.0.9")


def after(
    report: CoordinatorReport | None, found: Decided, *, at: float, coordinator: bool = True
) -> Decided:
    """The next look, with the status as it was told."""
    status = found.status("train")
    return running(report, JOB.with_(status=status, replicas=2), at=at, coordinator=coordinator)


def reasons(found: Decided) -> list[str]:
    return [one.reason.value for one in found.all(Emit)]


def test_stage_ratio_and_copy_are_told() -> None:
    tier = running(REPORT).status("train").tier
    assert tier is not None
    assert (tier.stage, tier.ratio, tier.epoch) == (2, "2:1", 4)
    assert (tier.last_consistent_step, tier.backup_lag_steps, tier.lost_steps) == (101, 1, 0)
    assert running(REPORT).condition("train", "Recoverable").reason == "CopyHeld"


def test_steps_that_go_by_are_told_once_a_minute() -> None:
    first = running(REPORT)
    later = replace(REPORT, step=150, committed=149)
    soon = after(later, first, at=NOW + 30)
    assert soon.all(SetStatus) == []
    due = after(later, first, at=NOW + 61)
    tier = due.status("train").tier
    assert tier is not None
    assert tier.last_consistent_step == 149


def test_nothing_is_written_twice() -> None:
    first = running(REPORT)
    again = after(REPORT, first, at=NOW + 300)
    assert again.all(SetStatus) == []
    assert reasons(again) == []


def test_another_stage_is_news() -> None:
    found = after(replace(REPORT, stage=3, epoch=5), running(REPORT), at=NOW + 1)
    assert "StageChanged" in reasons(found)
    tier = found.status("train").tier
    assert tier is not None
    assert tier.stage == 3


def test_steps_that_are_done_again_are_told_once() -> None:
    first = running(REPORT)
    lost = replace(REPORT, lost_steps=2, epoch=5)
    found = after(lost, first, at=NOW + 1)
    (event,) = [one for one in found.all(Emit) if one.reason.value == "RolledBack"]
    assert event.warning
    assert "2 steps" in event.text
    assert "RolledBack" not in reasons(after(replace(lost, step=110), found, at=NOW + 5))


def test_without_a_whole_copy_it_is_not_recoverable() -> None:
    found = running(replace(REPORT, committed=None))
    shown = found.condition("train", "Recoverable")
    assert (shown.status, shown.reason) == ("False", "NoCopy")
    tier = found.status("train").tier
    assert tier is not None
    assert tier.last_consistent_step is None


def test_what_reliable_members_own_needs_no_copy() -> None:
    report = replace(REPORT, stage=1, committed=None, copied=False)
    assert running(report).condition("train", "Recoverable").reason == "ReliableOwn"


def test_a_lead_that_is_silent_for_a_while_changes_nothing() -> None:
    first = running(REPORT)
    silent = after(None, first, at=NOW + 10)
    assert silent.all(SetStatus) == []


def test_conditions_of_others_stay_where_they_are() -> None:
    types = [one.type for one in running(REPORT).status("train").conditions]
    assert types[:4] == ["Admitted", "Placed", "Ready", "Enforced"]
    assert "Recoverable" in types
