# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Number of replicas that share the load of a service: those that serve or soon will.

A replica that finds no place or does not become ready leaves its part of the load to the others,
and their neighbours must be judged by that. Replicas that come and go in an update or a move do not
change the number: each that leaves is replaced.
"""

from __future__ import annotations

from ullage.api.reasons import Standing
from ullage.cluster.records.snapshot import PodStage, WorkloadRecord
from ullage.scheduling.lifecycle.inference import is_rolling
from ullage.scheduling.model.view import Member, View


def replicas_that_serve(view: View) -> dict[str, int]:
    """Replicas that serve, at least 1, by uid of the services that have fewer than wanted."""
    serving_by_uid: dict[str, int] = {}
    for uid, workload in view.index.those(view.index.services):
        if (workload.load is None and workload.scaling is None) or workload.replicas <= 1:
            continue
        members = [
            member
            for member in view.members_of(workload)
            if member.live and not member.pod.deleting
        ]
        if is_rolling(workload, members):
            continue
        idle = sum(_serves_not(view, workload, member) for member in members)
        serving = max(workload.replicas, len(members)) - idle
        if serving < workload.replicas:
            serving_by_uid[uid] = max(1, serving)
    return serving_by_uid


def _serves_not(view: View, workload: WorkloadRecord, member: Member) -> bool:
    """True when a replica neither serves nor is about to."""
    pod, decision = member.pod, workload.status.decision
    if pod.ready:
        return False
    if pod.stage is PodStage.RUNNING:
        return view.now - pod.stage_since > view.settings.start_timeout_s
    return (
        member.gated
        and not member.held
        and decision is not None
        and Standing.UNDECIDED not in decision.reason.standing
        and pod.created <= decision.time
    )
