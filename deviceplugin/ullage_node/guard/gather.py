# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Maps the agent's book, readings and pods to the guard's tenants. Pure; nothing waits here.

An insufficiently known tenant may not be paused: a slice that only an earlier agent reported, a pod
never received from the API server, a container without a process to find it by.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Final

from ullage.api.slices import SlicePhase
from ullage_node.model.devices import Attachment, ContainerKey, StepProgress
from ullage_node.model.guard import GuardSubject, GuardTenant
from ullage_node.model.slices import HeldSlice, Pod
from ullage_node.model.standstill import Standstill
from ullage_node.times import FREEZE_MOST_S

RUNNING: Final = (SlicePhase.ATTACHED, SlicePhase.FAILED)
"""Phases in which a container's processes are known to run."""


def tenants(
    held: Iterable[HeldSlice],
    attachments: Mapping[ContainerKey, Attachment],
    pods: Mapping[str, Pod],
) -> tuple[GuardTenant, ...]:
    """All tenants of the node's devices, in order of their keys."""
    running: list[GuardTenant] = []
    ordered = sorted(held, key=lambda part: part.desired.key)
    for key, group in groupby(ordered, key=lambda part: part.container):
        parts = list(group)
        pids = attachments[key].pids if key in attachments else ()
        if parts[0].phase in RUNNING and parts[0].desired.pod_name and pids:
            running.append(_tenant(key, parts, pids, pods.get(key.pod_uid)))
    here = Counter(tenant.gang for tenant in running)
    sizes = {pod.uid: pod.standstill.members for pod in pods.values()}
    return tuple(
        replace(tenant, gang_here=here[tenant.gang] >= sizes.get(tenant.key.pod_uid, 1))
        if tenant.gang
        else tenant
        for tenant in running
    )


def subjects(
    held: Iterable[HeldSlice], progress: Mapping[ContainerKey, StepProgress]
) -> tuple[GuardSubject, ...]:
    """Containers with an objective, and the step time that it is relative to."""
    guarded: list[GuardSubject] = []
    for part in held:
        wanted = part.desired
        if wanted.key.index or part.phase not in RUNNING:
            continue
        if not wanted.max_slowdown_percent and wanted.slo is None:
            continue
        made = progress.get(part.container, StepProgress())
        guarded.append(
            GuardSubject(
                key=part.container,
                max_slowdown_percent=wanted.max_slowdown_percent,
                solo_micros=made.solo_micros(wanted.solo_step_micros),
            )
        )
    return tuple(guarded)


def _tenant(
    key: ContainerKey, parts: list[HeldSlice], pids: tuple[int, ...], pod: Pod | None
) -> GuardTenant:
    first = parts[0].desired
    bears = pod.standstill if pod else Standstill()
    patience = bears.patience_of(key.container)
    half = FREEZE_MOST_S if patience is None else patience / 2
    return GuardTenant(
        key=key,
        namespace=first.pod_namespace,
        pod=first.pod_name,
        gpus=tuple(sorted({part.desired.gpu for part in parts})),
        percent=first.percent,
        epoch=first.epoch,
        priority=first.priority,
        protected=first.protected,
        probation=first.probation,
        alert_only=first.alert_only,
        workload_class=first.workload_class,
        family=first.family,
        max_slowdown_percent=first.max_slowdown_percent,
        gang=bears.gang,
        freeze_seconds=min(FREEZE_MOST_S, half),
        pids=pids,
        leaving=pod is None or pod.deleting or not all(part.in_spec for part in parts),
    )
