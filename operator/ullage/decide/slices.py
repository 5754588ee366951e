# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What a slice says of its tenant, so that node and guard need no other object.

Facts of class and objective only; where it lies and how large it is, is decided elsewhere.
"""

from __future__ import annotations

import math

from ullage.api.contract import DesiredSlice, SliceKey
from ullage.decide.sharing.classes import Known
from ullage.state.records import WorkloadRecord

_NOWHERE = SliceKey(pod_uid="", container="")


def said_of(workload: WorkloadRecord, known: Known, model: int) -> DesiredSlice:
    """A slice without place and size that says whose it is and what it must keep."""
    allowed = known.tenants[model].max_slowdown if model not in known.barred else None
    allowed = workload.max_slowdown if allowed is None else allowed
    return DesiredSlice(
        key=_NOWHERE,
        pod_namespace=workload.ref.namespace,
        pod_name="",
        gpu="",
        percent=0,
        memory_mib=0,
        epoch=0,
        protected=has_objective(workload),
        klass=workload.klass,
        family=workload.family,
        trust_domain=workload.trust_domain,
        max_slowdown_percent=slowdown_percent(allowed),
        solo_step_micros=known.solo_micros[model],
        slo=workload.slo,
        alert_only=has_objective(workload) and not workload.sharing.freeze_neighbours,
    )


def has_objective(workload: WorkloadRecord) -> bool:
    """Whether there is anything that its neighbours may be stopped for."""
    return (workload.max_slowdown, workload.min_throughput, workload.slo) != (None, None, None)


def slowdown_percent(allowed: float | None) -> int:
    """A slowdown on the wire; rounded down, so that rounding never allows more; 0 = none."""
    return math.floor(100 * allowed + 1e-6) if allowed is not None else 0
