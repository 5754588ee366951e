# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Facts about a tenant in its slice, so that node agent and guard need no other object.

Only class and objective; place and size of the slice are decided elsewhere.
"""

from __future__ import annotations

import math
from typing import Final

from ullage.api.gpurequest import LaneMemory
from ullage.api.slices import DesiredSlice, SliceKey
from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.scheduling.prediction.workload_classes import Known

SLOWDOWN_PERCENT: Final = (100, 100_000)
"""Range of an objective in a GPUNode; a slowdown above a thousand is no objective."""
LANE_PERCENT_MOST: Final = 99
"""Largest share of a lane: to a node, 100 % is a whole device without neighbours."""
LONGEST_MICROS: Final = 86_400_000_000
"""Upper bound of a step: one day."""
_NOWHERE = SliceKey(pod_uid="", container="")


def slice_facts(workload: WorkloadRecord, facts: Known, model: int) -> DesiredSlice:
    """A slice without place and size, with the class and the objective of its workload."""
    allowed = facts.tenants[model].max_slowdown if model not in facts.barred else None
    allowed = workload.max_slowdown if allowed is None else allowed
    lane, turns = workload.gpu.lane, takes_turns(workload)
    return DesiredSlice(
        key=_NOWHERE,
        pod_namespace=workload.ref.namespace,
        pod_name="",
        gpu="",
        percent=0,
        memory_mib=0,
        epoch=0,
        protected=has_objective(workload),
        workload_class=workload.workload_class,
        family=workload.family,
        trust_domain=workload.trust_domain,
        max_slowdown_percent=slowdown_percent(allowed),
        solo_step_micros=min(facts.solo_micros[model], LONGEST_MICROS),
        slo=workload.slo,
        alert_only=has_objective(workload) and not workload.sharing.freeze_neighbours,
        reports_load=workload.scaling is not None,
        persistent_mib=lane.persistent_mib if lane is not None else 0,
        ephemeral_mib=lane.ephemeral_mib if lane is not None else 0,
        suspendable=turns is not None and not turns.cooperative,
        work_steps=workload.work_steps if lane is not None else 0,
    )


def injects(policy: PolicyRecord, workload: WorkloadRecord) -> bool:
    """True when the container of a workload gets the step hook from its node."""
    if workload.inject is not None:
        return workload.inject
    return policy.runtime.reaches(workload.ref.namespace)


def takes_turns(workload: WorkloadRecord) -> LaneMemory | None:
    """The memory of a workload whose pods may share a lane; ``None`` where each needs its own.

    A workload with an objective never waits for others. Members of a gang wait for each other in
    the middle of a step, so in shared lanes they could deadlock.
    """
    share = workload.gpu.share
    if share is None or share.min_percent > LANE_PERCENT_MOST:
        return None
    alone = workload.replicas == 1 and workload.elasticity is None
    gang = workload.kind is not WorkloadKind.INFERENCE_DEPLOYMENT and not alone
    if gang or not workload.sharing.allow or has_objective(workload):
        return None
    return workload.gpu.lane


def priority_held(priority: int) -> int:
    """A priority clamped to the 32 bits of Kubernetes and of a GPUNode."""
    return max(-(2**31), min(priority, 2**31 - 1))


def has_objective(workload: WorkloadRecord) -> bool:
    """True when the workload has an objective for which its neighbours may be stopped."""
    return (workload.max_slowdown, workload.min_throughput, workload.slo) != (None, None, None)


def slowdown_percent(allowed: float | None) -> int:
    """A slowdown in percent for a GPUNode, rounded down so that it never allows more; 0 = none.

    Clamped to the range of a GPUNode: the API would reject all its slices for one out of range.
    """
    if allowed is None:
        return 0
    least, most = SLOWDOWN_PERCENT
    return max(least, math.floor(min(100 * allowed + 1e-6, most)))
