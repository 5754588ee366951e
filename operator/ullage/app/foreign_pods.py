# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Reports pods that claim a workload which did not create them, or devices they do not get.

Each is reported once. The log names those that claim a workload, up to a bound; the claimed
workload gets an Event, if it is in the same namespace. A pod that requests devices by a label and
was not prepared by admission gets an Event itself. Such pods are otherwise ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import structlog

from ullage.api.reasons import Reason
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.pod import ForeignPod
from ullage.cluster.records.snapshot import Snapshot
from ullage.scheduling.model.plan import Emit

log = structlog.get_logger("ullage.foreign-pods")

LOGGED_AT_ONCE: Final = 20
"""Log lines per check; the rest is a number."""
REPORTED_AT_ONCE: Final = 100
"""Events about unprepared pods per check; the others follow in the next."""


class ForeignPodReporter:
    """Tracks the reported pods."""

    def __init__(self) -> None:
        self._reported: frozenset[str] = frozenset()
        self._unprepared: set[str] = set()

    def report(
        self, snapshot: Snapshot, foreign: Mapping[str, ForeignPod], epoch: int
    ) -> tuple[Emit, ...]:
        """Log the pods that are new, and return one Event for each workload that they claim."""
        fresh = {uid: foreign[uid] for uid in sorted(foreign.keys() - self._reported)}
        self._reported = frozenset(foreign)
        if not fresh:
            return ()
        _log(fresh)
        by_owner: dict[tuple[str, str, str], list[ForeignPod]] = {}
        for pod in fresh.values():
            claims = pod.claims
            by_owner.setdefault((claims.kind, claims.namespace, claims.name), []).append(pod)
        owners = [workload.ref for workload in snapshot.workloads.values()]
        return tuple(
            _event(owner, pods, epoch)
            for owner in owners
            if (pods := by_owner.get((owner.kind, owner.namespace, owner.name)))
        )

    def unprepared(self, pods: Mapping[str, ForeignPod], epoch: int) -> tuple[Emit, ...]:
        """One Event for each pod that is new, a bounded number at once."""
        self._unprepared &= pods.keys()
        fresh = sorted(pods.keys() - self._unprepared)[:REPORTED_AT_ONCE]
        self._unprepared.update(fresh)
        return tuple(
            Emit(
                target=pods[uid].claims,
                warning=True,
                epoch=epoch,
                reason=Reason.NOT_ADOPTED,
                text=f"{pods[uid].why}: it runs without one; create it again where the chart's"
                " admissionPolicy.adoption is on (kubectl ullage doctor tells)",
            )
            for uid in fresh
        )


def _log(fresh: Mapping[str, ForeignPod]) -> None:
    for pod in list(fresh.values())[:LOGGED_AT_ONCE]:
        log.warning(
            "a pod claims a workload that did not create it; it is left alone",
            pod=f"{pod.namespace}/{pod.name}",
            claims=f"{pod.claims.kind}/{pod.claims.name}"[:512],
            why=pod.why,
        )
    if len(fresh) > LOGGED_AT_ONCE:
        log.warning("more such pods", more=len(fresh) - LOGGED_AT_ONCE)


def _event(owner: ObjectRef, pods: list[ForeignPod], epoch: int) -> Emit:
    first, others = pods[0], len(pods) - 1
    beside = f" (and {others} more)" if others else ""
    return Emit(
        target=owner,
        warning=True,
        epoch=epoch,
        reason=Reason.FOREIGN_POD,
        text=f"the pod {first.name}{beside} claims to be of this workload: {first.why}; left alone",
    )
