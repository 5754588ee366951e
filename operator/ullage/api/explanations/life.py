# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the reasons of the life of a workload mean. Standard library only; decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.api.explanations.explained import Explanation, say
from ullage.api.reasons import Reason

LIFE: Final[Mapping[Reason, Explanation]] = {
    Reason.PLACED: say("Every member has its slices.", "Nothing; status.placement lists them."),
    Reason.RESERVING: say(
        "The slices are chosen and their nodes are asked to hold them.",
        "Nothing; it takes seconds.",
    ),
    Reason.STARTING: say(
        "All slices are held; the pods are being bound and started.",
        "Nothing. If it lasts, look at the pods' events: image pulls take place here.",
    ),
    Reason.RUNNING: say("Every member runs.", "Nothing."),
    Reason.LOST_RACE: say(
        "kubelet did not admit the pod because something else took the room first; the pod is "
        "made again, and this does not count as a failure.",
        "Nothing. If it repeats, look for pods on the node that take resources outside the "
        "scheduler.",
    ),
    Reason.FOREIGN_POD: say(
        "A pod names this workload as its owner, and the operator did not create it: its name, "
        "owner or API group is not the one that the operator gives. It is left alone, gets no "
        "device, and counts for nothing.",
        "Find out who made the pod and delete it; keep the chart's admission policy on "
        "(admissionPolicy.enabled), which refuses such pods.",
    ),
    Reason.STUCK_UNSCHEDULED: say(
        "The pod was released to its node and the scheduler has not bound it; it is placed again.",
        "Read the scheduler's message, which this one repeats.",
    ),
    Reason.STUCK_NOT_STARTED: say(
        "The pod is bound and its container did not start in time; it is placed again.",
        "Read the pod's events and the slice's reason in the GPUNode.",
    ),
    Reason.PREEMPTED: say(
        "Its devices were needed by one of higher priority, or by one that is owed more time on "
        "them; this one was asked to checkpoint and waits for its turn.",
        "Wait, or raise its priority class or its weight.",
    ),
    Reason.EVICTION_NOTICE: say(
        "The provider, or the administrator, has said that a machine is taken away; the "
        "node takes nothing new, and what runs there is moved in time.",
        "Nothing; the message names the node and the moment, and docs/notices.md the order in "
        "which work leaves.",
    ),
    Reason.SPOT_INTERRUPTED: say(
        "A pod is on a machine that is about to be taken away, or on a node that an autoscaler is "
        "removing: a job saves its work and starts again elsewhere, uncounted; a replica is "
        "replaced before it goes, where there is room.",
        "Nothing. If work is lost, give the job spec.checkpoint and save on SIGTERM within the "
        "notice, which is 30 seconds to two minutes with most providers.",
    ),
    Reason.MEMBER_LOST: say(
        "A member vanished (node lost, evicted, deleted): the gang starts again, uncounted.",
        "Nothing; the message names the member.",
    ),
    Reason.SIZED: say(
        "The elastic gang has as many members as there was room for when it started.",
        "Nothing; it grows when there is lasting room for more.",
    ),
    Reason.SHRUNK: say(
        "The elastic gang goes on with fewer members, from its checkpoint or in place: a member or "
        "its node was lost, less room was found, or work of higher priority needed the devices.",
        "Nothing; it grows again when there is lasting room. Add nodes, or raise its priority "
        "class if others took its devices.",
    ),
    Reason.GROWN: say(
        "The elastic gang goes on with more members, from its checkpoint or in place: there was "
        "lasting room.",
        "Nothing; lower elasticity.maxReplicas if it should not.",
    ),
    Reason.RESTART_LIMIT: say(
        "A member failed and failurePolicy.maxRestarts was used up.",
        "Read the log of the failed pod, correct the cause and create the job again.",
    ),
    Reason.EXIT_CODE: say(
        "A member ended with an exit code that failurePolicy.retryExitCodes does not retry.",
        "Read the log of the failed pod, or add the code to retryExitCodes.",
    ),
    Reason.COMPLETED: say("The work is done without an error.", "Nothing."),
    Reason.WITHIN_OBJECTIVE: say("The observed slowdown keeps the objective.", "Nothing."),
    Reason.ABOVE_OBJECTIVE: say(
        "The observed slowdown is above the objective.",
        "See the neighbours with `kubectl ullage top`; a WorkloadProfile that states the real "
        "use lets the next decision avoid it.",
    ),
    Reason.INVALID_OBJECT: say(
        "The newest version of the object cannot be used; the last good one stays in force.",
        "Correct the field that the message names.",
    ),
    Reason.DECISION_FAILED: say(
        "No decision can be made about the object; its pods and devices stay as they are, and all "
        "other objects are decided.",
        "Correct the field that the message names. If none is wrong, report it with the object's "
        "YAML and the operator's log line `set aside`.",
    ),
    Reason.SOLVER_TIMEOUT: say(
        "A decision took longer than its deadline; the last good plan stands.",
        "If it repeats, look at ullage_decision_seconds and give the operator more CPU.",
    ),
    Reason.SOLVER_CRASHED: say(
        "The decision process ended unexpectedly; the last good plan stands.",
        "Read the operator's log, and raise its memory limit if it was killed for memory.",
    ),
    Reason.WRITE_REFUSED: say(
        "The API server keeps refusing a write of the operator or the agent.",
        "Read the message: usually a missing permission or CRDs older than the product; upgrade "
        "the chart ullage-crds.",
    ),
}
"""Reasons that a workload meets once it has its devices."""
