# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Load of a service, summed over the reports of nodes, and the replicas that share it.

A report counts while the node's heartbeat is fresh. A ready replica without a report counts as
missing: its load is estimated for scaling up, and the service is not scaled down meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ullage.api.loads import ObservedLoad
from ullage.api.reasons import Standing
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.lifecycle.inference import is_rolling
from ullage.scheduling.model.view import Member, View
from ullage.scheduling.times import LATENCY_MOST_S, LOAD_STALE_S

MOST_PER_S: Final = 1e7


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLoad:
    """Requests to all replicas, seconds and requests per second.

    ``missing`` counts ready replicas that report nothing.
    """

    requests_per_s: float
    mean_s: float
    at_quantile_s: float
    late: float
    reporting: int
    missing: int

    @property
    def per_replica(self) -> float:
        """Requests per second to each replica that reports."""
        return self.requests_per_s / (self.reporting + self.missing)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaKind:
    """Accelerator and share of a replica."""

    accelerator: str
    percent: int


def load_of(view: View, members: Sequence[Member]) -> ServiceLoad | None:
    """The load of a service; ``None`` = no replica reports any.

    Args:
        view: The cycle's snapshot.
        members: Its replicas that live and stay.
    """
    ready = [member for member in members if member.pod.ready]
    loads = [load for member in ready if (load := _reported(view, member)) is not None]
    if not loads:
        return None
    rates = [min(MOST_PER_S, load.requests_milli / 1e3) for load in loads]
    total = sum(rates)
    missing = len(ready) - len(loads)

    def mean(values: Sequence[float]) -> float:
        weighed = sum(value * rate for value, rate in zip(values, rates, strict=True))
        return weighed / total if total > 0 else 0.0

    return ServiceLoad(
        requests_per_s=total * len(ready) / len(loads),
        mean_s=mean([min(LATENCY_MOST_S, load.request_micros / 1e6) for load in loads]),
        at_quantile_s=mean([min(LATENCY_MOST_S, load.latency_micros / 1e6) for load in loads]),
        late=mean([load.late_milli / 1e3 for load in loads]),
        reporting=len(loads),
        missing=missing,
    )


def served_by(view: View, members: Sequence[Member]) -> ReplicaKind:
    """Accelerator and share of most replicas."""
    kinds = Counter(
        (model_of(view, held.node, held.slice.gpu), held.slice.percent)
        for member in members
        for held in member.held[:1]
    )
    if not kinds:
        return ReplicaKind(accelerator="", percent=0)
    (accelerator, percent), _ = min(kinds.items(), key=lambda entry: (-entry[1], entry[0]))
    return ReplicaKind(accelerator=accelerator, percent=percent)


def model_of(view: View, node: str, gpu: str) -> str:
    """Accelerator of a device; empty = the node does not report it."""
    record = view.snapshot.gpu_nodes.get(node)
    devices = record.devices if record is not None else ()
    return next((device.model for device in devices if device.uuid == gpu), "")


def _reported(view: View, member: Member) -> ObservedLoad | None:
    if not member.held:
        return None
    held = member.held[0]
    record = view.snapshot.gpu_nodes.get(held.node)
    fresh = record is not None and abs(view.now - record.heartbeat) <= LOAD_STALE_S
    return held.seen.load if fresh and held.seen is not None else None


def replicas_that_serve(view: View) -> dict[str, int]:
    """Serving replicas, at least 1, by uid of the services that have fewer than wanted.

    A replica that finds no place or does not become ready leaves its part of the load to the
    others. Replicas of an update or a move do not change the number.
    """
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
