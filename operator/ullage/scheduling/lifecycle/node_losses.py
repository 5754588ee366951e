# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Failures that were counted and turn out to be the doing of a lost node: they are given back.

When a machine dies, its peers lose their connections within seconds; Kubernetes says up to a minute
later that the node is not Ready. All that is needed for the correction stands in the status, and
is gone from there with it, so no failure is given back twice. A node that someone wanted gone
gives nothing back: an autoscaler takes the node of a job that just failed, for it is empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ullage.api.interruptions import InterruptionKind
from ullage.api.reasons import ConditionType, Reason
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.snapshot import PodStage, WorkloadRecord
from ullage.cluster.records.status import MOST_NODES, FailureRecord
from ullage.scheduling.inventory.instances import provider_notice, someone_wants_it_gone
from ullage.scheduling.model.view import Member, View
from ullage.scheduling.times import LOSS_EXPLAINS_S


def with_given_back(view: View, job: WorkloadRecord) -> WorkloadRecord:
    """The job as its life goes on: without the failures that a lost node explains.

    The status is written without them too; until then each cycle finds the same again.
    """
    failure = job.status.last_failure
    if failure is None or not failure.time <= view.now <= failure.time + LOSS_EXPLAINS_S:
        return job
    lost = next((text for node in failure.nodes if (text := _lost(view, job, node))), "")
    if not lost:
        return job
    one = failure.count == 1
    text = f"{lost}; the failure{'' if one else 's'} shortly before {'is' if one else 'are'}"
    conditions = tuple(
        replace(shown, reason=Reason.MEMBER_LOST.value, message=f"{text} not counted")
        if shown.type == ConditionType.ADMITTED and shown.reason == Reason.EXIT_CODE
        else shown
        for shown in job.status.conditions
    )
    status = replace(
        job.status,
        restarts=max(0, job.status.restarts - failure.count),
        retry_at=0.0,
        conditions=conditions,
    )
    return replace(job, status=status)


def noted(
    view: View, job: WorkloadRecord, restarts: int, members: Sequence[Member]
) -> FailureRecord | None:
    """``status.lastFailure`` beside a number of restarts.

    Args:
        view: The cycle's snapshot.
        job: With the status of before.
        restarts: Those that the status is going to tell.
        members: Its pods, those that failed among them.
    """
    before, more = job.status.last_failure, restarts - job.status.restarts
    if more == 0:
        return before
    if more < 0:
        return None
    recent = before is not None and 0 <= view.now - before.time <= LOSS_EXPLAINS_S
    known = before if recent else None
    nodes = {member.pod.node for member in members if member.pod.stage is not PodStage.FAILED}
    nodes |= set(known.nodes) if known is not None else set()
    well = sorted(name for name in nodes if _is_well(view, name))
    if not well:
        return None
    count = more + (known.count if known is not None else 0)
    return FailureRecord(time=whole_second(view.now), count=count, nodes=tuple(well[:MOST_NODES]))


def _lost(view: View, job: WorkloadRecord, name: str) -> str:
    """What became of a node that a member was on, in words; empty = nothing that tells."""
    node = view.snapshot.nodes.get(name)
    if node is None:
        there = any(member.pod.node == name for member in view.members_of(job))
        return f"{name} is gone with a member" if there else ""
    notice = provider_notice(node, view.snapshot.gpu_nodes.get(name))
    if notice is not None and notice.kind is InterruptionKind.TERMINATE:
        return f"{name}, where a member was, is taken away"
    if node.ready or someone_wants_it_gone(node):
        return ""
    return f"{name}, where a member was, does not answer"


def _is_well(view: View, name: str) -> bool:
    """Whether a node stood as it should when the failure was counted."""
    node = view.snapshot.nodes.get(name)
    if node is None or not node.ready or someone_wants_it_gone(node):
        return False
    notice = provider_notice(node, view.snapshot.gpu_nodes.get(name))
    return notice is None or notice.kind is not InterruptionKind.TERMINATE
