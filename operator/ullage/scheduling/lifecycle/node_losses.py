# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Counted failures that the loss of a node explains: the count is corrected.

When a machine dies, its peers lose their connections within seconds, but Kubernetes reports the
node as not Ready up to a minute later. ``status.lastFailure`` holds what the correction needs and
is removed with it, so that no failure is corrected twice. A node that was removed on purpose
explains nothing: an autoscaler removes the empty node of a job that just failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ullage.api.interruptions import InterruptionKind
from ullage.api.reasons import ConditionType, Reason
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.status import MOST_NODES, FailureRecord
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.inventory.instances import provider_notice, someone_wants_it_gone
from ullage.scheduling.model.view import Member, View
from ullage.scheduling.times import LOSS_EXPLAINS_S


def without_node_losses(view: View, job: WorkloadRecord) -> WorkloadRecord:
    """The job without the failures that a lost node explains.

    The status is written without them, too; until then every cycle computes the same.
    """
    failure = job.status.last_failure
    if failure is None or not failure.time <= view.now <= failure.time + LOSS_EXPLAINS_S:
        return job
    lost = next((text for node in failure.nodes if (text := _lost(view, job, node))), "")
    if not lost:
        return job
    single = failure.count == 1
    text = f"{lost}; the failure{'' if single else 's'} shortly before {'is' if single else 'are'}"
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


def failure_record(
    view: View, job: WorkloadRecord, restarts: int, members: Sequence[Member]
) -> FailureRecord | None:
    """``status.lastFailure`` for a new number of restarts.

    Args:
        view: The cycle's snapshot.
        job: The job with its previous status.
        restarts: The new ``status.restarts``.
        members: Its pods, with those that failed.
    """
    before, more = job.status.last_failure, restarts - job.status.restarts
    if more == 0:
        return before
    if more < 0:
        return None
    recent = before is not None and 0 <= view.now - before.time <= LOSS_EXPLAINS_S
    earlier = before if recent else None
    nodes = {member.pod.node for member in members if member.pod.stage is not PodStage.FAILED}
    nodes |= set(earlier.nodes) if earlier is not None else set()
    well = sorted(name for name in nodes if _is_well(view, name))
    if not well:
        return None
    count = more + (earlier.count if earlier is not None else 0)
    return FailureRecord(time=whole_second(view.now), count=count, nodes=tuple(well[:MOST_NODES]))


def _lost(view: View, job: WorkloadRecord, name: str) -> str:
    """Message about the loss of a member's node; empty = it is not lost."""
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
    """True when a node is Ready, under no notice, and not about to be removed."""
    node = view.snapshot.nodes.get(name)
    if node is None or not node.ready or someone_wants_it_gone(node):
        return False
    notice = provider_notice(node, view.snapshot.gpu_nodes.get(name))
    return notice is None or notice.kind is not InterruptionKind.TERMINATE
