# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Load of a service, put together from what nodes report of its replicas.

A report is believed while the node's heartbeat is fresh. A ready replica without one counts as
missing: its part is guessed for planning more, and nothing is taken away meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ullage.api.loads import ObservedLoad
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
    """What most replicas are."""

    accelerator: str
    percent: int


def load_of(view: View, members: Sequence[Member]) -> ServiceLoad | None:
    """The load of a service; ``None`` = no replica reports any.

    Args:
        view: The cycle's snapshot.
        members: Its replicas that live and stay.
    """
    ready = [member for member in members if member.pod.ready]
    found = [load for member in ready if (load := _reported(view, member)) is not None]
    if not found:
        return None
    rates = [min(MOST_PER_S, load.requests_milli / 1e3) for load in found]
    total = sum(rates)
    missing = len(ready) - len(found)

    def mean(values: Sequence[float]) -> float:
        weighed = sum(value * rate for value, rate in zip(values, rates, strict=True))
        return weighed / total if total > 0 else 0.0

    return ServiceLoad(
        requests_per_s=total * len(ready) / len(found),
        mean_s=mean([min(LATENCY_MOST_S, load.request_micros / 1e6) for load in found]),
        at_quantile_s=mean([min(LATENCY_MOST_S, load.latency_micros / 1e6) for load in found]),
        late=mean([load.late_milli / 1e3 for load in found]),
        reporting=len(found),
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
    (accelerator, percent), _ = min(kinds.items(), key=lambda one: (-one[1], one[0]))
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
