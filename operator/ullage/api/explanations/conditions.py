# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""When a condition is true, and whether that is good. Standard library only; decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.api.explanations.explained import ConditionExplanation
from ullage.api.reasons import ConditionType


def _when(true_when: str, *, good: bool = True) -> ConditionExplanation:
    return ConditionExplanation(true_when=true_when, good_when_true=good)


CONDITIONS: Final[Mapping[ConditionType, ConditionExplanation]] = {
    ConditionType.ADMITTED: _when(
        "every member has a slice in a GPUNode's spec; False carries the reason that binds"
    ),
    ConditionType.PLACED: _when("every member is bound and its slices are Prepared or later"),
    ConditionType.READY: _when(
        "TrainingJob: every member runs; InferenceService: all replicas are ready; GPUNode: the "
        "agent is registered with kubelet and serves"
    ),
    ConditionType.ENFORCED: _when("every slice is Attached under verified limits"),
    ConditionType.SLO_MET: _when(
        "the observed slowdown or latency is within the objective in at least two of the last "
        "three windows; absent without an objective or an observation"
    ),
    ConditionType.FINISHED: _when(
        "the job has ended; the reason is Completed or that of the failure"
    ),
    ConditionType.DEADLINE_SAFE: _when(
        "work left and a restart fit into the time left until the deadline; with objective Deadline"
    ),
    ConditionType.RECOVERABLE: _when(
        "the state of a job in tiers survives the loss of its transient members"
    ),
    ConditionType.NOTICE_FEASIBLE: _when(
        "what is pending of a job in tiers is handed over in half of the shortest notice of its "
        "pools; absent where no pool states noticeSeconds"
    ),
    ConditionType.LATE_BINDING: _when(
        "the container runtime reads the files that hand over a slice (GPUNode)"
    ),
    ConditionType.RETIRED: _when("the agent has left the node on request (GPUNode)"),
    ConditionType.SHARING: _when(
        "absent while every GPU is shared as well as it can be; False names those that are not, "
        "and why (GPUNode)"
    ),
    ConditionType.FRESH: _when("the measured values hold for what runs now (WorkloadProfile)"),
    ConditionType.PRICE_FRESH: _when(
        "the price is believed and less than six hours old (CapacityPool)"
    ),
    ConditionType.HAZARD_KNOWN: _when(
        "the hazard comes from what was seen, more than from the prior (CapacityPool)"
    ),
    ConditionType.CONFLICTING: _when(
        "a declared speed is off by more than a fifth from the measured one (WorkloadProfile)",
        good=False,
    ),
    ConditionType.DEADLINE_INFEASIBLE: _when(
        "the work and two restarts take longer than the deadline allows; the job is not started",
        good=False,
    ),
    ConditionType.DEGRADED: _when("something does not work as it should", good=False),
    ConditionType.INVALID: _when(
        "the newest version of the object cannot be used and the last good one stands",
        good=False,
    ),
    ConditionType.SOLVER_DEGRADED: _when(
        "decisions do not come in time and the last good plan stands (SchedulingPolicy)",
        good=False,
    ),
    ConditionType.DEVICE_LOST: _when(
        "the driver no longer finds a device that it had (GPUNode)", good=False
    ),
}
"""Every condition type."""
