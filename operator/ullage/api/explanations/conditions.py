# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Explains when a condition is True, and whether that is good. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.api.explanations.explained import ConditionExplanation
from ullage.api.reasons import ConditionType


def _when(true_when: str, *, good: bool = True) -> ConditionExplanation:
    return ConditionExplanation(true_when=true_when, good_when_true=good)


CONDITIONS: Final[Mapping[ConditionType, ConditionExplanation]] = {
    ConditionType.ADMITTED: _when(
        "every member has a slice in a GPUNode's spec; False carries the binding reason"
    ),
    ConditionType.PLACED: _when("every member is bound and its slices are Prepared or later"),
    ConditionType.READY: _when(
        "TrainingJob: every member runs; InferenceDeployment: all replicas are ready; GPUNode: the "
        "agent is registered with kubelet and serves"
    ),
    ConditionType.ENFORCED: _when("every slice is Attached under verified limits"),
    ConditionType.SLO_MET: _when(
        "the observed slowdown or latency is within the objective in at least two of the last "
        "three windows; absent without an objective or an observation"
    ),
    ConditionType.ROUTER_READY: _when(
        "pods of the router are ready and the Service leads to them; absent without spec.batching"
    ),
    ConditionType.FINISHED: _when(
        "the job has ended; the reason is Completed or that of the failure"
    ),
    ConditionType.COMPLETE: _when("the job has ended well, as the condition of a Job says it"),
    ConditionType.DEADLINE_SAFE: _when(
        "the remaining work and a restart fit before the deadline; with objective Deadline"
    ),
    ConditionType.RECOVERABLE: _when(
        "the state of a job in tiers survives the loss of its transient members"
    ),
    ConditionType.NOTICE_FEASIBLE: _when(
        "members of a job in tiers can hand over their pending state in half of the shortest "
        "notice of its pools; absent if no pool states noticeSeconds"
    ),
    ConditionType.PLANNED: _when(
        "a trial has ended, so status.groups shows when groups will have ended; absent once the "
        "search has ended (TuningJob)"
    ),
    ConditionType.AS_RECOMMENDED: _when(
        "the job has the type and number of devices that status.recommendation names first; False "
        "carries what stands in the way; absent without an aim or a cap in spec.cost"
    ),
    ConditionType.SCALING_ACTIVE: _when(
        "the replicas of a service follow its objective; False while its load is not known; absent "
        "without scaling.policy SLO (InferenceDeployment)"
    ),
    ConditionType.LATE_BINDING: _when(
        "the container runtime reads the CDI files that hand over a slice (GPUNode)"
    ),
    ConditionType.RETIRED: _when("the agent has left the node on request (GPUNode)"),
    ConditionType.SHARING: _when(
        "absent while sharing works fully on every GPU; False names the GPUs where it does not, "
        "and why (GPUNode)"
    ),
    ConditionType.FRESH: _when("the measured values hold for the running work (WorkloadProfile)"),
    ConditionType.PRICE_FRESH: _when(
        "the price is accepted and less than six hours old (CapacityPool)"
    ),
    ConditionType.HAZARD_KNOWN: _when(
        "the hazard rests on observations more than on the prior (CapacityPool)"
    ),
    ConditionType.ISOLATED: _when(
        "the class faulted a device and shares devices with itself alone; absent otherwise "
        "(WorkloadProfile)",
        good=False,
    ),
    ConditionType.STALLED: _when(
        "trials are due, and for ten minutes none has run, started or ended; absent otherwise "
        "(TuningJob)",
        good=False,
    ),
    ConditionType.POOL_TOO_SMALL: _when(
        "no device could take a waiting trial even if the cluster were empty; absent otherwise "
        "(TuningJob)",
        good=False,
    ),
    ConditionType.CONFLICTING: _when(
        "a declared speed differs from the measured one by more than a fifth (WorkloadProfile)",
        good=False,
    ),
    ConditionType.DEADLINE_INFEASIBLE: _when(
        "the work and two restarts take longer than the deadline allows; the job is not started",
        good=False,
    ),
    ConditionType.FAILED: _when(
        "the job has ended in failure, as the condition of a Job says it", good=False
    ),
    ConditionType.DEGRADED: _when("something does not work as it should", good=False),
    ConditionType.INVALID: _when(
        "the newest version of the object is unusable and the last good one stays in force",
        good=False,
    ),
    ConditionType.SOLVER_DEGRADED: _when(
        "decisions are late or fail and the last good plan stays in force (SchedulingPolicy)",
        good=False,
    ),
    ConditionType.DEVICE_LOST: _when(
        "the driver no longer finds one of the node's devices (GPUNode)", good=False
    ),
}
"""Every condition type."""
